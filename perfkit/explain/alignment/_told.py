"""Told: what an alignment says in a sentence and in tables."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pandas as pd

from perfkit.core.texts import capital, joined, say
from perfkit.core.units import format_ratio

if TYPE_CHECKING:
    from perfkit.explain.alignment import Alignment


def sentence(found: Alignment) -> str:
    """The verdict with its reasons, the first step that differs, and what it may come from."""
    first = found.judgement.first_divergence_step
    reasons = "; ".join(found.judgement.reasons)
    verdict = say("{verdict}: {reasons}.", verdict=found.verdict, reasons=joined(found.judgement.reasons, "; "))
    told = [capital(verdict)]
    if found.verdict != "aligned" and first is not None and str(first) not in reasons:
        told.append(say("The first step that differs is {first}.", first=str(first)))
    likely = [cause.key for cause in found.causes if cause.could_cause][:3]
    if found.verdict != "aligned" and likely:
        told.append(say("It may come from {likely}.", likely=", ".join(likely)))
    elif found.verdict == "diverged" and found.causes:
        told.append(say("No change of the configurations may change a loss: look at seed, data order and software versions."))
    return joined(told)


def figures(found: Alignment) -> pd.DataFrame:
    """What was compared: figure, value, and its limit or where it comes from."""
    judgement, limits = found.judgement, found.limits
    same = {True: "yes, their noise is shared", False: "no, or in another order", None: "too few steps to tell"}
    trend = judgement.trend
    rows = [
        ("steps compared", str(found.num_compared), f"aligned by {found.by}"),
        ("largest difference", _percent(found.max_relative), f"{_limit(limits.max_relative)} in the first {limits.steps} steps"),
        ("mean difference", _percent(found.mean_relative), f"{_limit(limits.mean_relative)} in the first {limits.steps} steps"),
        ("drift over all steps", _percent(trend.end if trend else None), "significant above a Student t of 5"),
        ("noise of the reference", _percent(judgement.reference_noise), "from step to step"),
        ("same samples in the same order", same[judgement.same_samples], ""),
        ("gradient norm, largest difference", _percent(found.norm_max_relative), "shown, not judged"),
        ("steps with overflow", ", ".join(map(str, found.overflow_steps[:8])) or "none", "left out where the loss is no number"),
        ("class of the change", found.change_class, limits.source),
    ]
    frame = pd.DataFrame(rows, columns=["figure", "value", "limit or origin"])
    frame.attrs |= {"title": "What was compared", "look": "folded"}
    return frame


def cause_table(found: Alignment) -> pd.DataFrame:
    """Changes of the configurations, the likeliest cause first; empty where none is known."""
    rows = [
        {
            "setting": cause.key,
            "old": str(cause.old),
            "new": str(cause.new),
            "class": cause.change_class,
            "may be the cause": "yes" if cause.could_cause else "no",
            "why": cause.why,
        }
        for cause in found.causes
    ]
    return pd.DataFrame(rows, columns=["setting", "old", "new", "class", "may be the cause", "why"])


def _percent(value: float | None) -> str:
    return "not measured" if value is None else format_ratio(value)


def _limit(value: float | None) -> str:
    return "no limit" if value is None else "equal" if value == 0 else f"at most {format_ratio(value)}"
