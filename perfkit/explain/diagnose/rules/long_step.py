"""Single steps take far longer than all others: a checkpoint, an evaluation, the start of a profiler.

What is measured: steps of at least three medians, after warm-up, that are at most a tenth of the steps. The cost is what they last
longer, as a mean over all steps. Recordings of a few steps rarely hold one; a training log does.

What to do: save checkpoints asynchronously and less often, evaluate rarely; compare medians of such logs, not means.
"""

from __future__ import annotations

import itertools

from perfkit.core.errors import NotMeasuredError
from perfkit.core.texts import say
from perfkit.explain.diagnose.advice import ASYNC_SAVE, Action, fitting
from perfkit.explain.diagnose.case import Case
from perfkit.explain.diagnose.collecting import STEPS_BY
from perfkit.explain.diagnose.rule import Finding, Rule, Threshold, Verdict

LONG_STEP = Threshold(
    "long-step", 3.0, "median steps", "chosen: healthy bundled logs reach 1.2; a checkpoint or an evaluation takes many steps' time"
)

MIN_STEPS = 10
"""Of fewer, one step is more than MOST of them."""
MOST = 0.1
"""A tenth of the steps or more is no outlier: such a job is slow now and then, which other rules judge."""

ACTIONS: tuple[Action, ...] = (ASYNC_SAVE, "compare medians of steps, not means that hold these")


def check(case: Case) -> Verdict:
    """Single steps that are far longer than the median."""
    lengths = case.steps.groupby("step")["duration_ns"].max().sort_index().astype("float64")
    if len(lengths) < MIN_STEPS:
        raise NotMeasuredError("ten steps", how_to_collect=STEPS_BY)
    usual = float(lengths.median())
    long = lengths[lengths >= case.limit(LONG_STEP) * usual]
    evidence = {"longest_over_median": float(lengths.max()) / usual, "num_steps": float(len(lengths)), "num_long": float(len(long))}
    if long.empty or len(long) > MOST * len(lengths):
        return Verdict((), evidence)
    lost = float((long - usual).sum())
    steps = tuple(int(str(step)) for step in long.index)
    distances = {after - before for before, after in itertools.pairwise(steps)}
    regular = say(", every {period} steps", period=distances.pop()) if len(distances) == 1 else ""
    finding = Finding(
        rule=RULE.name,
        title=say(
            "{num_long} of {num_steps} steps take up to {longest_over_median} x as long as the median{regular}",
            regular=regular,
            **evidence,
        ),
        subject={"steps": steps[:64]},
        evidence={**evidence, "lost_in_all_ns": lost},
        actions=fitting(case, ACTIONS),
        cost_ns=round(lost / len(lengths)),
        severity="low",
        next=("11_step_breakdown",),
    )
    return Verdict((finding,), evidence)


RULE = Rule(
    name="long-step",
    title="Single long steps",
    needs=frozenset({"steps"}),
    how_to_collect=STEPS_BY,
    thresholds=(LONG_STEP,),
    check=check,
    symptom_of=frozenset({"host-pause", "data-feed"}),
)
