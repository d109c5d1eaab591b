"""Silu and Mul: the guides' case of a recomputation that is configured but saves half of what it should, in four checked steps.

Every check is computed from the graph that is chosen, so that the same four questions have other answers on the other graphs.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Any, Literal

import pandas as pd

from perfkit.core.resources import data_folder
from perfkit.core.units import format_bytes
from perfkit.explain.graph import GraphAnalysis, read_graph
from perfkit.explain.graph.model import Node
from perfkit.explain.graph.picture import neighbourhood
from perfkit.explain.graph.recompute import Recomputed, block_of, pattern
from perfkit.face.charts.graph import dataflow, dataflow_rows
from perfkit.face.widgets.chart import Figure
from perfkit.face.widgets.control import Choice
from perfkit.face.widgets.panel import Answer, Panel
from perfkit.face.widgets.table import Table

Variant = Literal["silu_mul_without.ir", "silu_mul_not_in_effect.ir", "silu_mul_in_effect.ir"]

VARIANTS = (
    ("not configured", "silu_mul_without.ir"),
    ("configured, 3-D activations", "silu_mul_not_in_effect.ir"),
    ("configured, no Reshape between", "silu_mul_in_effect.ir"),
)
STEPS = (("1 is it configured", 1), ("2 is there a copy", 2), ("3 what does backward read", 3), ("4 what to change", 4))
CASE = ("SiLU", "Mul")
SHOWN = 24
PASSED, FAILED = "✓", "✗"


@dataclass(frozen=True, kw_only=True, slots=True)
class State:
    """The graph and the step of the story."""

    variant: Variant = "silu_mul_not_in_effect.ir"
    step: int = 1


@dataclass(frozen=True, kw_only=True, slots=True)
class Check:
    """One question to one graph: what was asked for, what was found, and whether that is good."""

    question: str
    passed: bool
    found: str
    means: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Result:
    """The checks of all graphs by name, and the graph that is drawn."""

    state: State
    analyses: dict[str, GraphAnalysis]
    checks: dict[str, tuple[Check, ...]]
    wanted: int


def compute(state: State) -> Result:
    """Read the three graphs and ask each the four questions."""
    analyses = {name: read_graph(data_folder() / "ir" / name).analysis for _, name in VARIANTS}
    wanted = _wanted_bytes(analyses["silu_mul_without.ir"])
    checks = {name: four_checks(analysis, wanted) for name, analysis in analyses.items()}
    return Result(state=state, analyses=analyses, checks=checks, wanted=wanted)


def four_checks(analysis: GraphAnalysis, wanted: int) -> tuple[Check, ...]:
    """The four questions to one graph; `wanted` are the bytes that recomputing both operators should save."""
    entries = _entries(analysis)
    feed_forward = len(_forward(analysis))
    copied = [entry for entry in entries if entry.in_effect]
    lost = [entry for entry in entries if not entry.in_effect]
    saved = analysis.recompute.saved_bytes or 0
    fixes = sorted({entry.fix for entry in lost if entry.fix})
    if not entries:
        change = "configure feed_forward\\.mul and feed_forward\\.w1\\.activation\\.silu"
    elif fixes:
        change = f"add {', '.join(fixes)} (the guides add feed_forward\\.w1\\.reshape as well)"
    else:
        change = "nothing: all that was configured is in effect"
    return (
        Check(
            question="Are SiLU and Mul tagged `recompute: Bool(1)`?",
            passed=bool(entries) and len(entries) == feed_forward,
            found=f"{_count(entries)} of {feed_forward} operators",
            means="The configuration reached the graph." if entries else "Nothing was configured, so nothing can be in effect.",
        ),
        Check(
            question="Has each a copy with `duplicated: Bool(1)`?",
            passed=bool(entries) and not lost,
            found=f"{_count(copied)} of {len(entries)} tagged",
            means=_meaning(entries, lost),
        ),
        Check(
            question="Does backward read the copies and not the first results?",
            passed=saved >= wanted > 0,
            found=f"{format_bytes(saved)} of {format_bytes(wanted)} saved; {format_bytes(analysis.recompute.kept_bytes)} stay",
            means=lost[0].why if fixes else ("No first result is kept." if entries else "Backward reads the first results."),
        ),
        Check(
            question="Is nothing left to change?",
            passed=bool(entries) and not fixes,
            found=change,
            means="Compile again and repeat step 3: all of it must be saved." if fixes or not entries else "The case is closed.",
        ),
    )


def _wanted_bytes(without: GraphAnalysis) -> int:
    """Bytes of the results of SiLU and Mul that stay when nothing is recomputed."""
    return sum(node.out.num_bytes or 0 for node in _forward(without))


def _forward(analysis: GraphAnalysis) -> list[Node]:
    """SiLU and the Mul that multiplies its result, of every layer, in the forward pass."""
    found = []
    for node in analysis.file.nodes():
        if node.op == "SiLU" and not node.is_backward:
            users = [user for user, _ in analysis.links.readers(node) if user.op == "Mul" and not user.is_backward]
            found += [node, *users]
    return found


def _entries(analysis: GraphAnalysis) -> list[Recomputed]:
    own = {id(node) for node in _forward(analysis)}
    return [entry for entry in analysis.recompute.operators if id(entry.node) in own]


def _count(entries: list[Recomputed]) -> str:
    counted = Counter(entry.shown.op for entry in entries)
    return ", ".join(f"{counted[op]} {op}" for op in CASE if counted[op]) or "none"


def _meaning(entries: list[Recomputed], lost: list[Recomputed]) -> str:
    if not entries:
        return "Without a tag there is no copy."
    if lost:
        return f"{lost[0].shown.op} is not computed again: its tag has no effect."
    return "Both are computed again in backward."


def view(result: Result) -> Answer:
    """The check of the step on the chosen graph, all checks of all graphs, and the picture of the place."""
    state = result.state
    analysis = result.analyses[state.variant]
    check = result.checks[state.variant][state.step - 1]
    charts: dict[str, Any] = {}
    center = _center(analysis)
    if center is not None:
        copies = [entry.copy for entry in _entries(analysis) if entry.copy and block_of(entry.shown) == block_of(center)]
        picture = neighbourhood(analysis.file, analysis.links, center, also=copies, max_nodes=SHOWN)
        charts["dataflow"] = Figure(
            chart=dataflow(dataflow_rows(analysis, picture, center)),
            title=f"Around the {center.op} of the feed-forward, layer 0 (sample)",
            sources=[f"measured: data/ir/{state.variant}, line {center.line}"],
            table="nodes",
            wide=True,
        )
    tables = {
        "checks": Table(frame=_all_checks(result), title="The four checks on the three graphs"),
        "operators": Table(frame=_operators(analysis), title="SiLU and Mul in this graph"),
    }
    mark = PASSED if check.passed else FAILED
    sentence = f"{mark} {check.question.replace('`', '')} {check.found}. {check.means}"
    return Answer(charts, tables, sentence, _notes(result))


def _center(analysis: GraphAnalysis) -> Node | None:
    return next((node for node in _forward(analysis) if node.op == "Mul"), None)


def _all_checks(result: Result) -> pd.DataFrame:
    rows = []
    for place, (title, _) in enumerate(STEPS):
        row = {"step": title}
        for label, name in VARIANTS:
            check = result.checks[name][place]
            row[label] = f"{PASSED if check.passed else FAILED} {check.found}"
        rows.append(row)
    return pd.DataFrame(rows)


def _operators(analysis: GraphAnalysis) -> pd.DataFrame:
    known = {id(entry.node): entry for entry in analysis.recompute.operators}
    rows = []
    for node in _forward(analysis):
        entry = known.get(id(node))
        rows.append(
            {
                "node": node.label,
                "operator": node.op,
                "layer": block_of(node),
                "pattern": pattern(node),
                "tag": entry.tag if entry else "none",
                "copy": entry.copy.label if entry and entry.copy else "none",
                "result_bytes": node.out.num_bytes,
                "why": entry.why if entry else "not configured",
            }
        )
    return pd.DataFrame(rows)


def _notes(result: Result) -> tuple[str, ...]:
    notes = ["Bytes are those of one rank of a tiny network: hidden 64, two layers."]
    if result.state.step == 4:
        notes.append("The 3-D network with feed_forward.w2.reshape marked was compiled as well: Mul has its copy, all is saved.")
    return tuple(notes)


PANEL = Panel(
    title="Configured, but is it in effect?",
    start=State,
    compute=compute,
    view=view,
    shared=("variant", "step"),
    controls=(
        Choice(path="variant", options=VARIANTS, buttons=True, label="Graph"),
        Choice(path="step", options=STEPS, buttons=True, label="Step"),
    ),
)
