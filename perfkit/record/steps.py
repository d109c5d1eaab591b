"""Steps: where the time of every rank and step went, as rows of `steps` and `step_parts`.

A step's leaves sum to its duration exactly, in int ns: `computing` + `communication/exposed` + `bubble` + `free` for what a
profiler records. Two ways lead here: a vendor's own summary (`add_summary_steps`) and kernels cut into windows
(`add_window_steps`). Windows partition a rank's timeline, so that nothing between two steps is lost.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from perfkit.record.format import Sink
from perfkit.record.listing import File
from perfkit.record.overlap import Timeline


@dataclass(frozen=True, slots=True)
class Window:
    """A step on the device timeline of one rank: [start_ns, end_ns)."""

    step: int
    start_ns: int
    end_ns: int


def device_windows(host_steps: Sequence[Window], kernels: pd.DataFrame) -> list[Window]:
    """Where the steps that the host marked run on the device.

    A step starts on the device when the host started it or when the device finished all earlier steps, whichever is later, and
    ends where the next one starts; the last one ends with its last kernel or with its host mark. So every kernel lies in the
    step that launched it, waiting for data at the start of a step counts to that step, and the windows leave no gap.
    `kernels` has `step`, `start_ns` and `duration_ns`.
    """
    return windows_until(host_steps, last_ends(kernels))


def last_ends(kernels: pd.DataFrame) -> dict[int, int]:
    """When the last kernel of each step ended."""
    ends = (kernels["start_ns"] + kernels["duration_ns"]).groupby(kernels["step"]).max().dropna()
    return {int(step): int(end_ns) for step, end_ns in ends.items()}  # type: ignore[call-overload]  # a step is a number


def windows_until(host_steps: Sequence[Window], ends: Mapping[int, int]) -> list[Window]:
    """`device_windows` by when the last kernel of each step ended."""
    if not host_steps:
        return []
    ordered = sorted(host_steps, key=lambda window: window.start_ns)
    starts_ns: list[int] = []
    finished_ns = 0
    for window in ordered:
        starts_ns.append(max(window.start_ns, finished_ns))
        finished_ns = max(finished_ns, int(ends.get(window.step, 0)))
    last_ns = max(ordered[-1].end_ns, finished_ns)
    return [
        Window(window.step, start_ns, end_ns)
        for window, start_ns, end_ns in zip(ordered, starts_ns, [*starts_ns[1:], last_ns], strict=True)
    ]


def begun_after(marks: Sequence[Window], finished_ns: int) -> list[Window]:
    """Marks that begin no earlier than the device had finished what was launched before the first one."""
    return [Window(mark.step, max(mark.start_ns, finished_ns), max(mark.end_ns, finished_ns)) for mark in marks]


def add_window_steps(
    sink: Sink,
    *,
    rank: int,
    windows: Sequence[Window],
    kernels: pd.DataFrame | Timeline,
    pipeline_stage: int | None = None,
    marks: Sequence[Window] = (),
) -> None:
    """Break each window down by the kernels that run in it and add its rows to `steps` and `step_parts`.

    `marks` are the steps as the host marked them.
    """
    timeline = kernels if isinstance(kernels, Timeline) else Timeline(kernels)
    times = [timeline.window(window.start_ns, window.end_ns) for window in windows]
    if not windows:
        return
    computes = len(timeline.of("computing").starts) > 0  # without any computing nothing says what would have hidden
    sink.add(
        "steps",
        rank=rank,
        step=[window.step for window in windows],
        pipeline_stage=pipeline_stage,
        start_ns=[window.start_ns for window in windows],
        duration_ns=[time.span_ns for time in times],
        host_duration_ns=_host_durations(windows, marks),
        computing_ns=[time.computing_ns for time in times],
        communication_ns=[time.communication_ns for time in times],
        overlapped_ns=pd.Series([time.overlapped_ns if computes else None for time in times], dtype="Int64"),
        exposed_communication_ns=[time.exposed_ns for time in times],
        free_ns=[time.free_ns for time in times],
        copy_ns=[time.copy_ns for time in times],
    )
    sink.add(
        "step_parts",
        rank=rank,
        step=[window.step for window in windows for _ in range(3)],
        path=["computing", "communication/exposed", "free"] * len(windows),
        amount_ns=[amount for time in times for amount in (time.computing_ns, time.exposed_ns, time.free_ns)],
    )


def _host_durations(windows: Sequence[Window], marks: Sequence[Window]) -> pd.Series:
    """How long the host's own mark of each step is; null where it made none."""
    lengths = {mark.step: mark.end_ns - mark.start_ns for mark in marks}
    return pd.Series([lengths.get(window.step) for window in windows], dtype="Int64")


