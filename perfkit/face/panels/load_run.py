"""Load run: what a recording holds, what was dropped, what is missing, and whether its numbers agree with one another."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import pandas as pd

from perfkit.config.collect import PARTS, how_to_collect
from perfkit.core.run import Run
from perfkit.core.units import format_bytes
from perfkit.face.charts.coverage import coverage_map
from perfkit.face.widgets import context
from perfkit.face.widgets.chart import Figure
from perfkit.face.widgets.control import Number, PathPicker
from perfkit.face.widgets.panel import Answer, Empty, Panel
from perfkit.face.widgets.table import Table
from perfkit.record.load import formats

FRAMEWORKS = {
    "ascend-text": "torch-npu",
    "kineto": "pytorch",
    "mindinsight": "mindspore",
    "mindformers-log": "mindformers",
    "megatron-log": "megatron",
}


@dataclass(frozen=True, kw_only=True, slots=True)
class State:
    """The chosen recording; `num_expected` is how many ranks the job has, 0: as many as it says itself."""

    run: str
    num_expected: int = 0


@dataclass(frozen=True, kw_only=True, slots=True)
class Result:
    """All that the page shows. `largest_rest_ns` is the largest difference between a step and the sum of its parts."""

    state: State
    run: Run
    num_expected: int | None
    largest_rest_ns: int | None
    missing: tuple[str, ...]


def start() -> State:
    """The project's open recording, else the bundled two-rank profile."""
    return State(run=context.first_run(context.SAMPLES))


def compute(state: State, progress: context.Progress | None = None) -> Result:
    """Read the recording, remember it in the project, and check it."""
    run = context.read_run(state.run, progress)
    context.remember_run(state.run)
    stated = run.facts.get("num_devices")
    expected = state.num_expected or (int(stated.value) if stated is not None else None)
    return Result(state=state, run=run, num_expected=expected, largest_rest_ns=_largest_rest_ns(run), missing=missing_parts(run))


def _largest_rest_ns(run: Run) -> int | None:
    if not run.has("step_parts"):
        return None
    sums = run.frame("step_parts").groupby(["rank", "step"])["amount_ns"].sum().rename("sum_ns").reset_index()
    both = run.steps().merge(sums, on=["rank", "step"])
    return int((both["duration_ns"] - both["sum_ns"]).abs().max())


def missing_parts(run: Run) -> tuple[str, ...]:
    """The parts that no rank has recorded, in the order of `collect.PARTS`."""
    coverage = run.frame("coverage")
    present = set(coverage.loc[coverage["state"].isin(["present", "partial"]), "part"].astype(str))
    if run.has("steps"):
        present.add("step times")
    if run.has("kernels"):
        present.add("kernels")
    if run.has("collectives"):
        present.add("collectives")
    return tuple(part for part in PARTS if part not in present)


def view(result: Result) -> Answer:
    """The map of what is there, and tables of what is not."""
    run = result.run
    charts: dict[str, Any] = {}
    if run.has("coverage"):
        charts["coverage"] = Figure(
            chart=coverage_map(run.frame("coverage")),
            title=context.marked(result.state.run, "What every rank recorded"),
            sources=[f"measured: files of {run.name}"],
            wide=True,
        )
    tables: dict[str, Any] = {"ranks": Table(frame=_rank_table(run), title="Ranks")}
    if run.dropped:
        lost = pd.DataFrame([{"count": drop.count, "what": drop.what, "file": drop.file} for drop in run.dropped])
        tables["dropped"] = Table(frame=lost, title="What could not be read")
    if result.missing:
        framework = FRAMEWORKS.get(run.format)
        advice = [{"not recorded": part, "how to collect it": how_to_collect(part, framework)} for part in result.missing]
        tables["missing"] = Table(frame=pd.DataFrame(advice), title="What was not recorded")
    if run.facts:
        facts = [
            {"setting": name.replace("_", " "), "value": str(fact.value), "where from": fact.source.where}
            for name, fact in run.facts.items()
        ]
        tables["facts"] = Table(frame=pd.DataFrame(facts), title="What the recording says about the job")
    return Answer(charts, tables, _sentence(result), _notes(result))


def _rank_table(run: Run) -> pd.DataFrame:
    steps = run.steps()
    rows = []
    for rank in run.ranks:
        own = steps[steps["rank"] == rank]
        position = run.placement.get(rank)
        rows.append(
            {
                "rank": rank,
                "steps": len(own),
                "first step": int(own["step"].min()) if len(own) else None,
                "last step": int(own["step"].max()) if len(own) else None,
                "kernels": len(run.frame("kernels", ranks=[rank])),
                "collectives": len(run.frame("collectives", ranks=[rank])),
                "pipeline stage": position.pipeline if position else None,
                "tensor": position.tensor if position else None,
                "data": position.data if position else None,
            }
        )
    return pd.DataFrame(rows).dropna(axis="columns", how="all")


def _sentence(result: Result) -> str:
    run = result.run
    title = next((format.title for format in formats() if format.name == run.format), run.format)
    ranks, steps = len(run.ranks), run.frame("steps")["step"].nunique()
    of_all = f" of {result.num_expected}" if result.num_expected and result.num_expected != ranks else ""
    size = run.frame("coverage")["bytes"].sum()
    text = f"{title}: {ranks}{of_all} rank{'s' if ranks != 1 else ''}, {steps} step{'s' if steps != 1 else ''}"
    text += f", {format_bytes(int(size))} of files. " if size else ". "
    lost = sum(drop.count for drop in run.dropped)
    text += f"{lost} items could not be read. " if lost else "Nothing was dropped. "
    if result.largest_rest_ns is not None:
        rest = "exactly" if result.largest_rest_ns == 0 else f"within {result.largest_rest_ns} ns"
        text += f"The parts of every step sum to it {rest}. "
    return text + (f"Not recorded: {', '.join(result.missing)}." if result.missing else "Every kind of data is there.")


def _notes(result: Result) -> tuple[str, ...]:
    notes = list(result.run.notes)
    if result.run.format.endswith("-log"):
        notes.append("This is a training log: page 01 shows its step times.")
    else:
        notes.append("Profiling slows a step: compare its length with the log of an unprofiled run.")
    if result.num_expected and len(result.run.ranks) < result.num_expected:
        absent = result.num_expected - len(result.run.ranks)
        notes.append(f"{absent} of {result.num_expected} ranks are not here: a slow rank among them stays unseen.")
    return tuple(notes)


def fill(state: State) -> State:
    """The bundled two-rank profile."""
    return replace(state, run=context.run_options()[-1][1] if context.run_options() else "")


PANEL = Panel(
    title="What was recorded",
    start=start,
    compute=compute,
    view=view,
    empty=Empty(action="Use the sample profile", fill=fill),
    shared=("run",),
    controls=(
        PathPicker(
            path="run",
            options=lambda state: [*context.run_options(state), *context.log_options(state)],
            label="Recording",
            help="a folder of profiles at any depth, a trace file, or a training log",
        ),
        Number(
            path="num_expected", low=0, high=100_000, step=1, label="Ranks of the job", empty=0, placeholder="as the recording says"
        ),
    ),
)
