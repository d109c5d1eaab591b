"""The host waits for the device inside the step, so that the launch queue runs empty each time.

What is measured: calls that wait for the device (synchronize of a stream or device, reading a value: item, asnumpy, copies to the
host) on the host side of up to two ranks, those at the end of a step left out; and the time that the device idles at and after
them. Four and more a step are named even where they cost little today: they keep the host from running ahead, and cost more as
devices get faster.

What to do: read values every n-th step, keep the loss on the device, branch on the device, log asynchronously.
"""

from __future__ import annotations

import numpy as np
import pandas as pd

from perfkit.core.errors import NotMeasuredError
from perfkit.explain.diagnose import host, work
from perfkit.explain.diagnose.case import STEPS_BY, Case
from perfkit.explain.diagnose.rule import Finding, Rule, Threshold, Verdict

SYNC_CALLS = Threshold(
    name="sync-calls",
    value=4.0,
    unit="calls a step that wait for the device, its end left out",
    origin="chosen: one for the loss, one for its scale, one for the gradient norm and one for a log line; bundled ones have 0.8",
)

HOW = "record the host side too: activities CPU and CUDA or NPU; for Ascend text output keep trace_view.json"
AT_END = 0.98
"""A call that ends later in the step than this share of it belongs to its end."""
ACTIONS = (
    "read values (item, asnumpy, print of a loss) every n-th step only",
    "keep comparisons and clipping on the device instead of branching on the host",
    "synchronise once at the end of a step",
)


def check(case: Case) -> Verdict:
    """Calls inside the step that wait for the device."""
    if case.unmarked:
        raise NotMeasuredError("marks of steps, to count calls in one", how_to_collect=STEPS_BY)
    idle = case.gaps[~case.gaps["lead"].astype(bool)].groupby("rank")["duration_ns"].sum()
    ranks = list(dict.fromkeys([int(rank) for rank in idle.sort_values(ascending=False).index[:1]] + [case.detail_ranks[0]]))
    found = {rank: calls for rank in ranks if (calls := _calls(case, rank)) is not None}
    if not found:
        raise NotMeasuredError("what the host did", how_to_collect=HOW)
    rank = max(found, key=lambda known: len(found[known]))
    calls = found[rank]
    a_step = len(calls) / case.num_kernel_steps
    lost_ns = _idle_ns(case, rank, calls)
    evidence = {"calls_a_step": a_step, "idle_after_calls_ns": lost_ns}
    if a_step < case.limit(SYNC_CALLS):
        return Verdict((), evidence)
    names = tuple(str(name) for name in calls["name"].astype(str).value_counts().index[:3])
    cost_ns = _cost_ns(case, rank, lost_ns)
    small = cost_ns < 0.01 * (case.step_ns or 1)
    return Verdict(
        (
            Finding(
                rule=RULE.name,
                title=f"The host waits for the device {a_step:.0f} times inside a step ({names[0]})",
                subject={"operators": names},
                evidence=evidence,
                actions=ACTIONS,
                cost_ns=cost_ns,
                severity="low" if small else None,
                next=("14_timeline", "host-bound"),
                part="free",
            ),
        ),
        evidence,
    )


def _calls(case: Case, rank: int) -> pd.DataFrame | None:
    """The outermost waiting calls of a rank inside its steps, with `step`; None if its host side was not recorded."""
    rows = host.rows(case, rank, host.SYNCHRONISERS)
    kernels = case.kernels[case.kernels["rank"] == rank]
    if rows is None or kernels.empty:
        return None
    ends = rows["start_ns"].to_numpy(dtype=np.int64) + rows["duration_ns"].to_numpy(dtype=np.int64)
    outer = np.concatenate([[True], ends[1:] > np.maximum.accumulate(ends)[:-1]]) if len(rows) else np.array([], dtype=bool)
    spans = kernels.assign(end_ns=kernels["start_ns"] + kernels["duration_ns"].astype("int64")).groupby("step")
    firsts, lasts = spans["start_ns"].min().sort_values(), spans["end_ns"].max()
    at = np.searchsorted(firsts.to_numpy(), ends, side="right") - 1
    inside = outer & (at >= 0)
    steps = firsts.index.to_numpy()[at.clip(min=0)]
    limits = firsts.to_numpy()[at.clip(min=0)] * (1 - AT_END) + lasts.loc[steps].to_numpy() * AT_END
    found: pd.DataFrame = rows.assign(step=steps, end_ns=ends)[inside & (ends < limits)].reset_index(drop=True)
    return found


def _idle_ns(case: Case, rank: int, calls: pd.DataFrame) -> float:
    """The mean time a step that a device idles at the end of, or after, a call before the next kernel starts."""
    gaps = case.gaps[(case.gaps["rank"] == rank) & ~case.gaps["lead"].astype(bool)]
    starts = gaps["start_ns"].to_numpy(dtype=np.int64)
    ends = starts + gaps["duration_ns"].to_numpy(dtype=np.int64)
    at = np.searchsorted(ends, calls["end_ns"].to_numpy(dtype=np.int64), side="left")
    hit = np.unique(at[(at < len(starts))])
    hit = hit[starts[hit] <= np.sort(calls["end_ns"].to_numpy(dtype=np.int64))[-1]] if len(calls) else hit
    near = [index for index in hit if ((calls["end_ns"] >= starts[index]) & (calls["end_ns"] <= ends[index])).any()]
    return float((ends[near] - starts[near]).sum()) / case.num_kernel_steps if near else 0.0


def _cost_ns(case: Case, rank: int, lost_ns: float) -> int:
    """What a step wins without the idle times at such calls: all ranks run one program, so all lose the same share of theirs."""
    gaps = case.gaps[~case.gaps["lead"].astype(bool)]
    whole_ns = float(gaps.loc[gaps["rank"] == rank, "duration_ns"].sum()) / case.num_kernel_steps
    return work.won_ns(case, gaps, fraction=min(1.0, lost_ns / whole_ns)) if whole_ns else 0


RULE = Rule(
    name="frequent-sync",
    title="The host waits for the device inside the step",
    needs=frozenset({"steps", "kernels"}),
    how_to_collect=HOW,
    thresholds=(SYNC_CALLS,),
    check=check,
    explains=frozenset({"host-bound"}),
)
