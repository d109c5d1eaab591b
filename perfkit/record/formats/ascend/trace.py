"""Ascend trace: one trace_view.json as columns, before steps are made of it.

Device events carry no category; what they are follows from the names of their process and thread, which `M` events give anywhere
in the file. `Ascend Hardware` has the tasks of the streams, of which those of a computing unit are kernels; `HCCL` (`Communication`
in newer files) has whole operations in threads `Group k Communication` and their parts in threads `Plane k`, which are left out,
since they would count twice. Flows of category `async_npu` lead from the launch on the host to a device task: their id is the
start of the task in ns. Flows `HostToDevice` lead from CANN to the same task, and count where the former are missing. Times are us
in decimal text. Steps are marked by the host (`ProfilerStep#n`); where it marked none, the
iterations that the device counted are the steps (`Iteration n` in a thread `Step Trace`).
"""

from __future__ import annotations

import functools
import re
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

import msgspec
import numpy as np
import pandas as pd

from perfkit.record import times
from perfkit.record.accounts import readable
from perfkit.record.listing import File
from perfkit.record.readers.chrome_events import FlowEnd, FlowStart, Name, Span, event_of
from perfkit.record.readers.lexer import LOST_EVENTS, EventReader
from perfkit.record.steps import Window
from perfkit.record.store import times_ns

HARDWARE = "Ascend Hardware"
COMMUNICATION = frozenset({"HCCL", "Communication"})
OVERLAP = "Overlap Analysis"
_ON_DEVICE = COMMUNICATION | {HARDWARE, OVERLAP}
_HOST_CATEGORIES = frozenset({"cpu_op", "python_function", "enqueue", "dequeue", "user_annotation"})
_STEP = re.compile(r"(ProfilerStep#|Iteration )([0-9]{1,18})$")
_ITERATION = "Iteration Time"
_STEP_THREAD = "Step Trace"
_OPERATIONS_THREAD = re.compile(r"Group .*Communication$|Communication Kernel$")
_COMPUTING_TASK = re.compile(r"AI_?CORE|AI_?VEC|MIX_AI|AI_?CPU|DSA|^AIC$|^AIV$|^Other$", re.IGNORECASE)
_COPY_NAME = re.compile(r"^(?:MEMCPY|MEMSET)(?:_|$)")
_CONTROL_NAME = re.compile(r"^(?:EVENT_|PROFILING_|Notify|Write Value|SDMA$|RDMA)")
_FROM_FRAMEWORK, _FROM_CANN = "async_npu", "HostToDevice"


class Arguments(msgspec.Struct, gc=False):
    """What is used of `args`."""

    name: Any = None
    task_type: Any = msgspec.field(name="Task Type", default=None)
    element_type: Any = msgspec.field(name="data_type", default=None)
    count: Any = None


_EVENT: Any = event_of(Span[Arguments], Name[Arguments], FlowStart, FlowEnd)
_NO_ARGUMENTS = Arguments()


@dataclass
class Recording:
    """One trace file as columns.

    `device` has a row per kernel, copy and communication operation: `name`, `kind`, `core` (task type), `stream` (of an operation:
    its thread), `start_ns`, `duration_ns`, `launch_ns` (null: no flow), and `element_type`, `elements` of operations. `lanes` sums
    the profiler's own overlap analysis by name, in ns, and `lane_spans` counts it; both are empty if the file has none.
    `num_spans` counts what has a duration, `num_lost` those of them that cannot be read; `beside` has the starts of those that are
    no row of `device`: of the host, and (`on_device`) of tasks and lanes of the device.
    """

    file: File
    num_events: int = 0
    lost: Counter[str] = field(default_factory=Counter)
    repaired: int = 0
    damage: str | None = None
    device: pd.DataFrame = field(default_factory=pd.DataFrame)
    steps: list[Window] = field(default_factory=list)
    lanes: dict[str, int] = field(default_factory=dict)
    lane_spans: dict[str, int] = field(default_factory=dict)
    num_spans: int = 0
    num_lost: int = 0
    beside: pd.DataFrame = field(default_factory=pd.DataFrame)


