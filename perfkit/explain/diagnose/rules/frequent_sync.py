"""The host waits for the device inside the step, so that the launch queue runs empty each time.

What is measured: calls that wait for the device (synchronize of a stream or device, reading a value: item, asnumpy, copies to the
host) on the host side of up to eight ranks, those at the end of a step left out; and the time that the device idles at and after
them. Four and more a step are named even where they cost little today: they keep the host from running ahead, and cost more as
devices get faster.

What to do: read values every n-th step, keep the loss on the device, branch on the device, log asynchronously.
"""

from __future__ import annotations

import numpy as np
import pandas as pd

from perfkit.core.errors import NotMeasuredError
from perfkit.core.texts import say
from perfkit.explain.diagnose import blocking, work
from perfkit.explain.diagnose.advice import Action, fitting
from perfkit.explain.diagnose.blocking import SYNC_CALLS
from perfkit.explain.diagnose.case import Case
from perfkit.explain.diagnose.collecting import HOST_BY, STEPS_BY
from perfkit.explain.diagnose.rule import Finding, Rule, Verdict
from perfkit.explain.diagnose.source_lines import called_from

ALIKE = 0.5
"""Ranks with this share of the most calls wait as the one with the most does."""
ACTIONS: tuple[Action, ...] = (
    {
        "mindspore": "read values (asnumpy, print of a loss) every n-th step only, or keep several steps on the device (sink_size)",
        "megatron": "read values every n-th step only: --log-interval 10 and more, --no-check-for-nan-in-loss-and-grad",
        "torch": "read values (item, cpu, print of a tensor) every n-th step only; sum up on the device what is logged",
    },
    "keep comparisons and clipping on the device instead of branching on the host",
    "synchronise once at the end of a step",
)


def check(case: Case) -> Verdict:
    """Calls inside the step that wait for the device."""
    if case.unmarked:
        raise NotMeasuredError("marks of steps, to count calls in one", how_to_collect=STEPS_BY)
    found = {rank: calls for rank in blocking.ranks_read(case) if (calls := blocking.calls(case, rank)) is not None}
    if not found:
        raise NotMeasuredError("what the host did", how_to_collect=HOST_BY)
    a_step = {rank: len(calls) / case.num_kernel_steps for rank, calls in found.items()}
    idle = {rank: blocking.idle_after(case, rank, calls) for rank, calls in found.items()}
    rank = max(found, key=lambda known: (a_step[known], float(idle[known]["duration_ns"].sum())))
    lost_ns = _lost_ns(case, rank, idle[rank])
    evidence = {"calls_a_step": a_step[rank], "idle_after_calls_ns": lost_ns}
    if a_step[rank] < case.limit(SYNC_CALLS):
        return Verdict((), evidence)
    names = tuple(str(name) for name in found[rank]["name"].astype(str).value_counts().index[:3])
    many = tuple(sorted(known for known in found if a_step[known] >= max(case.limit(SYNC_CALLS), ALIKE * a_step[rank])))
    everyone = len(many) == len(found)
    if case.moments is not None:
        waits = pd.concat([calls for one in many if (calls := blocking.before_last(case, one)) is not None])
        cost_ns = work.price(case, [work.loss(work.EMPTY, waits=waits)])
    else:
        cost_ns = _cost_ns(case, rank, lost_ns) if everyone else work.won_ns(case, pd.concat([idle[one] for one in many]))
    small = cost_ns < 0.01 * (case.step_ns or 1)
    form = " of rank {ranks}" if len(many) == 1 else " of ranks {ranks}"
    whose = "" if everyone else say(form, ranks=", ".join(map(str, many)))
    return Verdict(
        (
            Finding(
                rule=RULE.name,
                title=say(
                    "The host{whose} waits for the device up to {calls_a_step} times inside a step ({call})",
                    whose=whose,
                    call=names[0],
                    **evidence,
                ),
                subject={"operators": names, **({} if everyone else {"ranks": many})},
                evidence=evidence,
                actions=(*called_from(case, rank, found[rank]["start_ns"].to_numpy(dtype=np.int64)), *fitting(case, ACTIONS)),
                cost_ns=cost_ns,
                severity="low" if small else None,
                next=("14_timeline", "host-bound"),
                part="free",
            ),
        ),
        evidence,
    )


def _lost_ns(case: Case, rank: int, idle: pd.DataFrame) -> float:
    """The mean time a step that the device idles at these calls, or because of them where launches tell."""
    at_calls_ns = float(idle["duration_ns"].sum()) / case.num_kernel_steps
    return max(at_calls_ns, blocking.lost_ns(case).get(rank, 0.0))


def _cost_ns(case: Case, rank: int, lost_ns: float) -> int:
    """What a step wins without the idle times at such calls: all ranks run one program, so all lose the same share of theirs.

    A host that would run ahead is early for the next step, too.
    """
    gaps = case.gaps
    whole_ns = float(gaps.loc[gaps["rank"] == rank, "duration_ns"].sum()) / case.num_kernel_steps
    return work.won_ns(case, gaps, fraction=min(1.0, lost_ns / whole_ns)) if whole_ns else 0


RULE = Rule(
    name="frequent-sync",
    title="The host waits for the device inside the step",
    needs=frozenset({"steps", "kernels"}),
    how_to_collect=HOST_BY,
    thresholds=(SYNC_CALLS,),
    check=check,
    explains=frozenset({"host-bound", "cpu-contention"}),  # launches that are held up cost where the queue has run empty
)
