"""The recording itself slows the job down, so that its figures are not those of a run without it.

What is measured, whichever is there: times of the host that the profiler marks as its own (Buffer Flush, Activity Buffer Request,
Instrumentation, loading of modules) while the device idles, on up to two ranks; and, with a run of the same job without kernels as
baseline (its training log), the recorded step over the median step of that. 5 % and more is a finding.

What to do: record fewer steps without stacks, shapes and memory; a lower level; compare totals with logs, not with recordings.
"""

from __future__ import annotations

import re

from perfkit.core.errors import NotMeasuredError
from perfkit.core.texts import say
from perfkit.explain.diagnose import host, work
from perfkit.explain.diagnose.case import Case
from perfkit.explain.diagnose.collecting import BASELINE_BY
from perfkit.explain.diagnose.rule import Finding, Rule, Threshold, Verdict

OVERHEAD_SHARE = Threshold(
    "overhead-share", 0.05, "share of the step", "chosen: high severity; from here on figures of a recording mislead"
)

OWN = re.compile(
    r"^(?:Buffer Flush|Activity Buffer Request|Instrumentation|Resource|Command Buffer Full|Profiler Overhead|CUPTI Overhead|"
    r"Lazy Function Loading|Runtime Triggered Module Loading)$",
    re.IGNORECASE,
)
HEAVY = ("with_stack", "profile_memory", "record_shapes")
ACTIONS = (
    "record fewer steps, without stacks, shapes and memory, or with a lower level, when totals matter",
    "compare totals with a log of the same job without a profiler",
)


def check(case: Case) -> Verdict:
    """Idle times in the profiler's own work, and the step against one without a profiler."""
    own, slower = _own_ns(case), _slower_ns(case)
    if own is None and slower is None:
        raise NotMeasuredError("times of the profiler itself, or steps without it", how_to_collect=BASELINE_BY)
    step_ns = case.step_ns or 1
    evidence: dict[str, float] = {}
    if own is not None:
        evidence["idle_in_profiler_ns"] = own
    if slower is not None:
        evidence["longer_than_without_ns"] = slower
    lost = max(own or 0.0, slower or 0.0)
    if lost < case.limit(OVERHEAD_SHARE) * step_ns:
        return Verdict((), evidence)
    evidence |= {"longer_ns": lost, "longer_share": lost / step_ns}
    switched_on = [name for name in HEAVY if (fact := case.run.facts.get(name)) is not None and fact.value]
    cost_ns = round(lost) if slower is not None else work.less_busy_ns(case, dict.fromkeys(case.run.ranks, lost))
    finding = Finding(
        rule=RULE.name,
        title=say(
            "Recording makes the step {longer_ns} longer{why}",
            why=say(", with {switches}", switches=", ".join(switched_on)) if switched_on else "",
            **evidence,
        ),
        subject={"ranks": ()},
        evidence=evidence,
        actions=ACTIONS,
        cost_ns=cost_ns or None,
        severity="low",
        next=("10_load_run", "host-bound"),
    )
    return Verdict((finding,), evidence)


def _own_ns(case: Case) -> float | None:
    """The mean idle time a step in which the host did work of the profiler; None where a recording marks none."""
    if not case.run.has("kernels") or not case.idle_known:
        return None
    most = None
    for rank in host.busiest(case):
        rows = host.rows(case, rank, OWN)
        if rows is None or rows.empty:
            continue
        gaps = case.gaps[case.gaps["rank"] == rank]
        share = host.share_in(case, rank, gaps, OWN) or 0.0
        most = max(most or 0.0, share * float(gaps["duration_ns"].sum()) / case.num_kernel_steps)
    return most


def _slower_ns(case: Case) -> float | None:
    """How much longer a recorded step is than those of a baseline without kernels; None without one."""
    before = case.baseline
    if before is None or before.has("kernels") or not before.has("steps") or not case.run.has("kernels"):
        return None
    usual = Case(before, None, case.limits).steps.groupby("step")["duration_ns"].max().median()
    own = case.steps.groupby("step")["duration_ns"].max().median()
    return float(own - usual)


RULE = Rule("profiler-overhead", "Recording slows the job down", frozenset({"steps"}), BASELINE_BY, (OVERHEAD_SHARE,), check)