def read_recording(file: File, on_read: Callable[[int], None] | None = None, names: dict[str, str] | None = None) -> Recording:
    """Read one trace file; what cannot be read is counted in `lost`, why it ends early is said in `damage`.

    `names` of processes and threads are those of earlier slices of the same recording; they are completed by those of this file.
    """
    reader: EventReader[Any] = EventReader(file, _EVENT, on_read=on_read)
    names = {} if names is None else names
    spans: list[pd.DataFrame] = []
    marks: list[pd.DataFrame] = []
    launches: list[pd.DataFrame] = []
    calls: list[pd.DataFrame] = []
    arrivals: list[pd.DataFrame] = []
    host: list[pd.DataFrame] = []
    for events in reader:
        for event in events:
            if type(event) is Name and event.name in ("process_name", "thread_name") and type(event.args) is Arguments:
                place = _process(event.pid) if event.name == "process_name" else _thread(event.pid, event.tid)
                names[place] = str(event.args.name)
        found = [event for event in events if type(event) is Span]
        spans.append(_span_rows([span for span in found if span.cat not in _HOST_CATEGORIES]))
        host.append(pd.DataFrame(_times([span for span in found if span.cat in _HOST_CATEGORIES])))
        marks.append(_mark_rows([span for span in found if _is_mark(span)]))
        launches.append(_launch_rows([event for event in events if type(event) is FlowStart and event.cat == _FROM_FRAMEWORK]))
        calls.append(_flow_rows([event for event in events if type(event) is FlowStart and event.cat == _FROM_CANN]))
        arrivals.append(_flow_rows([event for event in events if type(event) is FlowEnd and event.cat == _FROM_CANN]))
        del events  # so that one block of events is alive at a time, not two
    recording = Recording(file, reader.num_events, reader.lost, reader.repaired, reader.damage)
    recording.num_spans = recording.num_lost = reader.lost[LOST_EVENTS]
    if spans:
        rows = pd.concat(spans, ignore_index=True)
        rows["process"] = _column(names.get(_process(pid)) for pid in rows["pid"])
        if unnamed := int((rows["core"].notna() & rows["process"].isna()).sum()):
            recording.lost["task of a process without a name"] = unnamed
        rows["thread"] = _column(names.get(_thread(pid, tid)) for pid, tid in zip(rows["pid"], rows["tid"], strict=True))
        from_framework, begun, ended = (
            _whole(pd.concat(flows, ignore_index=True), recording.lost) for flows in (launches, calls, arrivals)
        )
        launched = pd.concat([from_framework, _between(begun, ended)], ignore_index=True)
        recording.device = _with_launches(_device_rows(rows), launched)
        recording.beside = _beside(rows, pd.concat(host, ignore_index=True), recording)
        recording.steps = _windows(pd.concat(marks, ignore_index=True), times.middle_of(rows["start_ns"]), recording.lost)
        overlap = rows[(rows["process"] == OVERLAP) & rows["duration_ns"].notna()]
        sums = overlap.groupby("name")["duration_ns"]
        recording.lanes = {str(name): int(total) for name, total in sums.sum().items()}
        recording.lane_spans = {str(name): int(spans) for name, spans in sums.size().items()}
    return recording


def _whole(flows: pd.DataFrame, lost: Counter[str]) -> pd.DataFrame:
    """The flows that have an id and a time; the others are counted."""
    found = flows.dropna()
    lost.update({"end of a flow without an id or a time": len(flows) - len(found)} if len(found) < len(flows) else {})
    return found


def _beside(rows: pd.DataFrame, host: pd.DataFrame, recording: Recording) -> pd.DataFrame:
    """When the spans began that are no execution: those of the host, and of the device's own lanes and tasks.

    Those of which a time cannot be read are counted.
    """
    drawn = rows.loc[_kinds(rows).isna()]
    others = pd.concat(
        [host.assign(on_device=False), drawn[["start_ns", "duration_ns"]].assign(on_device=drawn["process"].isin(_ON_DEVICE))],
        ignore_index=True,
    )
    good = readable(others, recording.lost)
    recording.num_spans += len(rows) + len(host)
    recording.num_lost += len(others) - int(good.sum())
    return others.loc[good, ["start_ns", "on_device"]].astype({"start_ns": "int64", "on_device": bool})


def _process(pid: object) -> str:
    """A process as a key; numbers and their text are the same."""
    return f"{pid}"


def _thread(pid: object, tid: object) -> str:
    return f"{pid}\0{tid}"


def _span_rows(spans: list[Span[Arguments]]) -> pd.DataFrame:
    arguments = [span.args if type(span.args) is Arguments else _NO_ARGUMENTS for span in spans]
    return pd.DataFrame(
        {
            "name": _column(span.name or "" for span in spans),
            "pid": pd.Series([span.pid for span in spans], dtype="object"),
            "tid": pd.Series([span.tid for span in spans], dtype="object"),
            "core": _column(_text(argument.task_type) for argument in arguments),
            "element_type": _column(_text(argument.element_type) for argument in arguments),
            "elements": pd.Series([_count(argument.count) for argument in arguments], dtype="Int64"),
            **_times(spans),
        }
    )