def add_host_steps(sink: Sink, *, rank: int, windows: Sequence[Window]) -> None:
    """Steps of which only the length on the host is known: no device work was recorded, so no part is told apart."""
    if windows:
        sink.add(
            "steps",
            rank=rank,
            step=[window.step for window in windows],
            start_ns=[window.start_ns for window in windows],
            duration_ns=[window.end_ns - window.start_ns for window in windows],
            host_duration_ns=[window.end_ns - window.start_ns for window in windows],
        )


def add_summary_steps(sink: Sink, rows: pd.DataFrame, source: File) -> pd.DataFrame:
    """Steps of a vendor's step_trace_time.csv or cluster_step_trace_time.csv; one row a rank and step. Returns the rows kept.

    `rows` has `rank`, `step`, `pipeline_stage`, and in ns `computing`, `exposed` (Communication(Not Overlapped), which still
    contains the receive wait), `overlapped`, `communication`, `free`, `bubble` (null: the file has no such column); `start`, where
    the kernels tell it, is optional. The vendor counts the receive wait of a pipeline stage in Communication(Not Overlapped) and
    again as Bubble; here it is bubble only. Of two rows of one rank and step the later one counts.
    """
    times = rows[["computing", "exposed", "overlapped", "communication", "free", "bubble"]]
    refused = {
        "step row without computing, communication or free time": times[["computing", "exposed", "free"]].isna().any(axis=1),
        "step row with a negative time": (times < 0).fillna(False).any(axis=1),
        "step row whose Bubble is larger than its Communication(Not Overlapped)": (
            (times["exposed"] < times["bubble"]).fillna(False).astype(bool)
        ),
    }
    bad = pd.Series(False, index=rows.index)
    for what, which in refused.items():
        sink.drop(what, int((which & ~bad).sum()), source)
        bad |= which
    repeated = rows[~bad].duplicated(["rank", "step"], keep="last")
    sink.drop("step row of a rank and step that another row repeats", int(repeated.sum()), source)
    rows = rows[~bad][~repeated]
    if rows.empty:
        return rows
    exposed_ns = rows["exposed"] - rows["bubble"].fillna(0)
    sink.add(
        "steps",
        source=source,
        rank=rows["rank"],
        step=rows["step"],
        pipeline_stage=rows["pipeline_stage"],
        start_ns=rows.get("start"),
        duration_ns=rows["computing"] + rows["exposed"] + rows["free"],
        computing_ns=rows["computing"],
        communication_ns=rows["communication"],
        overlapped_ns=rows["overlapped"],
        exposed_communication_ns=exposed_ns,
        bubble_ns=rows["bubble"],
        free_ns=rows["free"],
    )
    leaves = {
        "computing": rows["computing"],
        "communication/exposed": exposed_ns,
        "bubble": rows["bubble"],
        "free": rows["free"],
    }
    measured_bubble = rows["bubble"].notna().to_numpy()
    for path, amounts in leaves.items():
        keep = measured_bubble if path == "bubble" else np.ones(len(rows), dtype=bool)
        if keep.any():
            sink.add("step_parts", rank=rows["rank"][keep], step=rows["step"][keep], path=path, amount_ns=amounts[keep])
    return rows
