"""Tiles: any window of a timeline with at most two slices a pixel, however many events lie in it.

    lanes = perfkit.record.tiles.lanes(run, ranks=[0])
    frame = perfkit.record.tiles.window(run, lanes[:4], start_ns, end_ns, pixels=2000)

All moments here are on the common clock: that of the rank plus `run.clock[rank]`. Events whose start was not recorded are on no
timeline. Tiles of a rank are made when it is first asked for, and kept in the cache beside the run, so that a window of a run of
any size reads a few row groups; memory is bounded by what is asked for, not by the trace.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from threading import Lock, RLock

import numpy as np
import pandas as pd

from perfkit.core.errors import InputError
from perfkit.core.run import Run
from perfkit.core.texts import say
from perfkit.core.units import MIB, THIN_SPACE
from perfkit.record.levels import MAX_LEVEL, MERGED, Ints, Slices, coarser, level_for, width_ns
from perfkit.record.tiles._rank_tiles import Lane, RankTiles, Report, Thread, is_kept, rank_tiles

__all__ = ["COLUMNS", "MIXED", "Coded", "Lane", "coded_window", "events", "is_kept", "lanes", "slices_text", "window"]

COLUMNS = ("lane", "start_ns", "end_ns", "name", "kind", "count", "busy_ns")
_TEXTS = ("name", "kind")
MIXED = "mixed"
"""The kind of a slice that stands for events of several kinds."""
MIN_PIXELS = 4
_KEPT_BYTES = 256 * MIB
_KEPT_RANKS = 256


def lanes(run: Run, *, ranks: Iterable[int] | None = None, report: Report | None = None) -> list[Lane]:
    """The lanes of some ranks, or of all, in the order of rank, process (device, host), thread and depth.

    Tiles that are not there yet are made: about 1 s a million events. `report` is called with the events of a rank that are done
    and those that there are; what it raises ends the work.
    """
    chosen = run.ranks if ranks is None else sorted(set(ranks))
    found = [lane for rank in chosen for thread in _tiles(run, rank, report).threads.values() for lane in thread.lanes]
    aligned = [
        replace(lane, start_ns=lane.start_ns + shift, end_ns=lane.end_ns + shift)
        for lane in found
        for shift in [run.clock.get(lane.rank, 0)]
    ]
    return sorted(aligned, key=lambda lane: (lane.rank, lane.process, len(lane.thread), lane.thread, lane.depth))


def window(run: Run, lanes: Sequence[Lane], start_ns: int, end_ns: int, pixels: int) -> pd.DataFrame:
    """What some lanes show between two moments, each at most 2 x `pixels` slices, in the order of lane and start.

    Columns: `lane` (its index in `lanes`), `start_ns` and `end_ns` (int64, not cut at the window), `name`, `kind`, `count` (events
    that the slice stands for) and `busy_ns` (the sum of their durations). A slice of several events is called "12 481 slices", and
    its kind is MIXED if theirs differ; it lies between the first start and the last end of events that are shorter than its bucket,
    a power of two of 1 us that is at least a pixel wide. At an edge it may count events up to a bucket outside of the window, so
    that it is the same in every window that shows it. Where a pixel is less than 1 us the slices are the events themselves, unless
    they are too many. Raises ValueError if the window is empty or has fewer than 4 pixels.
    """
    if end_ns <= start_ns or pixels < MIN_PIXELS:
        raise ValueError(f"a window needs a length and at least {MIN_PIXELS} pixels, not [{start_ns}, {end_ns}) in {pixels}")
    by_thread: dict[tuple[int, str, str], dict[int, int]] = {}
    for index, lane in enumerate(lanes):
        by_thread.setdefault((lane.rank, lane.process, lane.thread), {})[lane.depth] = index
    frames = [_rows(run, key, depths, (start_ns, end_ns), pixels) for key, depths in by_thread.items()]
    return _joined(frames)


@dataclass(frozen=True, slots=True)
class Coded:
    """A window of one thread without texts: `rows` on the common clock, the lane of each, and what names and kinds stand for.

    `rows.name` is an index in `names`, or MERGED; `rows.kinds` has the bits of `kinds`.
    """

    rows: Slices
    lane: Ints
    names: tuple[str, ...]
    kinds: tuple[str, ...]

    def kind_of(self, bits: int) -> str:
        """The one kind of a slice, or MIXED."""
        return _kind(bits, self.kinds)


def coded_window(run: Run, lanes: Sequence[Lane], start_ns: int, end_ns: int, pixels: int) -> Coded:
    """As `window`, for lanes of one thread in the order of their depth, with numbers for texts: what a browser is sent."""
    threads = {(lane.rank, lane.process, lane.thread) for lane in lanes}
    if end_ns <= start_ns or pixels < MIN_PIXELS or len(threads) != 1:
        raise ValueError(f"no window [{start_ns}, {end_ns}) in {pixels} pixels of {len(threads)} threads")
    depths = {lane.depth: index for index, lane in enumerate(lanes)}
    return _coded(run, threads.pop(), depths, (start_ns, end_ns), pixels)


def events(run: Run, lanes: Sequence[Lane], start_ns: int, end_ns: int) -> pd.DataFrame:
    """The events themselves that touch a window, however many, in the order of lane and start, with the columns of `window`.

    For searches and sums: ask for a long time in parts, because every event takes about 70 bytes.
    """
    by_thread: dict[tuple[int, str, str], dict[int, int]] = {}
    for index, lane in enumerate(lanes):
        by_thread.setdefault((lane.rank, lane.process, lane.thread), {})[lane.depth] = index
    frames = [_rows(run, key, depths, (start_ns, end_ns), None) for key, depths in by_thread.items()]
    return _joined(frames)


def slices_text(count: int) -> str:
    """How a slice of several events is called."""
    return say("{num} slices", num=f"{count:,}".replace(",", THIN_SPACE))


def _joined(frames: Sequence[pd.DataFrame]) -> pd.DataFrame:
    if not frames:
        return pd.DataFrame({name: pd.Series(dtype="object" if name in _TEXTS else "int64") for name in COLUMNS})
    return pd.concat(frames, ignore_index=True).sort_values(["lane", "start_ns"], kind="stable", ignore_index=True)


def _rows(
    run: Run, key: tuple[int, str, str], depths: Mapping[int, int], span_ns: tuple[int, int], pixels: int | None
) -> pd.DataFrame:
    """The frame of the lanes of one thread; `depths` gives the index of each. Without `pixels` it holds the events themselves."""
    return _frame(_coded(run, key, depths, span_ns, pixels))


def _coded(run: Run, key: tuple[int, str, str], depths: Mapping[int, int], span_ns: tuple[int, int], pixels: int | None) -> Coded:
    rank, process, name = key
    shift = run.clock.get(rank, 0)
    here_ns = (span_ns[0] - shift, span_ns[1] - shift)
    tiles = _tiles(run, rank)
    if (process, name) not in tiles.threads:
        raise InputError("timeline", [f"rank {rank} has no thread {name!r} of {process!r}"])
    try:
        rows = _shown(tiles, tiles.threads[process, name], depths, here_ns, pixels)
    except OSError:  # someone deleted the cache
        _forget(run, rank)
        tiles = _tiles(run, rank)
        rows = _shown(tiles, tiles.threads[process, name], depths, here_ns, pixels)
    index = np.full(max(depths) + 1, -1)
    index[list(depths)] = list(depths.values())
    if shift:
        rows = replace(rows, start_ns=rows.start_ns + shift, end_ns=rows.end_ns + shift)
    return Coded(rows, index[rows.depth], tiles.names, tiles.kinds)


def _shown(tiles: RankTiles, thread: Thread, depths: Iterable[int], span_ns: tuple[int, int], pixels: int | None) -> Slices:
    """The finest level with at most two slices a pixel; the events if there are no pixels."""
    chosen = list(depths)
    if pixels is None:
        return _at(tiles, thread, 0, chosen, span_ns)
    level = level_for(span_ns[1] - span_ns[0], pixels)
    rows = _at(tiles, thread, level, chosen, span_ns)
    while level < MAX_LEVEL and len(rows) and np.bincount(rows.depth).max() > 2 * pixels:
        level += 1
        rows = _at(tiles, thread, level, chosen, span_ns)
    return rows


def _at(tiles: RankTiles, thread: Thread, level: int, depths: Sequence[int], span_ns: tuple[int, int]) -> Slices:
    """The slices of a level that touch a window, made from all of their events, also those outside of it."""
    start_ns, end_ns = span_ns
    width = width_ns(level)
    low, high = ((start_ns // width - 1) * width, -(-end_ns // width) * width) if width else span_ns
    rows = coarser(tiles.read(thread, level, depths, low, high), level)
    return rows.take((rows.start_ns < end_ns) & ((rows.end_ns > start_ns) | (rows.start_ns >= start_ns)))


def _frame(coded: Coded) -> pd.DataFrame:
    rows = coded.rows
    texts = np.array([*coded.names, ""], dtype=object)[rows.name]
    for at in np.flatnonzero(rows.name == MERGED):
        texts[at] = slices_text(int(rows.count[at]))
    of_kinds = {int(bits): coded.kind_of(int(bits)) for bits in np.unique(rows.kinds)}
    return pd.DataFrame(
        {
            "lane": coded.lane,
            "start_ns": rows.start_ns,
            "end_ns": rows.end_ns,
            "name": texts,
            "kind": np.array([of_kinds[int(bits)] for bits in rows.kinds], dtype=object),
            "count": rows.count,
            "busy_ns": rows.busy_ns,
        }
    )


def _kind(bits: int, kinds: Sequence[str]) -> str:
    return kinds[bits.bit_length() - 1] if bits & (bits - 1) == 0 else MIXED


_Key = tuple[int | str, int]
_OPENED: OrderedDict[_Key, tuple[Run | None, RankTiles]] = OrderedDict()
_MAKING: dict[_Key, Lock] = {}
_LOCK = RLock()


def _tiles(run: Run, rank: int, report: Report | None = None) -> RankTiles:
    """The tiles of a rank, opened or made once; those used least recently go first when they take too much memory.

    A run without an entry in the cache is known by its identity, which is its own as long as it is held here. While those of one
    rank are made, those of the others can be had.
    """
    key = (run.cache_key or id(run), rank)
    with _LOCK:
        if (known := _held(key)) is not None:
            return known
        making = _MAKING.setdefault(key, Lock())
    with making:
        with _LOCK:
            if (known := _held(key)) is not None:  # somebody else made them meanwhile
                return known
        made = rank_tiles(run, rank, report)
        with _LOCK:
            _OPENED[key] = (None if run.cache_key else run, made)
            while len(_OPENED) > 1 and (len(_OPENED) > _KEPT_RANKS or _opened_bytes() > _KEPT_BYTES):
                _OPENED.popitem(last=False)
            _MAKING.pop(key, None)
        return made


def _held(key: _Key) -> RankTiles | None:
    if key not in _OPENED:
        return None
    _OPENED.move_to_end(key)
    return _OPENED[key][1]


def _opened_bytes() -> int:
    return sum(tiles.num_bytes for _, tiles in _OPENED.values())


def _forget(run: Run, rank: int) -> None:
    with _LOCK:
        _OPENED.pop((run.cache_key or id(run), rank), None)
