"""Alignment: whether a changed training still trains the same model, judged by its losses.

`align_losses(reference, candidate)` matches two series (`series_of_run`, `read_table`) by step or by tokens and says aligned,
suspicious or diverged, with the first step that differs, the limits of the class of change, and which change may be the cause.
docs/accuracy.md explains the tests.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

import pandas as pd

from perfkit.core.errors import InputError
from perfkit.explain.alignment._complete import broken, lacks
from perfkit.explain.alignment._judge import Judgement, Verdict, judge
from perfkit.explain.alignment._match import By, match
from perfkit.explain.alignment._series import TABLES, LossSeries, is_loss_table, read_table, series_of_run
from perfkit.explain.alignment._told import cause_table, figures, sentence
from perfkit.explain.alignment.changes import LIMITS, Cause, ChangeClass, Limits, causes, class_of

__all__ = [
    "LIMITS",
    "TABLES",
    "Alignment",
    "Cause",
    "ChangeClass",
    "Limits",
    "LossSeries",
    "align_losses",
    "cause_table",
    "is_loss_table",
    "read_table",
    "series_of_run",
]

_STORED: Mapping[Verdict, str] = {"aligned": "pass", "suspicious": "not_checked", "diverged": "fail"}


@dataclass(frozen=True, kw_only=True, slots=True)
class Alignment:
    """Two trainings compared by loss; `points` has a row a matched step (see `_match.Matched`), figures are ratios."""

    reference: LossSeries
    candidate: LossSeries
    points: pd.DataFrame
    by: By
    change_class: ChangeClass
    limits: Limits
    judgement: Judgement
    max_relative: float | None
    max_step: int | None
    mean_relative: float | None
    norm_max_relative: float | None
    overflow_steps: tuple[int, ...]
    causes: tuple[Cause, ...]
    notes: tuple[str, ...]

    @property
    def verdict(self) -> Verdict:
        """Aligned, suspicious or diverged."""
        return self.judgement.verdict

    @property
    def stored_as(self) -> str:
        """How the experiment log stores the verdict: where every bit must stay, one that differs is a failed check."""
        if self.change_class == "exact" and self.verdict != "aligned":
            apart = self.points["relative"].dropna().head(self.limits.steps)
            return "fail" if (apart != 0).any() else _STORED[self.verdict]
        return _STORED[self.verdict]

    @property
    def num_compared(self) -> int:
        """Steps with a finite loss in both."""
        return int(self.points["relative"].notna().sum())

    def told(self) -> tuple[str, ...]:
        """The verdict in a sentence, and what is to be known of it."""
        return (sentence(self), *self.notes)

    def to_frame(self) -> pd.DataFrame:
        """What was compared, figure by figure: the value, and its limit or where it comes from."""
        return figures(self)

    def to_json(self) -> dict[str, Any]:
        """The part of `perfkit compare` that is about losses; what cannot be told is None."""
        verdict, judgement = self.verdict, self.judgement
        return {
            "verdict": verdict,
            "stored_as": self.stored_as,
            "reasons": list(judgement.reasons),
            "first_divergence_step": judgement.first_divergence_step,
            "max_relative": self.max_relative,
            "max_relative_step": self.max_step,
            "mean_relative": self.mean_relative,
            "norm_max_relative": self.norm_max_relative,
            "steps_compared": self.num_compared,
            "aligned_by": self.by,
            "class": self.change_class,
            "limits": asdict(self.limits),
            "reference_noise": judgement.reference_noise,
            "same_samples": judgement.same_samples,
            "drift": None if judgement.trend is None else {"over_all_steps": judgement.trend.end, "t": judgement.trend.end_t},
            "overflow_steps": list(self.overflow_steps),
            "causes": [asdict(cause) for cause in self.causes],
            "notes": list(self.notes),
        }


def align_losses(
    reference: LossSeries,
    candidate: LossSeries,
    *,
    change_class: ChangeClass | None = None,
    changes: Iterable[Mapping[str, Any]] = (),
    limits: Limits | None = None,
    max_relative: float | None = None,
    by: By | None = None,
    steps: int | None = None,
) -> Alignment:
    """Compare the losses of `candidate` with those of `reference`.

    `change_class` says what was changed; by default it follows from `changes` (`key`, `old`, `new`), else it is re-association.
    `limits` replace those of the class, `max_relative` only that of single steps where the class has one. `by` aligns by "step",
    "tokens" or "samples"; by default by step unless batches differ.
    `steps` compares the first ones only; a pass needs all of the reference's, in number and size, and no loss that is no number.
    Raises InputError for values that cannot be.
    """
    if steps is not None and steps < 1:
        raise InputError("align_losses", [f"steps = {steps} must be at least 1"])
    if change_class is not None and change_class not in LIMITS:
        raise InputError("align_losses", [f"change_class = {change_class!r} must be one of {', '.join(LIMITS)}"])
    found = causes(changes)
    chosen = change_class or class_of(found) or "re-association"
    matched = match(reference, candidate, by)
    if steps is not None:
        matched = type(matched)(points=matched.points.head(steps), by=matched.by, notes=matched.notes)
    points, bounds = matched.points, limits or LIMITS[chosen]
    if max_relative is not None and bounds.max_relative:
        bounds = replace(bounds, max_relative=max_relative, source="set on this page")
    sizes = points["relative"].abs().dropna()
    norms = points["norm_relative"].abs().dropna()
    assumed = "" if change_class or found else "no changes are known: judged as re-association (parallel strategy, fused operators)"
    notes = [*reference.notes, *candidate.notes, *matched.notes, *_coverage(reference, candidate, points), assumed]
    return Alignment(
        reference=reference,
        candidate=candidate,
        points=points,
        by=matched.by,
        change_class=chosen,
        limits=bounds,
        judgement=judge(
            matched, bounds, chosen, broken=broken(reference, candidate), lacking=lacks(reference, candidate, matched, steps)
        ),
        max_relative=float(sizes.max()) if len(sizes) else None,
        max_step=int(points["at"].to_numpy()[sizes.index[int(sizes.to_numpy().argmax())]]) if len(sizes) else None,
        mean_relative=float(sizes.mean()) if len(sizes) else None,
        norm_max_relative=float(norms.max()) if len(norms) else None,
        overflow_steps=tuple(int(step) for step in points.loc[points["overflow"], "at"]),
        causes=found,
        notes=tuple(note for note in notes if note),
    )


def _coverage(reference: LossSeries, candidate: LossSeries, points: pd.DataFrame) -> list[str]:
    """What of the two series could not be compared."""
    notes = []
    ends = [int(series.points["step"].iloc[-1]) for series in (reference, candidate)]
    if ends[0] != ends[1]:
        longer = reference.name if ends[0] > ends[1] else candidate.name
        notes.append(f"{longer} goes on to step {max(ends)}, the other ends at step {min(ends)}: only common steps are compared")
    common = len(points)
    missing = min(len(reference.points), len(candidate.points)) - common
    if common and missing > 0 and ends[0] == ends[1]:
        notes.append(f"{missing} logged step(s) have no partner in the other series")
    if common and not math.isclose(
        float(points["at"].iloc[0]), float(max(s.points["step"].iloc[0] for s in (reference, candidate)))
    ):
        notes.append(f"the first common step is {int(points['at'].iloc[0])}")
    return notes
