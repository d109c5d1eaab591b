"""Text: simulated schedules and balanced plans as titles, headers and rows for a terminal."""

from __future__ import annotations

from typing import NamedTuple

from perfkit.core.units import format_bytes, format_ns, format_ratio
from perfkit.predict.plans.balance.balance import PlanResult, layout_peaks_bytes
from perfkit.predict.plans.balance.problem import KINDS, layers_of
from perfkit.predict.plans.schedule.schedule import ScheduleResult


class TextTable(NamedTuple):
    """A table with the sentence above it."""

    title: str
    header: list[str]
    rows: list[list[str]]


def schedule_table(result: ScheduleResult) -> TextTable:
    """Per stage: busy and idle time, first backward, end, activations in flight, operations on the critical path."""
    case, counts = result.case, result.critical_counts()
    title = (
        f"{case.schedule}, {case.num_stages} stages x {case.num_chunks} chunks, {case.num_microbatches} micro batches, "
        f"p2p {case.p2p_mode}: makespan {format_ns(result.makespan_ns)} ({result.makespan_ns} ns), "
        f"bubble {format_ratio(result.bubble_over_work)} of the work, idle {format_ratio(result.idle_share)} of the stages' time"
    )
    header = ["stage", "busy", "idle", "first backward", "end", "in flight", "on the critical path"]
    rows = [
        [
            str(stage),
            format_ns(result.stage_busy_ns[stage]),
            format_ns(result.stage_idle_ns[stage]),
            format_ns(result.first_backward_start_ns[stage]),
            format_ns(result.stage_end_ns[stage]),
            str(result.peak_inflight_chunks[stage]),
            " ".join(f"{count} {name[0]}" for name, count in counts.items() if name[1:] == str(stage)) or "-",
        ]
        for stage in range(case.num_stages)
    ]
    return TextTable(title, header, rows)


def plan_table(result: PlanResult) -> TextTable:
    """Per stage: layers by chunk, recomputed layers by kind, busy time and memory; no rows when nothing fits."""
    problem, layout = result.problem, result.layout
    title = f"{result.status}: {result.why()}"
    header = ["stage", "layers", "recomputed", "busy", "memory"]
    if layout is None:
        return TextTable(title, header, [])
    layers, busy_ns = layers_of(layout), result.simulate().stage_busy_ns
    peaks = layout_peaks_bytes(problem, layout)
    rows = []
    for stage in range(problem.num_stages):
        again: dict[str, int] = {}
        for variety, counts in zip(problem.varieties, layout, strict=True):
            if variety.kind != "none" and counts[:, stage].sum():
                again[variety.kind] = again.get(variety.kind, 0) + int(counts[:, stage].sum())
        rows.append(
            [
                str(stage),
                " + ".join(str(chunk[stage]) for chunk in layers),
                ", ".join(f"{again[kind]} {kind}" for kind in KINDS if kind in again) or "-",
                format_ns(busy_ns[stage]),
                format_bytes(peaks[stage]),
            ]
        )
    return TextTable(title, header, rows)
