"""Fewer micro batches than pipeline stages: in no moment do all stages work.

What is counted: the micro batches of a step, by the plan of the run or by what the first and the last stage receive. A pipeline of
p stages that m micro batches pass fills and drains for (p - 1) / m of a stage's work (arXiv 2104.04473, section 2.2). The cost is
what less of that there would be if the same work were cut into p micro batches, 1 - m / p of the filling that the
ledger tells; that smaller products run less efficiently is not in it.

What to do: more and smaller micro batches, at least as many as stages, or fewer stages.
"""

from __future__ import annotations

from collections.abc import Mapping

from perfkit.core.errors import NotMeasuredError
from perfkit.core.texts import say
from perfkit.explain.diagnose.advice import Speaker, fitting
from perfkit.explain.diagnose.case import Case
from perfkit.explain.diagnose.collecting import COMMUNICATION_BY
from perfkit.explain.diagnose.rule import Finding, Rule, Verdict
from perfkit.explain.ledger import causes

FEWER_STAGES = "use fewer stages: page 03 compares the strategies"
MORE: Mapping[Speaker, str] = {
    "mindspore": "cut the batch into at least {stages} micro batches, better four times as many: micro_batch_num, and a smaller "
    "batch_size where the global batch is to stay",
    "megatron": "cut the batch into at least {stages} micro batches, better four times as many: a smaller --micro-batch-size, or a "
    "larger --global-batch-size",
    "torch": "cut the batch into at least {stages} micro batches, better four times as many: n_microbatches of the schedule",
}


def check(case: Case) -> Verdict:
    """Micro batches against stages."""
    stages = int(case.steps.loc[case.steps["stage"] >= 0, "stage"].nunique())
    if stages < 2:
        raise NotMeasuredError("at least two pipeline stages", how_to_collect=COMMUNICATION_BY)
    micro_batches = case.num_micro_batches
    if micro_batches is None:
        raise NotMeasuredError("the number of micro batches", how_to_collect=COMMUNICATION_BY)
    evidence = {"num_micro_batches": float(micro_batches), "num_stages": float(stages)}
    if micro_batches >= stages:
        return Verdict((), evidence)
    filling_ns = _filling_ns(case)
    finding = Finding(
        rule=RULE.name,
        title=say(
            "{micro_batches} of {stages} stages work at most: a step has fewer micro batches than the pipeline has stages",
            micro_batches=str(micro_batches),
            stages=str(stages),
        ),
        subject={"stages": tuple(sorted(int(stage) for stage in case.steps["stage"].unique() if stage >= 0))},
        evidence={**evidence, **({} if filling_ns is None else {"filling_ns": filling_ns})},
        actions=fitting(
            case,
            ({who: say(form, stages=str(stages)) for who, form in MORE.items()}, FEWER_STAGES),
        ),
        cost_ns=None if filling_ns is None else round(filling_ns * (1 - micro_batches / stages)),
        severity="high" if filling_ns is None else None,
        next=("03_parallel_strategy", "06_pipeline_balance"),
        part="communication",
    )
    return Verdict((finding,), evidence)


def _filling_ns(case: Case) -> float | None:
    """How long the rank that waits least waits for the pipeline to fill, a mean over steps; None where nothing tells."""
    rows = case.ledger.entries
    filling = rows[(rows["cause"] == causes.FILLING).to_numpy(dtype=bool)].groupby("rank")["ns"].sum()
    return float(filling.min()) / max(1, len(case.step_numbers)) if len(filling) else None


RULE = Rule(
    name="micro-less-than-stages",
    title="Fewer micro batches than stages",
    needs=frozenset({"steps"}),
    how_to_collect=COMMUNICATION_BY,
    thresholds=(),
    check=check,
)
