"""Figures that cannot be right: more operations than the device can do, negative times, parts longer than their step.

What is checked: the length and the parts of every recorded step; lengths of the steps in a log; and the rate of operations in a
log against the highest peak of the device, where the run names its device. A finding means that a unit, a count or a recording is
wrong, and that conclusions from the same figures are too.

What to do: check the unit of the figure, the number of devices and the peak of the device, and record again.
"""

from __future__ import annotations

from perfkit import catalog
from perfkit.diagnose._case import Case
from perfkit.diagnose._rule import Finding, Rule, Verdict
from perfkit.errors import InputError, NotMeasuredError

PARTS = ("computing_ns", "exposed_communication_ns", "bubble_ns", "free_ns")
HOW = "record steps, or keep the training log"
ACTIONS = ("check the unit of the figure, the number of devices and the peak of the device", "record again")


def check(case: Case) -> Verdict:
    """Counts of figures that cannot be."""
    steps, log = case.run.frame("steps"), case.run.frame("log")
    if steps.empty and log.empty:
        raise NotMeasuredError("steps or a log", how_to_collect=HOW)
    evidence = {
        "steps_without_length": float((steps["duration_ns"] <= 0).sum() + (log["duration_ns"] <= 0).sum()),
        "negative_parts": float(sum((steps[name] < 0).sum() for name in PARTS)),
        "steps_shorter_than_computing": float((steps["computing_ns"] > steps["duration_ns"]).sum()),
    }
    wrong = {name: count for name, count in evidence.items() if count}
    rates, peak = log["flops_per_s_per_device"].dropna(), _peak_flops_per_s(case)
    if len(rates) and peak is not None:
        evidence["largest_utilization"] = float(rates.max()) / peak
        if evidence["largest_utilization"] > 1.0:
            wrong["largest_utilization"] = evidence["largest_utilization"]
    if not wrong:
        return Verdict((), evidence)
    told = ", ".join(f"{name.replace('_', ' ')} {value:.4g}" for name, value in wrong.items())
    finding = Finding(
        rule=RULE.name,
        title=f"Figures that cannot be right: {told}",
        subject={"figures": tuple(wrong)},
        evidence=evidence,
        actions=ACTIONS,
        severity="high",
        next=("10_load_run",),
    )
    return Verdict((finding,), evidence)


def _peak_flops_per_s(case: Case) -> float | None:
    """The highest dense peak of the device that the run names; None where it names none that is known."""
    plan, fact = case.run.plan, case.run.facts.get("device_name")
    if plan is not None and plan.hardware is not None:
        return max(plan.hardware.peak_flops_per_s.values())
    if fact is None:
        return None
    try:
        return max(catalog.hardware_named(str(fact.value)).peak_flops_per_s.values())
    except InputError:  # a device that the catalogue does not know has no known peak
        return None


RULE = Rule(
    name="impossible-value",
    title="Figures that cannot be right",
    needs=frozenset(),
    how_to_collect=HOW,
    thresholds=(),
    check=check,
)
