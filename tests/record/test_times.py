"""Moments that cannot be true are counted, and never make or move a total."""

import gzip
import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from perfkit.core.run import Run
from perfkit.record.load import load
from perfkit.record.times import FAR_NS, middle_of, possible

TRACES = Path(__file__).parent.parent / "data" / "traces"
FOLDERS = {
    path.parent for name in ("hta", "kineto_h100", "kineto_tb_samples", "tracelens") for path in (TRACES / name).rglob("*.json*")
}
KINETO = [min(folder.glob("*.json*"), key=lambda path: (path.stat().st_size, path.name)) for folder in sorted(FOLDERS)]
"""Of each folder the smallest trace: what is one job or one profiler is spoilt alike."""
BAD = ["abc", 1e30, float("nan"), None, 0, -1, {}]
"""What profilers and damage put where a start belongs."""


def ns(*moments: int | None) -> pd.Series:
    return pd.Series(list(moments), dtype="Int64")


@pytest.mark.parametrize("origin", [10**18, 5 * 10**15, 1])
def test_missing_negative_and_far_moments_are_impossible(origin: int):
    moments = ns(origin + 5, origin + 7, None, -1, origin + 2 * FAR_NS, origin + 9)
    assert possible(moments, middle_of(moments)).tolist() == [True, True, False, False, False, True]


def test_a_moment_of_zero_is_possible_only_near_zero():
    assert possible(ns(0, 5, 9), middle_of(ns(0, 5, 9))).all()
    late = ns(0, 10**18, 10**18 + 5)
    assert possible(late, middle_of(late)).tolist() == [False, True, True]


def test_nothing_known_is_nothing_possible():
    assert middle_of(ns(None, -3)) is None
    assert possible(ns(None, 7), None).tolist() == [False, True]
    assert not len(possible(ns(), 5))


def _events() -> list[dict[str, object]]:
    base = 1_700_000_000_000_000
    call = {"ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernel", "pid": 1, "tid": 1, "dur": 1}
    kernel = {"ph": "X", "cat": "kernel", "name": "gemm", "pid": 0, "tid": 7, "dur": 10}
    step = {"ph": "X", "cat": "user_annotation", "name": "ProfilerStep#5", "pid": 1, "tid": 1, "ts": base, "dur": 2000}
    found: list[dict[str, object]] = [step]
    for number in range(191):
        args = {"correlation": number + 1}
        found.append(call | {"ts": base + number * 10, "args": args})
        found.append(kernel | {"ts": base + 5 + number * 10, "args": args | {"stream": 7}})
    return found


def _run(folder: Path, events: list[dict[str, object]]) -> Run:
    (folder / "rank0.json").write_text(json.dumps({"traceEvents": events}))
    return load(folder, cache=False)


@pytest.mark.parametrize("bad", BAD, ids=str)
def test_kernels_without_a_start_that_can_be_true_are_counted_as_lost_rows(tmp_path: Path, bad: object):
    events = _events()
    kernels = [event for event in events if event["cat"] == "kernel"]
    for kernel in kernels[:100]:
        kernel["ts"] = bad
    run = _run(tmp_path, events)
    lost = sum(dropped.count for dropped in run.dropped if dropped.table == "kernels")
    assert (len(run.frame("kernels")), lost) == (91, 100)
    assert run.steps()["computing_ns"].tolist() == [91 * 10_000]
    assert run.steps()["duration_ns"].iloc[0] <= 2_000_000


@pytest.mark.parametrize("bad", BAD, ids=str)
def test_launches_and_marks_without_a_start_are_counted(tmp_path: Path, bad: object):
    events = _events()
    next(event for event in events if event["cat"] == "cuda_runtime")["ts"] = bad
    events.append(events[0] | {"name": "ProfilerStep#6", "ts": bad})
    run = _run(tmp_path, events)
    assert sum(dropped.count for dropped in run.dropped) == run.frame("accounts")["lost"].sum() == 2
    assert run.steps()["step"].tolist() == [5]


@pytest.mark.parametrize("path", KINETO, ids=lambda path: path.name)
def test_on_traces_of_every_origin_rows_kept_and_rows_lost_are_the_events_of_the_file(tmp_path: Path, path: Path):
    content = path.read_bytes()
    content = gzip.decompress(content) if content[:2] == b"\x1f\x8b" else content
    document = json.loads(content, strict=False)
    events = document if isinstance(document, list) else document.get("traceEvents", [])
    categories = {"kernel", "Kernel", "gpu_memcpy", "gpu_memset", "Memcpy", "Memset"}
    device = [event for event in events if isinstance(event, dict) and event.get("cat") in categories and event.get("ph") == "X"]
    for index in np.random.default_rng(5).permutation(len(device))[: len(device) // 3]:
        device[index]["ts"] = BAD[index % len(BAD)]
    (tmp_path / "rank0.json").write_text(json.dumps(document))
    run = load(tmp_path, cache=False)
    lost = sum(dropped.count for dropped in run.dropped if dropped.table == "kernels")
    assert len(run.frame("kernels")) + lost == len(device)
    assert lost == len(device) // 3
