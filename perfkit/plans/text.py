"""Text: simulated schedules and balanced plans as titles, headers and rows for a terminal."""

from __future__ import annotations

from typing import NamedTuple

from perfkit.plans.schedule import ScheduleResult
from perfkit.units import format_ns, format_ratio


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
