"""What a configuration asks for against what a saved graph has: devices, groups, and recomputation patterns that select nothing."""

from __future__ import annotations

import re
from typing import Any

from perfkit.core.spec.plan import Plan
from perfkit.explain.graph.recompute import pattern
from perfkit.explain.graph.report import GraphAnalysis, GraphReport


def against_config(report: GraphReport, plan: Plan) -> list[dict[str, Any]]:
    """Contradictions between `plan` and the files of `report`: `file`, `what`, `why`; none where a file cannot tell."""
    return [
        {"file": name, **entry}
        for name, analysis in report.files.items()
        for entry in [*_devices(analysis, plan), *_patterns(analysis, plan)]
    ]


def _devices(analysis: GraphAnalysis, plan: Plan) -> list[dict[str, Any]]:
    seen = analysis.num_devices
    stage = plan.num_devices // plan.parallel.pipeline_parallel_size
    if seen is None or seen == stage or (plan.parallel.pipeline_parallel_size > 1 and seen <= plan.num_devices):
        return []
    why = f"the graph was compiled for {seen} devices a pipeline stage, the configuration has {stage}"
    return [{"what": "devices", "why": why}]


def _patterns(analysis: GraphAnalysis, plan: Plan) -> list[dict[str, Any]]:
    """Configured patterns that no tagged operator matches; silent for a graph without a backward pass."""
    if analysis.recompute.kept is None:
        return []
    tagged = {pattern(entry.shown).lower() for entry in analysis.recompute.operators}
    every = {pattern(node).lower() for node in analysis.file.nodes() if not node.is_backward}
    found = []
    for wanted, counts in plan.recompute.operators.items():
        if not any(sum(row) for row in counts) or _selects(wanted, tagged):
            continue
        exists = "the graph has such an operator, but it is not tagged" if _selects(wanted, every) else "no operator has that name"
        found.append({"what": f"recompute pattern {wanted}", "why": exists})
    return found


def _selects(wanted: str, names: set[str]) -> bool:
    """Whether a pattern names one of `names` or a cell that holds it."""
    parts = [part.lower() for part in re.split(r"\\?\.", wanted) if part]
    return any(parts == name.split(r"\.")[: len(parts)] for name in names)
