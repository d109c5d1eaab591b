"""Matching: which logged losses of two trainings are of the same step, or of the same amount of data.

Series are matched by step unless a step holds another amount of data in each; then by tokens (or samples) consumed. Where one log
prints every k-th step, the other one is taken at the same steps, or averaged since the line before if that is what the first
prints. Where no step is common, the finer series is read between its points.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import pandas as pd

from perfkit.core.units import format_entry
from perfkit.explain.alignment._series import LossSeries

By = Literal["step", "tokens", "samples"]

FEWEST = 10
SAME_PACE = 0.005
LARGEST = 1e9
"""Relative differences are cut off here, so that squares of them stay numbers."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Matched:
    """Points of two series side by side.

    `points` has `at` (step of the candidate), `reference`, `candidate` (losses), `relative` (difference over the reference, NaN
    where one of them is not finite), `norm_relative` and `overflow`.
    """

    points: pd.DataFrame
    by: By
    notes: tuple[str, ...]


def match(reference: LossSeries, candidate: LossSeries, by: By | None = None) -> Matched:
    """The points that both series have; an empty frame if they have none in common."""
    chosen = by or _natural(reference, candidate)
    if chosen != "step":
        points = _interpolated(reference.points, candidate.points, chosen)
        return Matched(points=_with_differences(points), by=chosen, notes=(f"aligned by {chosen} consumed, as batches differ",))
    joined = _joined(reference, candidate)
    notes: list[str] = []
    wide = interval(reference.points["step"]), interval(candidate.points["step"])
    if len(joined) < FEWEST and min(len(reference.points), len(candidate.points)) >= FEWEST:
        between = _interpolated(reference.points, candidate.points, "step")
        if len(between) > len(joined):
            joined = between
            notes.append("the logs print different steps: the reference is read between its points")
    elif wide[0] and wide[1] and max(wide) >= 2 * min(wide):
        joined, averaged = _averaged(reference, candidate, joined)
        what = "its means since the line before" if averaged else "the losses of those steps"
        notes.append(
            f"one log prints every {format_entry(max(wide))} steps, the other every {format_entry(min(wide))}: {what} are compared"
        )
    return Matched(points=_with_differences(joined), by="step", notes=tuple(notes))


def _natural(reference: LossSeries, candidate: LossSeries) -> By:
    for unit in ("tokens", "samples"):
        paces = [pace(series.points, unit) for series in (reference, candidate)]
        if all(paces) and abs(paces[1] / paces[0] - 1) > SAME_PACE:
            return "tokens" if unit == "tokens" else "samples"
    return "step"


def pace(points: pd.DataFrame, unit: str) -> float:
    """Tokens or samples a step, 0 where they are not stated."""
    known = points[points[unit].notna() & (points["step"] > 0)]
    return float(known[unit].iloc[-1] / known["step"].iloc[-1]) if len(known) else 0.0


def interval(steps: pd.Series[int]) -> float:
    """Steps from one printed line to the next, the median; 0 of a single line."""
    return float(steps.diff().median()) if len(steps) > 1 else 0.0


def _joined(reference: LossSeries, candidate: LossSeries) -> pd.DataFrame:
    both = reference.points.merge(candidate.points, on="step", suffixes=("_a", "_b"))
    return pd.DataFrame(
        {
            "at": both["step"],
            "reference": both["loss_a"],
            "candidate": both["loss_b"],
            "norm_a": both["gradient_norm_a"],
            "norm_b": both["gradient_norm_b"],
            "overflow": both["overflow_a"] | both["overflow_b"],
        }
    )


def _averaged(reference: LossSeries, candidate: LossSeries, joined: pd.DataFrame) -> tuple[pd.DataFrame, bool]:
    """The joined points with the finer series averaged over the coarser one's lines, if that is what those lines hold.

    Where the log does not say, the way that agrees better is taken: the wrong one is off by half a line of the curve's descent.
    """
    fine_is_reference = interval(reference.points["step"]) < interval(candidate.points["step"])
    fine, coarse = (reference, candidate) if fine_is_reference else (candidate, reference)
    if coarse.prints_means is False:
        return joined, False
    ends = np.asarray(coarse.points["step"], dtype=np.int64)
    starts = np.concatenate([[ends[0] - round(interval(coarse.points["step"]))], ends[:-1]])
    steps = np.asarray(fine.points["step"], dtype=np.int64)
    sums = np.concatenate([[0.0], np.cumsum(np.nan_to_num(np.asarray(fine.points["loss"], dtype=np.float64), posinf=0, neginf=0))])
    first, last = np.searchsorted(steps, starts, side="right"), np.searchsorted(steps, ends, side="right")
    means = pd.Series((sums[last] - sums[first]) / np.where(last > first, last - first, 1), index=ends)
    own = "reference" if fine_is_reference else "candidate"
    finite = np.isfinite(joined[own])
    averaged = joined.assign(**{own: joined["at"].map(means).where(finite, joined[own])})
    if coarse.prints_means:
        return averaged, True
    distance = [float((frame["candidate"] - frame["reference"]).abs().median()) for frame in (averaged, joined)]
    return (averaged, True) if distance[0] < distance[1] else (joined, False)


def _interpolated(reference: pd.DataFrame, candidate: pd.DataFrame, by: str) -> pd.DataFrame:
    known = reference[reference[by].notna() & np.isfinite(reference["loss"])].sort_values(by)
    asked = candidate[candidate[by].notna()].sort_values(by)
    asked = asked[(asked[by] >= known[by].iloc[0]) & (asked[by] <= known[by].iloc[-1])] if len(known) > 1 else asked.iloc[:0]

    def read(column: str) -> Any:
        if asked.empty:
            return np.zeros(0)
        return np.interp(
            np.asarray(asked[by], dtype=float), np.asarray(known[by], dtype=float), np.asarray(known[column], dtype=float)
        )

    return pd.DataFrame(
        {
            "at": asked["step"].to_numpy(),
            "reference": read("loss"),
            "candidate": asked["loss"].to_numpy(),
            "norm_a": read("gradient_norm"),
            "norm_b": asked["gradient_norm"].to_numpy(),
            "overflow": asked["overflow"].to_numpy(),
        }
    )


def _with_differences(points: pd.DataFrame) -> pd.DataFrame:
    relative = relative_difference(points["reference"], points["candidate"])
    norms = relative_difference(points["norm_a"], points["norm_b"])
    return points.assign(relative=relative, norm_relative=norms).drop(columns=["norm_a", "norm_b"]).reset_index(drop=True)


def relative_difference(reference: pd.Series[float], candidate: pd.Series[float]) -> Any:
    """(candidate - reference) / |reference|; near 0 the reference counts as a hundredth of its median, so that nothing explodes."""
    a, b = (np.asarray(side, dtype=np.float64) for side in (reference, candidate))
    finite = np.isfinite(a) & np.isfinite(b)
    size = np.abs(a)
    floor = 0.01 * float(np.median(size[np.isfinite(size)])) if np.isfinite(size).any() else 0.0
    with np.errstate(all="ignore"):
        found = (b - a) / np.maximum(size, floor)
    found = np.clip(np.where(finite & (a == b), 0.0, found), -LARGEST, LARGEST)
    return np.where(finite & np.isfinite(found), found, np.nan)
