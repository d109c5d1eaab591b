"""DryRun substitute: the memory calculator, corrected by the few ranks that have a log, for all that have none.

A logged peak is read as  f_static x static + f_activations x activations + f_ends x ends + others + offset  with the calculator's
bytes. The three factors start at 1, the offset at 0, each with the spread of `PRIOR`: the doubt about optimizer layout, kept
tensors, head and buffers of an unknown framework version. Every log narrows them (Bayesian linear regression), so that one log is
enough and many are not overruled. The stated error is the 80 % interval; of two and more logs each is also predicted from the rest.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from perfkit.core.errors import InputError
from perfkit.core.spec.plan import Plan
from perfkit.core.units import GIB
from perfkit.predict.dryrun._parts import Parts, parts_of, stage_of, stage_parts
from perfkit.predict.dryrun._peaks import LoggedPeak
from perfkit.predict.memory.memory import MemoryEstimate, peak_memory
from perfkit.predict.memory.settings import MemorySettings

PRIOR = {"static": 0.1, "activations": 0.25, "ends": 0.4, "offset": 1.0 * GIB}
"""Standard deviation of each factor around 1, and of the offset in bytes around 0."""
NOISE = 0.01
"""What no factor explains, as a share of a peak: workspace, rounding of the allocator."""
WITHIN_80 = 1.2816
"""Standard deviations that hold 80 % of a normal distribution."""

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, kw_only=True, slots=True)
class Predicted:
    """The predicted peak of a stage in bytes: `used_bytes` without gaps, within `low` to `high` in four of five cases.

    `actual_bytes` includes gaps as the logs have them; None if no log states both peaks.
    """

    stage: int
    used_bytes: int
    low_bytes: int
    high_bytes: int
    actual_bytes: int | None
    parts: Parts

    @property
    def peak_bytes(self) -> int:
        """The peak that must fit: with gaps where the logs tell them."""
        return self.used_bytes if self.actual_bytes is None else self.actual_bytes


@dataclass(frozen=True, kw_only=True, slots=True)
class Calibration:
    """What logs say about the calculator: factors of its parts, an offset, and the share of gaps.

    `num_logs` 0 is the calculator itself. `largest_error` is that of a log predicted from all others, None with fewer than two;
    `uncalibrated_error` that of the calculator alone, None without logs.
    """

    factors: Mapping[str, float]
    offset_bytes: float
    covariance: Floats
    fragments_ratio: float | None
    num_logs: int
    uncalibrated_error: float | None = None
    largest_error: float | None = None

    def predict(self, stage: int, parts: Parts) -> Predicted:
        """The peak of a stage with these parts."""
        row = _row(parts)
        mean = parts.total + float(row @ self._deviation)
        spread = float(np.sqrt(row @ self.covariance @ row + (NOISE * parts.total) ** 2))
        used, half = max(0, round(mean)), WITHIN_80 * spread
        return Predicted(
            stage=stage,
            used_bytes=used,
            low_bytes=max(0, round(mean - half)),
            high_bytes=round(mean + half),
            actual_bytes=None if self.fragments_ratio is None else round(used * (1 + self.fragments_ratio)),
            parts=parts,
        )

    @property
    def _deviation(self) -> Floats:
        return np.array([*(factor - 1 for factor in self.factors.values()), self.offset_bytes], dtype=np.float64)


@dataclass(frozen=True, kw_only=True, slots=True)
class Substitute:
    """The peaks of every stage of a plan as a DryRun would log them."""

    plan: Plan
    estimate: MemoryEstimate
    calibration: Calibration
    stages: tuple[Predicted, ...]

    def of_rank(self, rank: int) -> Predicted:
        """The predicted peak of a rank; all ranks of a stage are alike. Raises InputError for a rank outside of the plan."""
        return self.stages[stage_of(rank, self.plan)]

    def of_plan(self, plan: Plan, schedule: str = "1f1b") -> tuple[Predicted, ...]:
        """The stages of a changed plan with the same corrections."""
        return _stages(peak_memory(plan, schedule=schedule, settings=self.estimate.settings), self.calibration)


def substitute(
    plan: Plan, peaks: Sequence[LoggedPeak] = (), *, settings: MemorySettings | None = None, schedule: str = "1f1b"
) -> Substitute:
    """Predict every stage of `plan`, corrected by logged peaks of some of its ranks; without logs the calculator itself.

    Peaks without a rank or without a figure of blocks in use are left out. Raises InputError for ranks that the plan does not have.
    """
    estimate = peak_memory(plan, schedule=schedule, settings=settings)
    parts = stage_parts(estimate)
    problems, known = [], []
    for peak in peaks:
        if peak.rank is None or not _used(peak):
            continue
        try:
            known.append((parts[stage_of(peak.rank, plan)], peak))
        except InputError as error:
            problems.append(f"{peak.file}:{peak.line}: {error.problems[0]}")
    if problems:
        raise InputError("dry run", problems)
    calibration = calibrate(known)
    return Substitute(plan=plan, estimate=estimate, calibration=calibration, stages=_stages(estimate, calibration))


def calibrate(known: Sequence[tuple[Parts, LoggedPeak]]) -> Calibration:
    """Factors and offset from logged peaks and the calculator's parts of the same ranks, of one plan or several."""
    rows = [parts for parts, _ in known]
    values = [float(_used(peak)) for _, peak in known]
    deviation, covariance = _fit(rows, values)
    gaps = [peak.fragments_bytes / peak.used_bytes for _, peak in known if peak.fragments_bytes is not None and peak.used_bytes]
    return Calibration(
        factors={name: 1 + float(deviation[index]) for index, name in enumerate(list(PRIOR)[:-1])},
        offset_bytes=float(deviation[-1]),
        covariance=covariance,
        fragments_ratio=float(np.median(gaps)) if gaps else None,
        num_logs=len(known),
        uncalibrated_error=max((abs(part.total / value - 1) for part, value in zip(rows, values, strict=True)), default=None),
        largest_error=_left_out(rows, values),
    )


