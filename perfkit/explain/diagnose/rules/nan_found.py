"""A rank met a value that is no number, and says so: training stopped there, or went on with it.

What is measured: lines of logs that tell of nan or infinity in a loss, a gradient or its norm, with rank, file and line. Iterations
that a log counts as skipped are those of `skipped-steps`.

What to do: one rank alone points to its batch or to its device, all ranks at once to the learning rate, the data type or a layer.
"""

from __future__ import annotations

from perfkit.core.texts import say
from perfkit.explain.diagnose import incidents
from perfkit.explain.diagnose.advice import Action, fitting
from perfkit.explain.diagnose.case import Case
from perfkit.explain.diagnose.collecting import LOG_BY
from perfkit.explain.diagnose.rule import Rule, Verdict

ACTIONS: tuple[Action, ...] = (
    {
        "megatron": "run the step again from the last checkpoint with --rerun-mode validate_results: a device that computes wrong "
        "gives another value then",
    },
    "run the same step again from the last checkpoint: the same nan is of the program or its batch, another one of a device",
    "look at learning rate and warm-up, at gradients without clipping, and at the batch of that step",
)


def check(case: Case) -> Verdict:
    """Lines about values that are no number."""
    return incidents.verdict(
        case,
        RULE.name,
        ("no_number",),
        say("met a value that is no number (nan)"),
        actions=fitting(case, ACTIONS),
        following=("22_accuracy_alignment", "skipped-steps"),
    )


RULE = Rule("nan-found", "A value was no number (nan)", frozenset({"incidents"}), LOG_BY, (), check)
