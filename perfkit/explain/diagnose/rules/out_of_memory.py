"""A rank ran out of device memory, as its log says.

What is measured: lines of logs that tell of a request for device memory that failed, with rank, file and line. The first one is
told; the others often follow from it.

What to do: give the framework what the device has, avoid fragments, and hold less: recompute, shard or cut more.
"""

from __future__ import annotations

from perfkit.explain.diagnose import incidents
from perfkit.explain.diagnose.advice import EXPANDABLE, Action, fitting
from perfkit.explain.diagnose.case import Case
from perfkit.explain.diagnose.collecting import LOG_BY
from perfkit.explain.diagnose.rule import Rule, Verdict

ACTIONS: tuple[Action, ...] = (
    {"mindspore": "raise max_device_memory towards what the device has (page 04 says what fits)"},
    EXPANDABLE,
    "hold less: recompute more layers, a larger optimizer shard, a smaller micro batch; perfkit plan tells what each frees",
)


def check(case: Case) -> Verdict:
    """Lines about memory that was not there."""
    return incidents.verdict(
        case,
        RULE.name,
        ("out_of_memory",),
        "ran out of device memory",
        actions=fitting(case, ACTIONS),
        following=("04_memory", "15_memory_profile"),
    )


RULE = Rule("out-of-memory", "A rank ran out of memory", frozenset({"incidents"}), LOG_BY, (), check)
