"""A tuning project as parts of a report: the log's own sections, with the ladder, the predictions and the step of every round."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd

from perfkit.core import quantity
from perfkit.core.breakdown import Breakdown
from perfkit.core.errors import InputError, PerfkitError
from perfkit.core.run import Run
from perfkit.core.source import Source
from perfkit.core.units import NS_PER_MS, format_change, format_ns, format_ratio
from perfkit.face.charts.breakdown import bars
from perfkit.face.charts.compare import predicted_measured, predicted_rows, waterfall, waterfall_rows
from perfkit.face.charts.rounds import ladder
from perfkit.face.report._parts import Drawing, Part, shown, table_part
from perfkit.face.report._run import step_parts, typical_steps
from perfkit.project.experiments import ExperimentLog
from perfkit.project.experiments.export import Section
from perfkit.project.goals import GOALS, written
from perfkit.record.format import Progress
from perfkit.record.load import load

STEP_ROOTS = frozenset({"computing", "communication", "bubble", "free"})

Row = Mapping[str, Any]


def project_parts(folder: Path, progress: Progress | None = None) -> tuple[Part, ...]:
    """The whole report of the project in `folder`."""
    log = ExperimentLog(folder, read_only=True)
    document = log.show("json")
    title, rounds, *rest = log.sections()
    by_round: list[list[Section]] = []
    for section in rest:
        by_round = [*by_round, [section]] if section.level == 2 else [*by_round[:-1], [*by_round[-1], section]]
    runs = {row["number"]: _open_runs(folder, row, progress) for row in document["rounds"]}
    breakdowns = {row["number"]: _breakdown(row, runs[row["number"]][0]) for row in document["rounds"]}
    parts = [Part(title), Part(rounds, tuple(_ladder(log, document))), *_predictions(document), *_all_steps(breakdowns)]
    for sections, row in zip(by_round, document["rounds"], strict=True):
        own, problems = runs[row["number"]]
        parts += [Part(replace(sections[0], text=(*sections[0].text, *problems))), *map(Part, sections[1:])]
        for run in own:
            parts += step_parts(run, level=3, title=f"Step of {run.name}")
        parts += _change(row, breakdowns)
        parts += _findings(log, row)
    return tuple(parts)


def _ladder(log: ExperimentLog, document: Row) -> Iterator[Drawing]:
    project = document["project"]
    title, scale = GOALS.get(project["goal_metric"], (project["goal_metric"], 1.0))
    rows = log.ladder()
    if rows.empty:
        return
    for column in ("value", "prediction", "prediction_low", "prediction_high"):
        rows[column] = rows[column] / scale
    told = [
        f"round {row['number']} {written(row['metric'], row['value'])}" for row in document["rounds"] if row["value"] is not None
    ]
    goal = project["goal_value"]
    kept = ["number", "title", "value", "prediction", "prediction_low", "prediction_high", "verdict", "kind"]
    yield Drawing(
        ladder(rows[kept], metric_title=title, goal=None if goal is None else goal / scale),
        title="Rounds: filled marks are measured, open ones predicted",
        alt=f"{title} by round: {', '.join(told) or 'nothing was measured yet'}.",
        sources=("perfkit.sqlite, tables measurement and prediction",),
    )


def _predictions(document: Row) -> Iterator[Part]:
    told = [row for row in document["rounds"] if row["error_ratio"] is not None]
    if not told:
        return
    metric = document["project"]["goal_metric"]
    title, scale = GOALS.get(metric, (metric, 1.0))
    points = [
        {
            "name": f"round {row['number']}",
            "prediction": row["prediction"] / scale,
            "value": row["value"] / scale,
            "error": format_change(row["error_ratio"]),
        }
        for row in told
    ]
    errors = ", ".join(f"round {row['number']} {format_change(row['error_ratio'])}" for row in told)
    mean = sum(abs(row["error_ratio"]) for row in told) / len(told)
    sentence = f"Error of the predictions: {errors}; {format_ratio(mean)} on average, without sign."
    drawing = Drawing(
        predicted_measured(predicted_rows(points), title=title),
        title="Predicted and measured, all rounds",
        alt=sentence,
        sources=("perfkit.sqlite, tables prediction and measurement",),
    )
    header = ("round", "predicted", "low", "high", "measured", "error", "method")
    rows = [
        (
            row["number"],
            *(written(metric, row[name]) for name in ("prediction", "prediction_low", "prediction_high", "value")),
            format_change(row["error_ratio"]),
            next(item["method"] for item in reversed(row["predictions"]) if item["metric"] == metric),
        )
        for row in told
    ]
    table = table_part("Predicted and measured", header, rows, level=2, told=(sentence,))
    yield replace(table, drawings=(drawing,))


def _shown(path: str) -> str:
    """A path within the project, or the name alone of what lies elsewhere: a report leaves the machine."""
    return Path(path).name if Path(path).is_absolute() else path


def _open_runs(folder: Path, row: Row, progress: Progress | None) -> tuple[list[Run], list[str]]:
    """The recordings of a round that can be read, and a sentence for each that cannot."""
    found, problems = [], []
    for item in row["runs"]:
        if item["path"] is None:
            continue
        try:
            found.append(load(folder / item["path"], progress=progress))
        except PerfkitError as error:
            why = "; ".join(error.problems) if isinstance(error, InputError) else str(error)
            problems.append(f"The recording {_shown(item['path'])} cannot be drawn: {why}")
    return found, problems


def _breakdown(row: Row, runs: Sequence[Run]) -> Breakdown | None:
    """What a step of a round was made of: of the slowest rank of its last recording, else as it was measured by path."""
    for run in reversed(runs):
        if run.has("step_parts"):
            slowest = typical_steps(run).nlargest(1, "duration_ns").iloc[0]
            return run.step_breakdown(int(slowest["rank"]), int(slowest["step"]))
    parts = {
        item["metric"]: item["value"]
        for run in row["runs"]
        for item in run["measurements"]
        if item["unit"] == "ns" and item["value"] is not None and item["metric"].split("/")[0] in STEP_ROOTS
    }
    return Breakdown("ns", parts, Source("measured", f"round {row['number']}")) if parts else None


def _all_steps(breakdowns: Mapping[int, Breakdown | None]) -> Iterator[Part]:
    known = {f"round {number}": found for number, found in breakdowns.items() if found is not None}
    if not known:
        sentence = "No round has a recording that tells the parts of a step, so none can be drawn; attach one to its round."
        yield Part(Section(title="Where the step went, by round", text=(sentence,)))
        return
    told = ", ".join(f"{name} {format_ns(int(found.total))}" for name, found in known.items())
    sentence = f"A step of the slowest rank by round: {told}."
    sources = tuple(f"{name}: {found.source}" for name, found in known.items())
    drawing = Drawing(bars(known), title="A step of the slowest rank, by part", alt=sentence, sources=sources)
    yield Part(Section(title="Where the step went, by round", text=(sentence,)), (drawing,))


def _change(row: Row, breakdowns: Mapping[int, Breakdown | None]) -> Iterator[Part]:
    """How the step changed against the parent, where both are known by part."""
    before, after = breakdowns.get(row["parent"]) if row["parent"] is not None else None, breakdowns[row["number"]]
    if before is None or after is None:
        return
    paths = list(dict.fromkeys([*before.parts, *after.parts]))
    frame = pd.DataFrame([{"path": path, "a": before.parts.get(path, 0), "b": after.parts.get(path, 0)} for path in paths])
    taken, takes = (format_ns(int(found.total)) for found in (before, after))
    sentence = f"The step of round {row['parent']} (a) took {taken}, that of round {row['number']} (b) {takes}."
    drawing = Drawing(
        waterfall(waterfall_rows(frame, scale=float(NS_PER_MS), unit="ms"), unit="ms"),
        title=f"From round {row['parent']} to round {row['number']}",
        alt=sentence,
        sources=(str(before.source), str(after.source)),
    )
    yield Part(Section(title=f"Change against round {row['parent']}", level=3, text=(sentence,)), (drawing,))


def _findings(log: ExperimentLog, row: Row) -> Iterator[Part]:
    found = log.findings(row["number"])
    if not found:
        return
    rows = [
        (
            item["severity"],
            item["rule"],
            shown("cost_ns", item["cost_ns"]),
            quantity.listed(item["evidence"]),
            item["status"],
            item["reason"] or None,
        )
        for item in found
    ]
    header = ("severity", "rule", "cost a step", "evidence", "status", "reason")
    yield table_part("Findings and what was made of them", header, rows)
