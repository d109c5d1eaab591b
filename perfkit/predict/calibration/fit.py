"""Fitting: a few efficiencies that make the predictions of measured plans right, held near the physical values they start from.

Least mean absolute relative error, the figure by which predictions are judged, by iteratively reweighted Gauss-Newton steps on the
logarithms of the parameters, with a quadratic pull towards the start: a parameter that the rows do not speak about stays where it
was.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd

from perfkit.core.plan_columns import Floats
from perfkit.predict.calibration._interval import interval
from perfkit.predict.calibration._measured import Measured, read_measured
from perfkit.predict.calibration.file import Calibration, calibration

PARAMETERS = (
    "compute",
    "release_gain",
    "small_groups",
    "score_bytes",
    "misaligned",
    "communication",
    "host",
    "backward_host",
    "unpadded",
    "collective_host_s",
    "node_wait",
)
"""What a fit may change, the most useful first; few rows change only the first ones that they speak about."""

ROWS_EACH = 10
SPOKEN = 0.002  # mean change of the logarithm of the step time for a change of the parameter's logarithm by 1
SPREAD = 0.3  # logarithm by which a parameter is expected to differ from its start
DOUBT = 0.05  # logarithm by which a step time is expected to differ from a good prediction
NOISE = 0.01
STEP = 0.01
LENGTHS = (1.0, 0.5, 0.2, 0.05)  # shares of a step that are tried, the first that helps is taken


@dataclass(frozen=True, slots=True)
class CrossValidation:
    """Predicted over measured time of every plan (`ratios`), each predicted by a fit that had not seen its fold (`folds`)."""

    ratios: Floats
    folds: Any

    @property
    def error(self) -> float:
        """Mean absolute relative error."""
        return float(np.mean(np.abs(self.ratios - 1.0)))


def calibrate(
    frame: pd.DataFrame | Measured,
    *,
    name: str = "fitted",
    origin: str = "",
    base: Calibration | None = None,
    parameters: Sequence[str] | None = None,
) -> Calibration:
    """Fit a calibration to the measured rows of a table.

    `base` is where the fit starts and what it is held near (the bundled default); `parameters` are the efficiencies that may
    change, by default as many of `PARAMETERS` as there are rows for. The result states the points, the error and the 80 % interval
    of rows whose group was left out.
    """
    rows = frame if isinstance(frame, Measured) else read_measured(frame)
    start = base or calibration("default")
    fitted = fit(rows, start, parameters)
    tested = cross_validate(rows, base=start, parameters=parameters, by_group=True)
    bounds = interval(tested.ratios, rows.groups) if len(np.unique(rows.groups)) > 1 else start.interval
    # What the rows do not contain was not measured now either.
    contained = {
        "experts": (rows.plans.experts > 0).any(),
        "device": not start.knows(rows.labels).all(),
        "network": ((rows.plans.nodes > 1) & start.differs(rows.labels)).any(),
    }
    doubt = {kind: amount for kind, amount in start.doubt.items() if not contained[kind]}
    return replace(fitted, name=name, origin=origin, points=len(rows.seconds), error=tested.error, interval=bounds, doubt=doubt)


def cross_validate(
    rows: Measured,
    *,
    base: Calibration | None = None,
    parameters: Sequence[str] | None = None,
    folds: int = 5,
    by_group: bool = False,
    seed: int = 0,
) -> CrossValidation:
    """Predict every row by a fit to rows of other folds: random ones, or with `by_group` one group at a time."""
    start = base or calibration("default")
    codes = rows.groups if by_group else _random_folds(len(rows.seconds), folds, seed)
    ratios = np.ones(len(rows.seconds))
    for own in _each(codes):
        fitted = start if own.all() else fit(rows.take(~own), start, parameters)
        ratios[own] = rows.take(own).ratios(fitted)
    return CrossValidation(ratios, codes)


def fit(rows: Measured, start: Calibration, parameters: Sequence[str] | None = None) -> Calibration:
    """The calibration with the parameters that the rows ask for; no statement about its error."""
    names = parameters or chosen_parameters(rows, start)
    paths = [name if "." in name else _path(rows, start, name) for name in names]
    values = np.array([start.value(path) for path in paths])

    def chosen(x: Floats) -> Calibration:
        return start.with_values(dict(zip(paths, (values * np.exp(x)).tolist(), strict=True)))

    def residuals(points: Sequence[Floats]) -> Floats:
        return np.log(rows.ratios_of([chosen(x) for x in points]))

    x = np.zeros(len(paths))
    pull = DOUBT / len(rows.seconds)
    found = residuals([x])[0]
    best = _loss(found, x, pull)
    for _ in range(15):
        direction = _direction(residuals, found, x, pull)
        tried = [x + length * direction for length in LENGTHS]
        after = residuals(tried)
        losses = [_loss(own, point, pull) for own, point in zip(after, tried, strict=True)]
        taken = next((index for index, loss in enumerate(losses) if loss < best - 1e-6), None)
        if taken is None:
            break
        x, found, gain, best = tried[taken], after[taken], best - losses[taken], losses[taken]
        if gain < 1e-5:
            break
    return chosen(x)


def chosen_parameters(rows: Measured, start: Calibration) -> tuple[str, ...]:
    """As many parameters as there are rows for, of those that change the predictions of the rows."""
    before = np.log(rows.ratios(start))
    paths = [_path(rows, start, name) for name in PARAMETERS]
    changed = [start.with_values({path: start.value(path) * np.exp(STEP)}) for path in paths]
    changes = np.abs(np.log(rows.ratios_of(changed)) - before).mean(axis=1)
    spoken = [name for name, change in zip(PARAMETERS, changes, strict=True) if change > SPOKEN * STEP]
    return tuple(spoken[: max(1, len(rows.seconds) // ROWS_EACH)])


def _path(rows: Measured, start: Calibration, name: str) -> str:
    """The path of the number that counts for all rows, else the common one."""
    used = [rows.labels.values[code] for code in np.unique(rows.labels.codes).tolist()]
    paths = {start.path(label, name) for label in used}
    return paths.pop() if len(paths) == 1 else f"common.{name}"


def _direction(residuals: Any, found: Floats, x: Floats, pull: float) -> Floats:
    """The reweighted Gauss-Newton step, at most half a logarithm long in every parameter."""
    slopes = (residuals([x + STEP * unit for unit in np.eye(len(x))]) - found).T / STEP
    weights = np.exp(found) / np.maximum(np.abs(found), NOISE) / len(found)
    curvature = slopes.T @ (weights[:, None] * slopes) + pull / SPREAD**2 * np.eye(len(x))
    gradient = slopes.T @ (weights * found) + pull / SPREAD**2 * x
    return np.clip(-np.linalg.solve(curvature, gradient), -0.5, 0.5)


def _loss(found: Floats, x: Floats, pull: float) -> float:
    return float(np.mean(np.abs(np.expm1(found))) + pull / 2 * np.sum((x / SPREAD) ** 2))


def _random_folds(count: int, folds: int, seed: int) -> Any:
    return np.random.default_rng(seed).permutation(count) % folds


def _each(codes: Any) -> Iterator[Any]:
    for code in np.unique(codes):
        yield codes == code
