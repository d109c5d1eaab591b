"""Host tables: `host` and `launches` of every rank, read when they are asked for, one rank at a time.

What is lost of a file is counted when it is read for its device side; events of the host without a time are left out of these.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache, partial
from threading import RLock
from typing import Any

import pandas as pd

from perfkit.run import LazyTable, empty
from perfkit.trace._format import Sink

TABLES = ("host", "launches")
_KEPT_RANKS = 2


def offer(sink: Sink, ranks: Iterable[int], read: Callable[[int], tuple[pd.DataFrame, pd.DataFrame]]) -> None:
    """Offer both tables of `ranks` for later; `read` gives them for one rank, without the column `rank`."""
    found = frozenset(ranks)
    if not found:
        return
    lock = RLock()

    @lru_cache(_KEPT_RANKS)
    def tables(rank: int) -> dict[str, pd.DataFrame]:
        scratch = Sink()
        for name, frame in zip(TABLES, read(rank), strict=True):
            columns: dict[str, Any] = {str(column): frame[column] for column in frame.columns}
            if len(frame):
                scratch.add(name, rank=rank, **columns)
        return {name: scratch.tables().get(name, empty(name)) for name in TABLES}

    def rows(name: str, ranks: Sequence[int] | None, columns: Sequence[str] | None) -> pd.DataFrame:
        with lock:
            wanted = sorted(found if ranks is None else found.intersection(ranks))
            frames = [tables(rank)[name] for rank in wanted]
            frame = _joined(frames) if frames else empty(name)
            return frame if columns is None else frame.loc[:, list(columns)]

    sink.later.update({name: LazyTable(ranks=found, num_rows=None, read=partial(rows, name)) for name in TABLES})


def _joined(frames: list[pd.DataFrame]) -> pd.DataFrame:
    """Frames one after the other, text still as categories."""
    joined = pd.concat(frames, ignore_index=True)
    texts = {name: "category" for name, dtype in frames[0].dtypes.items() if isinstance(dtype, pd.CategoricalDtype)}
    return joined.astype(texts)
