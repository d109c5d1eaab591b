"""The host waits for the device inside the step, so that the launch queue runs empty each time.

What is measured: calls that wait for the device (synchronize of a stream or device, reading a value: item, asnumpy, copies to the
host) on the host side of up to eight ranks, those at the end of a step left out; and the time that the device idles at and after
them. Four and more a step are named even where they cost little today: they keep the host from running ahead, and cost more as
devices get faster. Steps in which the host waits much more often than in the others are named, where that costs.

What to do: read values every n-th step, keep the loss on the device, branch on the device, log asynchronously.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import pandas as pd

from perfkit.core.errors import NotMeasuredError
from perfkit.core.texts import say
from perfkit.explain.diagnose import blocking, work
from perfkit.explain.diagnose.advice import Action, fitting
from perfkit.explain.diagnose.blocking import SYNC_CALLS
from perfkit.explain.diagnose.case import Case
from perfkit.explain.diagnose.collecting import HOST_BY, STEPS_BY
from perfkit.explain.diagnose.episodes import episode_of, price_ns, together
from perfkit.explain.diagnose.rule import Finding, Rule, Verdict
from perfkit.explain.diagnose.source_lines import called_from
from perfkit.explain.diagnose.thresholds import LEAST_SHARE

Steps = tuple[int, ...]
Calls = Mapping[int, pd.DataFrame]
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
    """Calls inside the step that wait for the device, in all steps or in some."""
    if case.unmarked:
        raise NotMeasuredError("marks of steps, to count calls in one", how_to_collect=STEPS_BY)
    found = {rank: calls for rank in blocking.ranks_read(case) if (calls := blocking.calls(case, rank)) is not None}
    if not found:
        raise NotMeasuredError("what the host did", how_to_collect=HOST_BY)
    findings, usual = _in_some_steps(case, found)
    lasting = _lasting(case, {rank: blocking.within(calls, usual[rank]) for rank, calls in found.items()}, usual)
    return replace(lasting, findings=(*lasting.findings, *findings))


def _lasting(case: Case, found: Calls, usual: Mapping[int, Steps]) -> Verdict:
    """Calls that wait in all steps; the `usual` steps of each rank tell how many."""
    a_step = {rank: len(calls) / len(usual[rank]) for rank, calls in found.items()}
    idle = {rank: blocking.idle_after(case, rank, calls) for rank, calls in found.items()}
    rank = max(found, key=lambda known: (a_step[known], float(idle[known]["duration_ns"].sum())))
    evidence = {"calls_a_step": a_step[rank], "idle_after_calls_ns": _lost_ns(case, rank, idle[rank], usual[rank])}
    if a_step[rank] < case.limit(SYNC_CALLS):
        return Verdict((), evidence)
    many = tuple(sorted(known for known in found if a_step[known] >= max(case.limit(SYNC_CALLS), ALIKE * a_step[rank])))
    everyone = len(many) == len(found)
    title = "The host{whose} waits for the device up to {calls_a_step} times inside a step ({call})"
    finding = _finding(case, (rank, found[rank]), () if everyone else many, title, evidence)
    cost_ns = round(_cost_ns(case, {one: found[one] for one in many}, {one: usual[one] for one in many}, everyone=everyone))
    small = cost_ns < 0.01 * (case.step_ns or 1)
    return Verdict((replace(finding, cost_ns=cost_ns, severity="low" if small else None),), evidence)


def _in_some_steps(case: Case, found: Calls) -> tuple[list[Finding], dict[int, Steps]]:
    """Ranks whose hosts wait more often in some steps, where that costs; and the steps of each rank that are as usual."""
    usual = {rank: tuple(case.kernel_steps) for rank in found}
    counts = {rank: blocking.by_step(case, rank) for rank in found}
    episodes = {rank: one for rank in found if (one := episode_of(counts[rank], case.limit(SYNC_CALLS))) is not None}
    findings = []
    for steps, ranks in together(episodes):
        others = tuple(step for step in case.kernel_steps if step not in steps)
        inside_ns, outside_ns = (
            _cost_ns(
                case,
                {rank: blocking.within(found[rank], which) for rank in ranks},
                dict.fromkeys(ranks, which),
                everyone=len(ranks) == len(found),
            )
            for which in (steps, others)
        )
        # Of what the calls of these steps cost, those that every step has are the others' part.
        cost_ns = round(max(0.0, inside_ns - outside_ns) * len(steps) / len(case.kernel_steps))
        cost_ns = price_ns(case, steps, cost_ns, whole=case.moments is not None)
        if cost_ns < case.limit(LEAST_SHARE) * (case.step_ns or 1):
            continue
        usual.update(dict.fromkeys(ranks, others))
        worst = max(ranks, key=lambda rank: counts[rank][list(steps)].sum())
        finding = _finding(
            case,
            (worst, blocking.within(found[worst], steps)),
            () if len(ranks) == len(found) else ranks,
            "The host{whose} waits for the device {calls_a_step} times inside a step {when}, {usual_calls_a_step} times in the "
            "others ({call})",
            {
                "calls_a_step": float(counts[worst][list(steps)].mean()),
                "usual_calls_a_step": episodes[worst].usual,
                "steps_in_episode": float(len(steps)),
                "steps_in_all": float(len(case.kernel_steps)),
            },
            when=episodes[worst].told(len(case.kernel_steps)),
        )
        findings.append(replace(finding, subject={**finding.subject, "steps": steps}, cost_ns=cost_ns))
    return findings, usual


def _finding(
    case: Case, worst: tuple[int, pd.DataFrame], some: tuple[int, ...], title: str, evidence: Mapping[str, float], **words: str
) -> Finding:
    """What is told of calls, by those of the rank that has most of them; `some` are the ranks if not all."""
    rank, calls = worst
    names = tuple(str(name) for name in calls["name"].astype(str).value_counts().index[:3])
    form = " of rank {ranks}" if len(some) == 1 else " of ranks {ranks}"
    whose = say(form, ranks=", ".join(map(str, some))) if some else ""
    return Finding(
        rule=RULE.name,
        title=say(title, whose=whose, call=names[0], **words, **evidence),
        subject={"operators": names, **({"ranks": some} if some else {})},
        evidence=evidence,
        actions=(*called_from(case, rank, calls["start_ns"].to_numpy(dtype=np.int64)), *fitting(case, ACTIONS)),
        next=("14_timeline", "host-bound"),
        part="free",
    )


def _lost_ns(case: Case, rank: int, idle: pd.DataFrame, steps: Steps) -> float:
    """The mean time of these steps that the device idles at calls in them, or because of them where launches tell."""
    told = blocking.lost_by_step(case).get(rank)
    return max(float(idle["duration_ns"].sum()) / len(steps), 0.0 if told is None else float(told[list(steps)].mean()))


def _cost_ns(case: Case, found: Calls, steps: Mapping[int, Steps], *, everyone: bool) -> float:
    """What a mean one of these steps wins without calls that wait in them.

    Where launches do not tell, without the idle times at them: if all ranks have such calls, all run one program and lose the same
    share of theirs. A host that would run ahead is early for the next step, too.
    """
    part = len(case.kernel_steps) / max(len(which) for which in steps.values())
    if case.moments is not None:
        told = [blocking.within(calls, steps[one]) for one in found if (calls := blocking.before_last(case, one)) is not None]
        return part * work.price(case, [work.loss(work.EMPTY, waits=pd.concat(told))])
    idle = {rank: blocking.idle_after(case, rank, calls) for rank, calls in found.items()}
    if not everyone:
        return part * work.won_ns(case, pd.concat(idle.values()))
    rank = max(idle, key=lambda known: float(idle[known]["duration_ns"].sum()))
    gaps = blocking.within(case.gaps, steps[rank])
    whole_ns = float(gaps.loc[gaps["rank"] == rank, "duration_ns"].sum())
    share = min(1.0, float(idle[rank]["duration_ns"].sum()) / whole_ns) if whole_ns else 0.0
    return part * work.won_ns(case, gaps, fraction=share)


RULE = Rule(
    name="frequent-sync",
    title="The host waits for the device inside the step",
    needs=frozenset({"steps", "kernels"}),
    how_to_collect=HOST_BY,
    thresholds=(SYNC_CALLS,),
    check=check,
    explains=frozenset({"host-bound", "cpu-contention"}),  # launches that are held up cost where the queue has run empty
)
