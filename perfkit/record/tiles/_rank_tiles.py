"""Tiles of one rank: its threads and streams as levels of detail, made once and kept beside the run in the cache, or in memory.

An entry of the cache has `tiles.json` (threads, lanes, blocks, names, kinds) and a file of slices a thread.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from perfkit.core.run import LazyTables, Run
from perfkit.record import entries, store
from perfkit.record.levels import Ints, Slices, joined
from perfkit.record.tiles._pyramid import Total, pyramid
from perfkit.record.tiles.time_order import TimeOrder

KIND = "timelines"
_INDEX = "tiles.json"
_SOURCES = (("kernels", "device", "stream"), ("host", "host", "thread"), ("collectives", "communication", "group"))
"""Tables with what they are of and the column that tells threads apart; collectives only where no kernels are recorded."""
_TIMES = ("start_ns", "duration_ns")
Blocks = Callable[[], Iterator[Ints]]
Report = Callable[[int, int], None]
"""Called with the events that are done and those that there are."""
_PASSES = 3
"""How often the events of most threads are gone through once they were read."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Lane:
    """A row of a timeline: what one thread or stream of a rank did, slices that overlap in lanes of their own by `depth`.

    `count` events take `busy_ns` in all, between `start_ns` and `end_ns` on the common clock.
    """

    rank: int
    process: str
    thread: str
    depth: int
    count: int
    busy_ns: int
    start_ns: int
    end_ns: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Thread:
    """One thread or stream: its lanes, and the levels that are kept, with their slices in a file or in memory."""

    lanes: tuple[Lane, ...]
    levels: tuple[int, ...]
    file: store.SliceFile | None = None
    slices: dict[int, Slices] | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class RankTiles:
    """The threads of one rank."""

    threads: dict[tuple[str, str], Thread]
    names: tuple[str, ...]
    kinds: tuple[str, ...]

    @property
    def num_bytes(self) -> int:
        """Memory that the slices take."""
        kept = [slices for thread in self.threads.values() for slices in (thread.slices or {}).values()]
        return sum(len(slices) * len(Slices.__slots__) * 8 for slices in kept)

    def read(self, thread: Thread, level: int, depths: Sequence[int], start_ns: int, end_ns: int) -> Slices:
        """Slices of the finest kept level from which `level` can be made, that may touch [start_ns, end_ns].

        Raises OSError if the entry of the cache is gone.
        """
        kept = max(known for known in thread.levels if known <= level)
        if thread.file is not None:
            return thread.file.read(kept, depths, start_ns, end_ns)
        rows = (thread.slices or {})[kept]
        return rows.take(np.isin(rows.depth, depths) & (rows.start_ns <= end_ns) & (rows.end_ns >= start_ns))


def is_kept(run: Run, rank: int) -> bool:
    """Whether the tiles of a rank are in the cache."""
    return bool(run.cache_key) and (entries.entry(KIND, f"{run.cache_key}-{rank}") / _INDEX).is_file()


def rank_tiles(run: Run, rank: int, report: Report | None = None) -> RankTiles:
    """The tiles of a rank: from the cache if they are there, else made, and kept if the run is; `report` learns how far that is."""
    done = _Done(report, _expected(run))
    if not run.cache_key:
        return _in_memory(run, rank, done)
    folder = entries.entry(KIND, f"{run.cache_key}-{rank}")
    if (kept := _opened(folder)) is not None:
        return kept
    try:
        with entries.new_entry(folder) as work:
            index: dict[str, Any] = {"threads": []}

            def keep(process: str, thread: str, blocks: Blocks) -> Thread:
                with store.SliceWriter(work / f"{len(index['threads'])}.slices") as file:
                    totals, levels = pyramid(blocks, file.put)
                lanes = _lanes(rank, process, thread, totals)
                index["threads"].append({"lanes": [asdict(lane) for lane in lanes], "levels": levels, "blocks": file.blocks})
                return Thread(lanes=lanes, levels=tuple(levels))

            _, index["names"], index["kinds"] = _made(run, rank, keep, done)
            (work / _INDEX).write_text(json.dumps(index), encoding="ascii")
        entries.make_room()
    except OSError:
        return _in_memory(run, rank, done)
    return _opened(folder) or _in_memory(run, rank, done)


