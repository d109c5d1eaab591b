"""Host side of a Kineto trace: operators, calls and marks, and which call launched which execution on the device.

It is read on its own and only when it is asked for, because most questions need the device alone and a trace has several times as
many events of the host. A call and what it launched carry one `correlation`.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
import numpy as np
import pandas as pd

from perfkit.trace import _host, kinds
from perfkit.trace._kineto_events import (
    COPY_CATEGORIES,
    DEVICE_CATEGORIES,
    HEAD_KEYS,
    LAUNCH_CATEGORIES,
    NO_CORRELATION,
    base_ns_of,
    integers,
    joined,
    texts,
)
from perfkit.trace._lexer import EventReader
from perfkit.trace._listing import File
from perfkit.trace._pairs import Pairs
from perfkit.trace._store import times_ns
from perfkit.trace.steps import Window

_KINDS = {
    **dict.fromkeys(("cpu_op", "Operator"), "operator"),
    **dict.fromkeys(LAUNCH_CATEGORIES, "call"),
    "user_annotation": "mark",
    "python_function": "python",
}
_PHASES = "niICstfPNODSTpFRcvV(),M"


class HostArguments(msgspec.Struct, gc=False):
    """What is used of `args`."""

    correlation: Any = None
    stream: Any = None
    collective: Any = msgspec.field(name="Collective name", default=None)
    shapes: msgspec.Raw = msgspec.field(name="Input Dims", default_factory=msgspec.Raw)
    old_shapes: msgspec.Raw = msgspec.field(name="Input dims", default_factory=msgspec.Raw)
    types: msgspec.Raw = msgspec.field(name="Input type", default_factory=msgspec.Raw)
    occupancy: Any = msgspec.field(name="est. achieved occupancy %", default=None)
    blocks: Any = msgspec.field(name="blocks per SM", default=None)


class HostSpan(msgspec.Struct, gc=False, tag_field="ph", tag="X"):
    """An event with a duration."""

    name: str | None = None
    cat: str | None = None
    ts: msgspec.Raw = msgspec.Raw()
    dur: msgspec.Raw = msgspec.Raw()
    pid: Any = None
    tid: Any = None
    args: HostArguments | str | int | float | list[Any] | None = None


class HostBegin(HostSpan, gc=False, tag_field="ph", tag="B"):
    """The beginning of an event that nests on its thread."""


class HostEnd(HostSpan, gc=False, tag_field="ph", tag="E"):
    """Its end."""


class HostAsyncBegin(HostSpan, gc=False, tag_field="ph", tag="b"):
    """The beginning of an event that its category and id name."""

    id: Any = None


class HostAsyncEnd(HostSpan, gc=False, tag_field="ph", tag="e"):
    """Its end."""

    id: Any = None


_OTHERS = tuple(
    msgspec.defstruct(f"Skipped{index}", [], tag_field="ph", tag=phase, gc=False) for index, phase in enumerate(_PHASES)
)
_EVENT: Any = functools.reduce(operator.or_, _OTHERS, HostSpan | HostBegin | HostEnd | HostAsyncBegin | HostAsyncEnd)
_NONE = HostArguments()


@dataclass(frozen=True, slots=True)
class HostSide:
    """`host` with the columns of that table, `launches` with those of that one, both without `rank`, the latter without `step`."""

    host: pd.DataFrame
    launches: pd.DataFrame


def read_host(file: File) -> HostSide:
    """The host side of one trace file, with absolute times."""
    reader: EventReader[Any] = EventReader(file, _EVENT, keys=HEAD_KEYS)
    device: list[pd.DataFrame] = []
    host: list[pd.DataFrame] = []
    pairs = Pairs(HostSpan, {HostBegin: False, HostAsyncBegin: True}, {HostEnd: False, HostAsyncEnd: True})
    for spans in _spans(reader, pairs):
        if executed := [span for span in spans if span.cat in DEVICE_CATEGORIES]:
            device.append(_device_rows(executed))
        if done := [span for span in spans if span.cat in _KINDS]:
            host.append(_host_rows(done))
        del spans
    base_ns = base_ns_of(reader.head)
    rows, executions = joined(host, base_ns), joined(device, base_ns)
    if rows.empty:
        rows = _host_rows([])
    rows = rows[rows["start_ns"].notna() & (rows["duration_ns"] >= 0).fillna(False)].reset_index(drop=True)
    launches = _linked(executions if len(executions) else _device_rows([]), rows)
    return HostSide(rows[["name", "kind", "thread", "start_ns", "duration_ns"]], launches)


def _spans(reader: EventReader[Any], pairs: Pairs) -> Iterator[list[HostSpan]]:
    for events in reader:
        spans = [event for event in events if type(event) is HostSpan] + pairs.take(events)
        del events  # so that one block of events is alive at a time, not two
        yield spans
        del spans
    yield pairs.rest()


def step_windows_at(moments: pd.Series, windows: Sequence[Window]) -> pd.Series:
    """The step of the host in which each moment lies; null outside of all."""
    starts = np.array([window.start_ns for window in windows], dtype=np.int64)
    ends = np.array([window.end_ns for window in windows], dtype=np.int64)
    numbers = np.array([window.step for window in windows], dtype=np.int64)
    at = moments.fillna(-1).to_numpy(dtype=np.int64)
    index = np.searchsorted(starts, at, side="right") - 1
    inside = (index >= 0) & (at < ends[index])
    return pd.Series(pd.arrays.IntegerArray(numbers[index], ~inside), index=moments.index)


def _arguments(spans: list[HostSpan]) -> list[HostArguments]:
    return [span.args if type(span.args) is HostArguments else _NONE for span in spans]


def _timed(spans: list[HostSpan]) -> dict[str, pd.Series]:
    return {"start_ns": times_ns([span.ts for span in spans], "us"), "duration_ns": times_ns([span.dur for span in spans], "us")}


def _host_rows(spans: list[HostSpan]) -> pd.DataFrame:
    arguments = _arguments(spans)
    shapes = [bytes(each.shapes) or bytes(each.old_shapes) for each in arguments]
    return pd.DataFrame(
        {
            "name": pd.Categorical([span.name or "" for span in spans]).astype("object"),
            "kind": pd.Series([_KINDS[span.cat or ""] for span in spans], dtype="object"),
            "thread": pd.Series([f"{span.pid}/{span.tid}" for span in spans], dtype="object"),
            "correlation": integers([each.correlation for each in arguments]),
            "shapes": pd.Series([_decoded(raw) for raw in shapes], dtype="object"),
            "types": pd.Series([_decoded(bytes(each.types)) for each in arguments], dtype="object"),
            **_timed(spans),
        }
    )


def _device_rows(spans: list[HostSpan]) -> pd.DataFrame:
    arguments = _arguments(spans)
    names = [span.name or "" for span in spans]
    kind = [
        "copy"
        if span.cat in COPY_CATEGORIES
        else "communication"
        if each.collective or kinds.is_communication(name)
        else "computing"
        for span, name, each in zip(spans, names, arguments, strict=True)
    ]
    streams = [span.tid if each.stream is None else each.stream for span, each in zip(spans, arguments, strict=True)]
    return pd.DataFrame(
        {
            "name": pd.Series(names, dtype="object"),
            "kind": pd.Series(kind, dtype="object"),
            "stream": texts(streams),
            "correlation": integers([each.correlation for each in arguments]),
            "occupancy_ratio": _numbers([each.occupancy for each in arguments]) / 100.0,
            "blocks_per_sm": _numbers([each.blocks for each in arguments]),
            **_timed(spans),
        }
    )


def _numbers(values: list[Any]) -> pd.Series:
    return pd.Series([float(value) if type(value) in (int, float) and value >= 0 else np.nan for value in values], dtype="float64")


def _decoded(raw: bytes) -> str | None:
    return raw.decode("utf-8", "replace") if raw else None


def _linked(device: pd.DataFrame, host: pd.DataFrame) -> pd.DataFrame:
    """Each execution with the first call of its correlation, and the innermost operator around that call."""
    calls = host[(host["kind"] == "call") & (host["correlation"] != NO_CORRELATION)]
    calls = calls.sort_values("start_ns", kind="stable").drop_duplicates("correlation").set_index("correlation")
    call = calls.reindex(device["correlation"]).reset_index(drop=True)
    linked = call["start_ns"].notna().to_numpy(dtype=bool)
    operators = host[host["kind"] == "operator"].reset_index(drop=True)
    threads = pd.factorize(pd.concat([operators["thread"], call.loc[linked, "thread"]], ignore_index=True))[0]
    starts = operators["start_ns"].to_numpy(dtype=np.int64)
    inner = _host.innermost(
        starts,
        starts + operators["duration_ns"].to_numpy(dtype=np.int64),
        threads[: len(operators)],
        call.loc[linked, "start_ns"].to_numpy(dtype=np.int64),
        threads[len(operators) :],
    )
    place = np.full(len(device), _host.NONE, dtype=np.int64)
    place[linked] = inner
    made = operators.reindex(np.where(place == _host.NONE, len(operators), place)).reset_index(drop=True)
    return device.drop(columns="correlation").assign(
        call=call["name"],
        thread=call["thread"],
        launch_ns=call["start_ns"].astype("Int64"),
        launch_duration_ns=call["duration_ns"].astype("Int64"),
        operator=made["name"],
        input_shapes=_host.each(made["shapes"], _host.shapes_text),
        input_dtypes=_host.each(made["types"], _host.types_text),
    )
