"""Tiles of a large recording, made in another process, so that the kernel of the page stays small and answers meanwhile."""

from __future__ import annotations

from collections.abc import Callable

from perfkit.panels._timeline_data import MAX_FIRST_RANKS
from perfkit.panels._timeline_overlap import overlap_run
from perfkit.run import LazyTables, Run
from perfkit.trace import _workers, tiles
from perfkit.trace.load import load

MIN_EVENTS = 1_000_000
"""Fewer are arranged in the time in which a process starts."""
Report = Callable[..., None]


def make_tiles(path: str, run: Run, report: Report) -> None:
    """Make the tiles of the ranks that a timeline opens first, if they are many and not there yet."""
    ranks = run.ranks[:MAX_FIRST_RANKS]
    known = [run.tables.num_rows(table) or 0 for table in run.tables] if isinstance(run.tables, LazyTables) else []
    many = sum(known) * len(ranks) >= MIN_EVENTS * len(run.ranks)
    if many and run.cache_key and not all(tiles.is_kept(run, rank) for rank in ranks):
        _workers.aside(_make_tiles, (path, ranks), report=report, name=run.name)


def _make_tiles(which: tuple[str, tuple[int, ...]], report: Report) -> None:
    path, ranks = which
    run = load(path)
    overlap = overlap_run(run)
    for number, rank in enumerate(ranks):
        for part, made in enumerate([run, overlap]):
            report(f"timeline of rank {rank}", 2 * number + part, 2 * len(ranks), "parts")
            if made is not None:
                tiles.lanes(made, ranks=[rank])
