"""Export: the whole log as one document of headings, sentences and tables, and that document as Markdown or HTML.

The document has no "now" in it: equal logs give equal bytes. Report pages draw the same sections with charts beside them. Titles,
notes and paths are somebody's text: they are escaped in both forms.
"""

from __future__ import annotations

import html
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from perfkit.core.units import format_bytes, format_change
from perfkit.project.goals import written


@dataclass(frozen=True, kw_only=True, slots=True)
class Section:
    """One heading with its sentences and at most one table (header and rows of text); `level` 1 is the title."""

    title: str
    level: int = 2
    text: tuple[str, ...] = ()
    header: tuple[str, ...] = ()
    rows: tuple[tuple[str, ...], ...] = ()


def sections(document: Mapping[str, Any], differences: Mapping[int, Sequence[Mapping[str, Any]]]) -> tuple[Section, ...]:
    """The log as sections: goal, ladder, then every round. `differences` has the changed configuration keys of a round."""
    project, rounds = document["project"], document["rounds"]
    return (
        Section(title=project["name"] or "Tuning project", level=1, text=tuple(_goal(document))),
        Section(title="Rounds", header=_LADDER, rows=tuple(_ladder_row(row) for row in rounds)),
        *(section for row in rounds for section in _round(row, rounds, differences.get(row["number"], ()))),
    )


def markdown(found: Sequence[Section]) -> str:
    """The sections as Markdown with tables in pipes; text of a user cannot break out of its cell or its line."""
    return "\n".join(line for section in found for line in _markdown(section)).rstrip() + "\n"


def html_body(found: Sequence[Section]) -> str:
    """The sections as HTML elements without a page around them."""
    return "\n".join(line for section in found for line in _html(section)) + "\n"


def html_page(found: Sequence[Section]) -> str:
    """The sections as one HTML page that requests nothing from anywhere."""
    title = html.escape(found[0].title)
    return f'<!doctype html>\n<html lang="en"><meta charset="utf-8"><title>{title}</title>\n{_STYLE}\n{html_body(found)}</html>\n'


_LADDER = ("round", "title", "predicted", "measured", "prediction error", "gain", "accuracy", "verdict", "kind")


def _goal(document: Mapping[str, Any]) -> Iterator[str]:
    project, metric = document["project"], document["project"]["goal_metric"]
    if project["goal_value"] is not None:
        reached = "reached" if document["goal_met"] else "not reached yet"
        lacking = f" ({written(metric, document['missing_to_goal'])} missing)" if document["missing_to_goal"] else ""
        yield f"Goal: {metric} {project['goal_op']} {written(metric, project['goal_value'])}, {reached}{lacking}."
    if document["best_round"] is not None:
        gain = document["total_gain_ratio"]
        yield f"Best round: {document['best_round']}" + (f", {format_change(gain)} in total." if gain else ".")
    if document["stop_advice"]:
        yield document["stop_advice"]


def _ladder_row(row: Mapping[str, Any]) -> tuple[str, ...]:
    return (
        str(row["number"]),
        row["title"],
        written(row["metric"], row["prediction"]),
        written(row["metric"], row["value"]),
        _percent(row["error_ratio"]),
        _percent(row["gain_ratio"]),
        row["accuracy"] or "-",
        row["verdict"] or "open",
        row["kind"] or "-",
    )


def _round(row: Mapping[str, Any], rounds: Sequence[Mapping[str, Any]], changed: Sequence[Mapping[str, Any]]) -> Iterator[Section]:
    yield Section(title=f"Round {row['number']}: {row['title']}", text=tuple(_story(row)))
    if changed:
        rows = tuple((str(item["key"]), _value(item["old"]), _value(item["new"])) for item in changed)
        yield Section(title=f"Configuration against round {row['parent']}", level=3, header=("key", "old", "new"), rows=rows)
    if figures := _figures(row, next((other for other in rounds if other["number"] == row["parent"]), None)):
        header = ("figure", f"round {row['parent']}" if row["parent"] is not None else "before", "this round", "change", "source")
        yield Section(title="Figures", level=3, header=header, rows=figures)
    if row["artefacts"]:
        files = tuple((item["kind"], item["shown"], format_bytes(item["bytes"]), item["sha256"]) for item in row["artefacts"])
        yield Section(title="Files", level=3, header=("kind", "path", "size", "sha256"), rows=files)


