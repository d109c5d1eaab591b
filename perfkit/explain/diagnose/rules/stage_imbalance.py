"""A pipeline stage has more work than the others, and they wait for it.

What is compared: how often each operator that all stages run is executed a step, against the mean of the stages (median over
those operators). That counts layers, so that the head and the embedding, which only one stage has, and a slow rank do not look
like imbalance. Without recorded operators the computing time of the stages is compared, and only a large difference is named,
because head and embedding cannot be told apart then. Layers that the plan of the run does not divide evenly are no finding.

What to do: move layers (perfkit balance solves it exactly), or recompute less on the long stage.
"""

from __future__ import annotations

import pandas as pd

from perfkit.core.errors import NotMeasuredError
from perfkit.explain.diagnose import planned as _planned
from perfkit.explain.diagnose import work as _work
from perfkit.explain.diagnose.case import Case
from perfkit.explain.diagnose.rule import Finding, Rule, Threshold, Verdict

STAGE_LAYERS = Threshold(
    name="stage-layers",
    value=0.05,
    unit="work over the mean of the stages",
    origin="chosen: a spread of 5 % over the mean; one layer of 20 is as much",
)
STAGE_CLASSIC = Threshold(
    name="stage-classic",
    value=0.2,
    unit="computing over the mean of the stages",
    origin="MindInsight; where operators are not recorded",
)

HOW = "record one rank of every pipeline stage, with the stages in the configuration or the group names"
ACTIONS = (
    "move layers off the long stage: perfkit balance finds the best division",
    "recompute fewer layers on the long stage, if memory allows",
)


def check(case: Case) -> Verdict:
    """Stages with more layers, or much more computing, than the mean."""
    stages = case.steps.loc[case.steps["stage"] >= 0, "stage"].nunique()
    if stages < 2:
        raise NotMeasuredError("at least two pipeline stages", how_to_collect=HOW)
    counts = _counts(case)
    if counts is None:
        return _by_time(case)
    relative = counts / counts.mean()
    work = relative.median(axis=1)
    evidence = {"largest_work_over_mean": float(work.max() - 1.0), "num_stages": float(stages)}
    if work.max() - 1.0 < case.limit(STAGE_LAYERS):
        return Verdict((), evidence)
    planned = _planned.layers_over_mean(case)
    if planned is not None and work.max() <= planned * (1.0 + case.limit(STAGE_LAYERS)):
        return Verdict((), {**evidence, "planned_layers_over_mean": planned - 1.0})
    stage = int(str(work.index[int(work.to_numpy().argmax())]))
    others = work.drop(index=stage)
    ratio = float(work.max() / others.median())
    return _verdict(case, stage, ratio, {**evidence, "work_over_other_stages_ratio": ratio})


def _by_time(case: Case) -> Verdict:
    known = case.steps.dropna(subset=["computing_ns"])
    if known.empty:
        raise NotMeasuredError("computing time of the stages", how_to_collect=HOW)
    times = known.assign(computing=known["computing_ns"].astype("float64")).groupby("stage")["computing"].median()
    excess = times / times.mean() - 1.0
    evidence = {"largest_computing_over_mean": float(excess.max()), "num_stages": float(len(times))}
    if excess.max() < case.limit(STAGE_CLASSIC):
        return Verdict((), evidence)
    stage = int(str(times.index[int(times.to_numpy().argmax())]))
    return _verdict(case, stage, float(times.max() / times.drop(index=stage).median()), evidence)


def _verdict(case: Case, stage: int, ratio: float, evidence: dict[str, float]) -> Verdict:
    ranks = tuple(sorted(int(rank) for rank in case.steps.loc[case.steps["stage"] == stage, "rank"].unique()))
    more = f"{100 * (ratio - 1):.0f} % more work than" if ratio < 2 else f"{ratio:.1f} x the work of"
    finding = Finding(
        rule=RULE.name,
        title=f"Pipeline stage {stage} has {more} the others",
        subject={"stages": (stage,), "ranks": ranks},
        evidence=evidence,
        actions=ACTIONS,
        cost_ns=_cost_ns(case, ranks, ratio),
        next=("06_pipeline_balance", "17_cluster"),
        part="step",
    )
    return Verdict((finding,), evidence)


def _cost_ns(case: Case, ranks: tuple[int, ...], ratio: float) -> int:
    """What a step wins if the stage had as many layers as the others: less of every layer's kernels and collectives."""
    gone = 1.0 - 1.0 / ratio
    kernels = _work.scaled_kernels(case, ranks)
    if kernels.empty or case.replay is None:
        own = case.steps[case.steps["rank"].isin(ranks)]["computing_ns"].astype("float64").mean()
        return _work.less_busy_ns(case, dict.fromkeys(ranks, gone * float(own)))
    rows = case.computing.loc[kernels.index]
    common = _common_operators(case)
    share = rows["op"].astype(str).isin(common).astype("float64") * gone
    inside = case.operations
    stage_ranks = case.members[case.members["rank"].isin(ranks)]
    local = stage_ranks.groupby("instance")["rank"].size().reindex(inside["instance"]).to_numpy() == inside["num_seen"].to_numpy()
    mine = inside[local & ~inside["operation"].isin(("send", "receive")).to_numpy()]
    faster = {
        int(row["instance"]): gone * float(row["transfer_ns"]) for row in mine.dropna(subset=["transfer_ns"]).to_dict("records")
    }
    return _work.won_ns(case, kernels, fraction=share, faster_ns=faster)


def _counts(case: Case) -> pd.DataFrame | None:
    """Executions a rank and step by stage and operator, of the operators that every stage runs; None where too few are known."""
    if not case.run.has("kernels") or case.kernels.empty:
        return None
    sums = case.operator_sums
    stages = pd.Series({int(row["rank"]): int(row["stage"]) for row in case.steps.drop_duplicates("rank").to_dict("records")})
    sums = sums.assign(stage=sums["rank"].map(stages))
    table = sums[sums["stage"] >= 0].pivot_table(index="stage", columns="op", values="count", observed=True, aggfunc="mean")
    missing = set(stages[stages >= 0]) - set(table.index)
    table = table.dropna(axis=1)
    return None if missing or table.shape[1] < 3 else table


def _common_operators(case: Case) -> set[str]:
    counts = _counts(case)
    return set() if counts is None else {str(name) for name in counts.columns}


RULE = Rule(
    name="stage-imbalance",
    title="A pipeline stage has more work",
    needs=frozenset({"steps"}),
    how_to_collect=HOW,
    thresholds=(STAGE_LAYERS, STAGE_CLASSIC),
    check=check,
    explains=frozenset({"pipeline-bubble"}),
)
