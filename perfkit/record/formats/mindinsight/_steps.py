"""MindSpore Insight steps: three phases of every step, or its split into computing, communication and waiting.

`step_trace_raw_<rank>_detail_time.csv` counts 10-ns ticks since the host started: total = end - start = iteration_interval (data
wait) + fp_and_bp + tail. Its last row is a mean, with "-" or 0 as its number. Forward and backward contain communication and
waiting, so those stay unmeasured. `ascend_cluster_analyse_{pipeline,model}-parallel_*.csv` (ms, one row a step in the same order,
then a mean) tells them apart. Both are rounded and measured apart: their sum misses the step by up to 0.2 % on real files.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pandas as pd

from perfkit.core.errors import InputError
from perfkit.core.units import format_ns
from perfkit.record import store
from perfkit.record.format import Sink
from perfkit.record.formats.mindinsight._files import RankFiles
from perfkit.record.listing import File

TICK_NS = 10
CONTRADICTION = 0.01
_LARGEST_TICK = 2**59

_TIMES = ("start_point", "end_point", "total", "iteration_interval", "fp_and_bp", "tail")
_PHASES = {"free/data": "iteration_interval", "computing/forward_backward": "fp_and_bp", "computing/tail": "tail"}
_SPLIT = {
    "computing": ("computation_time", "computation"),
    "communication/exposed": ("collective_communication_alone_time", "collective_communication_time"),
    "bubble": ("receive_alone_time",),
}
_MODEL_SPLIT = {"computing": ("computation_time", "computation"), "communication/exposed": ("communication_alone_time",)}


@dataclass(frozen=True, slots=True)
class StepTrace:
    """The step rows of one rank in ns: `step`, `start_ns`, `duration_ns`, the phases by column name; null where not stated.

    `other_columns` are the columns about communication operations.
    """

    file: File
    rows: pd.DataFrame
    other_columns: tuple[str, ...]


def read_step_trace(file: File, sink: Sink) -> StepTrace:
    """The steps of a step trace without its mean row. Raises InputError if the file cannot be read or lacks a column."""
    csv = store.read_csv(file, {"step_num": "int", **dict.fromkeys(_TIMES, "int")}, required=("step_num", *_TIMES[:2]))
    for what, count in csv.losses().items():
        sink.drop(what, count, file)
    ticks = csv.frame[~is_mean(csv.frame)]
    unusable = ticks["start_point"].isna() | ticks["end_point"].isna() | (ticks["end_point"] < ticks["start_point"]).fillna(False)
    unusable |= (ticks["end_point"] > _LARGEST_TICK).fillna(False)
    sink.drop("step row without a start before its end", int(unusable.sum()), file)
    ticks = ticks[~unusable].drop_duplicates("step_num", keep="last")
    rows = pd.DataFrame({"step": ticks["step_num"], "start_ns": ticks["start_point"] * TICK_NS})
    rows["duration_ns"] = (ticks["end_point"] - ticks["start_point"]) * TICK_NS
    for name in _TIMES[2:]:
        rows[name] = ticks[name] * TICK_NS
    return StepTrace(file, rows.reset_index(drop=True), csv.unread)


def is_mean(rows: pd.DataFrame) -> pd.Series:
    """Which rows are means over steps: those without a number, and a last row 0 after other rows or without a duration."""
    mean = rows["step_num"].isna()
    if len(rows) and rows["step_num"].fillna(-1).iloc[-1] == 0:
        times = rows[[name for name in ("start_point", "end_point") if name in rows]].iloc[-1]
        mean.iloc[-1] = len(rows) > 1 or bool((times.fillna(0) == 0).all())
    return mean.astype(bool)


def add_steps(trace: StepTrace, group: RankFiles, stage: int | None, sink: Sink) -> None:
    """Add the steps of one rank to `steps` and `step_parts`, split where the cluster files of the rank allow it."""
    phases = _phases(trace, sink)
    split = _split(trace, group, sink)
    steps = trace.rows["step"].tolist()
    leaves = [parts or others for parts, others in zip(split, phases, strict=True)]
    sink.add(
        "steps",
        source=trace.file,
        rank=group.rank,
        step=steps,
        pipeline_stage=stage,
        start_ns=trace.rows["start_ns"],
        duration_ns=trace.rows["duration_ns"],
        computing_ns=[parts["computing"] if parts else None for parts in split],
        exposed_communication_ns=[parts["communication/exposed"] if parts else None for parts in split],
        bubble_ns=[parts.get("bubble") if parts else None for parts in split],
        free_ns=[parts["free/data"] + parts["free/other"] if parts else None for parts in split],
    )
    rows = [(step, path, amount) for step, parts in zip(steps, leaves, strict=True) for path, amount in (parts or {}).items()]
    if rows:
        columns = list(zip(*rows, strict=True))
        sink.add("step_parts", rank=group.rank, step=columns[0], path=columns[1], amount_ns=columns[2])


def _phases(trace: StepTrace, sink: Sink) -> list[dict[str, int | None] | None]:
    """The phases of each step and what they do not tell apart; None where they do not add up to the step."""
    result: list[dict[str, int | None] | None] = []
    for row in trace.rows.to_dict("records"):
        phases: dict[str, int | None] = {
            path: None if pd.isna(row[name]) or row[name] < 0 else int(row[name]) for path, name in _PHASES.items()
        }
        known = [amount for amount in phases.values() if amount is not None]
        totals = {int(row[name]) for name in ("duration_ns", "total") if not pd.isna(row[name])}
        adds_up = len(known) == len(_PHASES) and totals == {sum(known)}
        result.append({**phases, "communication/exposed": None, "bubble": None} if adds_up else None)
    wrong = [int(step) for step, phases in zip(trace.rows["step"], result, strict=True) if phases is None]
    if wrong:
        sink.drop("phases of a step that do not add up to its total", len(wrong), trace.file)
        sink.note(
            f"{trace.file.label}: iteration_interval + fp_and_bp + tail is not the total of {len(wrong)} step(s), first of step "
            f"{wrong[0]}; they keep their length but not their phases"
        )
    return result


def _split(trace: StepTrace, group: RankFiles, sink: Sink) -> list[dict[str, int] | None]:
    """Computing, communication and waiting of each step from the cluster files; None where there are none or they contradict."""
    for kind, names in (("pipeline split", _SPLIT), ("model split", _MODEL_SPLIT)):
        if file := group.get(kind):
            try:
                return _from_cluster(trace, file, names, sink)
            except InputError as error:
                sink.drop(error.problems[0], 1, file)
    return [None] * len(trace.rows)


def _from_cluster(trace: StepTrace, file: File, names: dict[str, tuple[str, ...]], sink: Sink) -> list[dict[str, int] | None]:
    csv = store.read_csv(file, {name: "ms" for choices in names.values() for name in choices})
    for what, count in csv.losses().items():
        sink.drop(what, count, file)
    columns = {path: next((name for name in choices if name not in csv.absent), None) for path, choices in names.items()}
    missing = [f"column {names[path][0]!r} is missing" for path, name in columns.items() if name is None]
    if missing:
        raise InputError(file.label, missing)
    num_steps = len(trace.rows)
    if len(csv.frame) not in (num_steps, num_steps + 1):
        raise InputError(file.label, [f"{len(csv.frame)} rows cannot be told to belong to the {num_steps} steps of the step trace"])
    parts = [
        {path: int(row[name]) for path, name in columns.items()} if all(row[name] >= 0 for name in columns.values()) else None
        for row in csv.frame.fillna(-1).to_dict("records")
    ]
    return _fit(trace, file, parts[:num_steps], sink)


def _fit(trace: StepTrace, file: File, splits: Sequence[dict[str, int] | None], sink: Sink) -> list[dict[str, int] | None]:
    """Fit the parts of each step to its exact length: what is missing is free time, a small excess is taken off the largest."""
    result: list[dict[str, int] | None] = []
    excesses: list[float] = []
    for row, split in zip(trace.rows.to_dict("records"), splits, strict=True):
        duration_ns, data_ns = int(row["duration_ns"]), row["iteration_interval"]
        if split is None or pd.isna(data_ns) or data_ns < 0:
            result.append(None)
            continue
        parts = {**split, "free/data": int(data_ns)}
        excess_ns = sum(parts.values()) - duration_ns
        if excess_ns > CONTRADICTION * duration_ns:
            split_told, trace_told = format_ns(sum(parts.values())), format_ns(duration_ns)
            sink.note(
                f"{file.label} gives {split_told} for step {row['step']}, the step trace {trace_told}: "
                "the step keeps the phases of the step trace"
            )
            result.append(None)
            continue
        if excess_ns > 0:
            parts[max(parts, key=lambda path: parts[path])] -= excess_ns
            excesses.append(excess_ns / duration_ns)
        result.append({**parts, "free/other": max(0, -excess_ns)})
    if excesses:
        sink.note(
            f"{file.label}: the parts of {len(excesses)} step(s) sum to up to {max(excesses):.2%} too much; taken off the largest"
        )
    return result
