"""Host tables: `host` and `launches` of every rank, and others like them, read when they are asked for, one rank at a time.

What has no time that can be true (`perfkit.record.times`) is left out, and counted unless that was done when the file was read for
its device side; executions keep their row without the time. Rows beyond a few MiB wait in a temporary file.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from functools import partial
from threading import RLock
from typing import Any

import pandas as pd

from perfkit.core.run import LazyTable, empty
from perfkit.record import times
from perfkit.record.format import Sink, stacked, texts_of

TABLES = ("host", "launches")
_KEPT_RANKS = 2
_MANY_ROWS = 1_000_000
"""What takes about 30 MiB in memory; of more the frames stay apart, and no more than `_KEPT_RANKS` ranks are kept."""

Frames = Iterable[pd.DataFrame]
_Rows = dict[str, list[pd.DataFrame] | Sink]
"""The rows of one rank by table, in a temporary file if they are many."""


def offer(
    sink: Sink,
    ranks: Iterable[int],
    read: Callable[[int], tuple[Frames, ...]],
    tables: Sequence[str] = TABLES,
    *,
    counted: Collection[str] = ("launches",),
    holds: Callable[[str, int], bool] = lambda _name, _rank: True,
) -> None:
    """Offer tables of `ranks` for later; `read` gives them for one rank in frames, without the column `rank`.

    What is lost of the tables `counted` was said already. A rank is not read for a table that it does not hold.
    """
    found = frozenset(ranks)
    if not found:
        return
    lock = RLock()
    told: set[tuple[int, str]] = set()

    held: dict[int, _Rows] = {}

    def kept(rank: int) -> _Rows:
        """The rows of a rank; those asked for last stay, as many as are small together."""
        held[rank] = held.pop(rank) if rank in held else read_in(rank)
        while len(held) > _KEPT_RANKS and sum(map(_num_rows, held.values())) > _MANY_ROWS:
            del held[next(iter(held))]
        return held[rank]

    def read_in(rank: int) -> _Rows:
        scratch = Sink()
        judge = _Judge()
        for name, frames in zip(tables, read(rank), strict=True):
            for frame in map(judge.sound, frames):
                columns: dict[str, Any] = {str(column): frame[column] for column in frame.columns}
                if len(frame):
                    scratch.add(name, rank=rank, **columns)
            if name not in counted and (rank, name) not in told:
                told.add((rank, name))
                sink.drop(f"{name}: a moment that is missing, or no time of this recording", judge.take(), f"rank {rank}", name)
        return {name: scratch if scratch.count(name) > _MANY_ROWS else _whole(scratch, name) for name in tables}

    def pieces(name: str, rank: int, columns: Sequence[str]) -> Iterator[pd.DataFrame]:
        with lock:
            rows = kept(rank)[name] if rank in found and (rank in held or holds(name, rank)) else []
        frames = rows.pieces(name) if isinstance(rows, Sink) else iter(rows)
        return (frame.loc[:, list(columns)] for frame in frames)

    def rows(name: str, ranks: Sequence[int] | None, columns: Sequence[str] | None) -> pd.DataFrame:
        wanted = list(empty(name).columns) if columns is None else list(columns)
        chosen = sorted(found if ranks is None else found.intersection(ranks))
        frames = [frame for rank in chosen for frame in pieces(name, rank, wanted)]
        if len(frames) == 1:
            return frames[0]
        return stacked(frames, texts_of(name)) if frames else empty(name).loc[:, wanted]

    sink.later.update(
        {name: LazyTable(ranks=found, num_rows=None, read=partial(rows, name), pieces=partial(pieces, name)) for name in tables}
    )


class _Judge:
    """Leaves out of the frames of one rank what has no time that can be true, by the middle of the first frame with moments."""

    def __init__(self) -> None:
        self._middle_ns: int | None = None
        self._lost = 0

    def take(self) -> int:
        """How many rows were left out since the last time."""
        lost, self._lost = self._lost, 0
        return lost

    def sound(self, frame: pd.DataFrame) -> pd.DataFrame:
        """The rows whose moment can be true; those of executions all, without a moment that cannot."""
        name = next((name for name in ("time_ns", "start_ns") if name in frame), None)
        if name is None or frame.empty:
            return frame
        if self._middle_ns is None:
            self._middle_ns = times.middle_of(frame[name])
        if "launch_ns" in frame:
            moments = {column: frame[column].astype("Int64") for column in ("start_ns", "launch_ns")}
            return frame.assign(**{column: of.where(times.possible(of, self._middle_ns)) for column, of in moments.items()})
        good = times.possible(frame[name], self._middle_ns)
        self._lost += int((~good).sum())
        return frame if good.all() else frame[good]


def _whole(sink: Sink, name: str) -> list[pd.DataFrame]:
    """The rows of a small table in one frame, so that asking for them again costs nothing."""
    frames = list(sink.pieces(name))
    return [stacked(frames, texts_of(name))] if frames else []


def _num_rows(of_rank: _Rows) -> int:
    return sum(rows.count(name) if isinstance(rows, Sink) else sum(map(len, rows)) for name, rows in of_rank.items())
