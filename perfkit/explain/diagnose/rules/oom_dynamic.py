"""Memory does not fit, mostly because of activations and buffers.

What is measured: the largest extent of the pool, and a request that failed, against the budget of a printed statistic; and the
static part of that budget. Below 60 % the dynamic part is the cause.

What to do: flash attention, sequence parallelism, selective and then full recomputation of some layers, a smaller micro batch.
"""

from __future__ import annotations

from perfkit.explain.diagnose import budget
from perfkit.explain.diagnose.advice import CHEAP_OPERATORS_AGAIN, Action, fitting
from perfkit.explain.diagnose.budget import OUT_OF_MEMORY_STATIC
from perfkit.explain.diagnose.case import Case
from perfkit.explain.diagnose.collecting import MEMORY_BY
from perfkit.explain.diagnose.rule import Rule, Verdict

ACTIONS: tuple[Action, ...] = (
    {
        "mindspore": "set use_flash_attention: True, and use_seq_parallel: True beside model_parallel",
        "megatron": "set --use-flash-attn, and --sequence-parallel beside tensor parallelism",
        "torch": "use flash attention (scaled_dot_product_attention), and sequence parallelism beside tensor parallelism",
    },
    "recompute cheap operators, then communication, then some layers of the first stage (page 05)",
    CHEAP_OPERATORS_AGAIN,
    "use a smaller micro batch",
)


def check(case: Case) -> Verdict:
    """Ranks above their budget whose static memory is small."""
    rows = budget.reports(case)
    mine = budget.over(case, rows, static=False)
    if mine.empty:
        return Verdict((), budget.evidence_of(rows))
    return Verdict(
        (budget.finding(RULE.name, mine, "activations and buffers take most of it", fitting(case, ACTIONS)),),
        budget.evidence_of(rows),
    )


RULE = Rule("oom-dynamic", "Out of memory, dynamic part", frozenset({"memory_reports"}), MEMORY_BY, (OUT_OF_MEMORY_STATIC,), check)
