"""Prediction entries: what one expects of a round, filled from an estimate, as `perfkit.project.predictions.predict_goal` takes it.

    @widgets.step(found=how_long_a_step, **prediction_entries(), button="Lock it into the round")
    def what_the_round_predicts(found, **expected):
        return predict_goal(**expected), predictions_table()

The answer of the step `found` begins with the estimate, or with what has one as `estimate`.
"""

from __future__ import annotations

from typing import Any

from perfkit.face.widgets import context
from perfkit.face.widgets.entries import Entry, Number, Text
from perfkit.predict.estimate import Estimate
from perfkit.project import GoalMetric
from perfkit.project.goals import GOALS
from perfkit.project.predictions import METHOD, expected


def prediction_entries() -> dict[str, Entry]:
    """Controls by what they say: the value expected, its bounds, and how it was found."""
    title = GOALS[_metric()][0]
    unit = title.partition("(")[2].rstrip(")") or title
    words: dict[str, Any] = {"low": 0, "high": 1e12, "empty": 0, "placeholder": "not said", "unit": unit}
    return {
        "value": Number(lambda found: _of(found, 0), low=0, high=1e12, label="Expected", unit=unit),
        "low": Number(lambda found: _of(found, 1), label="At least", **words),
        "high": Number(lambda found: _of(found, 2), label="At most", **words),
        "method": Text(METHOD, label="Method", placeholder="how the figure was found"),
    }


def _of(found: Any, place: int) -> float:
    first = found[0]
    return expected(first if isinstance(first, Estimate) else first.estimate, _metric())[place]


def _metric() -> GoalMetric:
    project = context.current_project()
    return "tokens_per_s_per_device" if project is None else project.goal_metric
