"""Sum, count and largest kernel of every rank equal an independent reading with the standard library, however a run is read."""

import csv
import gzip
import io
import json
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path

import pytest

from perfkit.core.resources import data_folder
from perfkit.core.run import LazyTables, Run
from perfkit.record import _state, workers
from perfkit.record.load import load

DATA = Path(__file__).parent.parent / "data" / "traces"
BUNDLED = data_folder() / "traces"
ASCEND = [BUNDLED / "torch_npu_2rank", DATA / "torch_npu_level0", DATA / "msinsight_trimmed", DATA / "synthetic_ms"]
KINETO = [BUNDLED / "kineto_resnet", *sorted(path.parent for path in (DATA / "kineto_tb_samples").rglob("*.json*"))]
DEVICE = {"kernel", "Kernel", "gpu_memcpy", "gpu_memset", "Memcpy", "Memset"}
Facts = tuple[int, int, str]
"""Count, sum of durations in ns, and name of the longest kernel with its duration."""


@pytest.fixture(autouse=True)
def empty_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PERFKIT_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(_state, "MIN_BYTES", 0)


def ns(text: str) -> int:
    return int((Decimal(text.strip()) * 1000).to_integral_value())


def facts(kernels: list[tuple[str, int]]) -> Facts:
    name, longest = max(kernels, key=lambda kernel: (kernel[1], kernel[0]))
    return len(kernels), sum(duration for _, duration in kernels), f"{name}: {longest}"


def plain_csv(path: Path) -> Facts:
    rows = csv.DictReader(io.StringIO(path.read_text(encoding="utf-8-sig")))
    return facts([(row["Name"].strip(), ns(row["Duration(us)"])) for row in rows if None not in row and None not in row.values()])


def plain_json(path: Path) -> Facts | None:
    content = path.read_bytes()
    text = gzip.decompress(content) if content.startswith(b"\x1f\x8b") else content
    document = json.loads(text, parse_float=str, parse_int=str, strict=False)
    events = document["traceEvents"] if isinstance(document, dict) else document
    kernels = [
        (event["name"], ns(event["dur"]))
        for event in events
        if event.get("ph") == "X" and event.get("cat") in DEVICE and "dur" in event and not event["dur"].startswith("-")
    ]
    return facts(kernels) if kernels else None


def of_run(run: Run) -> list[Facts]:
    found = []
    for rank in run.ranks:
        kernels = run.frame("kernels", ranks=[rank])
        if len(kernels):
            found.append(facts([(str(row["name"]), int(row["duration_ns"])) for row in kernels.to_dict("records")]))
    return sorted(found)


def in_processes(path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    with monkeypatch.context() as patch:
        patch.setattr(workers, "MIN_ITEMS", 1)
        patch.setattr(workers, "MIN_BYTES", 0)
        patch.setenv("PERFKIT_THREADS", "2")
        return load(path, cache=False)


def ways(path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[str, Run]]:
    """The same run read cold, from the cache and in processes."""
    yield "cold", load(path)
    kept = load(path)
    assert isinstance(kept.tables, LazyTables)
    yield "cached", kept
    yield "parallel", in_processes(path, monkeypatch)


@pytest.mark.parametrize("sample", ASCEND, ids=lambda path: path.name)
def test_ascend_kernels_are_those_of_the_files(sample: Path, monkeypatch: pytest.MonkeyPatch):
    expected = sorted(plain_csv(path) for path in sample.rglob("kernel_details.csv") if path.stat().st_size)
    assert expected
    for way, run in ways(sample, monkeypatch):
        assert of_run(run) == expected, way


@pytest.mark.parametrize("sample", KINETO, ids=lambda path: path.name)
def test_kineto_kernels_are_those_of_the_files(sample: Path, monkeypatch: pytest.MonkeyPatch):
    found = [plain_json(path) for path in sorted(sample.glob("*.json*")) if not path.name.startswith("EXPECTED")]
    expected = sorted(rank for rank in found if rank)
    assert expected
    for way, run in ways(sample, monkeypatch):
        read = of_run(run)
        assert set(read) <= set(expected), way
        left_out = [note for note in run.notes if "is left out" in note]
        assert len(read) + len(left_out) >= len(expected), way
