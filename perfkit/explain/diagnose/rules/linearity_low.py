"""More devices bring much less than their share.

What is measured, with a run on fewer devices as baseline: throughput over that of the baseline times the growth of devices, by the
sequences of a step and its length. The guides call 0.8 and more good. Tokens count where both runs state the length of their
sequences. Above 1.02 the two runs do not fit together: another unit, another model, other recomputation.

What to do: look at communication between nodes, slow ranks and stages, by the other findings; shard the optimizer inside nodes;
compare strategies for the larger number of devices.
"""

from __future__ import annotations

from perfkit.core.errors import NotMeasuredError
from perfkit.core.texts import say
from perfkit.core.units import NS_PER_S
from perfkit.explain.diagnose.advice import REDUCE_INSIDE_FIRST, Action, fitting
from perfkit.explain.diagnose.case import Case
from perfkit.explain.diagnose.collecting import BASELINE_BY
from perfkit.explain.diagnose.rule import Finding, Rule, Threshold, Verdict
from perfkit.predict.cost.scaling import linearity

LINEARITY_LOW = Threshold("linearity-low", 0.8, "throughput kept when growing", "guide: 0.8 and more is good")

MOST = 1.02
"""Repeats of one job differ by up to 1 %, so that two runs can by 2 %; more is a wrong number."""
ACTIONS: tuple[Action, ...] = (
    "look at communication between nodes, at slow ranks and stages: the findings that cost time",
    "keep tensor groups inside nodes",
    REDUCE_INSIDE_FIRST,
    "compare strategies for this number of devices (page 03)",
)
TOO_LITTLE = "{num_devices} devices deliver {linearity} of {baseline_devices} devices x {times_the_devices}"
TOO_GOOD = "{linearity} of its share: the two runs do not fit together"


def check(case: Case) -> Verdict:
    """Throughput against that of the baseline times the growth."""
    if case.baseline is None:
        raise NotMeasuredError("a run on fewer devices", how_to_collect=BASELINE_BY)
    before = Case(case.baseline, None, case.limits)
    with_tokens = all(_number(one, "seq_length") for one in (case, before))
    devices, base_devices = (_number(one, "num_devices") for one in (case, before))
    rate, base = (_per_s(one, with_tokens=with_tokens) for one in (case, before))
    if not devices or not base_devices or devices <= base_devices or rate is None or base is None:
        raise NotMeasuredError("devices and batches of two runs of different size", how_to_collect=BASELINE_BY)
    kept = linearity(rate, int(devices), base, int(base_devices))
    evidence = {
        "linearity": kept,
        "num_devices": devices,
        "baseline_devices": base_devices,
        "times_the_devices": devices / base_devices,
        f"{'tokens' if with_tokens else 'sequences'}_per_s": rate,
        "batch_over_baseline": (_number(case, "global_batch_size") or 0) / (_number(before, "global_batch_size") or 1),
    }
    if kept > MOST:
        return Verdict((_finding(case, "impossible", TOO_GOOD, evidence),), evidence)
    if kept >= case.limit(LINEARITY_LOW):
        return Verdict((), evidence)
    return Verdict((_finding(case, "low", TOO_LITTLE, evidence),), evidence)


def _finding(case: Case, what: str, form: str, evidence: dict[str, float]) -> Finding:
    return Finding(
        rule=RULE.name,
        title=say(form, **evidence),
        subject={},
        evidence=evidence,
        actions=fitting(case, ACTIONS)
        if what == "low"
        else ("check model, precision, recomputation and batch of both runs, and the unit",),
        severity="medium" if what == "low" else "high",
        next=("13_communication", "03_parallel_strategy", "impossible-value"),
    )


def _number(case: Case, name: str) -> float | None:
    """A setting that the plan or the run states."""
    plan = case.run.plan
    if plan is not None:
        known = {
            "num_devices": plan.parallel.num_devices,
            "global_batch_size": plan.workload.global_batch_size,
            "seq_length": plan.workload.seq_length,
        }
        return float(known[name])
    fact = case.run.facts.get(name)
    return float(fact.value) if fact is not None and isinstance(fact.value, int | float) and fact.value > 0 else None


def _per_s(case: Case, *, with_tokens: bool) -> float | None:
    """Sequences, or tokens, a second of the whole job, by the median step; None if the run does not state them."""
    batch = _number(case, "global_batch_size")
    lengths = case.steps.groupby("step")["duration_ns"].max()
    if not batch or lengths.empty or lengths.median() <= 0:
        return None
    each = (_number(case, "seq_length") or 1.0) if with_tokens else 1.0
    return batch * each * NS_PER_S / float(lengths.median())


RULE = Rule("linearity-low", "More devices bring too little", frozenset({"steps"}), BASELINE_BY, (LINEARITY_LOW,), check)
