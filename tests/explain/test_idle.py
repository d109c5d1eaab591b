"""Idle gaps: they sum to `free`, and their causes follow from the host."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from perfkit.core.errors import NotMeasuredError
from perfkit.core.resources import data_folder
from perfkit.core.run import Run
from perfkit.explain.idle import idle_breakdown, idle_gaps, idle_gaps_of
from perfkit.explain.launches import launch_summary, launches, unlinked
from perfkit.record.format import Sink
from perfkit.record.load import load
from perfkit.record.steps import Window, add_window_steps
from tests.explain.raw_events import TRACES, read


def _run(kernels: list[tuple[int, int, str, int | None]], host: list[tuple[str, int, int]] = [], end_ns: int = 1000) -> Run:  # noqa: B006
    """A step from 0 to the end; kernels are (start, duration, kind, launch), host events (name, start, duration)."""
    sink = Sink()
    columns: dict[str, Any] = {
        "rank": 0,
        "step": 1,
        "name": [f"k{at}" for at in range(len(kernels))],
        "kind": [kind for _, _, kind, _ in kernels],
        "start_ns": [start for start, _, _, _ in kernels],
        "duration_ns": [duration for _, duration, _, _ in kernels],
    }
    sink.add("kernels", **columns)
    sink.add(
        "launches", **columns, call="launch", launch_ns=[launch for *_, launch in kernels], launch_duration_ns=1, operator="op"
    )
    if host:
        names, starts, durations = zip(*host, strict=True)
        sink.add("host", rank=0, name=list(names), kind="operator", start_ns=list(starts), duration_ns=list(durations))
    add_window_steps(sink, rank=0, windows=[Window(1, 0, end_ns)], kernels=sink.tables()["kernels"])
    return Run(name="made", kind="measured", format="test", tables=sink.tables())


def _causes(run: Run) -> list[tuple[int, int, str]]:
    gaps = idle_gaps(run, rank=0, step=1)
    return [(row["start_ns"], row["duration_ns"], row["cause"]) for row in gaps.to_dict("records")]


def test_a_kernel_launched_after_the_device_was_idle_makes_the_host_late():
    run = _run([(0, 100, "computing", -5), (300, 700, "computing", 290)])
    assert _causes(run) == [(100, 200, "host")]


def test_a_kernel_launched_in_time_leaves_the_gap_to_the_device_or_its_peers():
    run = _run([(0, 100, "computing", -5), (150, 50, "computing", 1), (260, 740, "communication", 2)])
    assert _causes(run) == [(100, 50, "device"), (200, 60, "collective")]


def test_fetching_input_makes_it_a_data_gap_and_copies_are_apart():
    run = _run(
        [(500, 100, "copy", 490), (600, 400, "computing", 595)], host=[("enumerate(DataLoader)#_SingleProcess.__next__", 0, 480)]
    )
    assert _causes(run) == [(0, 500, "data"), (500, 100, "copying")]


def test_without_launches_the_cause_is_unknown():
    assert _causes(_run([(0, 10, "computing", None), (400, 600, "computing", None)])) == [(10, 390, "unknown")]


def test_a_blocking_call_is_named():
    run = _run([(0, 100, "computing", -5), (900, 100, "computing", 890)], host=[("cudaDeviceSynchronize", 90, 700)])
    assert idle_gaps(run, rank=0, step=1)["detail"].tolist() == ["cudaDeviceSynchronize"]


@settings(max_examples=40, deadline=None)
@given(
    st.lists(
        st.tuples(
            st.integers(0, 900), st.integers(0, 300), st.sampled_from(["computing", "communication", "copy"]), st.integers(-50, 900)
        ),
        min_size=1,
        max_size=12,
    )
)
def test_gaps_sum_to_the_free_time_of_the_step(kernels: list[tuple[int, int, str, int | None]]):
    run = _run(kernels, end_ns=1000)
    free = int(run.steps()["free_ns"].iloc[0])
    assert idle_gaps(run, rank=0, step=1)["duration_ns"].sum() == free
    assert idle_breakdown(run, rank=0, step=1).total == free


@pytest.mark.parametrize("sample", ["hta/nccl_parser_config", "hta/critical_path/simple_add"])
def test_real_gaps_sum_to_free_to_the_nanosecond(sample: str):
    run = read(sample)
    row = run.steps().iloc[0]
    breakdown = idle_breakdown(run, rank=int(row["rank"]), step=int(row["step"]))
    assert breakdown.total == row["free_ns"]
    assert breakdown.parts.get("host", 0) > 0


@pytest.mark.parametrize("sample", [data_folder() / "traces" / "kineto_resnet", TRACES / "kineto_h100", TRACES / "synthetic_ms"])
def test_gaps_of_all_steps_are_those_of_each(sample: Path):
    run = load(sample)
    steps = sorted(set(run.frame("steps", ranks=run.ranks[:1])["step"].tolist()))
    assert len(steps) > 1
    together = idle_gaps_of(run, rank=run.ranks[0], steps=steps)
    apart = pd.concat([idle_gaps(run, rank=run.ranks[0], step=step) for step in steps], ignore_index=True)
    pd.testing.assert_frame_equal(together, apart)


@settings(max_examples=60, deadline=None)
@given(
    st.lists(
        st.tuples(st.sampled_from(["item.item", "dataloader", "other"]), st.integers(0, 900), st.integers(0, 300)), max_size=12
    )
)
def test_what_the_host_did_in_a_gap_is_what_filled_at_least_half_of_it(host: list[tuple[str, int, int]]):
    run = _run([(0, 100, "computing", 0), (500, 500, "computing", 450)], host)

    def longest(name: str) -> int:
        return max((min(start + length, 500) - max(start, 100) for each, start, length in host if each == name), default=0)

    cause = "data" if longest("dataloader") >= 200 else "host"
    (gap,) = idle_gaps(run, rank=0, step=1).to_dict("records")
    assert gap["cause"] == cause
    named = "dataloader" if cause == "data" else "item.item" if longest("item.item") >= 200 else None
    assert gap["detail"] == named


def test_a_run_without_kernels_is_not_measured():
    with pytest.raises(NotMeasuredError):
        idle_gaps(Run(name="none", kind="measured", format="test", tables={}), rank=0, step=0)


def test_launches_are_linked_and_delayed():
    run = _run([(0, 100, "computing", -5), (150, 50, "computing", 1), (260, 40, "computing", 250), (400, 10, "computing", None)])
    rows = launches(run, rank=0)
    assert rows["delay_ns"].tolist()[:3] == [5, 149, 10]
    assert rows["queued_ns"].tolist()[:3] == [5, 50, 10]
    assert unlinked(run, rank=0) == 1
    assert launch_summary(run, rank=0)["count"].tolist() == [3, 1]


def test_every_kernel_of_a_real_trace_has_its_operator():
    run = read("hta/nccl_parser_config")
    rows = launches(run, rank=0)
    assert len(rows) == len(run.frame("kernels"))
    assert rows["launch_ns"].notna().all()
    assert rows["operator"].notna().all()
    assert (rows["delay_ns"] >= 0).all()
    assert rows["step"].value_counts().to_dict() == run.frame("kernels")["step"].value_counts().to_dict()
