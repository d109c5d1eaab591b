"""Ranks: an all-reduce over devices of this machine, by one process a device that PyTorch starts."""

from __future__ import annotations

import json
import socket
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from importlib import import_module
from pathlib import Path

from perfkit.core.errors import InputError

BACKENDS = {"cuda": "nccl", "npu": "hccl", "cpu": "gloo"}
WARM_UP, TIMES, RUNS = 2, 10, 3
LEAST_S = 5.0
"""Below which no processes are started: their start takes about as long."""


@dataclass(frozen=True, slots=True)
class Task:
    """What every process is told: its kind of device, how many there are, where they meet, and what is measured."""

    kind: str
    num_ranks: int
    port: int
    sizes: tuple[int, ...]
    seconds: float
    target: str


def all_reduces(kind: str, num_ranks: int, sizes: Sequence[int], seconds: float) -> dict[int, float]:
    """Seconds of an all-reduce in 32 bits by its size in bytes; sizes for which no time is left are missing.

    Raises InputError where a process fails, with its last words.
    """
    if seconds < LEAST_S:
        return {}
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    with tempfile.TemporaryDirectory() as folder:
        found = Path(folder) / "times.json"
        processes = import_module("torch.multiprocessing")
        try:
            processes.spawn(_rank, args=(Task(kind, num_ranks, port, tuple(sizes), seconds, str(found)),), nprocs=num_ranks)
        except processes.ProcessException as error:
            reason = str(error).strip().splitlines()[-1]
            raise InputError("measure", [f"an all-reduce over {num_ranks} ranks failed: {reason}"]) from error
        return {int(size): duration for size, duration in json.loads(found.read_text(encoding="utf-8")).items()}


def _rank(rank: int, task: Task) -> None:
    """One process; the first of them decides which sizes are measured and writes their times."""
    kind = task.kind
    torch, started = import_module("torch"), time.perf_counter()
    if kind == "npu":
        import_module("torch_npu")
    module = getattr(torch, kind)
    if kind != "cpu":
        module.set_device(rank)
    torch.distributed.init_process_group(
        BACKENDS[kind],
        init_method=f"tcp://127.0.0.1:{task.port}",
        rank=rank,
        world_size=task.num_ranks,
        timeout=timedelta(seconds=120),
    )
    place, times = f"{kind}:{rank}" if kind != "cpu" else "cpu", {}
    for size in task.sizes:
        goes_on = torch.tensor([float(time.perf_counter() - started < task.seconds)], device=place)
        torch.distributed.broadcast(goes_on, 0)
        if not float(goes_on):
            break
        values = torch.zeros(size // 4, dtype=torch.float32, device=place)
        runs = []
        for times_now in (WARM_UP, *(TIMES,) * RUNS):
            torch.distributed.barrier()
            module.synchronize()
            start = time.perf_counter()
            for _ in range(times_now):
                torch.distributed.all_reduce(values)
            module.synchronize()
            runs.append((time.perf_counter() - start) / times_now)
        times[size] = sorted(runs[1:])[RUNS // 2]
    torch.distributed.destroy_process_group()
    if rank == 0:
        Path(task.target).write_text(json.dumps(times), encoding="utf-8")
