"""Plan cost: how long a step of a plan takes by part, how sure that is, and which number of the machine matters most."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pandas as pd

from perfkit.core.spec.plan import Plan
from perfkit.core.units import NS_PER_S, format_ns, format_ratio, significant
from perfkit.face.charts.breakdown import bars
from perfkit.face.charts.studies import tornado, tornado_rows
from perfkit.face.panels._plan_state import PLAN_CONTROLS, State, plan_of, start
from perfkit.face.widgets.chart import Figure
from perfkit.face.widgets.panel import Answer, Panel
from perfkit.face.widgets.table import Table
from perfkit.predict.estimate import Estimate, estimate
from perfkit.predict.studies.sensitivity import CHANGE, sensitivity

NOT_ASKED = frozenset({"limit_gib", "schedule", "framework", "attention_kernel"})
"""Controls of a plan that its step time does not ask for."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Result:
    """The plan, its prediction and what moves it."""

    state: State
    plan: Plan
    estimate: Estimate
    sensitivity: pd.DataFrame


def compute(state: State) -> Result:
    """Predict the plan and its variations; raises InputError with every reason why the plan is impossible."""
    plan = plan_of(state)
    return Result(state=state, plan=plan, estimate=estimate(plan), sensitivity=sensitivity(plan))


def view(result: Result) -> Answer:
    """The step by part, and the tornado of its inputs."""
    found = result.estimate
    charts = {
        "parts": Figure(
            chart=bars({"predicted step": found.breakdown}),
            title="The predicted step by part",
            alt=_sentence(result),
            sources=[f"{name}: {source}" for name, source in found.sources[:2]],
            table="parts",
            wide=True,
        ),
        "tornado": Figure(
            chart=tornado(tornado_rows(result.sensitivity, found.step_time_s)),
            title=f"The step when one number is {CHANGE:.0%} worse or better",
            alt="One bar an input, the largest effect first.",
            sources=["computed: the prediction of the changed plan", *map(str, result.sensitivity["source"])],
            table="sides",
            wide=True,
        ),
    }
    return Answer(charts, lambda: _tables(result), _sentence(result), lambda: _notes(result))


def _tables(result: Result) -> dict[str, Table]:
    return {
        "parts": Table(frame=_parts(result.estimate), title="The predicted step by part"),
        "tornado": Table(frame=result.sensitivity.drop(columns="source"), title="Inputs by their effect on the step"),
    }


def _parts(found: Estimate) -> pd.DataFrame:
    rows = [
        {"part": path, "time": format_ns(amount * NS_PER_S), "share": format_ratio(amount / found.step_time_s)}
        for path, amount in found.breakdown.parts.items()
    ]
    return pd.DataFrame(rows)


def _sentence(result: Result) -> str:
    found, plan = result.estimate, result.plan
    low, high = (format_ns(bound * NS_PER_S) for bound in found.interval_s)
    name = plan.model.name or Path(result.state.preset).name
    return (
        f"{name} on {plan.num_devices} devices: {format_ns(found.step_time_s * NS_PER_S)} a step, 80 % between {low} and {high}; "
        f"{significant(found.tokens_per_s_per_device, 4)} tokens/s per device, MFU {format_ratio(found.mfu)}."
    )


def _notes(result: Result) -> tuple[str, ...]:
    notes = list(result.estimate.warnings)
    if not result.sensitivity.empty:
        first = result.sensitivity.iloc[0]
        notes.append(
            f"What matters most is the {first['input']}: {CHANGE:.0%} better or worse moves the step by "
            f"{format_ratio(float(first['swing_ratio']) / 2)} each way."
        )
    return tuple(notes)


PANEL = Panel(
    title="The step of a plan",
    start=start,
    compute=compute,
    view=view,
    shared=("preset",),
    controls=tuple(control for control in PLAN_CONTROLS if control.path not in NOT_ASKED),
)
