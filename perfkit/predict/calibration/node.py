"""Node: products and collectives measured on the machine on which perfkit runs, as tables that `calibrate_with` reads.

PyTorch (CUDA, or Ascend by torch_npu) or MindSpore must be installed beside perfkit; perfkit itself needs neither. A product is
timed over repetitions that last a fifth of a second, after three that do not count; the middle one of three such runs is kept. What
the time does not suffice for is left out and told.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from statistics import median
from typing import Any, Protocol

import pandas as pd

from perfkit.core.errors import InputError
from perfkit.core.spec.hardware import HardwareSpec
from perfkit.core.units import MIB
from perfkit.predict.calibration.link_rates import is_of_another_device
from perfkit.predict.calibration.ranks import all_reduces

ROWS = (1024, 4096, 8192)
WEIGHTS = ((4096, 4096), (1024, 8192), (4096, 14336), (14336, 4096), (8192, 8192))
"""Depth and columns of products with weights: those of layers of 7 to 70 billion parameters, whole and split over tensor ranks."""
SIZES = tuple(MIB * 4**power for power in range(5))
REPEATED_S, RUNS, WARM_UP, MOST = 0.2, 3, 3, 1000
SECONDS = 300.0
PRODUCTS_SHARE = 0.6
"""Of the time, for products where there are collectives too."""


class Backend(Protocol):
    """A library that computes on accelerators of this machine; `device_name` is what it calls one, "" for a processor."""

    @property
    def name(self) -> str:
        """The library and its release."""

    @property
    def device_name(self) -> str:
        """See the class."""

    @property
    def num_devices(self) -> int:
        """Accelerators of this machine that it can use."""

    def product(self, rows: int, depth: int, columns: int) -> Callable[[], None]:
        """What runs a product in 16 bits of ready operands once, without waiting for it."""

    def wait(self) -> None:
        """Return when all that was started has ended."""

    def all_reduce_s(self, num_ranks: int, sizes: Sequence[int], seconds: float) -> dict[int, float]:
        """Seconds of an all-reduce by its size in bytes over so many ranks; empty where the library is not started that way.

        Raises InputError where it fails.
        """


@dataclass(frozen=True, slots=True)
class Node:
    """What was measured, and in words what was `left_out`.

    Columns of `products` are accelerator, op, shape and share_of_peak, of `collectives` operation, n_devices, n_nodes, size_bytes
    and time_ns.
    """

    backend: str
    products: pd.DataFrame
    collectives: pd.DataFrame
    left_out: tuple[str, ...]

    @property
    def texts(self) -> dict[str, str]:
        """The tables by kind as texts in CSV; one without rows is left out."""
        tables = {"products": self.products, "collectives": self.collectives}
        return {kind: table.to_csv(index=False) for kind, table in tables.items() if not table.empty}


def find_backend(kind: str = "") -> Backend:
    """The library that reaches an accelerator here; `kind` asks for one: cuda, npu, mindspore, or cpu to try.

    Raises InputError that says what was looked for and what is missing.
    """
    missing: list[str] = []
    if find_spec("torch") is None:
        missing.append("torch is not installed beside perfkit")
    elif (found := _of_torch(kind)) is not None:
        return found
    else:
        missing.append(f"torch is here but sees no accelerator{f' of kind {kind}' if kind else ''}")
    if kind in ("", "mindspore") and find_spec("mindspore") is not None:
        return _MindSpore()
    missing.append("mindspore is not installed beside perfkit")
    advice = "install perfkit where the training runs, or give perfkit calibrate what nccl-tests or hccl_test printed"
    raise InputError("measure", [f"{'; '.join(missing)}: {advice}"])


def measure_node(
    backend: Backend, device: HardwareSpec, *, seconds: float = SECONDS, clock: Callable[[], float] = time.perf_counter
) -> Node:
    """Measure this machine for so many seconds; what has begun by then ends.

    Raises InputError for a time that is none, and on another device.
    """
    problems = [] if seconds > 0 else [f"seconds = {seconds:g} must be positive"]
    if backend.device_name and is_of_another_device(backend.device_name, device):
        problems.append(f"{backend.name} runs on {backend.device_name!r} here, not on {device.name}")
    if problems:
        raise InputError("measure", problems)
    start, several = clock(), backend.num_devices > 1
    products, left_out = _products(backend, device, start + seconds * (PRODUCTS_SHARE if several else 1.0), clock)
    collectives, lost = _collectives(backend, start + seconds, clock)
    if products.empty:
        raise InputError("measure", [f"{seconds:g} s suffice for no product; give more"])
    return Node(backend.name, products, collectives, (*left_out, *lost))


def _products(backend: Backend, device: HardwareSpec, end: float, clock: Callable[[], float]) -> tuple[pd.DataFrame, list[str]]:
    peak, found, left_out = device.peak("bfloat16"), [], []
    for rows, (depth, columns) in ((rows, weight) for rows in ROWS for weight in WEIGHTS):
        shape = f"b=1, m={rows}, k={depth}, n={columns}"
        if clock() >= end:
            left_out.append(f"product {shape}: no time was left")
            continue
        share = 2.0 * rows * depth * columns / _seconds(backend, backend.product(rows, depth, columns), clock) / peak
        found.append({"accelerator": device.name, "op": "matmul", "shape": shape, "share_of_peak": share})
    return pd.DataFrame(found), left_out


def _seconds(backend: Backend, run: Callable[[], None], clock: Callable[[], float]) -> float:
    def timed(times: int) -> float:
        start = clock()
        for _ in range(times):
            run()
        backend.wait()
        return (clock() - start) / times

    timed(WARM_UP)
    times = max(1, min(MOST, round(REPEATED_S / max(timed(1), 1e-9))))
    return median(timed(times) for _ in range(RUNS))


def _collectives(backend: Backend, end: float, clock: Callable[[], float]) -> tuple[pd.DataFrame, list[str]]:
    found: list[dict[str, Any]] = []
    left_out: list[str] = []
    for ranks in _groups(backend.num_devices):
        try:
            times = backend.all_reduce_s(ranks, SIZES, max(0.0, end - clock()))
        except InputError as error:
            left_out += error.problems
            continue
        left_out += [f"all-reduce of {size // MIB} MiB over {ranks} ranks" for size in SIZES if size not in times]
        found += [
            {"operation": "all_reduce", "n_devices": ranks, "n_nodes": 1, "size_bytes": size, "time_ns": round(1e9 * duration)}
            for size, duration in times.items()
        ]
    return pd.DataFrame(found), left_out


def _groups(num_devices: int) -> Iterator[int]:
    """The whole node first, as the others count against it."""
    if num_devices > 1:
        yield num_devices
    yield from (ranks for ranks in (2, 4) if ranks < num_devices)


def _of_torch(kind: str) -> Backend | None:
    torch = import_module("torch")
    if find_spec("torch_npu") is not None:
        import_module("torch_npu")  # Registers torch.npu.
    for name in ("cuda", "npu"):
        module = getattr(torch, name, None)
        if kind in ("", name) and module is not None and module.is_available():
            return _Torch(torch, name, module.get_device_name(0), module.device_count(), module.synchronize)
    return _Torch(torch, "cpu", "", 2, lambda: None) if kind == "cpu" else None


@dataclass(frozen=True, slots=True)
class _Torch:
    """PyTorch on devices of one kind."""

    torch: Any
    kind: str
    device_name: str
    num_devices: int
    synchronize: Callable[[], None]

    @property
    def name(self) -> str:
        """With the release and the kind of device."""
        return f"torch {self.torch.__version__} ({self.kind})"

    def product(self, rows: int, depth: int, columns: int) -> Callable[[], None]:
        torch = self.torch
        left, right = (torch.randn(shape, dtype=torch.bfloat16, device=self.kind) for shape in ((rows, depth), (depth, columns)))
        out = torch.empty((rows, columns), dtype=torch.bfloat16, device=self.kind)

        def run() -> None:
            torch.matmul(left, right, out=out)

        return run

    def wait(self) -> None:
        self.synchronize()

    def all_reduce_s(self, num_ranks: int, sizes: Sequence[int], seconds: float) -> dict[int, float]:
        return all_reduces(self.kind, num_ranks, sizes, seconds)


class _MindSpore:
    """MindSpore on one device: its ranks are started by msrun, so that it measures products alone."""

    def __init__(self) -> None:
        self._mindspore = import_module("mindspore")
        self.name = f"mindspore {self._mindspore.__version__}"
        self.device_name, self.num_devices = "", 1

    def product(self, rows: int, depth: int, columns: int) -> Callable[[], None]:
        mindspore = self._mindspore
        left, right = (mindspore.ops.ones(shape, mindspore.bfloat16) for shape in ((rows, depth), (depth, columns)))

        def run() -> None:
            mindspore.ops.matmul(left, right)

        return run

    def wait(self) -> None:
        self._mindspore.runtime.synchronize()

    def all_reduce_s(self, num_ranks: int, sizes: Sequence[int], seconds: float) -> dict[int, float]:
        """None: see the class."""
        del num_ranks, sizes, seconds
        return {}
