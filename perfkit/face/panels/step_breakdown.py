"""Step breakdown: where the time of a step went on every rank, and what the chosen rank ran.

The answer names the largest part and the page that looks into it. Ranks are compared with the median of their pipeline stage:
stages do different work, so a comparison over all ranks would blame a whole stage.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Literal

import pandas as pd

from perfkit.core import settings
from perfkit.core.errors import NotMeasuredError
from perfkit.core.resources import pages
from perfkit.core.run import Run
from perfkit.core.units import NS_PER_MS, THIN_SPACE, format_ns
from perfkit.explain.operators import Grouping, largest_collectives, largest_kernels
from perfkit.explain.ranks import parse_ranks, worth_showing
from perfkit.face.charts.breakdown import unmeasured_text
from perfkit.face.charts.steps import part_rows, rank_bars, step_trend
from perfkit.face.widgets import context
from perfkit.face.widgets.chart import Figure
from perfkit.face.widgets.control import Choice, PathPicker, Text
from perfkit.face.widgets.panel import Answer, Empty, Panel
from perfkit.face.widgets.table import Table

MEDIAN = "median"
ALL = "all"
RANK_LABELS = {"exposed_ns": "exposed comm.", "hidden_ns": "hidden comm.", "against stage median": "vs. stage median"}
NEXT_PAGE = {
    "computing": ("12", "the operators (which kernels cost most)"),
    "communication": ("13", "the communication (is it needed, slow, or waiting)"),
    "bubble": ("06", "the pipeline balance (which layers on which stage)"),
    "free": ("16", "the data feed (does the device wait for data or for the host)"),
}


@dataclass(frozen=True, kw_only=True, slots=True)
class State:
    """What the page knows: the recording, the step (a number, or "median"), the ranks as text, and the chosen rank."""

    run: str
    step: str = MEDIAN
    ranks: str = ""
    unit: Literal["ms", "%"] = "ms"
    rank: int = -1
    by: Grouping = "name"


@dataclass(frozen=True, kw_only=True, slots=True)
class Result:
    """All that the page shows; `shown` and `parts` are of the drawn ranks, `steps` of all."""

    state: State
    run: Run
    steps: pd.DataFrame
    parts: pd.DataFrame
    shown: tuple[int, ...]
    rank: int
    kernels: pd.DataFrame
    collectives: pd.DataFrame


def start() -> State:
    """The project's open recording, else the bundled two-rank profile."""
    return State(run=context.first_run(context.SAMPLES))


def compute(state: State, progress: context.Progress | None = None) -> Result:
    """Choose the step of every rank and the ranks to draw; raises NotMeasuredError if the run has no breakdown."""
    run = context.read_run(state.run, progress)
    if not run.has("step_parts"):
        raise NotMeasuredError(
            f"what a step is made of: {run.name} holds {'only step times' if run.has('steps') else 'no steps'}",
            how_to_collect="record a profile of two to four steps; page 10 writes the lines for your framework",
        )
    steps = _chosen_steps(run, state.step)
    durations = steps.set_index("rank")["duration_ns"]
    ranks = [int(rank) for rank in steps["rank"]]
    asked = parse_ranks(state.ranks, ranks)
    shown = asked if state.ranks.strip() else worth_showing(durations)
    rank = state.rank if state.rank in ranks else ranks[int(durations.argmax())]
    step = int(steps.loc[steps["rank"] == rank, "step"].iloc[0])
    chosen = steps[["rank", "step"]].merge(run.frame("step_parts"), on=["rank", "step"])
    return Result(
        state=state,
        run=run,
        steps=steps,
        parts=chosen[chosen["rank"].isin(shown)],
        shown=shown,
        rank=rank,
        kernels=largest_kernels(run, rank=rank, step=step, by=state.by),
        collectives=largest_collectives(run, rank=rank, step=step),
    )


def _chosen_steps(run: Run, step: str) -> pd.DataFrame:
    """One row a rank: the step of that number, or each rank's step whose duration is nearest to the rank's median."""
    broken_down = run.frame("step_parts")[["rank", "step"]].drop_duplicates()
    steps = run.steps().merge(broken_down, on=["rank", "step"])
    if step not in (MEDIAN, ""):
        return steps[steps["step"] == int(step)].reset_index(drop=True)
    distance = (steps["duration_ns"] - steps.groupby("rank")["duration_ns"].transform("median")).abs()
    return steps.loc[distance.groupby(steps["rank"]).idxmin()].reset_index(drop=True)


def view(result: Result) -> Answer:
    """Bars by rank, the trend of the chosen rank, and its kernels and collectives."""
    run, state, rank = result.run, result.state, result.rank
    rows = part_rows(result.parts)
    order = {str(number): place for place, number in enumerate(result.shown)}
    rows = rows.sort_values(["rank", "order"], key=lambda column: column.map(order) if column.name == "rank" else column)
    charts: dict[str, Any] = {
        "ranks": Figure(
            chart=rank_bars(rows, unit=state.unit),
            title=context.marked(state.run, f"Where the step went, by rank ({len(result.shown)} of {len(result.steps)} ranks)"),
            sources=[f"measured: {run.name}, table step_parts"],
            wide=True,
        )
    }
    trend = part_rows(run.frame("step_parts", ranks=[rank]))
    if trend["step"].nunique() > 1:
        charts["trend"] = Figure(
            chart=step_trend(trend), title=f"Steps of rank {rank}", sources=[f"measured: {run.name}"], wide=True
        )
    tables: dict[str, Any] = {
        "ranks": Table(
            frame=_rank_table(result), title="Ranks, most computing against their stage first", labels=RANK_LABELS, selectable=True
        ),
    }
    if len(result.kernels):
        columns = [state.by, *(name for name in ("type", "core") if name != state.by), "count", "total_ns", "mean_ns", "share"]
        title = f"Largest kernels of rank {rank} (share of its summed kernel time)"
        tables["kernels"] = Table(frame=result.kernels[columns], title=title)
    if len(result.collectives):
        columns = ["operation", "group", "group_size", "count", "total_ns", "mean_ns", "wait_ns", "bytes"]
        tables["collectives"] = Table(frame=result.collectives[columns], title=f"Largest communication of rank {rank}")
    return Answer(charts, tables, _sentence(result), _notes(result))


