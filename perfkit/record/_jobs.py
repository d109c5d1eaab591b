"""Jobs: recordings of different jobs that lie in one folder, told apart by when they were made and by what they did together.

The ranks of one job are recorded at the same time, though their clocks may be wrong, by as much as two time zones. So ranks whose
recordings do not overlap are of one job only if their collectives end together once the clocks are aligned: those of another run
of the same program end at times of their own. Where they share none, a minute between them decides. What lies further apart than
two time zones is of different jobs in any case.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise

import pandas as pd

from perfkit.core import clock
from perfkit.core.run import Run
from perfkit.core.shortening import enumerated
from perfkit.core.units import NS_PER_S
from perfkit.record.format import Sink, stacked

APART_NS = 26 * 3600 * NS_PER_S
"""Local times of one moment differ by up to 26 hours, from UTC-12 to UTC+14."""
GAP_NS = 60 * NS_PER_S
"""Clocks that a network sets, and schedules of profilers, differ by less."""
TOGETHER_NS = 200_000
"""Members leave a collective within microseconds of each other; runs of one program differ by far more from step to step."""
_EPOCH_NS = 10**18
"""Earlier moments count from the start of a machine, which differs for the machines of one job."""

Windows = Mapping[int, tuple[int, int]]
"""First and last moment of each rank, in ns."""


def keep_one_job(sink: Sink) -> None:
    """Leave out the ranks of all jobs but one, if a sink has several, and say so: it keeps most ranks, or the latest."""
    windows = _windows(sink)
    jobs = _joined(apart(windows), windows, sink)
    if len(jobs) < 2:
        return
    kept = max(jobs, key=lambda ranks: (len(ranks), min(windows[rank] for rank in ranks)))
    left = [job for job in jobs if job != kept]
    for job in left:
        later_ns = min(windows[rank][0] for rank in job) - min(windows[rank][0] for rank in kept)
        when = f"{_span(abs(later_ns))} {'later' if later_ns > 0 else 'earlier'}"
        sink.drop(f"rank of another job, recorded {when} ({_ranks(job)}); open it on its own", len(job), ".")
    sink.note(
        f"the folder holds recordings of {len(jobs)} jobs that were not recorded at one time and share no collective; shown "
        f"is the one of {_ranks(kept)}, which has the most ranks, of equal ones the latest. Put each job into a folder of its own "
        "to see the others"
    )
    sink.leave_out({rank for job in left for rank in job})


def apart(windows: Windows) -> list[list[int]]:
    """The ranks whose recordings overlap, by the windows of each in ns of the epoch; those that count from 0 tell nothing."""
    dated = sorted((window, rank) for rank, window in windows.items() if window[0] >= _EPOCH_NS)
    found: list[list[int]] = []
    reached = 0
    for (start_ns, end_ns), rank in dated:
        if not found or start_ns > reached:
            found.append([])
        found[-1].append(rank)
        reached = max(reached, end_ns)
    return [sorted(ranks) for ranks in found]


def _joined(parts: list[list[int]], windows: Windows, sink: Sink) -> list[list[int]]:
    """The parts, of which those that have left collectives together are one job, and close ones of which nothing tells."""
    if len(parts) < 2:
        return parts
    pieces = list(sink.pieces("collectives"))
    rows = stacked(pieces) if pieces else pd.DataFrame()
    jobs = [parts[0]]
    for before, part in pairwise(parts):
        begun_ns = min(windows[rank][0] for rank in part)
        near = begun_ns - max(windows[rank][0] for rank in before) <= APART_NS
        together = _together(jobs[-1], part, rows, sink) if near and len(rows) else None
        close = begun_ns - max(windows[rank][1] for rank in jobs[-1]) <= GAP_NS
        if close if together is None else together:
            jobs[-1] = sorted([*jobs[-1], *part])
        else:
            jobs.append(part)
    return jobs


def _together(job: list[int], part: list[int], collectives: pd.DataFrame, sink: Sink) -> bool | None:
    """Whether ranks of two parts ended their collectives together, but for what one line of time explains; None: none is shared."""
    ranks = {*job, *part}
    groups = {"groups": stacked(list(sink.pieces("groups")))} if sink.count("groups") else {}
    tables = {"collectives": collectives[collectives["rank"].isin(ranks)], **groups}
    clocks = clock.estimate(Run(name="", kind=sink.kind, format="", tables=tables, placement=sink.placement))
    known = [set(clocks).intersection(ranks_of) for ranks_of in (job, part)]
    return max(clocks[rank].residual_ns for own in known for rank in own) <= TOGETHER_NS if all(known) else None


def _windows(sink: Sink) -> dict[int, tuple[int, int]]:
    """When each rank began and ended, as far as its steps or kernels say."""
    found: dict[int, tuple[int, int]] = {}
    for table in ("steps", "kernels"):
        for frame in sink.pieces(table):
            rows = frame.loc[frame["start_ns"].notna(), ["rank", "start_ns", "duration_ns"]]
            ends = rows["start_ns"] + rows["duration_ns"].fillna(0)
            for rank, start_ns, end_ns in rows.assign(end=ends).groupby("rank").agg({"start_ns": "min", "end": "max"}).itertuples():
                before = found.get(int(rank), (int(start_ns), int(end_ns)))
                found[int(rank)] = min(int(start_ns), before[0]), max(int(end_ns), before[1])
        if found:
            break
    return found


def _span(span_ns: int) -> str:
    """A long time as people say it."""
    units = (("days", 86_400), ("hours", 3600), ("minutes", 60))
    name, unit_s = next((pair for pair in units if span_ns >= pair[1] * NS_PER_S), ("seconds", 1))
    return f"{span_ns / (unit_s * NS_PER_S):.1f} {name}"


def _ranks(ranks: list[int]) -> str:
    return f"rank{'s' if len(ranks) > 1 else ''} {enumerated(ranks, 8)}"
