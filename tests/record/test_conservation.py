"""Conservation: every event of a file is in one step, before the first, after the last, or lost; counted again in plain Python."""

from __future__ import annotations

import csv
import gzip
import json
from collections import defaultdict
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from perfkit.explain.summary import summarize
from perfkit.record.load import load

ROOT = Path(__file__).parents[2]
SAMPLES = [ROOT / "tests/data/traces", ROOT / "data/traces"]
ON_DEVICE = {"kernel", "Kernel", "gpu_memcpy", "gpu_memset", "Memcpy", "Memset"}
CALLS = {"cuda_runtime", "cuda_driver", "Runtime"}
PARTS = ("assigned", "before", "after", "lost")


def content_of(path: Path) -> bytes:
    content = path.read_bytes()
    return gzip.decompress(content) if content[:2] == b"\x1f\x8b" else content


def is_trace(path: Path) -> bool:
    return b'"traceEvents"' in content_of(path) and b'"cat"' in content_of(path)


FILES = [path for root in SAMPLES for pattern in ("**/*.json", "**/*.json.gz") for path in sorted(root.glob(pattern))]
TRACES = [path for path in FILES if is_trace(path)]
TABLES = sorted(path for root in SAMPLES for path in root.glob("**/kernel_details.csv"))


def spans_in(events: list[dict[str, Any]]) -> int:
    """What has a duration: X events, and pairs of B and E on one thread."""
    open_, pairs = defaultdict(int), 0
    for event in events:
        thread = event.get("pid"), event.get("tid")
        if event.get("ph") == "B":
            open_[thread] += 1
        elif event.get("ph") == "E" and open_[thread]:
            open_[thread] -= 1
            pairs += 1
    return pairs + sum(event.get("ph") == "X" for event in events)


def test_there_are_samples_of_every_kind():
    assert len(TRACES) > 20
    assert len(TABLES) > 5


@pytest.mark.parametrize("path", TRACES, ids=lambda path: str(path.relative_to(ROOT)))
def test_every_event_of_a_trace_is_accounted_for_and_the_first_step_holds_only_its_own(path):
    events = json.loads(content_of(path), parse_float=Decimal)["traceEvents"]
    run = load(path, cache=False)
    counts = summarize(run)["events"]
    assert counts["in_file"] == spans_in(events)
    assert sum(counts[part] for part in PARTS) == counts["in_file"]
    assert counts["lost"] == 0
    kernels, steps = run.frame("kernels"), run.steps().set_index("step")
    assert kernels["step"].isna().sum() <= counts["before"] + counts["after"]
    assert set(kernels["step"].dropna()) <= set(steps.index)
    if (first := first_step(events)) is not None:
        assert steps.loc[first[0], "duration_ns"] == pytest.approx(int(first[1] * 1000), rel=1e-3)


@pytest.mark.parametrize("path", TABLES, ids=lambda path: str(path.relative_to(ROOT)))
def test_every_row_of_a_table_of_kernels_is_accounted_for(path):
    with path.open(encoding="utf-8", newline="") as lines:
        rows = sum(1 for row in csv.reader(lines) if any(cell.strip() for cell in row)) - 1
    run = load(path.parent, cache=False)
    counts = summarize(run)["events"]
    assert counts["in_file"] == rows
    assert sum(counts[part] for part in PARTS) == counts["in_file"]
    assert counts["lost"] == sum(lost.count for lost in run.dropped if lost.file.endswith("kernel_details.csv"))


@pytest.mark.parametrize(
    "name", ["ascend_trace_view/rank0_ascend_pt", "ascend_trace_view/single_npu", "msprof_export", "mindinsight", "msprof_db"]
)
def test_other_formats_account_for_every_event_of_every_file(name):
    run = load(SAMPLES[0] / name, cache=False)
    accounts = run.frame("accounts")
    assert accounts["in_file"].gt(0).all()
    assert accounts["in_file"].tolist() == accounts[list(PARTS)].sum(axis=1).tolist()
    assert accounts["lost"].sum() <= sum(lost.count for lost in run.dropped)