def _left_out(rows: Sequence[Parts], values: Sequence[float]) -> float | None:
    """The largest error of a peak that is predicted from all others."""
    if len(rows) < 2:
        return None
    errors = []
    for index, (parts, value) in enumerate(zip(rows, values, strict=True)):
        deviation, _ = _fit([*rows[:index], *rows[index + 1 :]], [*values[:index], *values[index + 1 :]])
        errors.append(abs((parts.total + float(_row(parts) @ deviation)) / value - 1))
    return max(errors)


def _fit(rows: Sequence[Parts], values: Sequence[float]) -> tuple[Floats, Floats]:
    """Deviations of the factors from 1 and of the offset from 0, and their covariance."""
    spread = np.array(list(PRIOR.values()), dtype=np.float64)
    if not rows:
        return np.zeros(len(spread)), np.diag(spread**2)
    # In units of the prior the numbers are of one size; bytes squared would lose digits.
    design = np.stack([_row(parts) * spread for parts in rows])
    noise = NOISE * np.array(values)
    weighted, missing = design / noise[:, None], (np.array(values) - np.array([parts.total for parts in rows])) / noise
    inverse = np.linalg.inv(weighted.T @ weighted + np.eye(len(spread)))
    return inverse @ weighted.T @ missing * spread, inverse * np.outer(spread, spread)


def _row(parts: Parts) -> Floats:
    return np.array([parts.static, parts.activations, parts.ends, 1.0], dtype=np.float64)


def _stages(estimate: MemoryEstimate, calibration: Calibration) -> tuple[Predicted, ...]:
    return tuple(calibration.predict(stage, parts_of(found)) for stage, found in enumerate(estimate.stages))


def _used(peak: LoggedPeak) -> int:
    """The peak of blocks in use; 0 where the log has none."""
    return peak.used_bytes or peak.actual_bytes or 0
