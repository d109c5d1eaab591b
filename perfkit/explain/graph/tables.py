"""Tables of a graph: one operator in full, communication, recomputation by layer, lists of operators, what is missing."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pandas as pd

from perfkit.core.shortening import enumerated
from perfkit.core.spec.hardware import HardwareSpec
from perfkit.core.units import NS_PER_S
from perfkit.explain.graph.communications import Communication
from perfkit.explain.graph.model import Node
from perfkit.explain.graph.predict import predicted_s
from perfkit.explain.graph.recompute import Recomputed, block_of, pattern
from perfkit.explain.graph.report import GraphAnalysis, GraphReport

MAX_FOUND = 300


def operator_table(analysis: GraphAnalysis, node: Node) -> pd.DataFrame:
    """Everything about the chosen operator, down to its line in the file and in the user's code."""
    entry = next((entry for entry in analysis.communications if entry.node is node), None)
    tagged = next((one for one in analysis.recompute.operators if one.shown is node), None)
    sources = [f"{source.key} {source.op}" for source in analysis.file.sources(node)]
    readers = [f"{user.key} {user.op}" for user, _ in analysis.links.readers(node)]
    facts = {
        "operator": f"{node.op} {node.instance_name}".strip(),
        "scope": node.short_scope,
        "result": node.result,
        "strategy": node.strategy,
        "reads": ", ".join(sources),
        "is read by": enumerated(readers, 8),
        "cause": entry.cause if entry else "",
        "verdict": f"{entry.verdict}: {entry.why}" if entry else "",
        "instead": (entry.fix if entry else tagged.fix if tagged else None) or "",
        "recomputation": tagged.why if tagged else "copy of a forward operator" if node.is_copy else "",
        "pattern": pattern(node) if node.scope else "",
        "line": f"{analysis.file.name}, line {node.line}",
        "source": "; ".join(node.sources) or "the file holds no source lines",
    }
    return pd.DataFrame([{"what": name, "value": text} for name, text in facts.items() if text])


def communication_table(analysis: GraphAnalysis, hardware: HardwareSpec | None) -> pd.DataFrame:
    """One row an operator, what should not be first, with the time that `hardware` needs for it at best."""
    order = {"unexpected": 0, "avoidable": 1, "expected": 2}
    entries = sorted(analysis.communications, key=lambda entry: (order.get(entry.verdict, 0), -(entry.message_bytes or 0)))

    def row(entry: Communication) -> dict[str, Any]:
        seconds = predicted_s(entry, hardware) if hardware is not None else None
        return {
            "node": entry.node.key,
            "operator": entry.op,
            "cause": _cause(entry),
            "ranks": "?" if entry.group_size is None else str(entry.group_size),
            "size_bytes": entry.message_bytes,
            "predicted_ns": None if seconds is None else seconds * NS_PER_S,
            "verdict": entry.verdict,
            "why": _why(entry),
        }

    return pd.DataFrame([row(entry) for entry in entries]).dropna(axis="columns", how="all")


def cause_sizes(analysis: GraphAnalysis) -> pd.DataFrame:
    """The bytes of every communication: `cause` in words, `verdict`, `bytes` of a rank in a step, null where a shape is unknown."""
    rows = [{"cause": _cause(one), "verdict": one.verdict, "bytes": one.message_bytes} for one in analysis.communications]
    return pd.DataFrame(rows, columns=["cause", "verdict", "bytes"])


def recompute_table(analysis: GraphAnalysis) -> pd.DataFrame:
    """One row a layer, kind of operator and outcome; what has no effect first."""
    groups: dict[tuple[str, str, bool], list[Recomputed]] = {}
    for entry in analysis.recompute.operators:
        groups.setdefault((block_of(entry.shown), entry.shown.op, entry.in_effect), []).append(entry)
    rows = [
        {
            "layer": block,
            "operator": op,
            "configured": len(entries),
            "in effect": len(entries) if effective else 0,
            "result_bytes": sum(entry.shown.out.num_bytes or 0 for entry in entries),
            "why": entries[0].why,
            "add": entries[0].fix,
            "node": entries[0].shown.key,
        }
        for (block, op, effective), entries in sorted(groups.items(), key=lambda item: item[0][2])
    ]
    return pd.DataFrame(rows).dropna(axis="columns", how="all")


def found_table(nodes: Sequence[Node]) -> pd.DataFrame:
    """One row an operator, the first `MAX_FOUND` of them."""
    columns = ["node", "operator", "in", "result", "size_bytes", "strategy", "source"]
    rows = [
        {
            "node": node.key,
            "operator": node.op,
            "in": _cell_path(node.short_scope),
            "result": node.result,
            "size_bytes": node.out.num_bytes,
            "strategy": node.strategy,
            "source": node.sources[-1] if node.sources else None,
        }
        for node in nodes[:MAX_FOUND]
    ]
    frame = pd.DataFrame(rows, columns=columns)
    return frame.drop(columns=[name for name in ("strategy", "source") if not frame[name].fillna("").any()])


def missing_table(report: GraphReport) -> pd.DataFrame:
    """What the strategies of the report's first file need and no operator does, as the file or the whole folder shows it."""
    rows = [entry for entry in report.missing if entry["file"] in ("", report.name)]
    return pd.DataFrame(rows).drop(columns="file", errors="ignore")


def problem_table(analysis: GraphAnalysis) -> pd.DataFrame:
    """Lines of the file that could not be read as they stand: `line`, `what`, `text`."""
    rows = [{"line": one.line, "what": one.what, "text": one.text} for one in analysis.file.problems]
    return pd.DataFrame(rows, columns=["line", "what", "text"])


def _cause(entry: Communication) -> str:
    return entry.cause.replace("_", " ")


def _why(entry: Communication) -> str:
    subject = entry.parameter or _cell_path(entry.producer_scope)
    text = f"{entry.why} ({subject})" if subject and subject not in entry.why else entry.why
    return f"{text}. Instead: {entry.fix}" if entry.fix else text


def _cell_path(scope: str | None) -> str:
    """A scope by the names of its cells alone: "layers.0.feed_forward.w2"."""
    return ".".join(part.partition("-")[0] for part in (scope or "").split("/")[:-1])