def first_step(events: list[dict[str, Any]]) -> tuple[int, Decimal] | None:
    """Number and length in us of the first step on the device, from nothing but the definition."""
    marks = sorted(
        (event["ts"], event["ts"] + event["dur"], int(event["name"].partition("#")[2]))
        for event in events
        if event.get("ph") == "X"
        and str(event.get("name")).startswith("ProfilerStep#")
        and event.get("cat") in {"user_annotation", "cpu_op", "Operator"}
    )
    device = [event for event in events if event.get("cat") in ON_DEVICE]
    if not marks or not device:
        return None
    launched: dict[int, Any] = {}
    for event in events:
        correlation = event.get("args", {}).get("correlation") if event.get("cat") in CALLS else None
        if correlation:
            launched[correlation] = min(event["ts"], launched.get(correlation, event["ts"]))
    first, following = marks[0], [mark[0] for mark in marks[1:]]
    earlier_end, own_end = first[0], first[0]
    for event in device:
        correlation = event["args"].get("correlation", 0)
        call = launched.get(correlation) if correlation and launched else event["ts"]
        if call is None:
            before = [known for known in launched if known < correlation]
            call = launched[max(before)] if before else Decimal("-Infinity")
        end = event["ts"] + event["dur"]
        if call < first[0]:
            earlier_end = max(earlier_end, end)
        elif call < (following[0] if following else first[1]):
            own_end = max(own_end, end)
    return first[2], max(following[0] if following else first[1], own_end) - earlier_end


@pytest.mark.parametrize(
    ("name", "step", "device_ms", "host_ms"),
    [
        ("hta/negative_queue_length", 550, 216.3, 209.7),
        ("hta/trace_diff/test.json.gz", 1009, 118.1, 100.3),
        ("hta/trace_compare", 1009, 118.1, 100.3),
    ],
)
def test_published_first_steps_are_reproduced_beside_the_mark_of_the_host(name, step, device_ms, host_ms):
    summary = summarize(load(SAMPLES[0] / name, cache=False), step=step)
    row = summary["ranks"][0]["steps"][0]
    assert (row["duration_ns"] / 1e6, row["host_duration_ns"] / 1e6) == pytest.approx((device_ms, host_ms), abs=0.06)


def test_an_early_copy_on_another_stream_does_not_begin_the_step(tmp_path):
    """Work of the step before runs on while the first copy of the recorded step is already done."""
    rows = [
        ("user_annotation", "ProfilerStep#4", 0, 100, {}),
        ("cuda_runtime", "copy", 5, 1, {"correlation": 50}),
        ("cuda_runtime", "launch", 8, 1, {"correlation": 60}),
        ("gpu_memcpy", "c", 6, 2, {"correlation": 50, "stream": 9}),
        ("kernel", "old", 1, 69, {"correlation": 49, "stream": 7}),
        ("kernel", "lost call", 71, 9, {"correlation": 55, "stream": 7}),
        ("kernel", "new", 80, 40, {"correlation": 60, "stream": 7}),
    ]
    keys = ("cat", "name", "ts", "dur", "args")
    events = [{"ph": "X", "pid": 0, "tid": 1, **dict(zip(keys, row, strict=True))} for row in rows]
    (tmp_path / "rank0.json").write_text(json.dumps({"traceEvents": events}), encoding="utf-8")
    run = load(tmp_path, cache=False)
    assert run.frame("kernels").set_index("name")["step"].to_dict() == {"c": 4, "old": None, "lost call": 4, "new": 4}
    assert run.steps()[["start_ns", "duration_ns", "host_duration_ns"]].to_numpy().tolist() == [[70_000, 50_000, 100_000]]
    assert summarize(run)["events"] == {"in_file": 7, "assigned": 6, "before": 1, "after": 0, "lost": 0}
    assert any("launched before the first recorded step" in note for note in run.notes)
