"""Operators: which kernels of a rank cost most, which are many and short, and what a faster one would win."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import pandas as pd

from perfkit.core import catalog
from perfkit.core.errors import InputError, NotMeasuredError, PerfkitError
from perfkit.core.run import Run
from perfkit.core.units import NS_PER_US, format_ns
from perfkit.explain.compare.operators import OperatorComparison, compare_operators
from perfkit.explain.operators import Grouping
from perfkit.explain.roofline import operator_costs
from perfkit.explain.what_if import WhatIf, what_if
from perfkit.face.charts.operators import UNKNOWN, core_label, count_mean, measured_roofline, operator_rows, total_bars
from perfkit.face.panels._operator_compare import compare_figures, compare_sentence, compare_tables
from perfkit.face.widgets import context
from perfkit.face.widgets.chart import Figure
from perfkit.face.widgets.control import Choice, Number, PathPicker, Slider
from perfkit.face.widgets.panel import Action, Answer, Empty, Panel
from perfkit.face.widgets.table import Table
from perfkit.project.experiments import ExperimentLog
from perfkit.record.load import load

ALL = "all"
COMPUTING = "computing"
NONE = ""
NOT_COMPUTING = ("communication", "copy")
FACTOR = 2.0
MANY = 20
"""Calls from which small kernels of one operator are many."""


@dataclass(frozen=True, kw_only=True, slots=True)
class State:
    """What the page knows: the recording, how kernels are grouped, and the operator that the question is about."""

    run: str
    rank: int = -1
    by: Grouping = "name"
    core: str = COMPUTING
    top: int = 20
    small_us: float = 10.0
    operator: str = NONE
    factor: float = FACTOR
    other: str = ""
    device: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class Result:
    """All that the page shows: `table` of all groups, largest first, `costs` by shape, the answer about one operator."""

    state: State
    run: Run
    rank: int
    table: pd.DataFrame
    costs: pd.DataFrame
    chosen: str
    answer: WhatIf | None
    unanswered: str
    other: Run | None
    compared: OperatorComparison | None


def start() -> State:
    """The project's open recording, else the bundled two-rank profile."""
    return State(run=context.first_run(context.SAMPLES))


def compute(state: State, progress: context.Progress | None = None) -> Result:
    """Totals of the kernels of a rank; raises NotMeasuredError if the run has none."""
    run = context.read_run(state.run, progress)
    if not run.has("kernels"):
        raise NotMeasuredError(
            f"kernels of {run.name}", how_to_collect="record a profile with device activities; page 10 writes the lines for it"
        )
    ranks = sorted(int(rank) for rank in run.frame("kernels", columns=["rank"])["rank"].unique())
    rank = state.rank if state.rank in ranks else ranks[0]
    table = _totals(run, rank, state)
    names = list(table["name"].astype(str))
    chosen = state.operator if state.operator in names else names[0]
    answer, unanswered = _asked(run, chosen, state) if state.by != "core" else (None, "")
    other = load(state.other, progress=progress) if state.other else None
    compared = None if other is None else compare_operators(run, other)
    return Result(
        state=state,
        run=run,
        rank=rank,
        table=table,
        costs=operator_costs(run, rank=rank),
        chosen=chosen,
        answer=answer,
        unanswered=unanswered,
        other=other,
        compared=compared,
    )


def _totals(run: Run, rank: int, state: State) -> pd.DataFrame:
    """One row a group: `name`, `type`, `core`, `count`, `total_ns`, `mean_ns`, `share` (of the kernels shown), `small`."""
    rows = run.frame("kernels", ranks=[rank], columns=["name", "type", "core", "kind", "duration_ns"])
    cores = [
        core_label(core, kind) for core, kind in zip(rows["core"].astype("object"), rows["kind"].astype("object"), strict=True)
    ]
    named = rows["name"].astype("object")
    types = rows["type"].astype("object").where(rows["type"].notna(), named)
    keys = {"name": named, "type": types, "core": pd.Series(cores, index=rows.index)}
    frame = pd.DataFrame({"name": keys[state.by], "type": types, "core": cores, "duration_ns": rows["duration_ns"]})
    if state.core == COMPUTING:
        frame = frame[~frame["core"].isin(NOT_COMPUTING)]
    elif state.core != ALL:
        frame = frame[frame["core"] == state.core]
    if frame.empty:
        raise InputError("operators", [f"rank {rank} has no kernels of core {state.core!r}"])
    groups = frame.groupby("name", sort=False)
    table = groups.agg(
        type=("type", "first"), core=("core", "first"), count=("duration_ns", "size"), total_ns=("duration_ns", "sum")
    ).reset_index()
    table["mean_ns"] = (table["total_ns"] / table["count"]).round().astype("int64")
    table["share"] = table["total_ns"] / max(1, int(table["total_ns"].sum()))
    table["small"] = table["mean_ns"] < state.small_us * NS_PER_US
    return table.sort_values("total_ns", ascending=False, kind="stable", ignore_index=True)