def _rank_table(result: Result) -> pd.DataFrame:
    steps = result.steps
    stage = steps["pipeline_stage"].fillna(-1)
    median_ns = steps["computing_ns"].astype("float64").groupby(stage).transform("median")
    table = pd.DataFrame(
        {
            "rank": steps["rank"],
            "stage": steps["pipeline_stage"],
            "step": steps["step"],
            "duration_ns": steps["duration_ns"],
            "computing_ns": steps["computing_ns"],
            "against stage median": (steps["computing_ns"].astype("float64") / median_ns - 1).map(
                lambda excess: None if pd.isna(excess) else f"{excess:+.1%}"
            ),
            "exposed_ns": steps["exposed_communication_ns"],
            "hidden_ns": steps["overlapped_ns"],
            "bubble_ns": steps["bubble_ns"],
            "free_ns": steps["free_ns"],
        }
    )
    order = (
        (steps["computing_ns"].astype("float64") / median_ns).sort_values(ascending=False, na_position="last", kind="stable").index
    )
    return table.loc[order].dropna(axis="columns", how="all").reset_index(drop=True)


def _sentence(result: Result) -> str:
    row = result.steps[result.steps["rank"] == result.rank].iloc[0]
    breakdown = result.run.step_breakdown(result.rank, int(row["step"]))
    total = int(breakdown.total)
    parts = sorted(breakdown.parts.items(), key=lambda part: -part[1])
    listed = ", ".join(f"{path} {_ms(amount)} ({amount / total:.2%})" for path, amount in parts if amount)
    text = f"Step {int(row['step'])} of rank {result.rank} took {_ms(total)}: {listed or 'nothing was recorded'}."
    overlapped = row["overlapped_ns"]
    if not pd.isna(overlapped):
        text += f" {_ms(int(overlapped))} of communication is hidden behind computing."
    first_levels = breakdown.collapse(1)
    largest = max(first_levels.parts, key=lambda path: first_levels.parts[path], default="computing")
    return f"{text} {_advice(largest)}"


def _advice(largest: str) -> str:
    number, why = NEXT_PAGE[largest]
    there = number in {page.number for page in pages(settings.pages_folder())}
    return f"Look next at page {number}: {why}." if there else f"Look next at {why}."


def _ms(ns: float) -> str:
    # Three decimals, so that the parts on screen sum to the step on screen and agree with the vendor's file.
    return f"{ns / NS_PER_MS:,.3f} ms".replace(",", THIN_SPACE)


def _notes(result: Result) -> tuple[str, ...]:
    row = result.steps[result.steps["rank"] == result.rank].iloc[0]
    breakdown = result.run.step_breakdown(result.rank, int(row["step"]))
    notes = [unmeasured_text(breakdown)] if not breakdown.complete else []
    copy_ns = row["copy_ns"]
    if not pd.isna(copy_ns) and int(copy_ns):
        notes.append(f"Of the free time, {format_ns(int(copy_ns))} went to memory copies alone.")
    if len(result.shown) < len(result.steps) and not result.state.ranks.strip():
        count = f"{len(result.shown)} of {len(result.steps)} ranks"
        notes.append(f"{count} are drawn: the slowest, the fastest and the middle. Name others above.")
    if not result.run.has("kernels"):
        notes.append("Kernels of single ranks are not recorded in this format.")
    lost = sum(dropped.count for dropped in result.run.dropped)
    if lost:
        notes.append(f"{lost} items of this recording could not be read; page 10 lists them.")
    return tuple(notes)


def pick(state: State, _chart: str, datum: dict[str, Any]) -> State:
    """The state after a click on a bar or a row: its rank is chosen."""
    return replace(state, rank=int(datum["rank"])) if datum.get("rank") is not None else state


def fill(state: State) -> State:
    """The bundled two-rank profile."""
    return replace(state, run=context.run_options()[-1][1] if context.run_options() else "")


def _step_options(state: State) -> list[tuple[str, str]]:
    if not state.run:
        return [("median of all", MEDIAN)]
    steps = context.read_run(state.run).frame("step_parts")["step"].unique()
    return [("median of each rank", MEDIAN), *((str(step), str(step)) for step in sorted(int(step) for step in steps))]


PANEL = Panel(
    title="Where the step went",
    start=start,
    compute=compute,
    view=view,
    empty=Empty(action="Use the sample profile", fill=fill),
    on_select=pick,
    on_row=pick,
    shared=("run", "step", "rank"),
    controls=(
        PathPicker(path="run", options=context.run_options, label="Recording", help="a folder of profiles or a trace file"),
        Choice(path="step", options=_step_options, label="Step"),
        Text(path="ranks", label="Ranks", placeholder="0-7, 12 (empty: the ones worth showing)"),
        Choice(path="unit", options=(("ms", "ms"), ("% of step", "%")), buttons=True, label="Unit"),
        Choice(path="by", options=(("name", "name"), ("type", "type"), ("core", "core")), buttons=True, label="Kernels by"),
    ),
)
