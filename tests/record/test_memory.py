"""Memory questions: the answers of made-up recordings, conservation laws, and other ways to count the same."""

import json
from functools import cache
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from perfkit.core.errors import InputError, NotMeasuredError
from perfkit.record import memory
from perfkit.record.format import Sink
from perfkit.record.load import load

SAMPLES = Path(__file__).parents[1] / "data" / "traces" / "memory_tracker"


@cache
def blocks_of(name: str) -> pd.DataFrame:
    return load(SAMPLES / name).frame("memory_blocks")


def expected(name: str) -> dict[str, Any]:
    answers: dict[str, Any] = json.loads((SAMPLES / name / "expected.json").read_text())
    return answers


def made(*rows: tuple[int | None, int | None, int]) -> pd.DataFrame:
    sink = Sink()
    starts, ends, sizes = zip(*rows, strict=True)
    sink.add("memory_blocks", rank=0, clock="ns", start=list(starts), end=list(ends), bytes=list(sizes))
    return sink.tables()["memory_blocks"]


@pytest.mark.parametrize("name", ["older", "newer"])
class TestMadeUpRecordings:
    """Every answer of the recordings that were made with their answers."""

    def test_the_live_peak_its_moment_and_its_blocks(self, name: str):
        answers, peak = expected(name), memory.live_peak(blocks_of(name))
        assert (peak.num_bytes, peak.moment) == (answers["live_peak_bytes"], answers["live_peak_time_stamp"])
        assert sorted(peak.blocks["address"], key=lambda address: int(address, 16)) == answers["peak_blocks"]
        assert memory.bytes_at_peak(peak) == answers["live_peak_by_type"]

    def test_the_use_peak_and_what_is_held_beyond_it(self, name: str):
        answers, peak = expected(name), memory.use_peak(blocks_of(name))
        assert (peak.num_bytes, peak.moment) == (answers["use_peak_bytes"], answers["use_peak_time_stamp"])
        assert memory.live_peak(blocks_of(name)).num_bytes - peak.num_bytes == answers["overhead_bytes"]

    def test_blocks_held_after_their_last_use(self, name: str):
        found = [
            {
                "device_addr": block.address,
                "task_name": block.name,
                "size_bytes": block.num_bytes,
                "last_use": block.last_use,
                "freed": block.freed,
                "held_after_last_use": block.held,
                "waste_byte_ticks": block.waste,
            }
            for block in memory.held_after_use(blocks_of(name))
        ]
        assert found == expected(name)["top_held"]

    def test_the_pool_and_its_gaps(self, name: str):
        (pool,) = memory.pools(blocks_of(name))
        stated = expected(name)["reported_pool_peak_bytes"]
        assert pool.reported_peak_bytes == stated
        assert pool.live_peak_bytes == expected(name)["live_peak_bytes"]
        assert pool.fragmentation_bytes == (None if stated is None else stated - pool.live_peak_bytes)

    def test_blocks_inside_others_are_counted_apart(self, name: str):
        blocks = blocks_of(name)
        answers = expected(name)
        inside = blocks["start"].isna() & blocks["end"].isna()
        assert (len(blocks), int(inside.sum())) == (answers["blocks"], answers["blocks_without_pool_time"])


def test_the_newer_recording_differs_from_the_older_by_the_block_that_leaks():
    found = memory.compare(blocks_of("older"), blocks_of("newer"))
    changed = found[found["change"] != 0]
    assert changed.to_dict("records") == [{"name": "Cast_9", "owner": "Cast", "bytes": 2097152, "ordinal": 0, "change": 2097152}]
    back = memory.compare(blocks_of("newer"), blocks_of("older"))
    assert int(back["change"].sum()) == -int(found["change"].sum())


def test_a_release_comes_before_an_allocation_of_the_same_moment():
    peak = memory.live_peak(made((0, 10, 5), (10, 20, 5)))
    assert (peak.num_bytes, peak.moment) == (5, 0)


def test_of_two_equal_peaks_the_first_counts():
    assert memory.live_peak(made((0, 1, 5), (2, 3, 5))).moment == 0


def test_a_block_from_before_the_recording_lives_from_its_first_moment():
    peak = memory.live_peak(made((None, 20, 7), (10, 15, 1)))
    assert (peak.num_bytes, peak.moment) == (8, 10)


def test_without_uses_nothing_is_said_about_them():
    blocks = made((0, 10, 5))
    with pytest.raises(NotMeasuredError, match="memory_tracker"):
        memory.use_peak(blocks)
    with pytest.raises(NotMeasuredError, match="memory_tracker"):
        memory.held_after_use(blocks)


def test_blocks_inside_others_alone_have_no_peak():
    with pytest.raises(NotMeasuredError):
        memory.live_peak(made((None, None, 5)))


def test_ranks_are_not_mixed():
    both = pd.concat([blocks_of("older"), blocks_of("newer").assign(rank=1)])
    with pytest.raises(InputError, match="2 different ranks"):
        memory.live_peak(both)


def test_an_unknown_grouping_is_refused():
    with pytest.raises(InputError, match="'colour'"):
        memory.bytes_at_peak(memory.live_peak(blocks_of("older")), "colour")


BLOCKS = st.lists(
    st.tuples(st.integers(0, 50), st.integers(0, 30), st.integers(1, 1000)).map(lambda row: (row[0], row[0] + row[1], row[2])),
    min_size=1,
    max_size=30,
)


@given(rows=BLOCKS)
def test_the_peak_equals_the_largest_sum_over_all_moments(rows: list[tuple[int, int, int]]):
    peak = memory.live_peak(made(*rows))
    sums = [sum(size for start, end, size in rows if start <= moment < end) for moment in range(82)]
    assert peak.num_bytes == max(sums)
    if max(sums):
        assert peak.moment == sums.index(max(sums))
        assert int(peak.blocks["bytes"].sum()) == peak.num_bytes
    assert sum(memory.bytes_at_peak(peak).values()) == peak.num_bytes
