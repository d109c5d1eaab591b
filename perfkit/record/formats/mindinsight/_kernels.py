"""MindSpore Insight kernels: every execution on the device, from the most exact file that a rank has.

`output_timeline_data_<rank>.txt` (ms, on the clock of the step trace) says which step an operator ran in; `aicpu_intermediate`
(us, same clock) adds what ran on the AI CPU; types and shapes come from `framework_raw`. Without the former,
`*timeline_display_<rank>.json` (us since its first event on Ascend, epoch on GPU) has the same operators with no step.
`aicore_intermediate` holds only sums by operator: it tells which operators ran on the AI core, but is no execution.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pandas as pd

from perfkit.core.errors import InputError
from perfkit.core.units import NS_PER_US
from perfkit.record import store
from perfkit.record.format import Sink
from perfkit.record.formats.ascend.json import read_json
from perfkit.record.formats.logs.log_text import exact_ns
from perfkit.record.formats.mindinsight._files import RankFiles
from perfkit.record.listing import File
from perfkit.record.readers.kinds import is_communication

AI_CPU_PROCESS, STREAM_PROCESS = 9000, 10000

_POINT_TO_POINT = re.compile(r"(?:^|[/_])(?:Send|Receive)-op\d+$")
_COPY = re.compile(r"memcpy|memset", re.IGNORECASE)
_COLUMNS = ["name", "type", "core", "stream", "start_ns", "duration_ns", "input_shapes", "input_dtypes"]


@dataclass(frozen=True, slots=True)
class Kernels:
    """The kernels of one rank: rows with the columns of the table `kernels` but rank and step, and the file they come from.

    `lost` counts rows that could not be read.
    """

    rows: pd.DataFrame
    file: File
    on_step_clock: bool
    lost: int = 0


def read_kernels(group: RankFiles, sink: Sink) -> Kernels | None:
    """The kernels of one rank; None if it has no file with executions."""
    if file := group.get("timeline data"):
        try:
            (rows, lost), (others, others_lost) = _timeline_data(file, group, sink), _ai_cpu(group, sink)
            both = pd.concat([rows, others], ignore_index=True)
            return _sound(both, lost + others_lost, file, sink, on_step_clock=True)
        except InputError as error:
            sink.drop(error.problems[0], 1, file)
    if file := group.get("timeline display"):
        try:
            return _sound(*_timeline_display(file, sink), file, sink, on_step_clock=False)
        except InputError as error:
            sink.drop(error.problems[0], 1, file)
    if group.get("operator detail") or group.get("operator type"):
        sink.note(f"rank {group.rank} has only sums by operator (aicore_intermediate), no executions: kernels are not measured")
    return None


def _sound(rows: pd.DataFrame, lost: int, file: File, sink: Sink, *, on_step_clock: bool) -> Kernels:
    """The kernels whose times can be true; the others are counted beside those that were `lost` before."""
    kept = sink.sound("kernels", rows, file).reset_index(drop=True)
    return Kernels(_with_kinds(kept), file, on_step_clock, lost + len(rows) - len(kept))


def _timeline_data(file: File, group: RankFiles, sink: Sink) -> tuple[pd.DataFrame, int]:
    """The operators with their times, and how many rows are lost."""
    csv = store.read_csv(
        file,
        {"op_name": "text", "stream_id": "text", "start_time(ms)": "ms", "duration(ms)": "ms"},
        required=("op_name", "start_time(ms)", "duration(ms)"),
    )
    for what, count in csv.losses().items():
        sink.drop(what, count, file)
    names = csv.frame["op_name"]
    properties = _properties(group, sink)
    on_core = _ai_core_names(group, sink)
    nothing = (None, None, None)
    types, shapes, dtypes = ([properties.get(name, nothing)[at] for name in names] for at in range(3))
    rows = pd.DataFrame(
        {
            "name": names,
            "type": types,
            "core": ["AI_CORE" if name in on_core else None for name in names],
            "stream": csv.frame["stream_id"],
            "start_ns": csv.frame["start_time(ms)"],
            "duration_ns": csv.frame["duration(ms)"],
            "input_shapes": shapes,
            "input_dtypes": dtypes,
        }
    )
    return rows, csv.misshapen


def _properties(group: RankFiles, sink: Sink) -> dict[str, tuple[str | None, str | None, str | None]]:
    """Type, input shapes and input data types by full operator name, from framework_raw."""
    file = group.get("framework")
    if file is None:
        return {}
    names, types = ("full_kernel_name", "full_op_name"), ("kernel_type", "op_type")
    try:
        csv = store.read_csv(file, dict.fromkeys((*names, *types, "op_info"), "text"))
    except InputError as error:
        sink.drop(error.problems[0], 1, file)
        return {}
    frame = csv.frame
    full = frame[names[0]].fillna(frame[names[1]])
    kinds = frame[types[0]].fillna(frame[types[1]])
    return {
        name: (kind if isinstance(kind, str) else None, *_inputs(_json(info)))
        for name, kind, info in zip(full, kinds, frame["op_info"], strict=True)
        if isinstance(name, str)
    }


def _ai_core_names(group: RankFiles, sink: Sink) -> frozenset[str]:
    file = group.get("operator detail")
    if file is None:
        return frozenset()
    columns = ("full_kernel_name", "full_kernel_time", "full_op_name")
    try:
        frame = store.read_csv(file, dict.fromkeys(columns, "text")).frame
    except InputError as error:
        sink.drop(error.problems[0], 1, file)
        return frozenset()
    return frozenset(name for column in columns for name in frame[column] if isinstance(name, str))


def _ai_cpu(group: RankFiles, sink: Sink) -> tuple[pd.DataFrame, int]:
    """What ran on the AI CPU, and how many rows are lost."""
    file = group.get("ai cpu")
    if file is None:
        return pd.DataFrame(columns=_COLUMNS), 0
    try:
        csv = store.read_csv(
            file,
            {"kernel_type": "text", "execution_time": "ms", "run_start": "us", "run_end": "us"},
            required=("kernel_type",),
        )
    except InputError as error:
        sink.drop(error.problems[0], 1, file)
        return pd.DataFrame(columns=_COLUMNS), 0
    for what, count in csv.losses().items():
        sink.drop(what, count, file)
    frame = csv.frame
    rows = pd.DataFrame(
        {
            "name": frame["kernel_type"],
            "type": frame["kernel_type"],
            "core": "AI_CPU",
            "stream": None,
            "start_ns": frame["run_start"],
            "duration_ns": (frame["run_end"] - frame["run_start"]).fillna(frame["execution_time"]),
            "input_shapes": None,
            "input_dtypes": None,
        }
    )
    return rows, csv.misshapen


def _timeline_display(file: File, sink: Sink) -> tuple[pd.DataFrame, int]:
    """The operators of a timeline, without spans that repeat them (parallel streams, the GPU host's), and how many have no time."""
    content, lost_bytes = read_json(file, depth=1)
    sink.drop("bytes after the last whole event of a cut file", lost_bytes, file)
    rows, broken = [], 0
    for event in content if isinstance(content, list) else ():
        if not isinstance(event, dict) or event.get("ph") != "X":
            continue
        process, values = event.get("pid"), event.get("args")
        arguments = values if isinstance(values, dict) else {}
        if process == STREAM_PROCESS or (process != AI_CPU_PROCESS and not arguments):
            continue
        start_ns, duration_ns = (exact_ns(str(event.get(key)), NS_PER_US) for key in ("ts", "dur"))
        if start_ns is None or duration_ns is None:
            broken += 1
            continue
        rows.append((*_described(event, arguments, process), start_ns, duration_ns, *_inputs(arguments)))
    sink.drop("timeline event without a time", broken, file, "kernels")
    return pd.DataFrame(rows, columns=_COLUMNS), broken


def _described(event: Mapping[str, Any], arguments: Mapping[str, Any], process: Any) -> tuple[str, str | None, str | None, str]:
    """Name, type, core and stream of a timeline event."""
    on_gpu = arguments.get("type") == "cuLaunchKernel" or "grid_dim" in arguments
    name = str(event.get("name", "") if on_gpu else arguments.get("fullname", event.get("name", "")))
    kind = None if on_gpu else arguments.get("type", name if process == AI_CPU_PROCESS else None)
    return name, kind, "AI_CPU" if process == AI_CPU_PROCESS else None, str(event.get("tid", ""))


def _inputs(info: Any) -> tuple[str | None, str | None]:
    """Shapes and data types of the inputs in order, separated by ";"; shapes as "1,2,3"."""
    if not isinstance(info, dict):
        return None, None
    inputs = [value for key, value in info.items() if str(key).startswith("input_") and isinstance(value, dict)]
    if not inputs:
        return None, None
    shapes = [value.get("shape", "") for value in inputs]
    text = ";".join(",".join(map(str, shape)) if isinstance(shape, list) else str(shape) for shape in shapes)
    return text, ";".join(str(value.get("data_type", "")) for value in inputs)


def _json(text: Any) -> Any:
    try:
        return json.loads(text) if isinstance(text, str) else None
    except (ValueError, RecursionError):
        return None


def _with_kinds(rows: pd.DataFrame) -> pd.DataFrame:
    names = {name: _kind(str(name)) for name in rows["name"].unique()}
    return rows.assign(kind=[names[name] for name in rows["name"]])


def _kind(name: str) -> str:
    if is_communication(name) or _POINT_TO_POINT.search(name):
        return "communication"
    return "copy" if _COPY.search(name) else "computing"
