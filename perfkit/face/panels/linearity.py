"""Linearity: how much of the throughput is kept when a job grows, over as many runs as one likes.

Runs are written as "devices: tokens/s" of the whole job, or taken from the rounds of the project. The run with the
fewest devices is the base; its unit is explicit, because a guide mixes nodes and cards (erratum X12).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import pandas as pd

from perfkit.core.errors import InputError
from perfkit.core.units import format_ratio, significant
from perfkit.face.charts.scaling import linearity_chart
from perfkit.face.widgets import context
from perfkit.face.widgets.chart import Figure
from perfkit.face.widgets.control import Choice, Text
from perfkit.face.widgets.panel import Answer, Panel
from perfkit.face.widgets.status import NothingYet
from perfkit.face.widgets.table import Table
from perfkit.predict.cost.scaling import GOOD_LINEARITY, linearity_table
from perfkit.project.experiments import ExperimentLog

GUIDE_RUNS = "1: 4695, 64: 270000"
METRIC = "tokens_per_s_per_device"


@dataclass(frozen=True, kw_only=True, slots=True)
class State:
    """Where the runs come from, and the runs as text."""

    source: Literal["typed", "rounds"] = "typed"
    runs: str = GUIDE_RUNS


@dataclass(frozen=True, kw_only=True, slots=True)
class Result:
    """The runs against the smallest one; columns of `calc.scaling.linearity_table`."""

    state: State
    table: pd.DataFrame


def compute(state: State) -> Result:
    """Linearity of the runs; raises InputError with every run that cannot be read."""
    runs = parse_runs(state.runs) if state.source == "typed" else _rounds()
    return Result(state=state, table=linearity_table(runs))


def parse_runs(text: str) -> list[tuple[str, int, float]]:
    """Runs written as "devices: tokens/s" of the whole job, separated by commas or semicolons.

    Thousands may be split by spaces or underscores. Raises InputError that lists every piece that is no run.
    """
    runs: list[tuple[str, int, float]] = []
    problems: list[str] = []
    for piece in (part.strip() for part in text.replace(";", ",").split(",") if part.strip()):
        devices, colon, rate = (side.strip().replace(" ", "").replace("_", "") for side in piece.partition(":"))
        try:
            runs.append((f"{int(devices)} device{'s' if int(devices) != 1 else ''}", int(devices), float(rate)))
        except ValueError:
            problems.append(f"{piece!r} is no run; write devices: tokens/s, for example 64: 270000")
        if not colon and not problems:
            problems.append(f"{piece!r} has no colon between devices and tokens/s")
    if not runs and not problems:
        raise NothingYet("No runs yet. Write for example 1: 4695, 64: 270000.")
    if problems:
        raise InputError("runs", problems)
    return runs


def _rounds() -> list[tuple[str, int, float]]:
    project = context.current_project()
    if project is None:
        raise NothingYet("No project is open, so there are no rounds. Type the runs instead.")
    found = []
    for row in ExperimentLog(project.folder, read_only=True).show("json")["rounds"]:
        devices = next((config["devices"] for config in row["configs"] if config["devices"]), None)
        if devices and row["metric"] == METRIC and row["value"]:
            found.append((f"round {row['number']}", int(devices), float(row["value"]) * int(devices)))
    if not found:
        raise NothingYet("No round of this project has both a device count and tokens/s. Type the runs instead.")
    return found


def view(result: Result) -> Answer:
    """Throughput against the ideal line, and the answer for the largest run."""
    table = result.table
    last, base = table.iloc[-1], table.iloc[0]
    figure = Figure(
        chart=linearity_chart(table),
        title="Throughput against the number of devices",
        sources=["computed: measured throughput / (throughput of the smallest run x growth), perfkit.predict.cost.scaling"],
        wide=True,
    )
    shown = table.rename(columns={"linearity": "linearity_ratio"})
    if len(table) == 1:
        text = f"One run of {int(base['num_devices'])} devices: add a larger one to see how the job scales."
    else:
        verdict = "good" if last["good"] else f"below {format_ratio(GOOD_LINEARITY)}: look at communication"
        kept, ideal = (significant(float(last[name]), 4) for name in ("tokens_per_s", "ideal_tokens_per_s"))
        text = (
            f"From {int(base['num_devices'])} to {int(last['num_devices'])} devices {format_ratio(float(last['linearity']), 4)} "
            f"of the throughput is kept ({kept} of {ideal} tokens/s): {verdict}."
        )
    notes = (
        "A guide divides by one node's throughput times the number of cards, which is too small by the cards of a node (X12).",
    )
    labels = {"num_devices": "devices"}
    return Answer({"linearity": figure}, {"runs": Table(frame=shown, title="Runs", labels=labels)}, text, notes)


PANEL = Panel(
    title="Linearity over runs",
    start=State,
    compute=compute,
    view=view,
    controls=(
        Choice(path="source", options=(("typed here", "typed"), ("rounds of the project", "rounds")), buttons=True, label="Runs"),
        Text(
            path="runs",
            label="devices: tokens/s of the whole job",
            placeholder=GUIDE_RUNS,
            help="the smallest run is the base",
            visible=lambda state: state.source == "typed",
        ),
    ),
)
