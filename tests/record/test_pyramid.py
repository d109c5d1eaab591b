"""The levels of a thread are those of its events, in whatever blocks they come, and as a file gives them back."""

from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from perfkit.record.levels import MAX_LEVEL, Slices, coarser, joined
from perfkit.record.store import Block, SliceFile, SliceWriter, _slices
from perfkit.record.tiles._nesting import depths
from perfkit.record.tiles._pyramid import Cascade, Total, pyramid

spans = st.lists(
    st.tuples(st.integers(-(10**7), 10**7), st.integers(0, 10**4) | st.integers(0, 10**7), st.integers(0, 4)),
    min_size=1,
    max_size=60,
)
anywhere = st.integers(-(2**63), 2**63 - 1)


def in_order(rows: list[tuple[int, int, int]]) -> np.ndarray:
    """Events as a pyramid takes them: start, duration, name and kinds."""
    ordered = sorted(rows, key=lambda row: (row[0], -row[1]))
    starts, durations, names = np.array(ordered, dtype=np.int64).T
    return np.stack([starts, durations, names, np.left_shift(1, names % 3)])


def events(rows: np.ndarray) -> Slices:
    starts, durations, names, kinds = rows
    depth = depths(starts, starts + durations)
    slices = Slices(depth, starts, starts + durations, np.ones_like(starts), durations, names, kinds)
    return slices.take(np.argsort(depth, kind="stable"))


def listed(rows: Slices) -> list[tuple[int, ...]]:
    return list(zip(*(getattr(rows, name).tolist() for name in Slices.__slots__), strict=True))


def made(rows: np.ndarray, size: int) -> tuple[list[Total], dict[int, Slices]]:
    """The levels of events that come in blocks of `size`."""

    def blocks() -> Iterator[np.ndarray]:
        return (rows[:, at : at + size] for at in range(0, rows.shape[1], size))

    parts: dict[int, list[Slices]] = {}
    totals, levels = pyramid(blocks, lambda level, slices: parts.setdefault(level, []).append(slices))
    assert sorted(parts) == levels
    return totals, {level: joined(parts[level]) for level in levels}


@settings(max_examples=60, deadline=None)
@given(spans, st.integers(1, 70))
def test_every_level_has_the_events_the_counts_and_the_times_of_the_store_for_blocks_of_any_size(rows, size):
    ordered = in_order(rows)
    totals, levels = made(ordered, size)
    whole = events(ordered)
    assert sum(total.count for total in totals) == len(rows)
    for slices in levels.values():
        for total in totals:
            at = slices.depth == total.depth
            assert (slices.count[at].sum(), slices.busy_ns[at].sum()) == (total.count, total.busy_ns)
            assert (slices.start_ns[at].min(), slices.end_ns[at].max()) == (total.start_ns, total.end_ns)
    for level, slices in levels.items():
        assert listed(slices) == listed(coarser(whole, level))


@settings(max_examples=40, deadline=None)
@given(spans)
def test_kept_levels_shrink_by_half_and_end_where_each_lane_is_one_slice(rows):
    totals, levels = made(in_order(rows), 100)
    sizes = [len(slices) for slices in levels.values()]
    assert all(2 * coarse <= fine for fine, coarse in pairwise(sizes))
    assert sizes[-1] < 2 * len(totals) or 2 * len(coarser(levels[max(levels)], MAX_LEVEL)) > sizes[-1]


@settings(max_examples=40, deadline=None)
@given(spans, st.integers(1, 9))
def test_all_levels_at_once_are_each_level_by_itself(rows, size):
    whole = events(in_order(rows))
    parts: dict[int, list[Slices]] = {}
    cascade = Cascade(range(1, MAX_LEVEL + 1), lambda level, slices: parts.setdefault(level, []).append(slices))
    for at in range(0, len(whole), size):
        cascade.add(whole.part(at, at + size))
    cascade.end()
    for level in range(1, MAX_LEVEL + 1):
        assert listed(joined(parts[level])) == listed(coarser(whole, level))


def written(path: Path, levels: dict[int, Slices], size: int) -> list[Block]:
    with SliceWriter(path) as file:
        for level, slices in levels.items():
            for at in range(0, len(slices), size):
                file.put(level, slices.part(at, at + size))
    return file.blocks


@pytest.mark.parametrize("block", [1, 7, 8192])
@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    rows=spans,
    window=st.tuples(st.integers(-(10**7), 10**7), st.integers(0, 10**6)),
)
def test_a_file_gives_the_slices_that_touch_a_window(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, block, rows, window):
    monkeypatch.setattr(_slices, "SLICES_PER_BLOCK", block)
    _, levels = made(in_order(rows), 60)
    file = SliceFile(tmp_path / "file", written(tmp_path / "file", levels, 3 * block))
    start_ns, end_ns = window[0], window[0] + window[1]
    for level, slices in levels.items():
        for chosen in ([0], [0, 1, 2], list(range(64))):
            at = (slices.start_ns <= end_ns) & (slices.end_ns >= start_ns) & np.isin(slices.depth, chosen)
            assert listed(file.read(level, chosen, start_ns, end_ns)) == listed(slices.take(at))


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(*[anywhere] * 7), min_size=1, max_size=20))
def test_packed_numbers_come_back_whatever_they_are(rows):
    columns = [np.array(column, dtype=np.int64) for column in zip(*rows, strict=True)]
    slices = Slices(*columns)
    assert listed(_slices._unpacked(_slices._packed(slices), len(rows))) == listed(slices)


@pytest.mark.parametrize(
    "damage", [lambda content: content[:-1], lambda content: content[:20] + b"?" + content[21:], lambda _: b""]
)
def test_a_damaged_file_is_an_error_not_other_slices(tmp_path: Path, damage):
    _, levels = made(in_order([(at * 1000, 500, 0) for at in range(50)]), 50)
    blocks = written(tmp_path / "file", levels, 50)
    content = (tmp_path / "file").read_bytes()
    (tmp_path / "file").write_bytes(damage(content))
    file = SliceFile(tmp_path / "file", blocks)
    with pytest.raises(OSError, match="damaged"):
        [file.read(level, [0], 0, 10**6) for level in levels]
