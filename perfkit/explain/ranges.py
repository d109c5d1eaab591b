"""Ranges: what ran in a piece of time that somebody picked on the timeline, as frames.

Times of a range are on the common clock of the run, as the timeline has them; a rank's own clock is behind it by `run.clock`. What
reaches out of the range counts with its part inside of it, `inside_ns`.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd

from perfkit.core.errors import InputError
from perfkit.core.run import Run
from perfkit.core.texts import Said, say
from perfkit.record.overlap import Intervals, merge, overlap_ns, union


@dataclass(frozen=True, kw_only=True, slots=True)
class Range:
    """From `start_ns` to `end_ns` of the common clock, on some ranks; `name` is that of the slice that was picked, "" for none.

    Raises InputError for a range that ends before it starts, or is of no rank.
    """

    ranks: tuple[int, ...]
    start_ns: int
    end_ns: int
    name: str = ""

    def __post_init__(self) -> None:
        problems = [] if self.start_ns <= self.end_ns else [f"end_ns = {self.end_ns} lies before start_ns = {self.start_ns}"]
        problems += [] if self.ranks else ["ranks is empty; name those that the range is about"]
        if problems:
            raise InputError("range", problems)

    @property
    def duration_ns(self) -> int:
        """How long it is."""
        return self.end_ns - self.start_ns

    def told(self) -> Said:
        """How long it is, on which ranks."""
        ranks = ", ".join(map(str, self.ranks))
        if self.name:
            return say("{name} on rank {ranks}: {duration_ns}.", name=self.name, ranks=ranks, duration_ns=self.duration_ns)
        form = "{duration_ns} of rank {ranks}." if len(self.ranks) == 1 else "{duration_ns} of ranks {ranks}."
        return say(form, ranks=ranks, duration_ns=self.duration_ns)


def events_in(run: Run, table: str, picked: Range) -> pd.DataFrame:
    """The rows of a table with times, such as `kernels`, in a range, each with `inside_ns`; no rows where it was not measured."""
    if not run.has(table):
        return pd.DataFrame(columns=["rank", "name", "start_ns", "duration_ns", "inside_ns"])
    parts = []
    for rank in picked.ranks:
        rows = run.frame(table, ranks=[rank])
        rows = rows[rows["start_ns"].notna().to_numpy(dtype=bool)]
        start_ns, end_ns = (moment - run.clock.get(rank, 0) for moment in (picked.start_ns, picked.end_ns))
        starts = rows["start_ns"].to_numpy(dtype=np.int64)
        ends = starts + rows["duration_ns"].to_numpy(dtype=np.int64)
        inside = np.minimum(ends, end_ns) - np.maximum(starts, start_ns)
        parts.append(rows.assign(inside_ns=inside)[inside > 0])
    found: pd.DataFrame = pd.concat(parts, ignore_index=True)
    return found


def totals_in(run: Run, table: str, picked: Range, *, by: str = "name") -> pd.DataFrame:
    """What takes most of a range: one row a value of the column `by` with `count` and `inside_ns`, most first."""
    events = events_in(run, table, picked)
    if events.empty:
        return pd.DataFrame(columns=[by, "count", "inside_ns"])
    sums = events.groupby(events[by].astype(str), sort=False)["inside_ns"].agg(["size", "sum"])
    found = sums.rename(columns={"size": "count", "sum": "inside_ns"}).reset_index()
    return found.sort_values(["inside_ns", by], ascending=[False, True], ignore_index=True)


def parts_in(run: Run, picked: Range) -> pd.DataFrame:
    """What a range is made of, a row a rank: `computing_ns`, `exposed_communication_ns` and `free_ns` sum to its length.

    A device that only copies is free; communication is what the kernels of its kind and the collectives cover.
    """
    rows = []
    for rank in picked.ranks:
        alone = Range(ranks=(rank,), start_ns=picked.start_ns, end_ns=picked.end_ns)
        kernels = events_in(run, "kernels", alone)
        kinds = kernels["kind"].astype(str) if "kind" in kernels else pd.Series("computing", index=kernels.index)
        computing = _covered(run, alone, kernels[~kinds.isin(["communication", "copy"]).to_numpy(dtype=bool)])
        talking = (kernels[(kinds == "communication").to_numpy(dtype=bool)], events_in(run, "collectives", alone))
        moving = merge(*(_covered(run, alone, events) for events in talking))
        exposed = moving.total_ns - overlap_ns(computing, moving)
        free = alone.duration_ns - merge(computing, moving).total_ns
        row = {"rank": rank, "computing_ns": computing.total_ns, "exposed_communication_ns": exposed, "free_ns": free}
        rows.append(row)
    return pd.DataFrame(rows)


def _covered(run: Run, picked: Range, events: pd.DataFrame) -> Intervals:
    """The time of one rank that its events cover, within the range, on the clock of the rank."""
    shift = run.clock.get(picked.ranks[0], 0)
    starts = events["start_ns"].to_numpy(dtype=np.int64)
    ends = starts + events["duration_ns"].to_numpy(dtype=np.int64)
    return union(starts, ends).clip(picked.start_ns - shift, picked.end_ns - shift)
