"""All stages of a pipeline wait longer than its schedule needs.

What is measured: the waiting of the rank that waits least for other stages, over the rest of its step: as the recording states it,
or, where its profiler counts none (calls that send and receive at once), as the ledger tells it. Filling and draining a pipeline of
p stages with m micro batches in v chunks takes (p - 1) / (v m) of the work (arXiv 2104.04473, section 2.2); that much is expected,
and is shown as evidence. A stage with more work or a slow rank makes others wait, but waits little itself: so what even the least
waiting rank waits too long lies between the stages, in the order or the speed of sends and receives.

What to do: look at sends and receives in the timeline; more micro batches or more chunks make also the expected part smaller.
"""

from __future__ import annotations

import pandas as pd

from perfkit.core.errors import NotMeasuredError
from perfkit.core.texts import say
from perfkit.explain.diagnose.advice import Action, fitting
from perfkit.explain.diagnose.case import Case
from perfkit.explain.diagnose.collecting import COMMUNICATION_BY
from perfkit.explain.diagnose.rule import Finding, Rule, Threshold, Verdict
from perfkit.explain.ledger import causes
from perfkit.explain.micro_batches import chunks_of
from perfkit.explain.stragglers import NO_STAGE
from perfkit.predict.cost.pipeline_bubble import bubble_over_ideal

BUBBLE_RATIO = Threshold(
    name="bubble-ratio",
    value=1.3,
    unit="bubble over what the schedule must have",
    origin="chosen: stages that differ by their head and embedding stay below",
)
BUBBLE_EXCESS = Threshold(
    "bubble-excess", 0.02, "share of the step", "chosen: less is noise of the stages (repeats of one job differ by 1 %)"
)

BETWEEN = (causes.FILLING, causes.STAGE_LOAD, causes.OTHER_STAGE)
"""Waiting that is for another stage, whoever is waited for."""
ACTIONS: tuple[Action, ...] = (
    "look at the order of sends and receives between stages in the timeline",
    {
        "mindspore": "use more micro batches (micro_batch_num), or more chunks a stage (pp_interleave_num, pipeline_interleave)",
        "megatron": "use more micro batches (--global-batch-size), or more chunks (--num-layers-per-virtual-pipeline-stage)",
        "torch": "use more micro batches, or a schedule with more chunks a stage (ScheduleInterleaved1F1B)",
    },
)


def check(case: Case) -> Verdict:
    """The bubble of the least waiting rank against that of the schedule."""
    stages = case.steps.loc[case.steps["stage"] >= 0, "stage"].nunique()
    if stages < 2:
        raise NotMeasuredError("at least two pipeline stages", how_to_collect=COMMUNICATION_BY)
    waits = _waits(case)
    micro_batches = case.num_micro_batches
    if micro_batches is None:
        raise NotMeasuredError("the number of micro batches", how_to_collect=COMMUNICATION_BY)
    lengths = case.steps["duration_ns"].astype("float64").groupby(case.steps["rank"]).mean()
    least = int(str(waits.index[int(waits.to_numpy().argmin())]))
    bubble_ns, work_ns = float(waits[least]), float(lengths[least] - waits[least])
    expected = bubble_over_ideal(int(stages), micro_batches, chunks_of(case.run))
    excess_ns = bubble_ns - expected * work_ns
    evidence = {
        "least_bubble_over_work": bubble_ns / work_ns if work_ns else 0.0,
        "expected_bubble_over_work": expected,
        "largest_bubble_share": float((waits / lengths).max()),
        "num_micro_batches": float(micro_batches),
    }
    too_long = bubble_ns > case.limit(BUBBLE_RATIO) * expected * work_ns
    if not too_long or excess_ns < case.limit(BUBBLE_EXCESS) * (case.step_ns or 1):
        return Verdict((), evidence)
    finding = Finding(
        rule=RULE.name,
        title=say(
            "Every stage waits: at least {least_ratio} of its work, where {expected_ratio} are due",
            least_ratio=evidence["least_bubble_over_work"],
            expected_ratio=expected,
        ),
        subject={"stages": tuple(sorted(int(stage) for stage in case.steps["stage"].unique() if stage >= 0))},
        evidence=evidence,
        actions=fitting(case, ACTIONS),
        cost_ns=round(excess_ns),
        next=("06_pipeline_balance", "14_timeline"),
        part="communication",
    )
    return Verdict((finding,), evidence)


def _waits(case: Case) -> pd.Series[float]:
    """How long each rank waits for other stages, a mean over steps: as its steps state it, else as the ledger tells it.

    A profiler that does not count calls which send and receive at once states no bubble at all.
    """
    rows = case.steps
    stated = rows["bubble_ns"].astype("Float64")
    if not (stated.fillna(0) > 0).any():
        entries, stage = case.ledger.entries, case.ledger.stages
        there, here = (entries[side].map(stage).fillna(NO_STAGE) for side in ("who", "rank"))
        between = (entries["cause"].isin(BETWEEN) | ((there != here) & (there != NO_STAGE))).to_numpy(dtype=bool)
        waits = entries[entries["cause"].str.startswith("waiting/").to_numpy(dtype=bool) & between]
        told = waits.groupby("rank")["ns"].sum() / rows.groupby("rank")["step"].nunique()
        if len(told):
            return told.reindex(rows["rank"].unique()).fillna(0.0).astype("float64")
    if stated.isna().groupby(rows["rank"]).all().any():
        raise NotMeasuredError("the bubble of every rank", how_to_collect=COMMUNICATION_BY)
    return stated.dropna().astype("float64").groupby(rows["rank"]).mean()


RULE = Rule(
    name="pipeline-bubble",
    title="A longer pipeline bubble than needed",
    needs=frozenset({"steps"}),
    how_to_collect=COMMUNICATION_BY,
    thresholds=(BUBBLE_RATIO, BUBBLE_EXCESS),
    check=check,
)
