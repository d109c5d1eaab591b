"""Tiles of a large recording, made in another process, so that the kernel of the page stays small and answers meanwhile.

The tiles of a rank are made once: of the first ranks before the timeline is shown, of others when somebody opens them. Where they
are few, or nothing is kept of the recording that another process could share, they are made here, in the thread that asks.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from perfkit.core.run import LazyTables, Run
from perfkit.core.texts import say
from perfkit.face.widgets.timelines import _counters as counting
from perfkit.face.widgets.timelines.data import MODULES, OVERLAP, made_runs
from perfkit.record import tiles, workers
from perfkit.record.load import load

MIN_EVENTS = 1_000_000
"""Fewer are arranged in the time in which a process starts."""
Report = Callable[..., None]
_WORDS = {OVERLAP: "overlap analysis", MODULES: "modules"}


def make_tiles(path: str, run: Run, ranks: Sequence[int], report: Report) -> None:
    """Make the tiles of some ranks that are not there yet; `report(what, done, total, unit)` learns how far that is."""
    missing = [rank for rank in ranks if rank in run.ranks and not (run.cache_key and tiles.is_kept(run, rank))]
    if not missing:
        return
    known = [run.tables.num_rows(table) or 0 for table in run.tables] if isinstance(run.tables, LazyTables) else []
    if path and run.cache_key and sum(known) * len(missing) >= MIN_EVENTS * len(run.ranks):
        workers.aside(_make_aside, (path, tuple(missing)), report=report, name=run.name)
    else:
        _make(run, missing, report)


def _make_aside(which: tuple[str, tuple[int, ...]], report: Report) -> None:
    path, ranks = which
    _make(load(path), ranks, report)


def _make(run: Run, ranks: Sequence[int], report: Report) -> None:
    for rank in ranks:
        tiles.lanes(run, ranks=[rank], report=partial(_tell, report, say("timeline of rank {rank}", rank=str(rank))))
    for process, made in made_runs(run).items() if run.cache_key else ():
        for rank in ranks:
            what = say("{work} of rank {rank}", work=_WORDS[process], rank=str(rank))
            tiles.lanes(made, ranks=[rank], report=partial(_tell, report, what))
    for rank in ranks if run.cache_key else ():
        counting.counter_units(run, rank, 0)  # keeps them


def _tell(report: Report, what: str, done: int, total: int) -> None:
    report(what, done, total, "events")
