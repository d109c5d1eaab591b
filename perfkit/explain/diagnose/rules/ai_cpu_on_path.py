"""Operators run on the slow AI CPU, and the AI cores wait for them.

What is measured: kernels whose recorded unit is the AI CPU, as a share of the step. A profile that does not record the unit of
kernels cannot tell.

What to do: find a form of the operator that runs on AI cores (another type, another index type, a fused operator), or move it out
of the step.
"""

from __future__ import annotations

import re

from perfkit.core.errors import NotMeasuredError
from perfkit.core.texts import say
from perfkit.explain.diagnose import kernels
from perfkit.explain.diagnose.case import Case
from perfkit.explain.diagnose.collecting import KERNELS_BY
from perfkit.explain.diagnose.rule import Rule, Threshold, Verdict

AI_CPU_SHARE = Threshold(
    "ai-cpu-share", 0.01, "share of the step", "chosen: healthy bundled recordings have up to 0.15 %, the faulty one 2 %"
)

PATTERN = re.compile(r"ai_?cpu", re.IGNORECASE)
ACTIONS = (
    "use a form of the operator that runs on AI cores: another data type, int32 indices, a fused operator",
    "move the operator out of the step, or into the dataset",
)


def check(case: Case) -> Verdict:
    """The time of kernels on the AI CPU."""
    if case.computing["core"].isna().all():
        raise NotMeasuredError("the unit that ran each kernel", how_to_collect=KERNELS_BY)
    rows = kernels.matching(case, PATTERN, "core")
    share = kernels.share_of_step(case, rows)
    evidence = {"ai_cpu_share": share, "num_kernels": len(rows)}
    if share < case.limit(AI_CPU_SHARE):
        return Verdict((), evidence)
    finding = kernels.finding(
        case,
        rows,
        rule=RULE.name,
        title=say("Operators run on the AI CPU: {names}", names=kernels.told(kernels.largest(rows))),
        evidence=evidence,
        actions=ACTIONS,
    )
    return Verdict((finding,), evidence)


RULE = Rule("ai-cpu-on-path", "Operators on the AI CPU", frozenset({"steps", "kernels"}), KERNELS_BY, (AI_CPU_SHARE,), check)
