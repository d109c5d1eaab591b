"""Rank FLOPs: the FLOPs of a step on every rank, as the profiler states them, from the shapes of its kernels or from the plan.

From shapes counts what the device really ran, recomputation included, as far as the shapes tell. From the plan counts the model's
own FLOPs: the layers of the rank's stage, and the head on the last one, over the devices that share a stage's tokens and tensors.
"""

from __future__ import annotations

import pandas as pd

from perfkit.core.run import Run
from perfkit.core.spec.plan import Plan
from perfkit.core.units import NS_PER_S, format_si, significant
from perfkit.explain.roofline import operator_costs
from perfkit.predict.cost.flops import training_flops
from perfkit.record.formats.mindinsight.flops import stated_flops

BASES = {
    "profiler": "as the profiler counted",
    "shapes": "from the shapes of its kernels",
    "plan": "from the plan, recomputation not counted",
}
MOST_RANKS = 64
"""Kernels of more ranks are not read for this; then only the plan tells."""


def flops_by_rank(run: Run) -> pd.DataFrame:
    """One row a rank: `rank`, `flops` (of a step), `computing_ns`, `flops_per_s`, `over_mean` (FLOPs over the mean of the ranks).

    `basis` is "profiler", "shapes" or "plan". Empty where none of them tells.
    """
    computing = run.steps().groupby("rank")["computing_ns"].mean()
    stated = stated_flops(run)
    stated = stated if len(stated) > 1 or len(run.ranks) == 1 else {}
    shapes = {} if stated else _from_shapes(run)
    found, basis = (stated, "profiler") if stated else (shapes, "shapes") if shapes else (_from_plan(run), "plan")
    table = pd.DataFrame({"rank": list(found), "flops": [float(value) for value in found.values()]})
    time_ns = table["rank"].map(computing).astype("float64")
    return table.assign(
        computing_ns=time_ns.round().astype("Int64"),
        flops_per_s=table["flops"] * NS_PER_S / time_ns.where(time_ns > 0),
        over_mean=table["flops"] / table["flops"].mean() if len(table) else table["flops"],
        basis=basis,
    )


def flops_told(table: pd.DataFrame) -> str:
    """Which rank has most FLOPs, by what they are counted, in a sentence; `table` is of `flops_by_rank`."""
    if table.empty:
        return "FLOPs by rank: not measured. They need kernels with input shapes (record_shapes), or the plan of the run."
    row, counted = table.sort_values("flops", ascending=False, kind="stable").iloc[0], BASES[str(table["basis"].iloc[0])]
    most = f"Rank {int(row['rank'])} has most to do: {format_si(float(row['flops']), 'FLOP')} a step"
    return f"{most}, {significant(float(row['over_mean']), 4)} x the mean ({counted})."


def stage_flops(plan: Plan) -> list[float]:
    """Model FLOPs of a step on one device of each stage, forward and backward, without recomputation."""
    model, parallel = plan.model, plan.parallel
    seq_length = plan.workload.seq_length
    whole = float(training_flops(model, seq_length).total)
    layers = float(training_flops(model, seq_length, head=False).total)
    columns = plan.stage_layers
    count = [sum(chunk[stage] for chunk in columns) for stage in range(parallel.pipeline_parallel_size)]
    sharing = parallel.num_devices // parallel.pipeline_parallel_size
    each = [layers * number / sum(count) for number in count]
    each[-1] += whole - layers
    return [amount * plan.tokens_per_step / sharing for amount in each]


def _from_shapes(run: Run) -> dict[int, float]:
    """FLOPs a step by rank; empty unless every rank's kernels have shapes."""
    ranks = run.ranks
    if len(ranks) > MOST_RANKS or not run.has("kernels"):
        return {}
    found = {}
    steps = run.steps().groupby("rank")["step"].nunique()
    for rank in ranks:
        known = operator_costs(run, rank=rank)["flops"].dropna()
        if known.empty or rank not in steps.index:
            return {}
        found[rank] = float(known.sum()) / int(steps[rank])
    return found


def _from_plan(run: Run) -> dict[int, float]:
    if run.plan is None:
        return {}
    by_stage = stage_flops(run.plan)
    placed = {rank: position.pipeline or 0 for rank, position in run.placement.items()}
    return {rank: by_stage[placed.get(rank, 0)] for rank in run.ranks if placed.get(rank, 0) < len(by_stage)}
