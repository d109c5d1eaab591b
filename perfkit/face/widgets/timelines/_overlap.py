"""Overlap lanes of a timeline: when a device computed, communicated openly or behind computing, and did neither.

They are made as a run of their own whose "threads" are the four states, so that the tiles of a timeline serve and keep them like
any other thread. The states of one rank do not overlap and cover the time from its first to its last kernel.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np
import pandas as pd

from perfkit.core.run import LazyTable, LazyTables, Run, empty
from perfkit.record.overlap import Intervals, merge, union
from perfkit.record.tiles.time_order import Ints, TimeOrder

COMPUTING = "computing alone"
HIDDEN = "communication hidden"
EXPOSED = "communication exposed"
FREE = "free"
STATES = (COMPUTING, HIDDEN, EXPOSED, FREE)
_KINDS = ("computing", "communication")
_NOTHING = union([], [])
_KEY_SUFFIX = "-overlap"


def overlap_run(run: Run) -> Run | None:
    """A run whose host threads are the states of each device; None if no kernels were recorded."""
    return made_run(run, _KEY_SUFFIX, _pieces) if run.has("kernels") else None


def made_run(run: Run, suffix: str, pieces_of: Callable[[Run, int, Sequence[str]], Iterator[pd.DataFrame]]) -> Run:
    """A run whose host threads are what is made of another one, rank by rank; its tiles are kept under a name of their own."""
    ranks = frozenset(int(rank) for rank in run.ranks)
    pieces = partial(pieces_of, run)
    table = LazyTable(ranks=ranks, num_rows=None, read=partial(_read, ranks, pieces), pieces=pieces)
    key = f"{run.cache_key}{suffix}" if run.cache_key else ""
    return Run(name=run.name, kind=run.kind, format=run.format, tables=LazyTables({"host": table}), clock=run.clock, cache_key=key)


def states(blocks: Iterable[Ints]) -> Iterator[tuple[str, Intervals]]:
    """The states of one device from its first to its last kernel, piece by piece; of each state in the order of time.

    `blocks` are its kernels as `TimeOrder` gives them: start, duration and kind (a place in `_KINDS`, -1 for another one). Up to
    the first start of the next block all is known; what touches that moment waits for more.
    """
    running = [_NOTHING] * len(_KINDS)
    held: dict[str, Intervals] = {}
    for start_ns, end_ns, (starts, durations, kinds) in _windows(blocks):
        new = [union(starts[kinds == kind], (starts + durations)[kinds == kind]) for kind in range(len(_KINDS))]
        running = [merge(open_now, more) for open_now, more in zip(running, new, strict=True)]
        computing, communication = (spans.clip(start_ns, end_ns) for spans in running)
        for name, found in _states(computing, communication, start_ns, end_ns).items():
            spans = merge(held.pop(name, _NOTHING), found)
            if len(spans.starts) > 1:
                yield name, Intervals(spans.starts[:-1], spans.ends[:-1])
            held[name] = Intervals(spans.starts[-1:], spans.ends[-1:])
        running = [spans.clip(end_ns, np.iinfo(np.int64).max) for spans in running]
    yield from held.items()


def _windows(blocks: Iterable[Ints]) -> Iterator[tuple[int, int, Ints]]:
    """Each block with the time from its first start to that of the next block, for the last one to the end of all."""
    last_ns, before = None, None
    for block in blocks:
        if before is not None:
            yield int(before[0, 0]), int(block[0, 0]), before
        ends_ns = int((block[0] + block[1]).max())
        last_ns = ends_ns if last_ns is None else max(last_ns, ends_ns)
        before = block
    if before is not None and last_ns is not None:
        yield int(before[0, 0]), last_ns, before


def _states(computing: Intervals, communication: Intervals, start_ns: int, end_ns: int) -> dict[str, Intervals]:
    """The states in a window in which both lie; those that there are."""
    idle, quiet = _complement(computing, start_ns, end_ns), _complement(communication, start_ns, end_ns)
    found = {
        COMPUTING: _common(computing, quiet),
        HIDDEN: _common(communication, computing),
        EXPOSED: _common(communication, idle),
        FREE: _complement(merge(computing, communication), start_ns, end_ns),
    }
    return {name: spans for name, spans in found.items() if len(spans.starts)}


def _common(a: Intervals, b: Intervals) -> Intervals:
    """The time that both cover: where the (i+1)-th start comes before the i-th end, as in `overlap.overlap_ns`."""
    starts, ends = np.sort(np.concatenate([a.starts, b.starts])), np.sort(np.concatenate([a.ends, b.ends]))
    both = starts[1:] < ends[:-1]
    return Intervals(starts[1:][both], ends[:-1][both])


def _complement(a: Intervals, start_ns: int, end_ns: int) -> Intervals:
    """The time of a window that `a`, which lies in it, does not cover."""
    starts = np.concatenate([np.array([start_ns], dtype=np.int64), a.ends])
    ends = np.concatenate([a.starts, np.array([end_ns], dtype=np.int64)])
    keep = starts < ends
    return Intervals(starts[keep], ends[keep])


def _read(ranks: frozenset[int], pieces: Any, chosen: Sequence[int] | None, columns: Sequence[str] | None) -> pd.DataFrame:
    """The rows of the table `host` that stand for the states of some ranks."""
    wanted = list(empty("host").columns) if columns is None else list(columns)
    frames = [frame for rank in (sorted(ranks) if chosen is None else chosen) for frame in pieces(rank, wanted)]
    return pd.concat(frames, ignore_index=True) if frames else empty("host").loc[:, wanted]


def _pieces(run: Run, rank: int, columns: Sequence[str]) -> Iterator[pd.DataFrame]:
    """The same of one rank, piece by piece."""
    kernels = TimeOrder(3)
    for piece in run.pieces("kernels", rank=rank, columns=["kind", "start_ns", "duration_ns"]):
        rows = piece[piece["start_ns"].notna()]
        times = [rows[name].to_numpy(dtype=np.int64) for name in ("start_ns", "duration_ns")]
        kind = np.full(len(rows), -1, dtype=np.int64)
        for number, name in enumerate(_KINDS):
            kind[(rows["kind"] == name).to_numpy(dtype=bool)] = number
        kernels.add(np.zeros(len(rows), dtype=np.int64), [*times, kind])
    for name, spans in states(kernels.blocks(0)):
        yield _rows(rank, name, spans).reindex(columns=list(columns))


def _rows(rank: int, name: str, spans: Intervals) -> pd.DataFrame:
    text: Any = pd.Categorical.from_codes(np.full(len(spans.starts), STATES.index(name)), categories=pd.Index(STATES))
    return pd.DataFrame(
        {
            "rank": np.full(len(spans.starts), rank, dtype=np.int64),
            "name": text,
            "kind": text,
            "thread": text,
            "start_ns": spans.starts,
            "duration_ns": spans.ends - spans.starts,
        }
    )
