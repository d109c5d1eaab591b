"""Recalibrate: fit a prediction to one measured run, and say how it changed.

A single run speaks about one number only. The efficiency that is fitted is the one of the part with the largest residual that the
prediction of this plan depends on, unless another is asked for; the others keep their values.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from perfkit.core.breakdown import Breakdown
from perfkit.core.errors import InputError
from perfkit.core.plan_columns import PlanColumns
from perfkit.core.run import Run
from perfkit.core.spec.plan import Plan
from perfkit.core.units import NS_PER_S, format_change, format_ns, significant
from perfkit.explain.compare._parts import Part, parts
from perfkit.explain.compare._planned import WORTH_SAYING, beside
from perfkit.explain.compare.settings import comparable
from perfkit.predict.calibration import Calibration, Measured
from perfkit.predict.calibration.fit import fit
from perfkit.predict.cost.cost_columns import costs_of
from perfkit.predict.cost.labels import labels_of
from perfkit.predict.estimate import Estimate, _known, estimate

PARAMETERS = {"computing": "compute", "communication": "communication", "free": "host", "bubble": "compute", "step": "compute"}


@dataclass(frozen=True, kw_only=True, slots=True)
class Recalibration:
    """A calibration fitted to one run: the parameter that changed with both values, and the estimates before and after."""

    calibration: Calibration
    parameter: str
    old_value: float
    new_value: float
    measured_s: float
    before: Estimate
    after: Estimate

    @property
    def sentence(self) -> str:
        """How the prediction changed."""
        times = [format_ns(round(seconds * NS_PER_S), 4) for seconds in (self.before.step_time_s, self.after.step_time_s)]
        measured = format_ns(round(self.measured_s * NS_PER_S), 4)
        errors = [found.step_time_s / self.measured_s - 1 for found in (self.before, self.after)]
        return (
            f"The prediction changes from {times[0]} ({format_change(errors[0])}) to {times[1]} ({format_change(errors[1])}) "
            f"of {measured} measured: {self.parameter} {significant(self.old_value)} becomes {significant(self.new_value)}."
        )


def recalibrate(
    run: Run, plan: Plan, *, calibration: str | Calibration | None = None, parameter: str | None = None, name: str = "from one run"
) -> Recalibration:
    """Fit one efficiency of `calibration` (the bundled default) to the steady step of `run`, whose plan is `plan`.

    Raises InputError if the run states that it is not of this plan, or if no parameter has influence on its prediction.
    """
    if other := comparable(run, plan):
        differing = [f"{row['key']} is {row['old']} in the run and {row['new']} in the plan" for row in other]
        raise InputError("recalibrate", ["the run is not of this plan, so it says nothing about its prediction", *differing])
    start = _known(calibration)
    found = beside(run, plan, calibration=start)
    seconds = found.run.median_ns / NS_PER_S
    one = np.zeros(1, dtype=np.intp)
    labels = labels_of(PlanColumns.of([plan]))
    rows = Measured(costs_of([plan]), labels, np.array([seconds]), one, one)
    tried = [parameter] if parameter else _by_residual(found.measured, found.planned)
    for chosen in tried:
        path = chosen if "." in chosen else start.path(labels.values[0], chosen)
        fitted = replace(fit(rows, start, [path]), name=name, origin=f"{start.name}, fitted to {run.name}", points=1)
        old, new = start.value(path), fitted.value(path)
        if not np.isclose(old, new, rtol=1e-9) or np.isclose(found.estimate.step_time_s, seconds, rtol=1e-3):
            break
    else:
        raise InputError("recalibrate", [f"{', '.join(tried)} do not change the prediction of this plan; choose another parameter"])
    return Recalibration(
        calibration=fitted,
        parameter=chosen,
        old_value=old,
        new_value=new,
        measured_s=seconds,
        before=found.estimate,
        after=estimate(plan, calibration=fitted),
    )


def _by_residual(measured: Breakdown, planned: Breakdown) -> list[str]:
    """Parameters of the parts, the one with the largest residual first; where there is none to speak of, the largest part first."""
    worth = WORTH_SAYING * planned.total

    def order(part: Part) -> tuple[float, float]:
        return -max(abs(part.delta) - worth, 0.0), -abs(part.b)

    rows = sorted(parts(measured, planned), key=order)
    return list(dict.fromkeys(PARAMETERS.get(part.path.split("/")[0], "compute") for part in rows))
