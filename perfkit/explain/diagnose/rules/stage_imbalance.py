"""A pipeline stage has more work than the others, and they wait for it.

What is compared: how often each operator that all stages run is executed a step, against the mean of the stages (median over
those operators). That counts layers, so that the head and the embedding, which only one stage has, and a slow rank do not look
like imbalance. Stages of as many layers of which one computes at least a fifth longer than the mean are told by what it alone
has: the head with its loss, or the embedding; how many layers to move is counted by what a layer takes, and what the stages wait
for is told apart into filling, load and late sends. Without recorded operators the computing time of the stages is compared, and
only a large difference is named, because head and embedding cannot be told apart then. Layers that the plan of the run does not
divide evenly are no finding. A stage with more work is told whether it computes more of its layers again. Stages of equal work are
compared by what their ranks send among themselves, without waiting: operators that one of them cuts otherwise lengthen it.
More work costs what it takes; what moving it wins is told beside it, and is less, as moved work is not gone.

What to do: move layers (perfkit balance solves it exactly), recompute less on the long stage, or cut its operators as the others'.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

import pandas as pd

from perfkit.core.errors import NotMeasuredError
from perfkit.core.texts import say
from perfkit.explain.diagnose import planned as _planned
from perfkit.explain.diagnose import stages as _stages
from perfkit.explain.diagnose import work as _work
from perfkit.explain.diagnose.advice import Action, Speaker, fitting
from perfkit.explain.diagnose.case import Case
from perfkit.explain.diagnose.collecting import COMMUNICATION_BY
from perfkit.explain.diagnose.rule import Finding, Rule, Threshold, Verdict
from perfkit.explain.ledger import causes
from perfkit.explain.stragglers import NO_STAGE

STAGE_LAYERS = Threshold(
    "stage-layers", 0.05, "work over the mean of the stages", "chosen: a spread of 5 % over the mean; one layer of 20 is as much"
)
STAGE_CLASSIC = Threshold(
    "stage-classic", 0.2, "computing over the mean of the stages", "MindInsight; where operators are not recorded"
)
STAGE_TALK = Threshold(
    "stage-talk", 1.5, "transfer over that of the other stages", "chosen: stages of one strategy send alike (bundled: 1.00)"
)
LEAST_TALK = 0.01
"""A difference of transfers that is no more than this share of the step is none."""
MORE_BYTES = 1.1
"""Stages of one strategy send as many bytes; a tenth more is more."""
MORE_AGAIN = 0.05
"""Layers that a stage computes again beyond the others by no more than this share are none: counted at the edge of a recording."""

ATTENTION = re.compile(r"flash_?attention|fused_?infer_?attention|fmha|sdpa", re.IGNORECASE)
BACKWARD = re.compile(r"grad|bwd|backward", re.IGNORECASE)
SLOW_PART = 0.3
"""A stage whose equal operators are slower by more than this share of its excess has slow devices, not more work."""
BALANCE = "move layers off the long stage: perfkit balance finds the best division"
RECOMPUTE = "recompute fewer layers on the long stage, if memory allows"
ACTIONS: tuple[Action, ...] = (BALANCE, RECOMPUTE)
CUT_ALIKE: tuple[Action, ...] = (
    "compare how the operators of this stage are cut with those of the others: page 18 shows the strategies in the graph",
    "look at its collectives: page 13",
)
MOVE: Mapping[Speaker, str] = {
    "mindspore": "move {layers} layers off stage {stage}: offset: [{offsets}]",
    "megatron": 'move {layers} layers off stage {stage}: --pipeline-model-parallel-layout "{layout}"',
}
"""What sets the layers of stages, in the keys of the frameworks."""


def check(case: Case) -> Verdict:
    """Stages with more layers, or much more computing, than the mean."""
    stages = case.steps.loc[case.steps["stage"] >= 0, "stage"].nunique()
    if stages < 2:
        raise NotMeasuredError("at least two pipeline stages", how_to_collect=COMMUNICATION_BY)
    counts = _counts(case)
    if counts is None:
        return _by_time(case)
    relative = counts / counts.mean()
    work = relative.median(axis=1)
    evidence = {"largest_work_over_mean": float(work.max() - 1.0), "num_stages": float(stages)}
    if work.max() - 1.0 < case.limit(STAGE_LAYERS):
        verdict = _by_ends(case, counts, evidence)
        return verdict if verdict.findings else _by_talk(case, verdict.evidence)
    planned = _planned.layers_over_mean(case)
    if planned is not None and work.max() <= planned * (1.0 + case.limit(STAGE_LAYERS)):
        return Verdict((), {**evidence, "planned_layers_over_mean": planned - 1.0})
    stage = int(str(work.index[int(work.to_numpy().argmax())]))
    others = work.drop(index=stage)
    ratio = float(work.max() / others.median())
    again = _stages.again_ratio(case)
    if stage in again.index and len(again) == stages and again[stage] > again.drop(index=stage).median() + MORE_AGAIN:
        evidence = {**evidence, "layers_again_ratio": float(again[stage])}
    return _verdict(case, stage, ratio, evidence)


def _by_talk(case: Case, evidence: Mapping[str, float]) -> Verdict:
    """A stage of equal work whose ranks send much more among themselves than those of the others."""
    talk = _stages.talking_ns(case)
    if talk.empty:
        return Verdict((), dict(evidence))
    stage = int(str(talk.index[int(talk.to_numpy().argmax())]))
    own_ns, others_ns = float(talk.max()), float(talk.drop(index=stage).median())
    told = {**evidence, "stage_talk_ns": own_ns, "other_stages_talk_ns": others_ns}
    more_ns = own_ns - others_ns
    if own_ns < case.limit(STAGE_TALK) * others_ns or more_ns < LEAST_TALK * (case.step_ns or 1) or not _sends_more(case, stage):
        return Verdict((), told)
    ranks = tuple(sorted(int(rank) for rank in case.steps.loc[case.steps["stage"] == stage, "rank"].unique()))
    finding = Finding(
        rule=RULE.name,
        title=say(
            "Ranks of pipeline stage {stage} send {stage_talk_ns} a step among themselves, "
            "those of the others {other_stages_talk_ns}",
            stage=str(stage),
            **told,
        ),
        subject={"stages": (stage,), "ranks": ranks},
        evidence=told,
        actions=fitting(case, CUT_ALIKE),
        cost_ns=_work.won_ns(case, _work.EMPTY, faster_ns=_faster(case, stage, more_ns / own_ns)),
        next=("13_communication", "18_graph_ir"),
        part="communication",
    )
    return Verdict((finding,), told)


def _sends_more(case: Case, stage: int) -> bool:
    """Whether a stage sends more than the others, as far as bytes were recorded: the same for longer is a matter of its links."""
    rows = _stages.talks(case)
    if rows["bytes"].isna().any():
        return True
    sent = rows.assign(bytes=rows["bytes"].astype("float64")).groupby(["stage", "rank"])["bytes"].sum().groupby("stage").median()
    return bool(sent[stage] >= MORE_BYTES * sent.drop(index=stage).median())


def _faster(case: Case, stage: int, gone: float) -> dict[int, float]:
    """What each collective inside of a stage would be faster by, in ns by instance, if this share of their transfers were gone."""
    own = _stages.talks(case)
    own = own[(own["stage"] == stage).to_numpy(dtype=bool)]
    return {int(row["instance"]): gone * float(row["transfer_ns"]) for row in own.to_dict("records")}


def _by_ends(case: Case, counts: pd.DataFrame, evidence: dict[str, float]) -> Verdict:
    """A stage of as many layers as the others that computes much longer: for the head, loss or embedding that it alone has."""
    rows = _staged(case)
    times = rows.assign(own=rows["computing_ns"].astype("float64")).groupby("stage")["own"].median()
    stage = int(str(times.index[int(times.to_numpy().argmax())]))
    excess = float(times.max() / times.mean()) - 1.0
    evidence = {**evidence, "largest_computing_over_mean": excess}
    slower = _slower(case, stage, counts)
    if case.run.plan is not None or excess < case.limit(STAGE_CLASSIC) or slower - 1.0 > excess * SLOW_PART:
        return Verdict((), {**evidence, "equal_operators_ratio": slower})
    ranks = tuple(sorted(int(rank) for rank in rows.loc[rows["stage"] == stage, "rank"].unique()))
    known = case.operator_sums[case.operator_sums["rank"].isin(ranks)]
    alone = known[~known["op"].astype(str).isin({str(name) for name in counts.columns})]
    layers = _layers(case, times, stage, counts)
    medians = {"stage_median_ns": float(times.max()), "others_median_ns": float(times.drop(index=stage).median())}
    names = tuple(str(name) for name in alone.groupby("op", observed=True)["total_ns"].sum().nlargest(5).index)
    last = stage == int(times.index.max())
    end = "the head and its loss are" if last else "the embedding is"
    split = _waits(case)
    finding = Finding(
        rule=RULE.name,
        title=say(
            "Pipeline stage {stage} computes {stage_median_ns}, the others {others_median_ns} (medians), "
            "with as many layers: {end} on it",
            stage=str(stage),
            end=end,
            **medians,
        ),
        subject={"stages": (stage,), "ranks": ranks, "operators": names},
        evidence={**evidence, **{f"stage_{at}_computing_ns": float(ns) for at, ns in times.items()}, **medians, **split, **layers},
        actions=fitting(case, _end_actions(stage, len(times), layers)),
        cost_ns=_work.less_busy_ns(case, dict.fromkeys(ranks, _moving_wins_ns(case, times, _divided(times, stage, layers)))),
        next=("06_pipeline_balance", "17_cluster"),
    )
    return Verdict((finding,), evidence)


def _slower(case: Case, stage: int, counts: pd.DataFrame) -> float:
    """How many times as long equal operators take on a stage as on the others, the median over those that all run."""
    of = case.steps.drop_duplicates("rank").set_index("rank")["stage"]
    rows = case.operator_sums[case.operator_sums["op"].astype(str).isin({str(name) for name in counts.columns})]
    own = (rows["rank"].map(of) == stage).to_numpy(dtype=bool)
    here, there = (rows[which].groupby("op", observed=True)["mean_ns"].median() for which in (own, ~own))
    return float((here / there.clip(lower=1.0)).median())


def _layers(case: Case, times: pd.Series, stage: int, counts: pd.DataFrame) -> dict[str, float]:
    """How many layers to move off a stage so that the longest stage is shortest; nothing where layers cannot be counted.

    Attention runs forwards once a layer and micro batch; what a layer takes is what the stage with the least besides it takes.
    """
    named = [name for name in counts.columns if ATTENTION.search(str(name)) and not BACKWARD.search(str(name))]
    micro_batches = case.num_micro_batches
    if not named or not micro_batches:
        return {}
    runs = counts[named].max(axis=1).astype("float64") / micro_batches
    own = round(float(runs[stage]))
    others = times.drop(index=stage)
    if own < 2:
        return {}
    layer_ns = float(others.min()) / max(1, round(float(runs[int(str(others.idxmin()))])))
    found = [
        (max(float(times[stage]) - moved * layer_ns, float(others.max()) + -(-moved // len(others)) * layer_ns), moved)
        for moved in range(own)
    ]
    longest_ns, moved = min(found)
    return {"layers_of_stage": float(own), "layers_to_move": float(moved), "balanced_stage_ns": longest_ns, "layer_ns": layer_ns}


def _divided(times: pd.Series, stage: int, layers: Mapping[str, float]) -> pd.Series:
    """What the stages compute with layers moved off one of them to the others alike; evenly where layers cannot be counted."""
    if not layers:
        return pd.Series(float(times.mean()), index=times.index)
    moved_ns = layers["layers_to_move"] * layers["layer_ns"]
    after = times + moved_ns / (len(times) - 1)
    after[stage] = times[stage] - moved_ns
    return after


def _moving_wins_ns(case: Case, times: pd.Series, after: pd.Series) -> float:
    """How much shorter a step is when its stages compute `after` instead of `times` (ns a step, by stage).

    All m micro batches pass the longest stage, and one of them each of the others too: max + (sum - max) / m (Narayanan et al.,
    2021, section 2.2, with stages that differ). So moving a layer wins less than taking it away.
    """
    micro_batches = case.num_micro_batches

    def step_ns(of: pd.Series) -> float:
        longest = float(of.max())
        return longest + ((float(of.sum()) - longest) / micro_batches if micro_batches else 0.0)

    return max(0.0, step_ns(times) - step_ns(after))


def _waits(case: Case) -> dict[str, float]:
    """What the mean step of all ranks waits for another stage: for its head or load, while the pipeline fills, for late sends."""
    sums = case.ledger.waterfall().set_index("cause")["ns"]
    wanted = {"head": causes.HEAD, "filling": causes.FILLING, "stage_load": causes.STAGE_LOAD, "late_sends": causes.LATE_SENDS}
    return {f"waiting_for_{name}_ns": float(sums[cause]) for name, cause in wanted.items() if cause in sums}


def _end_actions(stage: int, stages: int, layers: dict[str, float]) -> tuple[Action, ...]:
    """What to set, in the keys of the frameworks.

    `offset` of MindFormers: mindformers.models.llama.LlamaConfig; the layout string of Megatron-Core and MindSpeed:
    docs.nvidia.com/megatron-core, "Custom Pipeline Model Parallel Layout".
    """
    moved = int(layers.get("layers_to_move", 0))
    if not moved:
        return ACTIONS
    each, over = divmod(moved, stages - 1)
    offsets = [-moved if at == stage else each + (at - (at > stage) < over) for at in range(stages)]
    counts = [int(layers["layers_of_stage"]) + offset for offset in offsets]
    ends = ["E" if at == 0 else "" for at in range(stages)], ["L" if at == stages - 1 else "" for at in range(stages)]
    layout = "|".join(f"{first}t*{count}{last}" for first, count, last in zip(ends[0], counts, ends[1], strict=True))
    words = {"offsets": ", ".join(map(str, offsets)), "layout": layout}
    move = {speaker: say(form, layers=moved, stage=str(stage), **words) for speaker, form in MOVE.items()}
    return (move, "perfkit balance with a configuration weighs memory and recomputation too")


def _by_time(case: Case) -> Verdict:
    known = _staged(case)
    if known.empty:
        raise NotMeasuredError("computing time of the stages", how_to_collect=COMMUNICATION_BY)
    times = known.assign(computing=known["computing_ns"].astype("float64")).groupby("stage")["computing"].median()
    excess = times / times.mean() - 1.0
    evidence = {"largest_computing_over_mean": float(excess.max()), "num_stages": float(len(times))}
    if excess.max() < case.limit(STAGE_CLASSIC):
        return Verdict((), evidence)
    stage = int(str(times.index[int(times.to_numpy().argmax())]))
    return _verdict(case, stage, float(times.max() / times.drop(index=stage).median()), evidence)


def _staged(case: Case) -> pd.DataFrame:
    """The steps of ranks whose stage is known that state what they compute."""
    rows = case.steps.dropna(subset=["computing_ns"])
    return rows[(rows["stage"] != NO_STAGE).to_numpy(dtype=bool)]


def _verdict(case: Case, stage: int, ratio: float, evidence: dict[str, float]) -> Verdict:
    ranks = tuple(sorted(int(rank) for rank in case.steps.loc[case.steps["stage"] == stage, "rank"].unique()))
    evidence = {**evidence, "work_over_other_stages_ratio": ratio, "more_work_ratio": ratio - 1.0}
    form = "{more_work_ratio} more work than" if ratio < 2 else "{times} x the work of"
    more = say(form, times=ratio, **evidence)
    again = "layers_again_ratio" in evidence
    times = _staged(case).groupby("stage")["computing_ns"].median().astype("float64")
    if len(times) > 1 and (moving_ns := _moving_wins_ns(case, times, _divided(times, stage, {}))) > 0:
        evidence["won_by_moving_ns"] = moving_ns
    actions = _move_or_recompute(evidence, again)
    title = "Pipeline stage {stage} has {more} the others in the median"
    title_again = "Pipeline stage {stage} has {more} the others in the median: it computes {layers_again_ratio} of its layers again"
    finding = Finding(
        rule=RULE.name,
        title=say(title_again if again else title, stage=str(stage), more=more, **evidence),
        subject={"stages": (stage,), "ranks": ranks},
        evidence=evidence,
        actions=fitting(case, actions),
        cost_ns=_cost_ns(case, ranks, ratio),
        next=("06_pipeline_balance", "17_cluster"),
        part="step",
    )
    return Verdict((finding,), evidence)


def _move_or_recompute(evidence: Mapping[str, float], again: bool) -> tuple[Action, ...]:
    """What to do about more work, first what it comes from. Moved work is not gone, so moving wins less than the stage costs."""
    move: Action = BALANCE
    if "won_by_moving_ns" in evidence:
        words = "move layers off the long stage: evenly divided the step is {won_by_moving_ns} shorter; perfkit balance finds how"
        move = say(words, **evidence)
    return (RECOMPUTE, move) if again else (move, RECOMPUTE)


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
    # Fewer layers are fewer launches too: a host that launched just in time for the kernels holds up none of those that are left.
    return _work.won_ns(case, kernels, fraction=share, faster_ns=faster, alone=True)


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
    how_to_collect=COMMUNICATION_BY,
    thresholds=(STAGE_LAYERS, STAGE_CLASSIC, STAGE_TALK),
    check=check,
    explains=frozenset({"pipeline-bubble"}),
)
