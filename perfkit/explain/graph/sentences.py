"""What a graph says in sentences: its operators, what communicates without need, what is recomputed, what was not read."""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd

from perfkit.core.texts import Said, say
from perfkit.core.units import format_bytes
from perfkit.explain.graph.model import Node
from perfkit.explain.graph.report import GraphAnalysis, GraphReport
from perfkit.explain.graph.tables import MAX_FOUND, cause_sizes

ONE_SENTENCE = 130
"""Letters of an answer with its reason in it."""
LOWER_BOUND = "Predicted times are ring algorithms at full bandwidth of the device chosen above: a lower bound."

NOTHING_FOUND = "No operator of this graph matches the search. If it came with a link from a recording, open the graph of its job."
NO_RECORDING = "Choose a recording of the job whose graph this is: its kernels are named by the operators."


def graph_told(analysis: GraphAnalysis) -> tuple[str, ...]:
    """The verdict on a graph: its operators and communication that is not needed; then what is missing or has no effect."""
    lost, communication = analysis.missing, communication_told(analysis)
    missing = f"{len(lost)} communications are missing: {lost[0]['why']}." if lost else ""
    recomputed = recompute_told(analysis) if analysis.recompute.operators else ""
    needed = all(entry.verdict == "expected" for entry in analysis.communications)
    parts = (recomputed, missing, *communication) if recomputed and needed else (*communication, missing, recomputed)
    return tuple(part for part in parts if part)


def communication_told(analysis: GraphAnalysis) -> tuple[str, ...]:
    """How much communication another strategy would do without, why the first, and how many operators there are."""
    found = analysis.communications
    moved = sum(entry.message_bytes or 0 for entry in found)
    if not found:
        return ("No operator of this graph communicates.",)
    counts = f"{analysis.file.node_lines} operators, {len(found)} of them communicate{'s' if len(found) == 1 else ''}"
    counts += f" ({format_bytes(moved)} a step and rank)." if moved else "."
    wrong = [entry for entry in found if entry.verdict != "expected"]
    if not wrong:
        form = "All {num} communications follow from the declared strategies: none can be left out."
        if len(found) == 1:
            form = "The only communication follows from the declared strategies: it cannot be left out."
        return (say(form, num=str(len(found))), counts)
    size, needless = sum(entry.message_bytes or 0 for entry in wrong), _needless(len(wrong), len(found))
    form = "{needless}; why, of the first: {why}." if len(wrong) > 1 else "{needless}: {why}."
    much = "They move {wrong_bytes} of {moved_bytes} a step and rank."
    if len(wrong) == 1:
        much = "It moves {wrong_bytes} of {moved_bytes} a step and rank."
    told: list[str] = [say(form, needless=needless, why=wrong[0].why)]
    if len(told[0]) > ONE_SENTENCE:
        told = [say("{needless}.", needless=needless), say("The first: {why}.", why=wrong[0].why)]
    told += [f"Instead: {wrong[0].fix}." if wrong[0].fix else ""]
    told += [say(much, wrong_bytes=size, moved_bytes=moved)] if size else []  # else no shape is known
    return (*filter(None, told), counts)


def executed_told(node: Node, rows: pd.DataFrame) -> str:
    """How often an operator ran and how long it took, by its executions in a recording; or why nothing is known of it."""
    if rows.empty:
        form = "No kernel of this recording is named by {operator}: it is of another job, or its kernels have names without scopes."
        return say(form, operator=node.instance_name or node.op)
    form = "{operator} ran {num} times on {ranks} ranks, {total_ns} in all."
    total_ns = float(rows["duration_ns"].sum())
    return say(form, operator=node.instance_name or node.op, num=len(rows), ranks=rows["rank"].nunique(), total_ns=total_ns)


def needless_told(analysis: GraphAnalysis) -> str:
    """How much of what is communicated another strategy would do without, by cause."""
    if not analysis.communications:
        return say("No operator of this graph communicates.")
    sizes = cause_sizes(analysis)
    wrong = sizes[sizes["verdict"] != "expected"]
    if wrong.empty:
        return say("All communication follows from the declared strategies.")
    causes = wrong.groupby("cause")["bytes"].sum().sort_values(ascending=False)
    if not causes.iloc[0]:  # no shape is known
        return say("{needless}.", needless=_needless(len(wrong), len(sizes)))
    form = "{wrong_bytes} of {moved_bytes} a step and rank are not needed, {cause_bytes} of it by {cause}."
    values = {"wrong_bytes": causes.sum(), "moved_bytes": sizes["bytes"].sum(), "cause_bytes": causes.iloc[0]}
    return say(form, **values, cause=str(causes.index[0]))


def _needless(wrong_count: int, all_count: int) -> Said:
    """How many communications are not needed, as the beginning of a sentence."""
    form = "{wrong_count} of {all_count} communications are not needed"
    if wrong_count == 1:
        form = "The only communication is not needed" if all_count == 1 else "1 of {all_count} communications is not needed"
    return say(form, wrong_count=wrong_count, all_count=all_count)


def found_told(nodes: Sequence[Node]) -> str:
    """How many operators a search leaves, and how many of them their table shows."""
    form = (
        "Operators found: {num}"
        if len(nodes) <= MAX_FOUND
        else "{shown} of {num} operators are shown; narrow the search for others."
    )
    return say(form, shown=MAX_FOUND, num=len(nodes))


def recompute_told(analysis: GraphAnalysis) -> str:
    """How many recomputed operators are in effect, what they save, and what to add for the first that is not."""
    recompute = analysis.recompute
    if not recompute.operators:
        return "No operator of this graph is recomputed."
    lost = [entry for entry in recompute.operators if not entry.in_effect and entry.fix]
    done = sum(entry.in_effect for entry in recompute.operators)
    text = f"{done} of {len(recompute.operators)} recomputed operators are in effect"
    text += f" and save {format_bytes(recompute.saved_bytes)}" if recompute.saved_bytes else ""
    return text + (f"; {lost[0].shown.op} is not: add {lost[0].fix}." if lost else ".")


def reading_told(report: GraphReport) -> tuple[str, ...]:
    """What stands against trusting the graph: an incomplete file, files of the folder that were not read."""
    file, told = report.analysis.file, []
    if not file.complete:
        told.append(f"The file is not complete: {file.skipped_lines} lines were skipped, {len(file.problems)} remarks below.")
    if report.unread:
        told.append(f"{len(report.unread)} files of the folder were not read, such as {next(iter(report.unread))}.")
    return tuple(told) or ("The file was read to its end, and nothing was skipped.",)
