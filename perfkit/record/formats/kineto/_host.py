"""Host side of a Kineto trace: operators, calls and marks, and which call launched which execution on the device.

It is read on its own and only when it is asked for, because most questions need the device alone and a trace has several times as
many events of the host. A call and what it launched carry one `correlation`, an
operator of the forward pass and those that the autograd thread runs for it one sequence number.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt
import pandas as pd

from perfkit.record import times, workers
from perfkit.record.format import joined_categories, stacked
from perfkit.record.formats.kineto._columns import (
    COPY_CATEGORIES,
    DEVICE_CATEGORIES,
    LAUNCH_CATEGORIES,
    absolute,
    as_one,
    base_ns_of,
    integers,
    joined,
    labels,
    texts,
)
from perfkit.record.formats.kineto._in_parts import Item, end_of, in_parts, reader_of
from perfkit.record.listing import File
from perfkit.record.placing import NO_CORRELATION, LaunchOrder, Marks
from perfkit.record.readers import host as _host
from perfkit.record.readers import kinds
from perfkit.record.readers.chrome_events import AsyncBegin, AsyncEnd, Begin, End, Span, event_of
from perfkit.record.readers.parts import WHOLE
from perfkit.record.readers.spool import Spool
from perfkit.record.steps import Window
from perfkit.record.store import times_ns

_KINDS = {
    **dict.fromkeys(("cpu_op", "Operator"), "operator"),
    **dict.fromkeys(LAUNCH_CATEGORIES, "call"),
    "overhead": "call",
    "user_annotation": "mark",
    "python_function": "python",
}
_KIND_NAMES = sorted(set(_KINDS.values()))
_KIND_CODES = {category: _KIND_NAMES.index(kind) for category, kind in _KINDS.items()}
_TIMES = {"start_ns": "int64", "duration_ns": "int64"}
Ints = npt.NDArray[np.int64]


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
    bytes: Any = None
    sequence: Any = msgspec.field(name="Sequence number", default=None)
    forward_id: Any = msgspec.field(name="Fwd thread id", default=None)


_EVENT: Any = event_of(
    Span[HostArguments], Begin[HostArguments], End[HostArguments], AsyncBegin[HostArguments], AsyncEnd[HostArguments]
)
_NONE = HostArguments()


@dataclass(frozen=True, slots=True)
class HostSide:
    """Rows of the table `host` in frames, and those of `launches`, both without `rank`."""

    host: Iterable[pd.DataFrame]
    launches: pd.DataFrame


@dataclass
class _HostColumns:
    """What is kept of the blocks read so far, in frames; `ends_inside` as `in_parts` asks for it."""

    device: Spool = field(default_factory=Spool)
    host: Spool = field(default_factory=Spool)
    operators: list[pd.DataFrame] = field(default_factory=list)
    calls: list[pd.DataFrame] = field(default_factory=list)
    head: dict[str, Any] = field(default_factory=dict)
    ends_inside: bytes = b""

    def take(self, spans: list[Span[HostArguments]]) -> None:
        """Add the spans of one block."""
        if executed := [span for span in spans if span.cat in DEVICE_CATEGORIES]:
            self.device.append(_device_rows(executed))
        if done := [span for span in spans if span.cat in _KINDS]:
            rows = _host_rows(done)
            self.host.append(rows)
            self.operators.append(_operator_rows(done, rows))
            self.calls.append(_call_rows(done, rows))

    def join(self, later: _HostColumns) -> None:
        """Add what follows in the file."""
        for mine, theirs in ((self.device, later.device), (self.host, later.host)):
            for frame in theirs:
                mine.append(frame)
        self.operators += later.operators
        self.calls += later.calls
        self.head |= later.head


def read_host(file: File, steps: Sequence[Window]) -> HostSide:
    """The host side of one trace file with these steps; what every event needs waits in a temporary file if it is much."""
    columns = _HostColumns()
    for more in in_parts(file, _read_part, lambda num_bytes: None):
        columns.join(more)
    base_ns = base_ns_of(columns.head)
    executions = stacked([absolute(frame, base_ns) for frame in columns.device] or [_device_rows([])])
    made = joined(columns.calls or [_call_rows([], _host_rows([]))], base_ns)
    launches = _linked(executions, made, joined(columns.operators or [_operator_rows([], _host_rows([]))], base_ns))
    return HostSide((absolute(frame, base_ns) for frame in columns.host), launches.assign(step=_steps(executions, made, steps)))


def _read_part(item: Item, report: workers.Report) -> _HostColumns:
    reader, pairs = reader_of(item, _EVENT, report)
    columns = _HostColumns()
    for events in reader:
        columns.take([event for event in events if type(event) is Span] + pairs.take(events))
        del events  # so that one block of events is alive at a time, not two
    columns.ends_inside = end_of(reader, pairs)
    columns.take(pairs.rest())
    columns.head = reader.head
    _, part = item
    if part != WHOLE:  # one frame costs those who go through them less than one a block
        columns.device, columns.host = map(as_one, (columns.device, columns.host))
        columns.operators, columns.calls = ([stacked(frames)] if frames else [] for frames in (columns.operators, columns.calls))
    return columns


def _steps(executions: pd.DataFrame, calls: pd.DataFrame, steps: Sequence[Window]) -> pd.api.extensions.ExtensionArray:
    """The step of each execution, as the table `kernels` has it: see `perfkit.record.placing`."""
    sound = calls[times.possible(calls["start_ns"], times.middle_of(calls["start_ns"]))] if len(calls) else calls
    marks, order = Marks(steps), LaunchOrder(sound["correlation"], sound["start_ns"])
    starts_ns = executions["start_ns"].fillna(_host.NONE).to_numpy(dtype=np.int64)
    return marks.steps(order.places(executions["correlation"].to_numpy(dtype=np.int64), starts_ns, marks))


def _arguments(spans: list[Span[HostArguments]]) -> list[HostArguments]:
    return [span.args if type(span.args) is HostArguments else _NONE for span in spans]


def _timed(spans: list[Span[HostArguments]]) -> dict[str, pd.Series]:
    return {"start_ns": times_ns([span.ts for span in spans], "us"), "duration_ns": times_ns([span.dur for span in spans], "us")}


def _host_rows(spans: list[Span[HostArguments]]) -> pd.DataFrame:
    """The spans with a time, by their place in `spans`."""
    rows = pd.DataFrame(
        {
            "name": labels(span.name or "" for span in spans),
            "kind": pd.Categorical.from_codes([_KIND_CODES[span.cat or ""] for span in spans], categories=pd.Index(_KIND_NAMES)),
            "thread": labels(f"{span.pid}/{span.tid}" for span in spans),
            **_timed(spans),
        }
    )
    return rows[(rows["start_ns"].notna() & (rows["duration_ns"] >= 0).fillna(False)).to_numpy(dtype=bool)].astype(_TIMES)


def _operator_rows(spans: list[Span[HostArguments]], rows: pd.DataFrame) -> pd.DataFrame:
    """The operators among them with the shapes and types of their inputs."""
    chosen = rows[(rows["kind"] == "operator").to_numpy(dtype=bool)]
    arguments = _arguments([spans[place] for place in chosen.index])
    return chosen.drop(columns="kind").assign(
        sequence=integers([each.sequence for each in arguments]),
        forward_id=integers([each.forward_id for each in arguments]),
        shapes=labels(_decoded(bytes(each.shapes) or bytes(each.old_shapes)) for each in arguments).array,
        types=labels(_decoded(bytes(each.types)) for each in arguments).array,
    )


def _call_rows(spans: list[Span[HostArguments]], rows: pd.DataFrame) -> pd.DataFrame:
    """The calls among them that launched something, with their correlation."""
    chosen = rows[(rows["kind"] == "call").to_numpy(dtype=bool)]
    calls = chosen.drop(columns="kind").assign(
        correlation=integers([each.correlation for each in _arguments([spans[place] for place in chosen.index])])
    )
    return calls[calls["correlation"] != NO_CORRELATION]


def _device_rows(spans: list[Span[HostArguments]]) -> pd.DataFrame:
    arguments = _arguments(spans)
    names = [span.name or "" for span in spans]
    communicates = {name: kinds.is_communication(name) for name in set(names)}
    kind = [
        "copy" if span.cat in COPY_CATEGORIES else "communication" if each.collective or communicates[name] else "computing"
        for span, name, each in zip(spans, names, arguments, strict=True)
    ]
    streams = [span.tid if each.stream is None else each.stream for span, each in zip(spans, arguments, strict=True)]
    return pd.DataFrame(
        {
            "name": labels(names),
            "kind": labels(kind),
            "stream": labels(texts(streams)),
            "correlation": integers([each.correlation for each in arguments]),
            "occupancy_ratio": _numbers([each.occupancy for each in arguments]) / 100.0,
            "blocks_per_sm": _numbers([each.blocks for each in arguments]),
            "bytes": _sizes([each.bytes for each in arguments]),
            **_timed(spans),
        }
    )


def _numbers(values: list[Any]) -> pd.Series:
    return pd.Series([float(value) if type(value) in (int, float) and value >= 0 else np.nan for value in values], dtype="float64")


def _sizes(values: list[Any]) -> pd.Series:
    return pd.Series([value if type(value) is int and 0 <= value < 2**62 else None for value in values], dtype="Int64")


def _decoded(raw: bytes) -> str | None:
    return raw.decode("utf-8", "replace") if raw else None


def _linked(device: pd.DataFrame, calls: pd.DataFrame, operators: pd.DataFrame) -> pd.DataFrame:
    """Each execution with the first call of its correlation, and the innermost operator around that call."""
    calls = calls.sort_values("start_ns", kind="stable").drop_duplicates("correlation").set_index("correlation")
    calls = calls.astype(dict.fromkeys(_TIMES, "Int64"))  # int64 with gaps would become float, which loses ns
    call = calls.reindex(device["correlation"]).reset_index(drop=True)
    linked = call["start_ns"].notna().to_numpy(dtype=bool)
    threads = joined_categories([operators["thread"], call.loc[linked, "thread"]]).codes.astype(np.int64)
    starts = operators["start_ns"].to_numpy(dtype=np.int64)
    inner = _host.innermost(
        starts,
        starts + operators["duration_ns"].to_numpy(dtype=np.int64),
        threads[: len(operators)],
        call.loc[linked, "start_ns"].to_numpy(dtype=np.int64),
        threads[len(operators) :],
    )
    place, forward = (np.full(len(device), _host.NONE, dtype=np.int64) for _ in range(2))
    place[linked] = inner
    forward[linked] = _forward_of(operators, threads, call.loc[linked, "start_ns"].to_numpy(dtype=np.int64))
    made = {name: pd.Series(_taken(operators[name], place)) for name in ("name", "shapes", "types")}
    return device.drop(columns="correlation").assign(
        call=call["name"],
        thread=call["thread"],
        launch_ns=call["start_ns"].astype("Int64"),
        launch_duration_ns=call["duration_ns"].astype("Int64"),
        operator=made["name"],
        forward_thread=pd.Series(_taken(operators["thread"], forward)),
        forward_ns=pd.Series(starts, dtype="Int64").reindex(forward).array,
        input_shapes=_host.each(made["shapes"], _host.shapes_text),
        input_dtypes=_host.each(made["types"], _host.types_text),
    )


def _forward_of(operators: pd.DataFrame, threads: Ints, moments: Ints) -> Ints:
    """The forward operator whose backward pass runs at each moment of a call; NONE outside of backward passes.

    `threads` has that of every operator, then of every call. Operators of the backward pass state the sequence number of their
    forward one, and a number of its thread that PyTorch counts by itself: the thread that has most of those sequence numbers.
    Several operators share one where inner ones have no gradient of their own; the last one is what autograd took down.
    """
    starts = operators["start_ns"].to_numpy(dtype=np.int64)
    ends = starts + operators["duration_ns"].to_numpy(dtype=np.int64)
    sequences, ids = (operators[name].to_numpy(dtype=np.int64) for name in ("sequence", "forward_id"))
    found = np.full(len(moments), _host.NONE, dtype=np.int64)
    own, backward = threads[: len(operators)], np.flatnonzero((ids > 0) & (sequences > 0))
    if not len(backward):
        return found
    around = _host.innermost(starts[backward], ends[backward], own[backward], moments, threads[len(operators) :])
    inside = np.flatnonzero(around != _host.NONE)
    at = backward[around[inside]]
    forward = np.flatnonzero((ids == 0) & (sequences > 0))
    forward = forward[np.argsort(starts[forward], kind="stable")]
    for number in np.unique(ids[at]):
        of_number = ids[at] == number
        asked = sequences[at[of_number]]
        lasts = (
            pd.Series(places, sequences[places]).groupby(level=0).last().reindex(asked)
            for places in (forward[own[forward] == thread] for thread in np.unique(own[forward]))
        )
        best = max(lasts, key=lambda last: last.notna().sum(), default=pd.Series(np.nan, asked))
        found[inside[of_number]] = best.fillna(_host.NONE).to_numpy(dtype=np.int64)
    return found


def _taken(texts: pd.Series, place: Ints) -> pd.Categorical:
    """The text at each place, null for NONE."""
    labelled = pd.Categorical(texts)
    return pd.Categorical.from_codes(np.append(labelled.codes, -1)[place], categories=labelled.categories)
