"""Memory does not fit, mostly because of weights, gradients and optimizer states.

What is measured: the largest extent of the pool, and a request that failed, against the budget of a printed statistic; and the
static part of that budget. From 60 % on the static part is the cause.

What to do: shard the optimizer, then more pipeline or tensor parallelism, then offload.
"""

from __future__ import annotations

from perfkit.explain.diagnose import budget
from perfkit.explain.diagnose.advice import Action, fitting
from perfkit.explain.diagnose.budget import OUT_OF_MEMORY_STATIC
from perfkit.explain.diagnose.case import Case
from perfkit.explain.diagnose.collecting import MEMORY_BY
from perfkit.explain.diagnose.rule import Rule, Verdict

ACTIONS: tuple[Action, ...] = (
    {
        "mindspore": "shard the optimizer over the replicas: enable_parallel_optimizer, optimizer_weight_shard_size: -1 for all",
        "megatron": "shard the optimizer over the replicas: --use-distributed-optimizer",
        "torch": "shard parameters, gradients and optimizer over the replicas: fully_shard",
    },
    "use more pipeline stages, then more tensor parallelism",
    {
        "mindspore": "offload optimizer states to the host",
        "megatron": "offload optimizer states to the host: --optimizer-cpu-offload",
        "torch": "offload optimizer states to the host: fully_shard(offload_policy=CPUOffloadPolicy())",
    },
)


def check(case: Case) -> Verdict:
    """Ranks above their budget whose static memory is large."""
    rows = budget.reports(case)
    mine = budget.over(case, rows, static=True)
    if mine.empty:
        return Verdict((), budget.evidence_of(rows))
    return Verdict(
        (budget.finding(RULE.name, mine, "static memory takes most of it", fitting(case, ACTIONS)),), budget.evidence_of(rows)
    )


RULE = Rule("oom-static", "Out of memory, static part", frozenset({"memory_reports"}), MEMORY_BY, (OUT_OF_MEMORY_STATIC,), check)
