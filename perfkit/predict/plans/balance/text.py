"""Text: simulated schedules and balanced plans as titles, headers and rows for a terminal."""

from __future__ import annotations

from typing import NamedTuple

from perfkit.core.texts import Said, joined, say
from perfkit.core.units import format_bytes, format_ns
from perfkit.predict.plans.balance.balance import PlanResult, layout_peaks_bytes
from perfkit.predict.plans.balance.problem import layers_of
from perfkit.predict.plans.schedule.schedule import ScheduleResult

_AGAIN = {"select": "{num} select", "comm": "{num} comm", "both": "{num} both", "full": "{num} full"}
"""How many layers are recomputed in each kind that recomputes something."""


class TextTable(NamedTuple):
    """A table with the sentence above it."""

    title: Said
    header: list[str]
    rows: list[list[str]]


def schedule_table(result: ScheduleResult) -> TextTable:
    """Per stage: busy and idle time, first backward, end, activations in flight, operations on the critical path."""
    case, counts = result.case, result.critical_counts()
    sizes = {"stages": str(case.num_stages), "chunks": str(case.num_chunks), "micro_batches": str(case.num_microbatches)}
    title = say(
        "{case}: makespan {makespan_ns} ({exact} ns), bubble {bubble_ratio} of the work, idle {idle_share} of the stages' time",
        case=say(
            "{schedule}, {stages} stages x {chunks} chunks, {micro_batches} micro batches, p2p {mode}",
            schedule=case.schedule,
            mode=case.p2p_mode,
            **sizes,
        ),
        makespan_ns=result.makespan_ns,
        exact=str(result.makespan_ns),
        bubble_ratio=result.bubble_over_work,
        idle_share=result.idle_share,
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
    title = say("{status}: {why}", status=say(result.status), why=result.why())
    header = ["stage", "layers", "recomputed", "busy", "memory"]
    if layout is None:
        return TextTable(title, header, [])
    layers, busy_ns = layers_of(layout), result.simulate().stage_busy_ns
    peaks = layout_peaks_bytes(problem, layout)
    rows = []
    for stage in range(problem.num_stages):
        again: dict[str, int] = {}
        for variety, counts in zip(problem.varieties, layout, strict=True):
            if counts[:, stage].sum():
                again[variety.kind] = again.get(variety.kind, 0) + int(counts[:, stage].sum())
        rows.append(
            [
                str(stage),
                " + ".join(str(chunk[stage]) for chunk in layers),
                joined([say(form, num=str(again[kind])) for kind, form in _AGAIN.items() if kind in again], ", ") or "-",
                format_ns(busy_ns[stage]),
                format_bytes(peaks[stage]),
            ]
        )
    return TextTable(title, header, rows)
