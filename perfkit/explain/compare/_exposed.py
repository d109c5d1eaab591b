"""Exposed communication by what it is for: gradients, tensor parallel, pipeline, experts, from the recorded intervals.

A collective belongs to the dimension of the parallel layout in which the ranks of its group differ. It is exposed where no kernel
of its rank computes; where two dimensions are exposed at the same time, the time counts for the first in the order of `DIMENSIONS`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pandas as pd

from perfkit.core.run import Position, Run
from perfkit.core.spec.plan import Plan
from perfkit.record.overlap import Intervals, merge, overlap_ns, union

DIMENSIONS = ("tp", "cp", "ep", "pp", "dp")
_FIELDS = {"tensor": "tp", "context": "cp", "expert": "ep", "pipeline": "pp", "data": "dp"}
_POINT_TO_POINT = ("send", "receive", "send_receive")
MAX_RANKS = 8
"""Ranks that are read for the split; their mean stands for the others of a stage."""


@dataclass(frozen=True, slots=True)
class Exposed:
    """Mean over ranks and steps in ns of one dimension: all its communication, and what nothing computes beside."""

    total_ns: float
    exposed_ns: float


def exposed_by_dimension(run: Run, plan: Plan, ranks: Sequence[int], steps: Sequence[int]) -> dict[str, Exposed]:
    """Communication of the given ranks and steps by dimension; empty where the run does not time its collectives and kernels."""
    chosen = list(ranks)[:MAX_RANKS]
    if not run.has("collectives") or not run.has("kernels") or not chosen or not steps:
        return {}
    calls = run.frame("collectives", ranks=chosen, steps=steps).dropna(subset=["start_ns"])
    kernels = run.frame("kernels", ranks=chosen, steps=steps, columns=["rank", "step", "kind", "start_ns", "duration_ns"])
    computing = kernels[(kernels["kind"] == "computing") & kernels["start_ns"].notna()]
    if calls.empty or computing.empty:
        return {}
    dimensions = _dimension_of_calls(run, plan, calls)
    totals = {name: [0, 0] for name in DIMENSIONS}
    for rank in chosen:
        busy = _intervals(computing[computing["rank"] == rank])
        for name in DIMENSIONS:
            own = _intervals(calls[(calls["rank"] == rank) & (dimensions == name)])
            hidden = overlap_ns(own, busy)
            totals[name][0] += own.total_ns
            totals[name][1] += own.total_ns - hidden
            busy = merge(busy, own)
    count = len(chosen) * len(set(steps))
    return {name: Exposed(total / count, exposed / count) for name, (total, exposed) in totals.items() if total}


def _intervals(rows: pd.DataFrame) -> Intervals:
    starts = rows["start_ns"].to_numpy(dtype="int64")
    return union(starts, starts + rows["duration_ns"].to_numpy(dtype="int64"))


def _dimension_of_calls(run: Run, plan: Plan, calls: pd.DataFrame) -> pd.Series[str]:
    """The dimension of every call; "" where the layout does not tell."""
    operations = calls["operation"].astype(str)
    found = pd.Series("", index=calls.index)
    members = run.frame("collectives", columns=["rank", "group"]).dropna().drop_duplicates()
    by_group = {str(group): tuple(rows["rank"]) for group, rows in members.groupby("group", observed=True)}
    if run.placement:
        dimension = {group: _varying(run.placement, ranks) for group, ranks in by_group.items()}
        found = calls["group"].astype(str).map(dimension).fillna("")
    sizes = _by_size(plan)
    unknown = found == ""
    found[unknown] = calls.loc[unknown, "group_size"].map(lambda size: sizes.get(int(size), "") if pd.notna(size) else "")
    found[(found == "") & (operations == "all_to_all") & (plan.parallel.expert_parallel_size > 1)] = "ep"
    found[operations.isin(_POINT_TO_POINT)] = "pp"
    return found


def _varying(placement: Mapping[int, Position], ranks: Sequence[int]) -> str:
    """The one dimension in which the ranks differ; "" for none or several."""
    positions = [placement[rank] for rank in ranks if rank in placement]
    varying = [
        name for field, name in _FIELDS.items() if field != "expert" and len({getattr(place, field) for place in positions}) > 1
    ]
    return varying[0] if len(varying) == 1 else ""


def _by_size(plan: Plan) -> dict[int, str]:
    """Group sizes that only one dimension of the plan has."""
    parallel = plan.parallel
    sizes = {
        "tp": parallel.tensor_parallel_size,
        "cp": parallel.context_parallel_size,
        "ep": parallel.expert_parallel_size,
        "pp": parallel.pipeline_parallel_size,
        "dp": parallel.data_parallel_size,
    }
    counts = list(sizes.values())
    return {size: name for name, size in sizes.items() if size > 1 and counts.count(size) == 1}
