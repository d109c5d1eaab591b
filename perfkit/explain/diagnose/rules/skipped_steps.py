"""Iterations were skipped or had no loss: they cost time and teach nothing.

What is measured: iterations that a log calls skipped or overflowed, and losses that are nan, as a share of those that it prints.
Skipped iterations at the very start do not count: there a loss scale is sought.

What to do: look at loss scale, learning rate and data of the named steps; bf16 needs no loss scale.
"""

from __future__ import annotations

import pandas as pd

from perfkit.core.errors import NotMeasuredError
from perfkit.explain.diagnose.case import Case
from perfkit.explain.diagnose.rule import Finding, Rule, Threshold, Verdict

SKIPPED_SHARE = Threshold(
    name="skipped-share",
    value=0.01,
    unit="share of the iterations",
    origin="chosen: a scale that is found overflows once in its window, 1 of 1,000 (loss_scale_window of MindSpore and Megatron)",
)
HOW = "keep a log that prints the loss, and skipped iterations where a loss scale is used"
FEW_TOLD = 6
ACTIONS = (
    "train in bf16, which needs no loss scale; or a smaller initial scale (initial_loss_scale, --initial-loss-scale)",
    "nan in the loss: look at learning rate and warm-up, at gradients without clipping, and at the batches of those steps",
)


def check(case: Case) -> Verdict:
    """Iterations of a log that were skipped or whose loss is nan."""
    rows = case.run.frame("log")
    told = rows[["overflow", "num_skipped", "num_nan", "loss_is_nan", "loss"]].notna().any(axis=1)
    if not told.any():
        raise NotMeasuredError("losses or skipped iterations", how_to_collect=HOW)
    rows = _after_the_search(rows[(rows["rank"] == rows["rank"].min()).to_numpy(dtype=bool)])
    skipped = rows["num_skipped"].fillna(0) + (rows["overflow"].fillna(False) & rows["num_skipped"].isna()).astype("int64")
    nan = rows["num_nan"].fillna(0).where(rows["num_nan"].notna(), rows["loss_is_nan"].fillna(False).astype("int64"))
    lost = (skipped + nan).astype("int64").clip(upper=rows["num_steps"].astype("int64"))
    count = int(rows["num_steps"].sum())
    evidence = {"skipped_iterations": float(skipped.sum()), "nan_iterations": float(nan.sum()), "iterations": float(count)}
    if not nan.sum() and lost.sum() < case.limit(SKIPPED_SHARE) * count:
        return Verdict((), evidence)
    which = rows[(lost > 0).to_numpy(dtype=bool)]
    what = f"{int(nan.sum())} have a loss of nan" if nan.sum() else f"{int(skipped.sum())} were skipped"
    finding = Finding(
        rule=RULE.name,
        title=f"Of {count} iterations {what}, first step {int(which['step'].iloc[0])} (line {int(which['line'].iloc[0])})",
        subject={"steps": tuple(int(step) for step in which["step"][:FEW_TOLD]), "ranks": (int(which["rank"].iloc[0]),)},
        evidence=evidence,
        actions=ACTIONS,
        cost_ns=_cost_ns(rows, lost, count) if not nan.sum() else None,
        severity="high" if nan.sum() else "medium",
        next=("22_accuracy_alignment",),
    )
    return Verdict((finding,), evidence)


def _after_the_search(rows: pd.DataFrame) -> pd.DataFrame:
    """The lines after the first ones that tell of skipped iterations: there the loss scale is sought."""
    skipped = (rows["num_skipped"].fillna(0) > 0) | rows["overflow"].fillna(False).astype(bool)
    return rows[~skipped.to_numpy(dtype=bool).cumprod().astype(bool)]


def _cost_ns(rows: pd.DataFrame, lost: pd.Series, count: int) -> int | None:
    """The time of the lost iterations, spread over all."""
    known = rows["duration_ns"].astype("Float64")
    return None if known.isna().all() else round(float((known * lost).sum()) / max(1, count))


RULE = Rule(
    name="skipped-steps",
    title="Iterations that were skipped",
    needs=frozenset({"log"}),
    how_to_collect=HOW,
    thresholds=(SKIPPED_SHARE,),
    check=check,
)
