"""Figures that cannot be right: more operations than the device can do, negative times, parts longer than their step.

What is checked: the length and the parts of every recorded step; lengths of the steps in a log; and rates of operations against the
highest peak of the device, where the run names one that is known: those that a log prints, those of a step by its plan or its
shapes, and those of single matrix products. MFU and HFU above 1 are such rates. A finding means that a unit, a count or a recording
is wrong, and that conclusions from the same figures are too.

What to do: check the unit of the figure, the number of devices and the peak of the device, and record again.
"""

from __future__ import annotations

import pandas as pd

from perfkit.core import quantity
from perfkit.core.errors import NotMeasuredError
from perfkit.core.texts import say
from perfkit.explain.diagnose import shapes, use
from perfkit.explain.diagnose.case import Case
from perfkit.explain.diagnose.collecting import STEPS_BY
from perfkit.explain.diagnose.rule import Finding, Rule, Verdict

PARTS = ("computing_ns", "exposed_communication_ns", "bubble_ns", "free_ns")
LEAST_NS = 1_000_000
"""In all calls of a shape: what is timed to the microsecond is then right to a thousandth."""
ACTIONS = ("check the unit of the figure, the number of devices and the peak of the device", "record again")


def check(case: Case) -> Verdict:
    """Counts of figures that cannot be."""
    steps, log = case.run.frame("steps"), case.run.frame("log")
    if steps.empty and log.empty:
        raise NotMeasuredError("steps or a log", how_to_collect=STEPS_BY)
    evidence = {
        "steps_without_length": float((steps["duration_ns"] <= 0).sum() + (log["duration_ns"] <= 0).sum()),
        "negative_parts": float(sum((steps[name] < 0).sum() for name in PARTS)),
        "steps_shorter_than_computing": float((steps["computing_ns"] > steps["duration_ns"]).sum()),
    }
    wrong = {name: count for name, count in evidence.items() if count}
    utilization = _utilization(case, log)
    if utilization is not None:
        evidence["largest_utilization_ratio"] = utilization
        if utilization > 1.0:
            wrong["largest_utilization_ratio"] = evidence["largest_utilization_ratio"]
    if not wrong:
        return Verdict((), evidence)
    told = quantity.listed(wrong)
    finding = Finding(
        rule=RULE.name,
        title=say("Figures that cannot be right: {figures}", figures=told),
        subject={"figures": tuple(wrong)},
        evidence=evidence,
        actions=ACTIONS,
        severity="high",
        next=("10_load_run",),
    )
    return Verdict((finding,), evidence)


def _utilization(case: Case, log: pd.DataFrame) -> float | None:
    """The largest rate of operations over the highest peak of the device: of the log, the step or a product; None if unknown."""
    peaks = use.peaks(case)
    if peaks is None:
        return None
    rates = [float(rate) for rate in log["flops_per_s_per_device"].dropna()]
    used = use.flops_per_s(case)
    rates += [] if used is None else [used[0]]
    if case.run.has("kernels") and not case.kernels.empty:
        costs = shapes.typical_costs(case)
        # Attention is counted without its causal mask, and may do half of that; single short calls are timed too coarsely.
        products = costs[((costs["kind"] == "matmul") & (costs["total_ns"] >= LEAST_NS)).to_numpy(dtype=bool)]
        rates += [float(rate) for rate in products["flops_per_s"].dropna()]
    return max(rates) / peaks[1] if rates else None


RULE = Rule("impossible-value", "Figures that cannot be right", frozenset(), STEPS_BY, (), check)
