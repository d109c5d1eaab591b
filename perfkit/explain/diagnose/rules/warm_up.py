"""The recording begins with a step that compiles, allocates and fills caches, and is no sample of the training.

What is measured: the first recorded step against the median of the others. From 1.5 times on it is warm-up: all rules leave it out.
A training log begins at the start of the job and always has one; only recordings of kernels or communication are judged.

What to do: record later (profile_start_step 5 and more, or a schedule with wait and warmup), and at least three steps besides.
"""

from __future__ import annotations

from perfkit.core.errors import NotMeasuredError
from perfkit.explain.diagnose.case import WARM_UP_FACTOR, Case
from perfkit.explain.diagnose.rule import Finding, Rule, Threshold, Verdict
from perfkit.explain.diagnose.thresholds import MIN_STEPS

HOW = "record at least three steps of a running training"
FACTOR = Threshold(name="warm-up-factor", value=WARM_UP_FACTOR, unit="median steps", origin="chosen; fixed for all rules")


def check(case: Case) -> Verdict:
    """Whether the first recorded step is warm-up."""
    lengths = case.all_steps.groupby("step")["duration_ns"].median().sort_index().astype("float64")
    if len(lengths) < case.limit(MIN_STEPS):
        raise NotMeasuredError("three recorded steps", how_to_collect=HOW)
    if not (case.run.has("kernels") or case.run.has("collectives")):
        # A log holds the start of the job, which is no mistake in recording it.
        raise NotMeasuredError("a recording of kernels or collectives", how_to_collect=HOW)
    usual = float(lengths.iloc[1:].median())
    evidence = {"first_step_ns": float(lengths.iloc[0]), "usual_step_ns": usual, "first_over_usual": float(lengths.iloc[0]) / usual}
    if case.warm_up_step is None:
        return Verdict((), evidence)
    left = len(lengths) - 1
    finding = Finding(
        rule=RULE.name,
        title=f"Step {case.warm_up_step} takes {lengths.iloc[0] / usual:.1f} x as long as the others: warm-up, left out here",
        subject={"steps": (case.warm_up_step,)},
        evidence={**evidence, "steps_left": float(left)},
        actions=(
            "begin recording later: profile_start_step 5 or more, or schedule(wait=..., warmup=1, active=3)",
            "compare nothing with this step, nor with a mean that holds it",
        ),
        severity="medium" if left < case.limit(MIN_STEPS) else "low",
        next=("10_load_run",),
    )
    return Verdict((finding,), evidence)


RULE = Rule(
    name="warm-up",
    title="The recording begins with warm-up",
    needs=frozenset({"steps"}),
    how_to_collect=HOW,
    thresholds=(FACTOR, MIN_STEPS),
    check=check,
)
