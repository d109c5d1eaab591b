"""The recording begins with a step that compiles, allocates and fills caches, and is no sample of the training.

What is measured: the first recorded steps against the median of the second half. Those longer by half of it, and by five robust
standard deviations, are warm-up: all rules, pages and comparisons leave them out.

A training log begins at the start of the job and always has one; only recordings of kernels or communication are judged.

What to do: record later (profile_start_step 5 and more, or a schedule with wait and warmup), and at least three steps besides.
"""

from __future__ import annotations

from perfkit.core import robust
from perfkit.core.errors import NotMeasuredError
from perfkit.core.texts import say
from perfkit.explain.diagnose.case import Case
from perfkit.explain.diagnose.collecting import STEPS_BY
from perfkit.explain.diagnose.rule import Finding, Rule, Threshold, Verdict
from perfkit.explain.diagnose.thresholds import MIN_STEPS

FACTOR = Threshold(
    name="warm-up-factor",
    value=1 + robust.WARM_UP_EXCESS,
    unit="median steps",
    origin="chosen: see core.robust; first steps of healthy bundled recordings reach 1.4, those that compile 1.56 and more",
)


def check(case: Case) -> Verdict:
    """Whether the first recorded steps are warm-up."""
    lengths = case.all_steps.groupby("step")["duration_ns"].median().sort_index().astype("float64")
    if len(lengths) < case.limit(MIN_STEPS):
        raise NotMeasuredError("three recorded steps", how_to_collect=STEPS_BY)
    if not (case.run.has("kernels") or case.run.has("collectives")):
        # A log holds the start of the job, which is no mistake in recording it.
        raise NotMeasuredError("a recording of kernels or collectives", how_to_collect=STEPS_BY)
    usual = float(lengths.iloc[max(1, len(case.warm_up_steps)) :].median())
    evidence = {"first_step_ns": float(lengths.iloc[0]), "usual_step_ns": usual, "first_over_usual": float(lengths.iloc[0]) / usual}
    cut = case.warm_up_steps
    if not cut:
        return Verdict((), evidence)
    left = len(lengths) - len(cut)
    finding = Finding(
        rule=RULE.name,
        title=say(
            "Step {step} takes {first_over_usual} x as long as the median of the others: warm-up, left out here",
            step=str(cut[0]),
            **evidence,
        ),
        subject={"steps": cut},
        evidence={**evidence, "steps_left": float(left)},
        actions=(
            "begin recording later: profile_start_step 5 or more, or schedule(wait=..., warmup=1, active=3)",
            "compare nothing with this step, nor with a mean that holds it",
        ),
        severity="medium" if left < case.limit(MIN_STEPS) else "low",
        next=("10_load_run",),
    )
    return Verdict((finding,), evidence)


RULE = Rule("warm-up", "The recording begins with warm-up", frozenset({"steps"}), STEPS_BY, (FACTOR, MIN_STEPS), check)