def _times(spans: list[Span[Arguments]]) -> dict[str, pd.Series]:
    return {"start_ns": times_ns([span.ts for span in spans], "us"), "duration_ns": times_ns([span.dur for span in spans], "us")}


def _is_mark(span: Span[Arguments]) -> bool:
    """Whether a span is a step: marked by the host under any category, or an iteration that the device counted."""
    found = _STEP.match(span.name or "")
    return found is not None and (found[1] == "ProfilerStep#" or span.cat == _ITERATION)


def _mark_rows(spans: list[Span[Arguments]]) -> pd.DataFrame:
    return pd.DataFrame(
        {
            "step": np.array([int(re.sub(r"\D", "", span.name or "")) for span in spans], dtype=np.int64),
            "host": np.array([span.cat != _ITERATION for span in spans], dtype=bool),
            **_times(spans),
        }
    )


def _launch_rows(flows: list[FlowStart]) -> pd.DataFrame:
    """When the task that starts at `task_ns` was launched."""
    ids = [flow.id if type(flow.id) in (int, str) else "" for flow in flows]
    return pd.DataFrame(
        {
            "task_ns": times_ns([str(number).encode() for number in ids], "ns"),
            "launch_ns": times_ns([flow.ts for flow in flows], "us"),
        }
    )


def _flow_rows(flows: list[Any]) -> pd.DataFrame:
    ids = [flow.id if type(flow.id) in (int, str) else None for flow in flows]
    return pd.DataFrame(
        {"id": _column(None if each is None else str(each) for each in ids), "at_ns": times_ns([flow.ts for flow in flows], "us")}
    )


def _between(calls: pd.DataFrame, arrivals: pd.DataFrame) -> pd.DataFrame:
    """When the tasks at the ends of flows were launched; one call may launch several."""
    both = calls.drop_duplicates("id").merge(arrivals, on="id", suffixes=("", "_end"))
    return both.rename(columns={"at_ns": "launch_ns", "at_ns_end": "task_ns"})[["task_ns", "launch_ns"]]


def _device_rows(rows: pd.DataFrame) -> pd.DataFrame:
    """The kernels, copies and communication operations among all spans of the device side."""
    device = rows.assign(kind=_kinds(rows)).dropna(subset=["kind"]).reset_index(drop=True)
    threads = [(thread or f"{tid}").removeprefix("Stream ") for thread, tid in zip(device["thread"], device["tid"], strict=True)]
    return device.assign(stream=_column(threads)).drop(columns=["pid", "tid", "process", "thread"])


def _kinds(rows: pd.DataFrame) -> pd.Series:
    return _column(_kind(*row) for row in rows[["process", "thread", "name", "core"]].itertuples(index=False))


@functools.lru_cache(maxsize=100_000)
def _kind(process: str | None, thread: str | None, name: str, task_type: str | None) -> str | None:
    """What a span of the device side is: computing, copy, communication, or None for what is not counted."""
    if process in COMMUNICATION:
        return "communication" if _OPERATIONS_THREAD.match(thread or "") else None
    if process != HARDWARE or (thread or "").startswith(_STEP_THREAD):
        return None
    if _COPY_NAME.match(name):
        return "copy"
    if _CONTROL_NAME.match(name):
        return None
    return "computing" if task_type is None or _COMPUTING_TASK.search(task_type) else None


def _with_launches(device: pd.DataFrame, launches: pd.DataFrame) -> pd.DataFrame:
    known = launches.drop_duplicates("task_ns").set_index("task_ns")["launch_ns"]
    return device.assign(launch_ns=device["start_ns"].map(known).astype("Int64"))


def _windows(marks: pd.DataFrame, middle_ns: int | None, lost: Counter[str]) -> list[Window]:
    if marks["host"].any():
        marks = marks[marks["host"]]
    timed = times.possible(marks["start_ns"], middle_ns) & (marks["duration_ns"] >= 0).fillna(False).to_numpy(dtype=bool)
    lost.update({"step mark without a time of this recording": int((~timed).sum())} if not timed.all() else {})
    good = marks[timed].sort_values("start_ns", kind="stable")
    return [
        Window(int(step), int(start_ns), int(start_ns + duration_ns))
        for step, start_ns, duration_ns in good.drop_duplicates("step")[["step", "start_ns", "duration_ns"]].itertuples(index=False)
    ]


def _column(values: Iterable[str | None]) -> pd.Series:
    """Text as objects, so that what is missing stays None."""
    return pd.Series(list(values), dtype="object")


def _text(value: object) -> str | None:
    return value if isinstance(value, str) else None


def _count(value: object) -> int | None:
    return value if type(value) is int and 0 <= value < 2**63 else None
