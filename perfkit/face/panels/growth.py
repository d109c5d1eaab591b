"""Growth: the predicted throughput of a plan from 8 to 16,384 devices, and how much of the ideal is kept."""

from __future__ import annotations

from dataclasses import dataclass

import pandas as pd

from perfkit.core.spec.plan import Plan
from perfkit.core.units import format_count, format_ratio
from perfkit.face.charts.studies import growth_lines, growth_rows
from perfkit.face.panels import _plan_state as plan_state
from perfkit.face.widgets.chart import Figure
from perfkit.face.widgets.control import Choice
from perfkit.face.widgets.panel import Answer, Panel
from perfkit.face.widgets.status import NothingYet
from perfkit.face.widgets.table import Table
from perfkit.predict.cost.scaling import GOOD_LINEARITY
from perfkit.predict.studies.growth import Batch, growth

NOT_ASKED = frozenset({"schedule", "framework", "attention_kernel", "limit_gib", "data"})


@dataclass(frozen=True, kw_only=True, slots=True)
class State(plan_state.State):
    """A plan, and whether its batch grows with the devices."""

    batch: Batch = "grows"


@dataclass(frozen=True, kw_only=True, slots=True)
class Result:
    """The plan and its figures by number of devices."""

    state: State
    plan: Plan
    frame: pd.DataFrame


def start() -> State:
    """The project's configuration."""
    return State(preset=plan_state.start().preset)


def compute(state: State) -> Result:
    """`studies.growth` without memory; raises InputError with every reason why the plan is impossible."""
    plan = plan_state.plan_of(state)
    frame = growth(plan, batch=state.batch, memory=False)
    if frame["tokens_per_s"].isna().all():
        raise NothingYet(f"No number of devices works: {frame['note'].iloc[-1]}")
    return Result(state=state, plan=plan, frame=frame)


def view(result: Result) -> Answer:
    """Throughput against the ideal line, and the table of all numbers of devices with their memory."""
    frame = result.frame
    figure = Figure(
        chart=growth_lines(growth_rows(frame)),
        title="Predicted throughput against the number of devices (labels: share of the ideal)",
        alt=_sentence(frame),
        sources=[
            "computed: prediction of the plan with more data parallel replicas",
            "computed: perfkit.predict.cost.scaling.linearity",
        ],
        table="growth",
        wide=True,
    )
    return Answer({"growth": figure}, lambda: {"growth": _table(result)}, _sentence(frame))


def _table(result: Result) -> Table:
    columns = ["num_devices", "global_batch_size", "num_micro_batches", "step_time_s", "tokens_per_s", "linearity", "exposed_ratio"]
    columns += ["bubble_ratio", "peak_memory_bytes", "note"]
    shown = growth(result.plan, batch=result.state.batch)[columns].rename(columns={"linearity": "linearity_ratio"})
    labels = {"num_devices": "devices"}
    return Table(frame=shown, title="By number of devices", labels=labels)


def _sentence(frame: pd.DataFrame) -> str:
    known = frame.dropna(subset=["tokens_per_s"])
    first, last = known.iloc[0], known.iloc[-1]
    smallest, largest = (format_count(int(row["num_devices"])) for row in (first, last))
    text = f"From {smallest} to {largest} devices {format_ratio(float(last['linearity']), 4)} of the ideal throughput is kept"
    bad = known[known["linearity"] <= GOOD_LINEARITY]
    limit = format_ratio(GOOD_LINEARITY, 2)
    if bad.empty:
        return f"{text}, above {limit} everywhere."
    return f"{text}; it falls below {limit} at {int(bad['num_devices'].iloc[0])} devices."


PANEL = Panel(
    title="From 8 to 16 384 devices",
    start=start,
    compute=compute,
    view=view,
    shared=("preset",),
    controls=(
        *(control for control in plan_state.PLAN_CONTROLS if control.path not in NOT_ASKED),
        Choice(
            path="batch",
            options=(("grows with the devices", "grows"), ("stays", "stays")),
            buttons=True,
            label="Global batch",
        ),
    ),
)
