"""Host tables: `host` and `launches` of every rank, and others like them, read when they are asked for, one rank at a time.

What is lost of a file is counted when it is read for its device side; events of the host without a time are left out of these. Rows
beyond a few MiB wait in a temporary file.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import lru_cache, partial
from threading import RLock
from typing import Any

import pandas as pd

from perfkit.core.run import LazyTable, empty
from perfkit.record.format import Sink, stacked

TABLES = ("host", "launches")
_KEPT_RANKS = 2
_MANY_ROWS = 1_000_000
"""What takes about 30 MiB in memory; of more the frames stay apart."""

Frames = Iterable[pd.DataFrame]


def offer(sink: Sink, ranks: Iterable[int], read: Callable[[int], tuple[Frames, ...]], tables: Sequence[str] = TABLES) -> None:
    """Offer tables of `ranks` for later; `read` gives them for one rank in frames, without the column `rank`."""
    found = frozenset(ranks)
    if not found:
        return
    lock = RLock()

    @lru_cache(_KEPT_RANKS)
    def kept(rank: int) -> dict[str, list[pd.DataFrame] | Sink]:
        scratch = Sink()
        for name, frames in zip(tables, read(rank), strict=True):
            for frame in frames:
                columns: dict[str, Any] = {str(column): frame[column] for column in frame.columns}
                if len(frame):
                    scratch.add(name, rank=rank, **columns)
        return {name: scratch if scratch.count(name) > _MANY_ROWS else _whole(scratch, name) for name in tables}

    def pieces(name: str, rank: int, columns: Sequence[str]) -> Iterator[pd.DataFrame]:
        with lock:
            rows = kept(rank)[name] if rank in found else []
        frames = rows.pieces(name) if isinstance(rows, Sink) else iter(rows)
        return (frame.loc[:, list(columns)] for frame in frames)

    def rows(name: str, ranks: Sequence[int] | None, columns: Sequence[str] | None) -> pd.DataFrame:
        wanted = list(empty(name).columns) if columns is None else list(columns)
        chosen = sorted(found if ranks is None else found.intersection(ranks))
        frames = [frame for rank in chosen for frame in pieces(name, rank, wanted)]
        if len(frames) == 1:
            return frames[0]
        return stacked(frames, _texts(name)) if frames else empty(name).loc[:, wanted]

    sink.later.update(
        {name: LazyTable(ranks=found, num_rows=None, read=partial(rows, name), pieces=partial(pieces, name)) for name in tables}
    )


def _whole(sink: Sink, name: str) -> list[pd.DataFrame]:
    """The rows of a small table in one frame, so that asking for them again costs nothing."""
    frames = list(sink.pieces(name))
    return [stacked(frames, _texts(name))] if frames else []


def _texts(name: str) -> frozenset[str]:
    return frozenset(str(column) for column, dtype in empty(name).dtypes.items() if isinstance(dtype, pd.CategoricalDtype))
