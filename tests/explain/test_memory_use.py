"""Memory over time: peaks survive thinning, blocks and curve agree, long lives, gaps."""

from functools import cache
from pathlib import Path

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from perfkit.core.errors import NotMeasuredError
from perfkit.core.resources import data_folder
from perfkit.core.run import Run
from perfkit.explain import memory_use
from perfkit.record import memory
from perfkit.record.format import Sink
from perfkit.record.load import load

TRACKER = Path(__file__).parents[1] / "data" / "traces" / "memory_tracker"


@cache
def profile() -> Run:
    return load(data_folder() / "traces" / "torch_npu_2rank")


def made_curve(sizes: list[int]) -> Run:
    sink = Sink()
    count = len(sizes)
    sink.add("memory_curve", rank=0, component="PTA", time_ns=list(range(0, 1000 * count, 1000)), allocated_bytes=sizes)
    return Run(name="made", kind="measured", format="made", tables=sink.tables())


def test_the_largest_component_comes_first_and_its_gap_is_at_its_peak():
    assert memory_use.components(profile(), 0)[:4] == ("PTA+GE", "PTA", "GE", "APP")
    found = memory_use.curve(profile(), 0)
    assert (found.allocated_peak_bytes, found.reserved_peak_bytes) == (1322299392, 1600913408)
    assert found.gap_bytes == 1600913408 - 1322299392


def test_a_component_with_reserved_memory_only_has_no_allocated_peak():
    found = memory_use.curve(profile(), 0, "APP")
    assert found.allocated_peak_bytes is None
    assert found.gap_bytes is None
    assert found.reserved_peak_bytes == 2216407040


@given(st.lists(st.integers(0, 10**9), min_size=1, max_size=3000))
def test_thinning_keeps_first_last_and_fullest(sizes: list[int]):
    found = memory_use.curve(made_curve(sizes), 0)
    drawn = found.frame["allocated_bytes"].tolist()
    assert len(drawn) <= memory_use.POINTS
    assert (drawn[0], drawn[-1], max(drawn)) == (sizes[0], sizes[-1], max(sizes))
    assert found.frame["time"].is_monotonic_increasing


@pytest.mark.parametrize("name", ["older", "newer"])
def test_a_curve_of_blocks_peaks_where_the_blocks_do(name: str):
    run = load(TRACKER / name)
    found, peak = memory_use.curve(run, 0), memory.live_peak(run.frame("memory_blocks"))
    assert (found.allocated_peak_bytes, found.peak_moment) == (peak.num_bytes, peak.moment)
    assert found.clock == "events of the allocator"


def test_virtual_memory_wins_the_gaps_that_the_allocator_states():
    assert memory_use.won_by_virtual_memory(load(TRACKER / "newer").frame("memory_blocks")) == 512 * 1024
    assert memory_use.won_by_virtual_memory(load(TRACKER / "older").frame("memory_blocks")) is None


def test_blocks_that_live_through_the_span_are_listed_without_weights():
    blocks = load(TRACKER / "newer").frame("memory_blocks")
    found = memory_use.long_lived(blocks, 5, 30, 1.0)
    assert "MatMul_1" in found["name"].tolist()
    assert "Load_w" not in found["name"].tolist()
    assert found["bytes"].is_monotonic_decreasing
    lenient = memory_use.long_lived(blocks, 5, 30, 0.5)
    assert len(lenient) > len(found)
    assert (lenient["alive_ratio"] >= 0.5).all()


def test_a_run_without_memory_says_how_to_record_it():
    empty = Run(name="made", kind="measured", format="made", tables={"steps": pd.DataFrame({"rank": [0]})})
    with pytest.raises(NotMeasuredError, match="memory_tracker:True"):
        memory_use.curve(empty, 0)
