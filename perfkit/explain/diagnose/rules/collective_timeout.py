"""A collective timed out: some rank did not come, and the others gave up.

What is measured: lines of logs that tell of a collective (NCCL, HCCL, RCCL) that timed out, with rank, file and line. The ranks
that tell it have waited; the one to look at is the rank that says something else, or nothing.

What to do: look for the rank that did not come: its own error, a hang, data that ended early, or a compilation that takes longer
than the others wait.
"""

from __future__ import annotations

from perfkit.core.texts import say
from perfkit.explain.diagnose import incidents
from perfkit.explain.diagnose.advice import Action, fitting
from perfkit.explain.diagnose.case import Case
from perfkit.explain.diagnose.collecting import LOG_BY
from perfkit.explain.diagnose.rule import Rule, Verdict

ACTIONS: tuple[Action, ...] = (
    "find the rank that did not come: the one without this line, or with another error before it; then its stack at that time",
    {
        "mindspore": "if the first step compiles longer than the others wait: HCCL_CONNECT_TIMEOUT, HCCL_EXEC_TIMEOUT (seconds)",
        "megatron": "if the first step takes longer than the others wait: --distributed-timeout-minutes, 10 unless given",
        "torch_npu": "if the first step compiles longer than the others wait: HCCL_CONNECT_TIMEOUT, HCCL_EXEC_TIMEOUT (seconds)",
        "torch": "if the first step compiles longer than the others wait: init_process_group(timeout=...)",
    },
    "check that all ranks run the same collectives in the same order, and get as many batches",
)


def check(case: Case) -> Verdict:
    """Lines about collectives that timed out."""
    what = say("waited in vain in a collective")
    return incidents.verdict(
        case, RULE.name, ("collective_timeout",), what, actions=fitting(case, ACTIONS), following=("13_communication",)
    )


RULE = Rule("collective-timeout", "A collective timed out", frozenset({"incidents"}), LOG_BY, (), check)