def _opened(folder: Path) -> RankTiles | None:
    try:
        index: dict[str, Any] = json.loads((folder / _INDEX).read_text(encoding="ascii"))
        threads = [
            Thread(
                lanes=tuple(Lane(**lane) for lane in thread["lanes"]),
                levels=tuple(thread["levels"]),
                file=store.SliceFile(folder / f"{number}.slices", [store.Block(*block) for block in thread["blocks"]]),
            )
            for number, thread in enumerate(index["threads"])
        ]
        found = _of(threads, index["names"], index["kinds"])
        entries.used(folder)
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return found


def _of(threads: Sequence[Thread], names: Sequence[str], kinds: Sequence[str]) -> RankTiles:
    by_name = {(thread.lanes[0].process, thread.lanes[0].thread): thread for thread in threads}
    return RankTiles(threads=by_name, names=tuple(names), kinds=tuple(kinds))


def _in_memory(run: Run, rank: int, done: _Done) -> RankTiles:
    def keep(process: str, thread: str, blocks: Blocks) -> Thread:
        parts: dict[int, list[Slices]] = {}
        totals, levels = pyramid(blocks, lambda level, rows: parts.setdefault(level, []).append(rows))
        slices = {level: joined(parts.pop(level)) for level in levels}
        return Thread(lanes=_lanes(rank, process, thread, totals), levels=tuple(levels), slices=slices)

    return _of(*_made(run, rank, keep, done))


class _Done:
    """How far the tiles of a rank are, in events: each is read and then gone through a few times."""

    def __init__(self, report: Report | None, expected: int) -> None:
        self._report, self._expected = report, expected
        self._read = self._passed = 0

    def read(self, num_events: int) -> None:
        """Some events were read."""
        self._read += num_events
        self._tell()

    def passing(self, blocks: Blocks) -> Iterator[Ints]:
        """The blocks of a thread, counted as they are gone through."""
        for block in blocks():
            yield block
            self._passed += block.shape[1]
            self._tell()

    def _tell(self) -> None:
        if self._report is not None:
            total = max(self._expected, self._read)
            self._report(min(total, (self._read + self._passed) // (1 + _PASSES)), total)


def _expected(run: Run) -> int:
    """The events of a rank, about; 0 where they are not counted yet."""
    known = (
        [run.tables.num_rows(table) or 0 for table, *_ in _SOURCES[:2] if table in run.tables]
        if isinstance(run.tables, LazyTables)
        else [len(run.tables[table]) for table, *_ in _SOURCES[:2] if table in run.tables]
    )
    return sum(known) // max(1, len(run.ranks))


def _made(
    run: Run, rank: int, keep: Callable[[str, str, Blocks], Thread], done: _Done
) -> tuple[list[Thread], list[str], list[str]]:
    """The threads of a rank, one after another, with the numbered names and kinds; `keep` makes the slices of one from its events.

    Events wait in a temporary file if they are many.
    """
    threads: list[Thread] = []
    names: dict[str, int] = {}
    kinds: dict[str, int] = {}
    for table, process, column in _SOURCES:
        if table == "collectives" and threads:
            continue
        labels: dict[str, int] = {}
        events = TimeOrder(4)
        columns = ["name", *(["kind"] if table != "collectives" else []), column, *_TIMES]
        for piece in run.pieces(table, rank=rank, columns=columns):
            rows = piece[piece["start_ns"].notna()]
            kind = rows["kind"] if "kind" in rows else pd.Series(["communication"] * len(rows), dtype="object")
            times = [rows[time].to_numpy(dtype=np.int64) for time in _TIMES]
            bits = np.left_shift(1, _numbered(kind, kinds))
            events.add(_numbered(rows[column], labels), [*times, _numbered(rows["name"], names), bits])
            done.read(len(rows))
        for thread, code in labels.items():
            threads.append(keep(process, thread, partial(done.passing, partial(events.blocks, code))))
    return threads, list(names), list(kinds)


def _numbered(texts: pd.Series, known: dict[str, int]) -> Ints:
    """Texts as numbers, null as the empty text; new ones are added to those `known`."""
    labels = pd.Categorical(texts).remove_unused_categories()
    numbers = [known.setdefault(str(text), len(known)) for text in labels.categories.tolist()]
    if (labels.codes < 0).any():
        numbers.append(known.setdefault("", len(known)))  # code -1 is the last one
    coded: Ints = np.array(numbers, dtype=np.int64)[labels.codes]
    return coded


def _lanes(rank: int, process: str, thread: str, totals: Sequence[Total]) -> tuple[Lane, ...]:
    return tuple(Lane(rank=rank, process=process, thread=thread, **asdict(total)) for total in totals)
