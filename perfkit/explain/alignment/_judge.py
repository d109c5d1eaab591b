"""Judging: from matched losses to a verdict with its reasons.

Aligned: every limit of the change's class holds, or differences are no larger than the reference's own noise, nothing drifts, and
nothing is lacking (`_complete`). Diverged: a loss that is NaN or infinite where the reference is not, or a departure beyond limit
and noise that lasts to the end or for a third of the steps. Suspicious: everything between, and all that cannot be decided.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from perfkit.core.texts import say
from perfkit.core.units import format_change, format_ratio
from perfkit.explain.alignment._complete import Lack
from perfkit.explain.alignment._match import Matched
from perfkit.explain.alignment._noise import (
    DEVIATIONS,
    SIGNIFICANT_T,
    Floats,
    Trend,
    departed_share,
    departed_tails,
    onset,
    relative_scatter,
    scatter,
    trend,
)
from perfkit.explain.alignment.changes import Limits

Verdict = Literal["aligned", "suspicious", "diverged"]

INDEPENDENT = 0.6
"""Differences scatter this much as two independent noises would, or more: the samples or their order differ."""
DEPARTURE = 0.005
"""Departure that counts as one for classes without a limit, and for those that allow none at all."""
RESOLVING = 0.01
"""Differences of the mean that a comparison must be able to see to be called aligned."""
LASTING_SHARE = 1 / 3
DRIFT_SHARE = 0.5
"""A significant drift counts once it has come this far towards the limit of the mean: four times the steps would break it."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Judgement:
    """The verdict with its `reasons` and what it rests on; relative figures, None where there is nothing to compare."""

    verdict: Verdict
    reasons: tuple[str, ...]
    first_divergence_step: int | None
    reference_noise: float | None
    difference_noise: float | None
    same_samples: bool | None
    band_relative: float | None
    trend: Trend | None


@dataclass(frozen=True, slots=True)
class _Evidence:
    differences: Floats
    steps: Floats
    limits: Limits
    change_class: str
    reference_noise: float
    own_noise: float

    @property
    def independent(self) -> bool:
        return self.own_noise > 0 and self.own_noise >= INDEPENDENT * math.sqrt(2) * self.reference_noise > 0

    @property
    def noise(self) -> float:
        """The scatter that differences may have: their own, but no more than two runs as noisy as the reference would show."""
        return min(self.own_noise, 1.25 * math.sqrt(2) * self.reference_noise) if self.independent else self.own_noise

    @property
    def departure(self) -> float:
        limit = self.limits.max_relative if self.limits.max_relative is not None else self.limits.mean_relative
        return limit or DEPARTURE

    @property
    def band(self) -> float:
        """What a single step may differ by: the limit; classes without one for single steps allow the reference's own noise too."""
        if self.independent:
            return max(self.departure, DEVIATIONS * self.noise)
        own = DEVIATIONS * math.sqrt(2) * self.reference_noise if self.limits.max_relative is None else 0.0
        return max(self.departure, own)


def judge(matched: Matched, limits: Limits, change_class: str, *, broken: Lack | None, lacking: Sequence[Lack]) -> Judgement:
    """Judge matched losses by the limits of a class of change; `broken` is a divergence, with `lacking` nothing passes."""
    points = matched.points
    kept = points[points["relative"].notna()]
    evidence = _Evidence(
        differences=np.asarray(kept["relative"], dtype=np.float64),
        steps=np.asarray(kept["at"], dtype=np.float64),
        limits=limits,
        change_class=change_class,
        reference_noise=relative_scatter(np.asarray(kept["reference"], dtype=np.float64)),
        own_noise=scatter(np.asarray(kept["relative"], dtype=np.float64)),
    )
    diverged, first = _diverged(evidence)
    if broken is not None and broken.step is not None:
        diverged.insert(0, broken.reason)
        first = broken.step if first is None else min(first, broken.step)
    found = trend(evidence.differences)
    suspicious, spike = ([], None) if diverged else _suspicious(evidence, found)
    if not diverged and lacking:
        suspicious = [lack.reason for lack in lacking] + suspicious
        spike = min((step for step in (spike, *(lack.step for lack in lacking)) if step is not None), default=None)
    return Judgement(
        verdict="diverged" if diverged else "suspicious" if suspicious else "aligned",
        reasons=tuple(diverged or suspicious or [_held(evidence)]),
        first_divergence_step=first if diverged else spike,
        reference_noise=evidence.reference_noise if len(kept) else None,
        difference_noise=evidence.own_noise if len(kept) else None,
        same_samples=None if len(kept) < limits.fewest_steps else not evidence.independent,
        band_relative=evidence.band if len(kept) else None,
        trend=found,
    )


