"""Graph: why a communication or a recomputation is there, from a graph that the compiler saved."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import Any, Literal

import pandas as pd

from perfkit.core import catalog
from perfkit.core.errors import InputError
from perfkit.core.units import format_bytes
from perfkit.explain.graph import GraphAnalysis, GraphReport
from perfkit.explain.graph.model import Node
from perfkit.explain.graph.picture import MAX_NODES, Picture, layer, neighbourhood
from perfkit.explain.graph.recompute import block_of
from perfkit.face.charts.graph import communication_bars, dataflow
from perfkit.face.panels import _graph_tables as tables_of
from perfkit.face.panels import _graphs as graphs
from perfkit.face.widgets import context
from perfkit.face.widgets.chart import Figure
from perfkit.face.widgets.control import Choice, PathPicker, Text
from perfkit.face.widgets.panel import Answer, Empty, Panel
from perfkit.face.widgets.table import Table

MAX_FOUND = 300
NO_DEVICE = "none"

Show = Literal["all", "communication", "not expected", "recomputed", "not in effect"]
PICTURES = (("around the operator", "operator"), ("its layer, forward", "layer"), ("its layer, backward", "layer backward"))
Around = Literal["operator", "layer", "layer backward"]


@dataclass(frozen=True, kw_only=True, slots=True)
class State:
    """The open graph, the file of a folder, what is searched, the chosen operator ("" is chosen by the page), and the device."""

    graph: str
    file: str = ""
    search: str = ""
    show: Show = "all"
    node: str = ""
    around: Around = "operator"
    device: str = "Ascend-910B2"


@dataclass(frozen=True, kw_only=True, slots=True)
class Result:
    """All that the page shows; `found` are the operators that the search leaves."""

    state: State
    report: GraphReport
    analysis: GraphAnalysis
    found: tuple[Node, ...]
    chosen: Node | None
    picture: Picture | None


def start() -> State:
    """The sample with a mismatch of strategies."""
    return State(graph=graphs.sample("strategy_mismatch.ir"))


def compute(state: State, progress: context.Progress | None = None) -> Result:
    """Read the graph, search it, and lay out the neighbourhood of the chosen operator."""
    report = graphs.read(state.graph, progress)
    analysis = report.files.get(state.file) or next(iter(report.files.values()))
    found = _search(analysis, state)
    chosen = graphs.find_node(analysis, state.node) or _worth_seeing(analysis, found)
    picture = None
    if chosen is not None and state.around == "operator":
        picture = neighbourhood(analysis.file, analysis.links, chosen)
    elif chosen is not None:
        picture = layer(analysis.file, analysis.links, block_of(chosen), backward=state.around == "layer backward")
    return Result(state=state, report=report, analysis=analysis, found=found, chosen=chosen, picture=picture)


def _search(analysis: GraphAnalysis, state: State) -> tuple[Node, ...]:
    """Operators whose kind, scope, name, weight or source matches the search, a regular expression, in the class to show."""
    try:
        wanted = re.compile(state.search, re.IGNORECASE)
    except re.error as error:
        raise InputError(
            "search", [f"{state.search!r} is no regular expression: {error}; write for example 'w2.*MatMul'"]
        ) from error
    communicating = {id(entry.node): entry.verdict for entry in analysis.communications}
    recomputed = {id(entry.shown): entry.in_effect for entry in analysis.recompute.operators}

    def shown(node: Node) -> bool:
        match state.show:
            case "communication":
                return id(node) in communicating
            case "not expected":
                return communicating.get(id(node), "expected") != "expected"
            case "recomputed":
                return id(node) in recomputed or node.is_copy
            case "not in effect":
                return recomputed.get(id(node)) is False
            case _:
                return True

    return tuple(node for node in analysis.file.nodes() if shown(node) and wanted.search(_searched(node)))


def _searched(node: Node) -> str:
    return " ".join((node.label, node.op, node.short_scope, node.instance_name, *node.sources))[:2_000]


def _worth_seeing(analysis: GraphAnalysis, found: tuple[Node, ...]) -> Node | None:
    """The operator to begin with: what should not be, what has no effect, any communication, the first that was found."""
    candidates = [entry.node for entry in analysis.communications if entry.verdict != "expected"]
    candidates += [entry.shown for entry in analysis.recompute.operators if not entry.in_effect and entry.fix]
    candidates += [entry.node for entry in analysis.communications]
    inside = {id(node) for node in found}
    return next((node for node in candidates if id(node) in inside), found[0] if found else None)


def view(result: Result) -> Answer:
    """The picture, the bytes by cause, and tables of operators, communication and recomputation."""
    analysis, state = result.analysis, result.state
    source = [f"measured: {analysis.file.name}"]
    charts: dict[str, Any] = {}
    if result.picture is not None and result.chosen is not None:
        rows = graphs.picture_rows(analysis, result.picture, result.chosen)
        charts["dataflow"] = Figure(chart=dataflow(rows), title=_picture_title(result), sources=source, table="nodes", wide=True)
    sizes = pd.DataFrame(
        [{"cause": e.cause, "verdict": e.verdict, "bytes": e.message_bytes} for e in analysis.communications],
        columns=["cause", "verdict", "bytes"],
    )
    if sizes["bytes"].notna().any():
        charts["causes"] = Figure(chart=communication_bars(sizes), title="Communication by cause", sources=source, wide=True)
    tables: dict[str, Any] = {}
    if result.chosen is not None:
        title = f"Operator {graphs.node_key(result.chosen)}"
        tables["operator"] = Table(frame=tables_of.details(analysis, result.chosen), title=title)
    if analysis.communications:
        frame = tables_of.communications(analysis, catalog.hardware().get(state.device))
        tables["communication"] = Table(frame=frame, title="Communication, what should not be first", selectable=True)
    if analysis.recompute.operators:
        frame = tables_of.recompute(analysis)
        tables["recompute"] = Table(frame=frame, title="Recomputation by layer and operator", selectable=True)
    missing = [entry for entry in result.report.missing if entry["file"] in ("", analysis.file.name)]
    if missing:
        tables["missing"] = Table(frame=pd.DataFrame(missing).drop(columns="file"), title="Missing: the result would be wrong")
    frame = tables_of.operators(result.found[:MAX_FOUND])
    tables["operators"] = Table(frame=frame, title=f"Operators found: {len(result.found)}", selectable=True)
    if analysis.file.problems:
        lines = [{"line": one.line, "what": one.what, "text": one.text} for one in analysis.file.problems]
        tables["problems"] = Table(frame=pd.DataFrame(lines), title="Lines that could not be read as they stand")
    return Answer(charts, tables, _sentence(result), _notes(result))


def _picture_title(result: Result) -> str:
    assert result.chosen is not None
    if result.state.around == "operator":
        title = f"What is around {graphs.node_key(result.chosen)} {result.chosen.op}"
    else:
        what = "backward" if result.state.around == "layer backward" else "forward"
        title = f"{block_of(result.chosen)}, {what} pass"
    return context.marked(result.state.graph, title)


def _sentence(result: Result) -> str:
    analysis = result.analysis
    file, recompute = analysis.file, analysis.recompute
    found = analysis.communications
    moved = sum(entry.message_bytes or 0 for entry in found)
    text = f"{file.node_lines} operators, {len(found)} of them communicate" + (
        f" ({format_bytes(moved)} a step and rank)" if moved else ""
    )
    wrong = [entry for entry in found if entry.verdict != "expected"]
    if wrong:
        size = sum(entry.message_bytes or 0 for entry in wrong)
        text += f"; {len(wrong)} of these ({format_bytes(size)}) are not needed: {wrong[0].why}."
        text += f" Instead: {wrong[0].fix}." if wrong[0].fix else ""
    elif found:
        text += "; the declared strategies need every one."
    else:
        text += "."
    if analysis.missing:
        text += f" {len(analysis.missing)} communications are missing: {analysis.missing[0]['why']}."
    if recompute.operators:
        lost = [entry for entry in recompute.operators if not entry.in_effect and entry.fix]
        done = sum(entry.in_effect for entry in recompute.operators)
        text += f" {done} of {len(recompute.operators)} recomputed operators are in effect"
        text += f" and save {format_bytes(recompute.saved_bytes)}" if recompute.saved_bytes else ""
        text += f"; {lost[0].shown.op} is not: add {lost[0].fix}." if lost else "."
    return text


def _notes(result: Result) -> tuple[str, ...]:
    file, notes = result.analysis.file, []
    if not file.complete:
        notes.append(f"The file is not complete: {file.skipped_lines} lines were skipped, {len(file.problems)} remarks below.")
    if result.picture is not None and result.picture.left_out:
        notes.append(f"The picture stops at {MAX_NODES} operators; {result.picture.left_out} neighbours are left out.")
    if len(result.found) > MAX_FOUND:
        notes.append(f"{len(result.found) - MAX_FOUND} more operators match; narrow the search.")
    if result.report.unread:
        notes.append(f"{len(result.report.unread)} files of the folder were not read, such as {next(iter(result.report.unread))}.")
    if result.state.device != NO_DEVICE and result.analysis.communications:
        notes.append("Predicted times are ring algorithms at full bandwidth of the device chosen above: a lower bound.")
    return tuple(notes)


def pick(state: State, _name: str, datum: dict[str, Any]) -> State:
    """The state after a click on an operator or a row: that operator is in the middle of the picture."""
    return replace(state, node=str(datum["node"])) if datum.get("node") else state


def fill(state: State) -> State:
    """The sample with a mismatch of strategies."""
    return replace(state, graph=graphs.sample("strategy_mismatch.ir"))


def _files(state: State) -> list[str]:
    return list(graphs.read(state.graph).files) if state.graph else [""]


PANEL = Panel(
    title="What is in the graph",
    start=start,
    compute=compute,
    view=view,
    empty=Empty(action="Use the sample graph", fill=fill),
    on_select=pick,
    on_row=pick,
    shared=("graph", "file", "node"),
    controls=(
        PathPicker(
            path="graph", options=graphs.options, label="Graph", help="a .ir file that save_graphs wrote, or a folder of them"
        ),
        Choice(path="file", options=_files, label="File", visible=lambda state: bool(state.graph) and len(_files(state)) > 1),
        Text(path="search", label="Search", placeholder="w2.*MatMul, AllReduce, layers-CellList/1"),
        Choice(path="show", options=("all", "communication", "not expected", "recomputed", "not in effect"), label="Show"),
        Choice(
            path="around",
            options=(
                ("around the operator", "operator"),
                ("its layer, forward", "layer"),
                ("its layer, backward", "layer backward"),
            ),
            label="Picture",
        ),
        Choice(path="device", options=lambda _: [NO_DEVICE, *catalog.hardware()], label="Device for predicted times"),
    ),
)
