"""Stragglers: how long each rank takes beside the ranks of its pipeline stage, and how uneven the stages are.

Stages do different work, so a rank is compared within its stage only; whether it is slow `perfkit.explain.diagnose.excess` judges.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import pandas as pd

from perfkit.core.errors import NotMeasuredError
from perfkit.core.run import Run

METRICS: Mapping[str, str] = {
    "computing": "computing",
    "interval": "free: interval between steps, host, data",
    "wait": "exposed communication, waiting included",
    "stage": "step without the bubble",
    "step": "step",
}
"""What ranks can be compared by, with the words for it."""
CHOICES = tuple((words, name) for name, words in METRICS.items())
"""The same to choose from: label and value."""
NO_STAGE = -1


def stage_name(stage: int) -> str:
    """A stage of `staged_steps` as people write it."""
    return "all" if stage == NO_STAGE else str(stage)


def staged_steps(run: Run) -> pd.DataFrame:
    """Every recorded step of every rank, with its `stage` (-1: not known)."""
    steps = run.steps()
    placed = {rank: position.pipeline for rank, position in run.placement.items() if position.pipeline is not None}
    stage = (
        steps["pipeline_stage"].astype("Int64").fillna(steps["rank"].map(placed).astype("Int64")).fillna(NO_STAGE).astype("int64")
    )
    return steps.assign(stage=stage)


def metric_values(steps: pd.DataFrame, metric: str) -> pd.DataFrame:
    """Rows `rank`, `step`, `stage`, `value_ns` of a metric of METRICS. Raises NotMeasuredError if no step has it."""
    columns = {"computing": "computing_ns", "interval": "free_ns", "wait": "exposed_communication_ns", "step": "duration_ns"}
    if metric == "stage":
        value = (steps["duration_ns"] - steps["bubble_ns"]).astype("Int64")
    else:
        value = steps[columns[metric]].astype("Int64")
    table = steps[["rank", "step", "stage"]].assign(value_ns=value).dropna(subset=["value_ns"])
    if table.empty:
        raise NotMeasuredError(
            f"{METRICS[metric]} of a step", how_to_collect="record a profile of two to four steps on every rank of a stage"
        )
    return table.astype({"value_ns": "int64"}).reset_index(drop=True)


def against_stage(values: pd.DataFrame) -> pd.DataFrame:
    """One row a rank from rows of `metric_values`: how far it is from its stage.

    Columns: `rank`, `stage`, `value_ns` (mean over steps), `num_steps`, `num_peers` (ranks of the stage), `stage_median_ns`,
    `over_stage` and `over_all` (ratios to the medians; null where a median is 0).
    """
    table = values.groupby("rank").agg(stage=("stage", "first"), value_ns=("value_ns", "mean"), num_steps=("step", "nunique"))
    table["value_ns"] = table["value_ns"].round().astype("int64")
    by_stage = table.groupby("stage")["value_ns"]
    table["num_peers"] = by_stage.transform("size")
    table["stage_median_ns"] = by_stage.transform("median").round().astype("int64")
    table["over_stage"] = table["value_ns"] / table["stage_median_ns"].where(table["stage_median_ns"] > 0)
    middle = float(table["value_ns"].median())
    table["over_all"] = table["value_ns"] / (middle or math.nan)
    return table.reset_index()


def stages(steps: pd.DataFrame) -> pd.DataFrame:
    """One row a stage of `staged_steps`: `stage`, `num_ranks`, `ranks` (list), and means over ranks and steps in ns.

    The means are `step_ns`, `computing_ns`, `exposed_communication_ns`, `bubble_ns` and `free_ns`, null where not measured;
    `computing_over_mean` is the stage's computing over the mean of the stages.
    """
    names = ["computing_ns", "exposed_communication_ns", "bubble_ns", "free_ns"]
    grouped = steps.rename(columns={"duration_ns": "step_ns"}).groupby("stage")
    means = grouped[["step_ns", *names]].mean().astype("Float64").round().astype("Int64")
    table = means.assign(
        ranks=grouped["rank"].agg(lambda ranks: sorted({int(rank) for rank in ranks})), num_ranks=grouped["rank"].nunique()
    )
    computing = table["computing_ns"].astype("Float64")
    table["computing_over_mean"] = computing / computing.mean() if computing.notna().any() else computing
    return table.reset_index()