def _diverged(evidence: _Evidence) -> tuple[list[str], int | None]:
    """Why the series have parted for good, and the step in which that began."""
    d, limit, noise = evidence.differences, evidence.departure, evidence.noise
    few = len(d) < evidence.limits.fewest_steps and len(d) < 10
    limit = 10 * limit if few else limit
    widths = departed_tails(d, limit, noise)
    if widths:
        begin = int(evidence.steps[min(onset(d, limit, noise, width) for width in widths)])
        tail = float(d[-widths[0] :].mean())
        return [f"the losses part from step {begin} on: {format_change(tail)} over the last {widths[0]} compared steps"], begin
    share = departed_share(d, limit, noise)
    if share >= LASTING_SHARE and not few:
        begin = int(evidence.steps[int(np.argmax(np.abs(d) > evidence.band))])
        return [
            f"{format_ratio(share)} of the compared steps lie more than {format_ratio(evidence.band)} from the reference"
        ], begin
    return [], None


def _suspicious(evidence: _Evidence, found: Trend | None) -> tuple[list[str], int | None]:
    """What stands against calling the series aligned, and the first step beyond the band."""
    d, limits = evidence.differences, evidence.limits
    if not len(d):
        return ["no step has a finite loss in both"], None
    reasons: list[str] = []
    first = None
    if len(d) < limits.fewest_steps:
        reasons.append(f"{len(d)} steps can be compared; {evidence.change_class} changes need {limits.fewest_steps}")
    beyond = np.flatnonzero(np.abs(d) > evidence.band)
    if evidence.change_class == "batch":
        reasons.append("batch, learning rate, data or model differ: the losses are reported, no verdict follows from them")
    elif evidence.change_class == "exact":
        unequal = np.flatnonzero(d[: limits.steps] != 0)
        if len(unequal):
            first = int(evidence.steps[unequal[0]])
            reasons.append(f"the loss of step {first} is not equal bit for bit, as changes of this class must leave it")
    elif len(beyond):
        first = int(evidence.steps[beyond[0]])
        worst = beyond[np.argmax(np.abs(d[beyond]))]
        reasons.append(
            f"step {int(evidence.steps[worst])} differs by {format_change(d[worst])}, beyond {format_ratio(evidence.band)}; "
            f"{len(beyond)} of {len(d)} steps do"
        )
    reasons += _mean_reasons(evidence, found) if evidence.change_class in ("re-association", "precision") else []
    return reasons, first


def _mean_reasons(evidence: _Evidence, found: Trend | None) -> list[str]:
    d, limits, reasons = evidence.differences, evidence.limits, []
    limit = limits.mean_relative or 0.0
    mean = float(np.mean(np.abs(d[: limits.steps])))
    if mean > limit and not evidence.independent:
        reasons.append(f"the mean difference of {format_ratio(mean)} is above the limit of {format_ratio(limit)}")
    if found is not None and abs(found.end_t) > SIGNIFICANT_T and abs(found.end) >= DRIFT_SHARE * limit:
        reasons.append(f"the difference drifts by {format_change(found.end)} over the compared steps, more than noise explains")
    elif evidence.independent and found is not None and abs(found.level_t) > SIGNIFICANT_T and abs(found.level) > limit:
        reasons.append(f"the losses are off by {format_change(found.level)} on average, more than noise explains")
    seen = DEVIATIONS * evidence.noise / math.sqrt(len(d))
    if evidence.independent and seen > RESOLVING:
        reasons.append(
            f"the noise hides differences of the mean below {format_ratio(seen)}; compare more steps, or the same samples"
        )
    return reasons


def _held(evidence: _Evidence) -> str:
    d = np.abs(evidence.differences)
    limited = "largest difference {largest_ratio} (limit {limit_ratio}), mean {mean_ratio} over {num_steps} steps, no drift"
    form = "largest difference {largest_ratio}, mean {mean_ratio} over {num_steps} steps, no drift"
    form = form if evidence.change_class == "exact" else limited
    amounts = {"largest_ratio": float(d.max()), "limit_ratio": evidence.band, "mean_ratio": float(d.mean())}
    text = say(form, **amounts, num_steps=len(d))
    if evidence.independent and float(d.max()) > evidence.departure:
        form = "{held}; no more than the reference's own noise of {noise_ratio}, so samples or their order may differ"
        return say(form, held=text, noise_ratio=evidence.reference_noise)
    return text