def _story(row: Mapping[str, Any]) -> Iterator[str]:
    if row["hypothesis"]:
        yield f"Hypothesis: {row['hypothesis']}"
    if row["change_text"]:
        yield f"Change: {row['change_text']}"
    for item in row["predictions"]:
        span = (
            "" if item["low"] is None else f" ({written(item['metric'], item['low'])} to {written(item['metric'], item['high'])})"
        )
        yield f"Predicted {item['metric']}: {written(item['metric'], item['value'], item['unit'])}{span}, {item['method']}"
    if row["error_ratio"] is not None:
        yield f"Error of the prediction: {format_change(row['error_ratio'])}."
    if row["beyond_noise"] is False:
        yield "No measurable change: the difference is within the noise."
    for item in row["skipped"]:
        yield f"Skipped by {item['author']}: {item['state']}, {item['reason']}"
    for item in row["accuracy_checks"]:
        yield f"Accuracy: {item['verdict']}" + (f", {item['note']}" if item["note"] else "")
    if row["verdict"]:
        yield f"Decision: {row['verdict']}, {row['reason']}" + (f" Next: {row['next_step']}" if row["next_step"] else "")


def _figures(row: Mapping[str, Any], parent: Mapping[str, Any] | None) -> tuple[tuple[str, ...], ...]:
    before = {item["metric"]: item["value"] for run in (parent["runs"] if parent else ()) for item in run["measurements"]}
    found = {item["metric"]: item for run in row["runs"] for item in run["measurements"]}
    return tuple(
        (
            metric,
            written(metric, before.get(metric), item["unit"]),
            written(metric, item["value"], item["unit"]),
            _percent(item["value"] / before[metric] - 1 if item["value"] is not None and before.get(metric) else None),
            item["source"],
        )
        for metric, item in sorted(found.items())
    )


def _percent(ratio: float | None) -> str:
    return "-" if ratio is None else format_change(ratio)


def _value(value: Any) -> str:
    return "-" if value is None else str(value)


def _markdown(section: Section) -> Iterator[str]:
    yield f"{'#' * section.level} {_plain(section.title)}"
    yield ""
    for sentence in section.text:
        yield _plain(sentence)
        yield ""
    if section.rows:
        yield _pipes(section.header)
        yield _pipes(["---"] * len(section.header))
        yield from (_pipes([_plain(cell) for cell in row]) for row in section.rows)
        yield ""


_STYLE = (
    "<style>body{font:15px/1.5 system-ui,sans-serif;max-width:72rem;margin:2rem auto;padding:0 1rem}"
    "table{border-collapse:collapse;margin:.5rem 0 1rem;font-size:.9em}td,th{border:1px solid #ccc;padding:.25rem .5rem;"
    "text-align:left;vertical-align:top;overflow-wrap:anywhere}th{background:#f3f4f6}</style>"
)


def _html(section: Section) -> Iterator[str]:
    yield f"<h{section.level}>{html.escape(section.title)}</h{section.level}>"
    yield from (f"<p>{html.escape(sentence)}</p>" for sentence in section.text)
    if section.rows:
        head = "".join(f"<th scope='col'>{html.escape(cell)}</th>" for cell in section.header)
        yield f"<table><thead><tr>{head}</tr></thead><tbody>"
        yield from (f"<tr>{''.join(f'<td>{html.escape(cell)}</td>' for cell in row)}</tr>" for row in section.rows)
        yield "</tbody></table>"


def _pipes(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _plain(text: str) -> str:
    """Text on one line that no Markdown renderer takes for markup: names in a log are as hostile as those of a trace."""
    escaped = " ".join(text.split()).replace("&", "&amp;").replace("<", "&lt;")
    return "".join(f"\\{letter}" if letter in "\\|`*[]" else letter for letter in escaped)
