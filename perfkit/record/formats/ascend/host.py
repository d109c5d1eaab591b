"""Host side of an Ascend trace_view.json: what the host did, which of it launched which kernel, and the counters of the device.

Flows lead from the host to the device: `async_npu` from the framework (its id is the start of the task in ns), `HostToDevice` from
CANN. A kernel is that of the flow that ends within `TOLERANCE_NS` of its start, because the files round the same time differently.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt
import pandas as pd

from perfkit.record.format import Sink
from perfkit.record.formats.ascend import _waits
from perfkit.record.listing import File
from perfkit.record.readers import host as _host
from perfkit.record.readers import host_tables
from perfkit.record.readers.blocks import mentions
from perfkit.record.readers.chrome_counters import COLUMNS as COUNTER_COLUMNS
from perfkit.record.readers.chrome_counters import Counter, counter_rows, named
from perfkit.record.readers.chrome_events import FlowEnd, FlowStart, Name, Span, event_of
from perfkit.record.readers.lexer import EventReader
from perfkit.record.store import times_ns

TABLES = ("host", "launches", "counters", _waits.TABLE)
"""What `read_host` gives."""
_WAITING = _waits.NOTIFY_WAIT.encode()
TOLERANCE_NS = 10
MONOTONIC_BELOW_NS = 10**17
"""A time of day is 10^18 ns or more since 2001; a device that counts from its start takes three years to reach this."""
_KINDS = {
    "cpu_op": "operator",
    "user_annotation": "mark",
    "python_function": "python",
    "enqueue": "call",
    "dequeue": "call",
    "GC": "call",
}
_CALL = ("AscendCL@", "Node@", "Runtime@", "Hccl@", "Communication@", "Model@", "Dequeue@", "Enqueue")
_FLOWS = ("async_npu", "HostToDevice")
_LAUNCH_COLUMNS = ["step", "name", "kind", "stream", "start_ns", "duration_ns", "input_shapes", "input_dtypes"]


class HostArguments(msgspec.Struct, gc=False):
    """What is used of `args`."""

    shapes: Any = msgspec.field(name="Input Dims", default=None)
    types: Any = msgspec.field(name="Input type", default=None)
    task: Any = msgspec.field(name="task type", default=None)
    position: Any = msgspec.field(name="src rank", default=None)
    peer: Any = msgspec.field(name="dst rank", default=None)


class NameArguments(msgspec.Struct, gc=False):
    """What is used of `args`."""

    name: Any = None


_EVENT: Any = event_of(Span[HostArguments], Name[NameArguments], FlowStart, FlowEnd, Counter)


def offer_host(sink: Sink, timelines: Mapping[int, Sequence[File]], read: Callable[[int], tuple[list[pd.DataFrame], ...]]) -> None:
    """Offer the tables of the ranks with these files; a rank is not read for waiting of which its files do not speak.

    Every diagnosis asks whether there is any, and most timelines, of level 1 or 0, hold none.
    """

    def holds(name: str, rank: int) -> bool:
        return name != _waits.TABLE or any(mentions(file, _WAITING) for file in timelines[rank])

    host_tables.offer(sink, timelines, read, TABLES, holds=holds)


def read_host(files: Sequence[File], kernels: pd.DataFrame, offset_ns: int = 0) -> tuple[list[pd.DataFrame], ...]:
    """The tables `host`, `launches`, `counters` and `waits` of one rank, without `rank`, from the slices of its timeline.

    `kernels` are its rows of that table; `offset_ns` leads from times since the start of the device to the time of day.
    """
    spans, starts, ends, samples = [_span_rows([])], [_flow_rows([])], [_flow_rows([])], [counter_rows([])]
    parts = [_part_rows([])]
    processes: dict[str, str] = {}
    for file in files:
        reader: EventReader[Any] = EventReader(file, _EVENT)
        for events in reader:
            spans.append(_span_rows([event for event in events if type(event) is Span and _is_host(event)]))
            parts.append(_part_rows([event for event in events if type(event) is Span and _is_part(event)]))
            starts.append(_flow_rows([event for event in events if type(event) is FlowStart and event.cat in _FLOWS]))
            ends.append(_flow_rows([event for event in events if type(event) is FlowEnd and event.cat in _FLOWS]))
            samples.append(counter_rows([event for event in events if type(event) is Counter]))
            processes.update(_process_names([event for event in events if type(event) is Name]))
            del events
    host = _joined(spans, "start_ns", offset_ns)
    host = host[host["start_ns"].notna() & (host["duration_ns"] >= 0).fillna(False)].reset_index(drop=True)
    flows = _flows(_joined(starts, "at_ns", offset_ns), _joined(ends, "at_ns", offset_ns))
    counters = named(_joined(samples, "time_ns", offset_ns), processes)[list(COUNTER_COLUMNS)]
    waits = _waits.only_waiting(_joined(parts, "start_ns", offset_ns))
    return [host[["name", "kind", "thread", "start_ns", "duration_ns"]]], [_linked(kernels, flows, host)], [counters], [waits]


def _process_names(events: Sequence[Name[NameArguments]]) -> dict[str, str]:
    return {
        f"{event.pid}": f"{event.args.name}"
        for event in events
        if event.name == "process_name" and isinstance(event.args, NameArguments)
    }


def _is_host(span: Span[HostArguments]) -> bool:
    return span.cat in _KINDS or (span.name or "").startswith(_CALL)


def _is_part(span: Span[HostArguments]) -> bool:
    """Whether a span is a task of an operation that talks to a peer."""
    return type(span.args) is HostArguments and span.args.peer is not None and isinstance(span.args.task, str)


def _part_rows(spans: list[Any]) -> pd.DataFrame:
    return pd.DataFrame(
        {
            "kind": pd.Series([span.args.task for span in spans], dtype="object"),
            "start_ns": times_ns([span.ts for span in spans], "us"),
            "duration_ns": times_ns([span.dur for span in spans], "us"),
            **{name: _positions([getattr(span.args, name) for span in spans]) for name in ("position", "peer")},
        }
    )


def _positions(values: list[Any]) -> pd.Series:
    return pd.Series([value if type(value) is int and abs(value) < 2**63 else None for value in values], dtype="Int64")


def _span_rows(spans: list[Span[HostArguments]]) -> pd.DataFrame:
    arguments = [span.args if type(span.args) is HostArguments else HostArguments() for span in spans]
    texts = [(each.shapes, each.types) for each in arguments]
    return pd.DataFrame(
        {
            "name": pd.Series([span.name or "" for span in spans], dtype="object"),
            "kind": pd.Series([_KINDS.get(span.cat or "", "call") for span in spans], dtype="object"),
            "thread": pd.Series([f"{span.pid}/{span.tid}" for span in spans], dtype="object"),
            "shapes": pd.Series([shape if isinstance(shape, str) else None for shape, _ in texts], dtype="object"),
            "types": pd.Series([dtype if isinstance(dtype, str) else None for _, dtype in texts], dtype="object"),
            "start_ns": times_ns([span.ts for span in spans], "us"),
            "duration_ns": times_ns([span.dur for span in spans], "us"),
        }
    )


def _flow_rows(flows: list[Any]) -> pd.DataFrame:
    return pd.DataFrame(
        {
            "cat": pd.Series([flow.cat or "" for flow in flows], dtype="object"),
            "id": pd.Series([str(flow.id) for flow in flows], dtype="object"),
            "thread": pd.Series([f"{getattr(flow, 'pid', None)}/{getattr(flow, 'tid', None)}" for flow in flows], dtype="object"),
            "at_ns": times_ns([flow.ts for flow in flows], "us"),
        }
    )


def _joined(frames: list[pd.DataFrame], time: str, offset_ns: int) -> pd.DataFrame:
    rows = pd.concat(frames, ignore_index=True)
    return rows.assign(**{time: rows[time].where(rows[time] >= MONOTONIC_BELOW_NS, rows[time] + offset_ns)})


def _flows(starts: pd.DataFrame, ends: pd.DataFrame) -> pd.DataFrame:
    """One row a task: `task_ns`, `launch_ns`, `thread`; flows of the framework before those of CANN."""
    chosen = starts.drop_duplicates(["cat", "id"])
    both = chosen.merge(ends.drop_duplicates(["cat", "id", "at_ns"]), on=["cat", "id"], suffixes=("", "_end"))
    rows = both.rename(columns={"at_ns": "launch_ns", "at_ns_end": "task_ns"}).dropna(subset=["launch_ns", "task_ns"])
    rows = rows.assign(order=(rows["cat"] != _FLOWS[0]).astype("int64")).sort_values(["task_ns", "order"], kind="stable")
    return rows.drop_duplicates("task_ns")[["task_ns", "launch_ns", "thread"]].astype({"task_ns": "int64", "launch_ns": "int64"})


def _linked(kernels: pd.DataFrame, flows: pd.DataFrame, host: pd.DataFrame) -> pd.DataFrame:
    rows = kernels.sort_values("start_ns", kind="stable").reset_index(drop=True)
    tasks = flows["task_ns"].to_numpy(dtype=np.int64)
    moments = rows["start_ns"].fillna(-1).to_numpy(dtype=np.int64)
    place = np.searchsorted(tasks, moments - TOLERANCE_NS)
    at = np.minimum(place, max(len(tasks) - 1, 0))
    linked = np.abs(tasks[at] - moments) <= TOLERANCE_NS if len(tasks) else np.zeros(len(rows), dtype=bool)
    flow = flows.iloc[at[linked]] if len(tasks) else flows
    launch = np.full(len(rows), 0, dtype=np.int64)
    launch[linked] = flow["launch_ns"].to_numpy(dtype=np.int64)
    thread = np.full(len(rows), None, dtype=object)
    thread[linked] = flow["thread"].to_numpy()
    return launched(rows, pd.Series(pd.arrays.IntegerArray(launch, ~np.asarray(linked, dtype=bool))), thread, host)


def launched(kernels: pd.DataFrame, launch_ns: pd.Series, threads: npt.NDArray[Any], host: pd.DataFrame) -> pd.DataFrame:
    """The table `launches`, without `rank`: kernels with the call and the operator of `host` that run at their launch.

    `launch_ns` (null: no link) and `threads` are one a kernel; `host` has `name`, `kind`, `thread`, `start_ns`, `duration_ns`.
    """
    linked = launch_ns.notna().to_numpy(dtype=bool)
    moments = launch_ns[linked].to_numpy(dtype=np.int64)
    call = _around(host, moments, threads[linked], linked)
    operators = host[(host["kind"] == "operator").to_numpy(dtype=bool)].reset_index(drop=True)
    return kernels.reindex(columns=_LAUNCH_COLUMNS).assign(
        call=call["name"].astype("object").fillna("flow").where(linked),
        thread=threads,
        launch_ns=launch_ns,
        launch_duration_ns=call["duration_ns"].where(linked).astype("Int64"),
        operator=_around(operators, moments, threads[linked], linked)["name"],
    )


def _around(
    host: pd.DataFrame, moments: npt.NDArray[np.int64], threads: npt.NDArray[Any], linked: npt.NDArray[np.bool_]
) -> pd.DataFrame:
    """The innermost span of the host around each moment, one row a kernel; null where it is not linked or nothing ran."""
    codes = pd.factorize(pd.concat([host["thread"].astype("object"), pd.Series(threads, dtype="object")], ignore_index=True))[0]
    starts = host["start_ns"].to_numpy(dtype=np.int64)
    ends = starts + host["duration_ns"].to_numpy(dtype=np.int64)
    inner = np.full(len(linked), _host.NONE, dtype=np.int64)
    inner[linked] = _host.innermost(starts, ends, codes[: len(host)], moments, codes[len(host) :])
    return host.reindex(np.where(inner == _host.NONE, len(host), inner)).reset_index(drop=True)
