"""Stragglers: how far each rank is from the ranks of its pipeline stage, and how uneven the stages are.

Stages do different work, so a rank is compared within its stage only, step by step, by the log ratio to the stage's median; its
deviation is the median of these over the steps. The spread is pooled: one robust deviation (1.4826 MAD) of all ranks whose stage
has three or more, because a single stage has too few ranks for one of its own. This is what a picture of the ranks shows; who is
to blame is judged by the rule `slow-rank`, which also compares equal operators.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
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
MIN_PEERS = 3
MAD_TO_SIGMA = 1.4826
LEAST_SPREAD = 0.005
"""Smallest robust deviation that is believed (log ratio): the natural spread of healthy cards is 0.3 %."""
LEAST_DEVIATION = 0.01
WARM_UP_FACTOR = 1.5
NO_STAGE = -1


def stage_steps(run: Run) -> pd.DataFrame:
    """The steps of all ranks with their `stage` (-1: not known); a first step much longer than the others is left out."""
    steps = run.steps()
    placed = {rank: position.pipeline for rank, position in run.placement.items() if position.pipeline is not None}
    stage = steps["pipeline_stage"].fillna(steps["rank"].map(placed).astype("Int64")).fillna(NO_STAGE).astype("int64")
    lengths = steps.groupby("step")["duration_ns"].median().sort_index()
    if len(lengths) >= MIN_PEERS and lengths.iloc[0] > WARM_UP_FACTOR * lengths.iloc[1:].median():
        steps, stage = steps[steps["step"] != lengths.index[0]], stage[steps["step"] != lengths.index[0]]
    return steps.assign(stage=stage).reset_index(drop=True)


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


def against_stage(values: pd.DataFrame, *, z_limit: float = 3.5, persistence: float = 0.7) -> pd.DataFrame:
    """One row a rank from rows of `metric_values`: how far it is from its stage.

    Columns: `rank`, `stage`, `value_ns` (mean over steps), `num_steps`, `num_peers` (ranks of the stage), `stage_median_ns`,
    `over_stage` and `over_all` (ratios to the medians), `deviation` (log ratio, median over steps), `z`, `slow_steps_share`, and
    `stands_out`: at least 1 % and `z_limit` away, in the share `persistence` of the steps. Null without three peers.
    """
    middle = values.groupby(["stage", "step"])["value_ns"].transform("median")
    known = (values["value_ns"] > 0) & (middle > 0)
    log = np.log(values["value_ns"].where(known).astype("float64") / middle.where(known).astype("float64"))
    rows = values.assign(log=log)
    table = rows.groupby("rank").agg(stage=("stage", "first"), value_ns=("value_ns", "mean"), num_steps=("step", "nunique"))
    table["value_ns"] = table["value_ns"].round().astype("int64")
    by_stage = table.groupby("stage")["value_ns"]
    table["num_peers"] = by_stage.transform("size")
    table["stage_median_ns"] = by_stage.transform("median").round().astype("int64")
    table["over_stage"] = table["value_ns"] / table["stage_median_ns"].where(table["stage_median_ns"] > 0)
    table["over_all"] = table["value_ns"] / max(1.0, float(table["value_ns"].median()))
    enough = table["num_peers"] >= MIN_PEERS
    table["deviation"] = rows.groupby("rank")["log"].median().where(enough)
    spread = pooled_spread(table["deviation"])
    table["z"] = table["deviation"] / spread
    slow = (rows["log"].abs() >= max(LEAST_DEVIATION, z_limit * spread)).groupby(rows["rank"]).mean()
    table["slow_steps_share"] = slow.where(enough)
    far = (table["deviation"].abs() >= LEAST_DEVIATION) & (table["z"].abs() >= z_limit)
    table["stands_out"] = far & (table["slow_steps_share"] >= persistence)
    return table.reset_index()


def pooled_spread(deviations: pd.Series) -> float:
    """One robust standard deviation of log ratios over all ranks, at least LEAST_SPREAD."""
    known = deviations.dropna()
    return max(LEAST_SPREAD, MAD_TO_SIGMA * float(known.abs().median()) if len(known) else 0.0)


def stages(steps: pd.DataFrame) -> pd.DataFrame:
    """One row a stage of `stage_steps`: `stage`, `num_ranks`, `ranks` (list), and means over ranks and steps in ns.

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
