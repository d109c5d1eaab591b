"""Rivals: folders within the chosen one that hold recordings of the same ranks, so that each is of a job of its own.

Taken rank by rank, the ranks of two jobs would pass for one. Recordings of a rank that lie beside each other are of one job.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from itertools import combinations
from pathlib import Path

from perfkit.core.shortening import enumerated
from perfkit.record.format import Sink
from perfkit.record.listing import printable


def left_out(places: Mapping[int, Iterable[Path]], made_ns: Callable[[Path], int], sink: Sink) -> set[Path]:
    """The places of recordings, by rank, that are of another job than the one to show, and say so.

    Shown is the folder with most ranks, of equal ones the one whose latest recording was made last, by `made_ns`.
    """
    everywhere = {rank: list(paths) for rank, paths in places.items()}
    rivals: dict[Path, set[Path]] = {}
    for one, other in (pair for paths in everywhere.values() for pair in combinations(paths, 2)):
        shared = Path(os.path.commonpath([one, other]))
        jobs = [shared / path.relative_to(shared).parts[0] for path in (one, other) if path != shared]
        if len(set(jobs)) == 2 and not {one, other} & set(jobs):
            for job, rival in (jobs, reversed(jobs)):
                rivals.setdefault(job, set()).add(rival)
    held = {job: {path for paths in everywhere.values() for path in paths if path.is_relative_to(job)} for job in rivals}
    ranks = {job: sum(any(path in held[job] for path in paths) for paths in everywhere.values()) for job in rivals}
    left: set[Path] = set()
    for kept in sorted(rivals, key=lambda job: (ranks[job], max(map(made_ns, held[job])), job), reverse=True):
        if held[kept] <= left:
            continue
        others = sorted(job for job in rivals[kept] if not held[job] <= left)
        for job in others:
            sink.drop(
                f"rank of another job than that of {printable(kept.name)}; open it on its own", ranks[job], printable(job.name)
            )
            left |= held[job]
        if others:
            names = enumerated(sorted(printable(job.name) for job in (kept, *others)), 5)
            sink.note(
                f"{names} hold recordings of the same ranks, so each is of a job of its own; shown is {printable(kept.name)}, "
                "which has the most ranks, of equal ones the latest. Open the others on their own"
            )
    return left
