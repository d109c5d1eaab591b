"""Iterations were skipped or had no loss: they cost time and teach nothing.

What is measured: iterations that a log calls skipped or overflowed, and losses that are nan, as a share of those that it prints.
Skipped iterations at the very start do not count: there a loss scale is sought.

What to do: look at loss scale, learning rate and data of the named steps; bf16 needs no loss scale.
"""

from __future__ import annotations

import pandas as pd

from perfkit.core.errors import NotMeasuredError
from perfkit.core.texts import say
from perfkit.explain.diagnose.advice import Action, fitting
from perfkit.explain.diagnose.case import Case
from perfkit.explain.diagnose.collecting import LOG_BY
from perfkit.explain.diagnose.rule import Finding, Rule, Threshold, Verdict

SKIPPED_SHARE = Threshold(
    name="skipped-share",
    value=0.01,
    unit="share of the iterations",
    origin="chosen: a scale that is found overflows once in its window, 1 of 1,000 (scale_window, --loss-scale-window)",
)
FEW_TOLD = 6
LONGEST_SEARCH = 33
"""A scale that starts at 2^32 and is halved at each overflow is 1 after as many iterations."""
_TOLD = ["overflow", "num_skipped", "num_nan", "loss_is_nan", "loss"]
ACTIONS: tuple[Action, ...] = (
    {
        "mindspore": "train in bf16, which needs no loss scale (compute_dtype: bfloat16); or a smaller loss_scale_value",
        "megatron": "train in bf16, which needs no loss scale (--bf16); or a smaller --initial-loss-scale",
        "torch": "train in bf16, which needs no loss scale; or a smaller init_scale of the GradScaler",
    },
    "nan in the loss: look at learning rate and warm-up, at gradients without clipping, and at the batches of those steps",
)


def check(case: Case) -> Verdict:
    """Iterations of a log that were skipped or whose loss is nan, on the rank that tells of most: not every rank has the loss."""
    rows = case.run.frame("log")
    told = rows[_TOLD].notna().any(axis=1)
    if not told.any():
        raise NotMeasuredError("losses or skipped iterations", how_to_collect=LOG_BY)
    ranks = [_judged(of_rank) for _, of_rank in rows[told.to_numpy(dtype=bool)].groupby("rank", sort=True)]
    rows, never = max(ranks, key=lambda judged: (judged[1], judged[0]["nan"].sum(), judged[0]["lost"].sum()))
    if rows.empty:
        raise NotMeasuredError("iterations after the loss scale was found", how_to_collect=LOG_BY)
    skipped, nan, lost, count = (int(rows[name].sum()) for name in ("skipped", "nan", "lost", "num_steps"))
    evidence = {"skipped_iterations": float(skipped), "nan_iterations": float(nan), "iterations": float(count)}
    if not nan and lost < case.limit(SKIPPED_SHARE) * count:
        return Verdict((), evidence)
    which = rows[(rows["nan" if nan else "lost"] > 0).to_numpy(dtype=bool)]
    happened = (
        "{nan_iterations} have a loss of nan"
        if nan
        else "all were skipped: no step was taken"
        if never
        else "{skipped_iterations} were skipped"
    )
    finding = Finding(
        rule=RULE.name,
        title=say(
            "Of {iterations} iterations {what}, first step {step} (line {line})",
            what=say(happened, **evidence),
            step=str(int(which["step"].iloc[0])),
            line=str(int(which["line"].iloc[0])),
            **evidence,
        ),
        subject={"steps": tuple(int(step) for step in which["step"][:FEW_TOLD]), "ranks": (int(which["rank"].iloc[0]),)},
        evidence=evidence,
        actions=fitting(case, ACTIONS),
        cost_ns=None if nan or never else _cost_ns(rows, count),
        severity="high" if nan or never else "medium",
        next=("22_accuracy_alignment",),
    )
    return Verdict((finding,), evidence)


def _judged(rows: pd.DataFrame) -> tuple[pd.DataFrame, bool]:
    """The lines of one rank with `skipped`, `nan` and `lost` iterations of each, and whether no step was ever taken.

    The first lines that tell of skipped iterations are left out, for there the loss scale is sought; unless no other follows in a
    log that is longer than such a search.
    """
    skipped = rows["num_skipped"].fillna(0) + (rows["overflow"].fillna(False) & rows["num_skipped"].isna()).astype("int64")
    nan = rows["num_nan"].fillna(0).where(rows["num_nan"].notna(), rows["loss_is_nan"].fillna(False).astype("int64"))
    lost = (skipped + nan).astype("int64").clip(upper=rows["num_steps"].astype("int64"))
    told = rows.assign(skipped=skipped.astype("int64"), nan=nan.astype("int64"), lost=lost)
    sought = (told["skipped"] > 0).to_numpy(dtype=bool).cumprod().astype(bool)
    never = bool(sought.all()) and int(told["num_steps"].sum()) > LONGEST_SEARCH
    return told if never else told[~sought], never


def _cost_ns(rows: pd.DataFrame, count: int) -> int | None:
    """The time of the lost iterations, spread over all."""
    known = rows["duration_ns"].astype("Float64")
    return None if known.isna().all() else round(float((known * rows["lost"]).sum()) / max(1, count))


RULE = Rule("skipped-steps", "Iterations that were skipped", frozenset({"log"}), LOG_BY, (SKIPPED_SHARE,), check)
