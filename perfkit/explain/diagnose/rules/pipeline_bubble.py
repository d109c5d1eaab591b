"""All stages of a pipeline wait longer than its schedule needs.

What is measured: the waiting of the rank that waits least, over the rest of its step. Filling and draining a pipeline of p stages
with m micro batches in v chunks takes (p - 1) / (v m) of the work (arXiv 2104.04473, section 2.2); that much is expected, and is
shown as evidence. A stage with more work or a slow rank makes others wait, but waits little itself: so what even the least waiting
rank waits too long lies between the stages, in the order or the speed of sends and receives.

What to do: look at sends and receives in the timeline; more micro batches or more chunks make also the expected part smaller.
"""

from __future__ import annotations

from perfkit.core.errors import NotMeasuredError
from perfkit.core.texts import say
from perfkit.explain.diagnose.advice import Action, fitting
from perfkit.explain.diagnose.case import Case
from perfkit.explain.diagnose.collecting import COMMUNICATION_BY
from perfkit.explain.diagnose.rule import Finding, Rule, Threshold, Verdict
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
    known = case.steps.dropna(subset=["bubble_ns"])
    if known.empty or set(known["rank"]) != set(case.steps["rank"]):
        raise NotMeasuredError("the bubble of every rank", how_to_collect=COMMUNICATION_BY)
    micro_batches = case.num_micro_batches if case.run.plan is not None or case.run.has("collectives") else None
    if micro_batches is None:
        raise NotMeasuredError("the number of micro batches", how_to_collect=COMMUNICATION_BY)
    waits = known["bubble_ns"].astype("float64").groupby(known["rank"]).mean()
    lengths = known["duration_ns"].astype("float64").groupby(known["rank"]).mean()
    least = int(str(waits.index[int(waits.to_numpy().argmin())]))
    bubble_ns, work_ns = float(waits[least]), float(lengths[least] - waits[least])
    expected = bubble_over_ideal(int(stages), micro_batches, _chunks(case))
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
        subject={"stages": tuple(sorted(int(stage) for stage in known["stage"].unique()))},
        evidence=evidence,
        actions=fitting(case, ACTIONS),
        cost_ns=round(excess_ns),
        next=("06_pipeline_balance", "14_timeline"),
        part="communication",
    )
    return Verdict((finding,), evidence)


def _chunks(case: Case) -> int:
    """Chunks a stage: of the plan or as the run states them; 1 where neither does."""
    if case.run.plan is not None:
        return case.run.plan.parallel.virtual_pipeline_parallel_size
    fact = case.run.facts.get("virtual_pipeline_parallel_size")
    return max(1, int(fact.value)) if fact is not None else 1


RULE = Rule(
    name="pipeline-bubble",
    title="A longer pipeline bubble than needed",
    needs=frozenset({"steps"}),
    how_to_collect=COMMUNICATION_BY,
    thresholds=(BUBBLE_RATIO, BUBBLE_EXCESS),
    check=check,
)
