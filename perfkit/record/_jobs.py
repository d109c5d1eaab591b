"""Jobs: recordings of different jobs that lie in one folder, told apart by when they were made.

The ranks of one job are recorded at the same time, but their clocks may be wrong, by as much as two time zones. What lies further
apart than that is of different jobs: to align their clocks would make one run of two that never met.
"""

from __future__ import annotations

from collections.abc import Mapping

from perfkit.core.units import NS_PER_S
from perfkit.record.format import Sink

APART_NS = 26 * 3600 * NS_PER_S
"""Local times of one moment differ by up to 26 hours, from UTC-12 to UTC+14."""
_EPOCH_NS = 10**18
"""Earlier moments count from the start of a machine, which differs for the machines of one job."""
_DAY_NS = 24 * 3600 * NS_PER_S


def keep_one_job(sink: Sink) -> None:
    """Leave out the ranks of all jobs but one, if a sink has several, and say so: it keeps most ranks, or the latest."""
    moments = _moments(sink)
    jobs = apart(moments)
    if len(jobs) < 2:
        return
    kept = max(jobs, key=lambda ranks: (len(ranks), min(moments[rank] for rank in ranks)))
    left = [job for job in jobs if job != kept]
    for job in left:
        days = (min(moments[rank] for rank in job) - min(moments[rank] for rank in kept)) / _DAY_NS
        when = f"{abs(days):.1f} days {'later' if days > 0 else 'earlier'}"
        sink.drop(f"rank of another job, recorded {when} ({_ranks(job)}); open it on its own", len(job), "the folder")
    sink.note(
        f"the folder holds recordings of {len(jobs)} jobs that lie days apart; shown is the one of {_ranks(kept)}, which has "
        "the most ranks, of equal ones the latest. Put each job into a folder of its own to see the others"
    )
    sink.leave_out({rank for job in left for rank in job})


def apart(moments: Mapping[int, int]) -> list[list[int]]:
    """The ranks of each job, by a moment of each rank in ns of the epoch; clocks of machines tell nothing."""
    dated = sorted((moment, rank) for rank, moment in moments.items() if moment >= _EPOCH_NS)
    jobs: list[list[int]] = []
    before = None
    for moment, rank in dated:
        if before is None or moment - before > APART_NS:
            jobs.append([])
        jobs[-1].append(rank)
        before = moment
    return [sorted(job) for job in jobs]


def _moments(sink: Sink) -> dict[int, int]:
    """When each rank began, as far as its steps or kernels say."""
    found: dict[int, int] = {}
    for table in ("steps", "kernels"):
        for frame in sink.pieces(table):
            starts = frame[frame["start_ns"].notna()].groupby("rank")["start_ns"].min()
            for rank, start_ns in starts.items():
                found[int(rank)] = min(int(start_ns), found.get(int(rank), int(start_ns)))  # type: ignore[call-overload]
        if found:
            break
    return found


def _ranks(ranks: list[int]) -> str:
    shown = ", ".join(map(str, ranks[:8]))
    return f"rank{'s' if len(ranks) > 1 else ''} {shown}" + (f" and {len(ranks) - 8} more" if len(ranks) > 8 else "")
