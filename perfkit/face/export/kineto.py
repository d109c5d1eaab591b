"""Kineto: a run as JSON traces of the PyTorch profiler, one file a rank, which its viewers and analysers open.

Kernels have the names that CUDA libraries give them; which layer an operator is of is in its argument `scope`. Collectives carry
NCCL's metadata; a send and its receive are ncclDevKernel_SendRecv.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from perfkit.core.run import Run
from perfkit.face.export.rank_rows import Group, RankRows, groups_of, rank_rows, us
from perfkit.predict.simulate.operators import OPERATORS

STREAMS = {"computing": 7, "tp": 13, "cp": 15, "ep": 16, "dp": 17, "pp-send": 21, "pp-receive": 22, "world": 25}
KERNEL_OF = {operator.type: operator.kernel for operator in OPERATORS}
COPY = "gpu_memcpy"
NCCL = {
    "all_reduce": ("allreduce", "ncclDevKernel_AllReduce_Sum_bf16_RING_LL"),
    "all_gather": ("_allgather_base", "ncclDevKernel_AllGather_RING_LL"),
    "reduce_scatter": ("_reduce_scatter_base", "ncclDevKernel_ReduceScatter_Sum_bf16_RING_LL"),
    "all_to_all": ("all_to_allv", "ncclDevKernel_SendRecv"),
    "send_receive": ("sendrecv", "ncclDevKernel_SendRecv"),
    "send": ("send", "ncclDevKernel_SendRecv"),
    "receive": ("recv", "ncclDevKernel_SendRecv"),
}
_NCCL_ARGUMENTS = "(ncclDevKernelArgsStorage<4096ul>)"
_CATEGORY = {"operator": "cpu_op", "call": "cuda_runtime", "mark": "user_annotation", "python": "python_function"}
ELEMENT_BYTES = 2


def write_kineto(run: Run, folder: Path) -> None:
    """Write rank<n>.json for every rank of a run into an existing folder."""
    world = int(run.facts["num_devices"].value)
    for rank in run.ranks:
        with (folder / f"rank{rank}.json").open("w", encoding="utf-8") as file:
            rows, groups = rank_rows(run, rank), groups_of(run, rank)
            file.write(json.dumps(_head(run, rank, world, groups))[:-1] + ',\n"traceEvents": [\n')
            file.writelines(_joined(_events(rows, groups)))
            file.write("\n]}\n")


def _joined(lines: Iterator[str]) -> Iterator[str]:
    yield next(lines)
    for line in lines:
        yield ",\n" + line


def _head(run: Run, rank: int, world: int, groups: list[Group]) -> dict[str, Any]:
    name = str(run.facts["device_name"].value) if "device_name" in run.facts else "simulated device"
    configured = [
        {
            "pg_name": str(place),
            "pg_desc": group.label,
            "backend_config": "cuda:nccl",
            "pg_size": len(group.members),
            "ranks": list(group.members),
        }
        for place, group in enumerate(groups)
    ]
    return {
        "schemaVersion": 1,
        "deviceProperties": [{"id": 0, "name": name, "numSms": 108, "maxThreadsPerBlock": 1024, "warpSize": 32}],
        "distributedInfo": {"backend": "nccl", "rank": rank, "world_size": world, "pg_count": len(groups), "pg_config": configured},
        "record_shapes": 1,
        "displayTimeUnit": "ms",
        "traceName": f"rank{rank}.json",
    }


def _events(rows: RankRows, groups: list[Group]) -> Iterator[str]:
    host, thread = 20_000 + rows.rank, 20_000 + rows.rank
    for pid, label in ((host, "CPU"), (0, "GPU 0")):
        yield json.dumps({"name": "process_name", "ph": "M", "ts": 0, "pid": pid, "tid": 0, "args": {"name": "python"}})
        yield json.dumps({"name": "process_labels", "ph": "M", "ts": 0, "pid": pid, "tid": 0, "args": {"labels": label}})
    number = {group.name: (place, group) for place, group in enumerate(groups)}
    for place, row in enumerate(rows.kernels):
        yield from _launched(place, row, rows.collectives.get(place), number, (host, thread))
    for row in rows.host:
        yield (
            f'{{"ph":"X","cat":"{_CATEGORY[row["kind"]]}","name":{json.dumps(row["name"])},"pid":{host},"tid":{thread},'
            f'"ts":{us(row["start_ns"])},"dur":{us(row["duration_ns"])},"args":{{}}}}'
        )


def _launched(
    place: int, row: dict[str, Any], collective: dict[str, Any] | None, groups: dict[str, tuple[int, Group]], lane: tuple[int, int]
) -> Iterator[str]:
    """The operator of the host, its call and the kernel, with the arrow between them."""
    identity, stream = place + 1, STREAMS.get(str(row["stream"]), 7)
    launch, length = row["launch_ns"], row["launch_duration_ns"]
    arguments = {"stream": stream, "device": 0, "scope": row["name"]}
    category, name = ("kernel", KERNEL_OF.get(str(row["type"]), str(row["name"])))
    if row["kind"] == "copy":
        category = COPY
    if collective is not None:
        known, name = _collective(collective, groups)
        arguments |= known
    if row["input_shapes"]:
        arguments["Input Dims"] = [list(map(int, shape.split(","))) for shape in row["input_shapes"].split(";")]
    where, ids = f'"pid":{lane[0]},"tid":{lane[1]}', f'"External id":{identity}'
    at = us(launch)
    yield (
        f'{{"ph":"X","cat":"cpu_op","name":{json.dumps(row["operator"])},{where},"ts":{us(launch - length // 4)},'
        f'"dur":{us(length + length // 4)},"args":{{{ids}}}}}'
    )
    yield (
        f'{{"ph":"X","cat":"cuda_runtime","name":{json.dumps(row["call"])},{where},"ts":{at},"dur":{us(length)},'
        f'"args":{{{ids},"correlation":{identity}}}}}'
    )
    yield f'{{"ph":"s","id":{identity},"cat":"ac2g","name":"ac2g",{where},"ts":{at}}}'
    text = json.dumps(arguments)[1:-1]
    start = us(row["start_ns"])
    yield (
        f'{{"ph":"X","cat":"{category}","name":{json.dumps(name)},"pid":0,"tid":{stream},"ts":{start},"dur":{us(row["duration_ns"])},'
        f'"args":{{{ids},"correlation":{identity},{text}}}}}'
    )
    yield f'{{"ph":"f","id":{identity},"cat":"ac2g","name":"ac2g","pid":0,"tid":{stream},"ts":{start},"bp":"e"}}'


def _collective(row: dict[str, Any], groups: dict[str, tuple[int, Group]]) -> tuple[dict[str, Any], str]:
    place, group = groups[str(row["group"])]
    stated, kernel = NCCL[str(row["operation"])]
    elements = int(row["bytes"]) // ELEMENT_BYTES
    return {
        "Collective name": stated,
        "In msg nelems": elements,
        "Out msg nelems": elements,
        "Group size": len(group.members),
        "dtype": "BFloat16",
        "Process Group Name": str(place),
        "Process Group Description": group.label,
        "Process Group Ranks": str(list(group.members)),
    }, kernel + _NCCL_ARGUMENTS