def _asked(run: Run, chosen: str, state: State) -> tuple[WhatIf | None, str]:
    """What the step would be if the chosen operator were faster, or why that cannot be told."""
    try:
        return what_if(run, f"operator:{chosen}:{state.factor:g}"), ""
    except PerfkitError as error:
        return None, str(error).splitlines()[-1].strip(" -")


def view(result: Result) -> Answer:
    """Bars, calls against mean time, the roofline, and the tables."""
    state, run = result.state, result.run
    shown = result.table.head(int(state.top))
    source = [f"measured: {run.name}, kernels of rank {result.rank}, all recorded steps"]
    rows = operator_rows(shown)
    charts = {
        "totals": Figure(
            chart=total_bars(rows),
            title=context.marked(state.run, f"Largest of {len(result.table)} groups on rank {result.rank}, with cumulative share"),
            sources=source,
            wide=True,
        ),
        "calls": Figure(
            chart=count_mean(rows, small_us=state.small_us),
            title=f"Calls and mean time (small is below {state.small_us:g} us)",
            sources=source,
        ),
    }
    if (roof := _roofline(result)) is not None:
        charts["roofline"] = roof
    columns = ["name", "core", "count", "total_ns", "mean_ns", "share"]
    ranked = shown[columns].assign(gain=[_gain(share) for share in shown["share"]])
    labels = {"count": "calls", "gain": "speed-up without it"}
    tables: dict[str, Any] = {
        "operators": Table(frame=ranked, title="Operators; choose one to ask about it", labels=labels, selectable=True)
    }
    sentence = _sentence(result)
    if result.compared is not None and result.other is not None:
        charts |= compare_figures(result.compared, run, result.other)
        tables |= compare_tables(result.compared)
        sentence = f"{compare_sentence(result.compared, result.other)} {sentence}"
    return Answer(charts, tables, sentence, _notes(result))


def _gain(share: float) -> str:
    """What throughput gains at most if a share s of the time is gone: s / (1 - s)."""
    return f"{share / (1 - share):+.1%}" if share < 1 else "-"


def _roofline(result: Result) -> Figure | None:
    device = catalog.hardware().get(result.state.device) if result.state.device else None
    known = result.costs.dropna(subset=["flops_per_s", "intensity_flops_per_byte"])
    if device is None or known.empty or not device.memory_bytes_per_s:
        return None
    peak = device.peak_flops_per_s.get("bf16") or next(iter(device.peak_flops_per_s.values()))
    return Figure(
        chart=measured_roofline(known.head(200), peak_flops_per_s=peak, memory_bytes_per_s=device.memory_bytes_per_s),
        title=f"What operators reached, under the roof of {device.name}",
        sources=["measured: times; computed: FLOPs and bytes from the recorded shapes"],
    )


def _sentence(result: Result) -> str:
    """The largest, the small ones, those on the device's CPU, and the answer about the chosen one."""
    largest = result.table.iloc[0]
    parts = [
        f"{_named(largest['name'])} takes most: {format_ns(int(largest['total_ns']))} in {int(largest['count'])} call(s), "
        f"{largest['share']:.0%} of the time of {_whose(result)}."
    ]
    small = result.table[result.table["small"] & result.table["core"].isin(["vector", UNKNOWN]) & (result.table["count"] >= MANY)]
    if len(small):
        calls, share = int(small["count"].sum()), float(small["share"].sum())
        names = ", ".join(_named(name) for name in small["name"].head(3))
        parts.append(f"{calls} calls are short vector kernels ({share:.0%} of the time; {names}): a fused operator replaces many.")
    slow = result.table[result.table["core"] == "AI CPU"]
    if len(slow):
        names = ", ".join(_named(name) for name in slow["name"].head(3))
        parts.append(f"{names} run on the device's CPU: replace them, or change their type of data.")
    if result.answer is not None:
        answer = result.answer
        parts.append(
            f"{_named(result.chosen)} {result.state.factor:g} times faster: the step takes {format_ns(answer.step_ns)} instead of "
            f"{format_ns(answer.before_ns)} ({answer.won_ns / answer.before_ns:.1%} less)."
        )
    return " ".join(parts)


