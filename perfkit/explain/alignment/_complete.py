"""Completeness: what two series lack for a verdict of aligned, whatever the losses that they share look like.

A loss that is no number, a step that is missing, an end that comes too early and steps of another size are never a pass: what was
not compared is not known to be aligned. A step that the loss scale skipped is no loss; its number says nothing.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from perfkit.core.units import format_count
from perfkit.explain.alignment._match import SAME_PACE, Matched, interval, pace
from perfkit.explain.alignment._series import LossSeries


@dataclass(frozen=True, kw_only=True, slots=True)
class Lack:
    """One thing that stands against a pass, and the step in which it shows first (None where it is no single step)."""

    reason: str
    step: int | None = None


def broken(reference: LossSeries, candidate: LossSeries) -> Lack | None:
    """The first loss of the candidate, at any step, that is NaN or infinite where the reference's is not; None if there is none."""
    points = candidate.points
    bad = points[~np.isfinite(points["loss"]) & ~points["overflow"]]
    bad = bad[~bad["step"].isin(_no_numbers(reference))]
    if bad.empty:
        return None
    step, loss = int(bad["step"].iloc[0]), float(bad["loss"].iloc[0])
    more = f", and in {len(bad) - 1} more step(s)" if len(bad) > 1 else ""
    return Lack(reason=f"the loss of {candidate.name} is {loss} in step {step}{more}, that of {reference.name} is not", step=step)


def lacks(reference: LossSeries, candidate: LossSeries, matched: Matched, steps: int | None) -> list[Lack]:
    """What stands against calling the first `steps` steps of the reference (None: all of them) reproduced by the candidate."""
    wanted = reference.points["step"].to_numpy()[: steps or None]
    found = []
    unknown = [step for step in _no_numbers(reference) if step <= wanted[-1]]
    if unknown:
        reason = f"the loss of {reference.name} itself is no number in {len(unknown)} step(s), first in step {unknown[0]}"
        found.append(Lack(reason=reason, step=unknown[0]))
    sizes = _sizes(reference, candidate)
    if sizes:
        found.append(Lack(reason=sizes))
    elif matched.by == "step":
        found += _missing(reference, candidate, wanted)
    return found


def _no_numbers(series: LossSeries) -> list[int]:
    points = series.points
    return [int(step) for step in points.loc[~np.isfinite(points["loss"]) & ~points["overflow"], "step"]]


def _missing(reference: LossSeries, candidate: LossSeries, wanted: np.ndarray) -> list[Lack]:
    """An end before the reference's, but for one line of the log, and steps in between that are not printed."""
    steps = candidate.points["step"].to_numpy()
    last, every = int(steps[-1]), max(interval(candidate.points["step"]), interval(reference.points["step"]))
    found = []
    if last <= wanted[-1] - max(every, 1):
        text = f"{candidate.name} ends at step {last}, {reference.name} goes on to step {int(wanted[-1])}"
        found.append(Lack(reason=f"{text}; train as far, or compare the first steps only", step=last))
    if interval(candidate.points["step"]) == interval(reference.points["step"]):
        inside = wanted[(wanted >= steps[0]) & (wanted <= last)]
        absent = inside[~np.isin(inside, steps)]
        if len(absent) and len(absent) < len(inside):
            found.append(Lack(reason=f"{candidate.name} lacks {len(absent)} step(s), first step {absent[0]}", step=int(absent[0])))
    return found


def _sizes(reference: LossSeries, candidate: LossSeries) -> str:
    """Why a step of one is not a step of the other; empty if nothing says so."""
    for unit in ("tokens", "samples"):
        paces = [pace(series.points, unit) for series in (reference, candidate)]
        if all(paces) and abs(paces[1] / paces[0] - 1) > SAME_PACE:
            a, b = (format_count(round(value)) for value in paces)
            return f"a step of {candidate.name} holds {b} {unit}, of {reference.name} {a}: the losses are of other batches"
    return ""