def _whose(result: Result) -> str:
    """The kernels that shares are of."""
    core = result.state.core
    which = {COMPUTING: "the computing kernels", ALL: "all kernels"}.get(core, f"the {core} kernels")
    return f"{which} of rank {result.rank}"


def _named(name: object) -> str:
    text = str(name)
    return text if len(text) <= 60 else f"{text[:59]}…"


def _notes(result: Result) -> tuple[str, ...]:
    notes: list[str] = []
    if result.answer is not None:
        notes += result.answer.sentences[1:]
    elif result.unanswered:
        notes.append(f"What a faster {_named(result.chosen)} would win cannot be told: {result.unanswered}")
    if result.costs["flops"].isna().all():
        notes.append("No shapes were recorded, so FLOPs and the roofline are not measured.")
    elif not result.state.device:
        notes.append("Choose a device to see how near its limits operators come.")
    if result.compared is not None:
        notes += result.compared.notes
    return tuple(notes)


def choose(state: State, _table: str, row: dict[str, Any]) -> State:
    """The state after a click on a bar or a row: its operator is asked about."""
    return replace(state, operator=str(row["name"])) if row.get("name") is not None else state


def save(state: State) -> str:
    """Keep the largest operators and the answer with the open round of the project."""
    project = context.current_project()
    if project is None:
        raise InputError("operators", ["no project is open; make one on page 00"])
    result = compute(state)
    log = ExperimentLog(project.folder)
    number = next((row["number"] for row in log.show("json")["rounds"] if not row["verdict"]), None)
    if number is None:
        raise InputError("operators", [f"no round of {project.name} is open; start the next one first"])
    largest = [
        {"name": str(row["name"]), "count": int(row["count"]), "total_ns": int(row["total_ns"]), "share": float(row["share"])}
        for row in result.table.head(10).to_dict("records")
    ]
    answer = None if result.answer is None else result.answer.to_dict()
    log.record_event("operators", {"run": state.run, "largest": largest, "what_if": answer}, page="12", number=number)
    return f"Saved to round {number} of {project.name}: {_sentence(result)}"


def _rank_options(state: State) -> list[tuple[str, int]]:
    if not state.run:
        return [("first", -1)]
    ranks = context.read_run(state.run).frame("kernels", columns=["rank"])["rank"].unique()
    return [("first", -1), *((str(rank), rank) for rank in sorted(int(rank) for rank in ranks))]


def _core_options(state: State) -> list[str | tuple[str, str]]:
    always: list[str | tuple[str, str]] = [("all that compute", COMPUTING), ("all", ALL)]
    if not state.run:
        return always
    rows = context.read_run(state.run).frame("kernels", columns=["core", "kind"]).drop_duplicates().astype("object")
    return [*always, *sorted({core_label(row["core"], row["kind"]) for row in rows.to_dict("records")})]


PANEL = Panel(
    title="Which operators cost most",
    start=start,
    compute=compute,
    view=view,
    empty=Empty(action="Use the sample profile", fill=lambda state: replace(state, run=start().run)),
    on_select=choose,
    on_row=choose,
    shared=("run", "rank", "operator"),
    controls=(
        PathPicker(path="run", options=context.run_options, label="Recording", help="a folder of profiles or a trace file"),
        Choice(path="rank", options=_rank_options, label="Rank"),
        Choice(path="by", options=(("name", "name"), ("type", "type"), ("core", "core")), buttons=True, label="Group by"),
        Choice(path="core", options=_core_options, label="Core"),
        Slider(path="top", low=5, high=100, label="Largest"),
        Number(path="small_us", low=0.1, high=10_000, label="Small kernels are below", unit="us"),
        Number(path="factor", low=0.1, high=1000, step=0.1, label="What if it were faster", unit="times"),
        Choice(path="device", options=lambda _: [("none", ""), *catalog.hardware()], label="Roof of device"),
        PathPicker(
            path="other",
            options=context.run_options,
            label="Compare with",
            prompt="no other run",
            help="for example the same on GPU",
        ),
    ),
    actions=(
        Action(
            name="save",
            label="Save to round",
            run=save,
            help="keeps the largest operators and the answer with the open round",
            visible=context.can_save,
        ),
    ),
)
