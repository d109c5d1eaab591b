"""Kineto columns: what is kept of the events of one trace file, block by block, before steps are made of it.

Category names are those of PyTorch 1.8 (`Kernel`, `Memcpy`, `Runtime`, `Operator`) and of today; AMD traces use the same. Spans of
`gpu_user_annotation` cover kernels and are never device work.
"""

from __future__ import annotations

import operator
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt
import pandas as pd

from perfkit.record.accounts import NO_DURATION, NO_START
from perfkit.record.format import stacked
from perfkit.record.placing import NO_CORRELATION
from perfkit.record.readers import chrome_counters as chrome
from perfkit.record.readers import kinds
from perfkit.record.readers.chrome_events import Span
from perfkit.record.readers.spool import Spool
from perfkit.record.store import exact_ns

KERNEL_CATEGORIES = frozenset({"kernel", "Kernel"})
COPY_CATEGORIES = frozenset({"gpu_memcpy", "gpu_memset", "Memcpy", "Memset"})
DEVICE_CATEGORIES = KERNEL_CATEGORIES | COPY_CATEGORIES
LAUNCH_CATEGORIES = frozenset(
    {"cuda_runtime", "cuda_driver", "Runtime", "xpu_runtime", "mtia_runtime", "privateuse1_runtime", "privateuse1_driver"}
)
COUNTED_CATEGORY = "cuda_profiler_range"
"""A kernel for which CUPTI counted: it ran alone and repeatedly, so its times are made up."""
STEP_CATEGORIES = frozenset({"user_annotation", "cpu_op", "Operator"})
_DEVICE, _CALL, _ON_DEVICE, _WHOLE, _COUNTED = 1, 2, 3, 4, 5
_ROLES: defaultdict[str | None, int] = defaultdict(
    int,
    {
        **dict.fromkeys(DEVICE_CATEGORIES, _DEVICE),
        **dict.fromkeys(LAUNCH_CATEGORIES, _CALL),
        "gpu_user_annotation": _ON_DEVICE,
        "Trace": _WHOLE,
        COUNTED_CATEGORY: _COUNTED,
    },
)
"""What events of a category are; all others are operators and marks of the host."""
Flags = npt.NDArray[np.bool_]
_STEP = re.compile(r"ProfilerStep#[0-9]{1,18}$")
_ABSOLUTE_NS = 10**18
_INT64 = 2**63


class Arguments(msgspec.Struct, gc=False):
    """What is used of `args`; foreign values of any type are taken and judged later."""

    correlation: Any = None
    stream: Any = None
    device: Any = None
    collective: Any = msgspec.field(name="Collective name", default=None)
    in_elements: Any = msgspec.field(name="In msg nelems", default=None)
    out_elements: Any = msgspec.field(name="Out msg nelems", default=None)
    element_type: Any = msgspec.field(name="dtype", default=None)
    group_size: Any = msgspec.field(name="Group size", default=None)
    group: Any = msgspec.field(name="Process Group Name", default=None)
    label: Any = msgspec.field(name="Process Group Description", default=None)
    members: Any = msgspec.field(name="Process Group Ranks", default=None)
    first_rank: Any = msgspec.field(name="Global rank start", default=None)
    stride: Any = msgspec.field(name="Global rank stride", default=None)


_NO_ARGUMENTS = Arguments()
_CATEGORY, _NAME, _START, _LENGTH = (operator.attrgetter(name) for name in ("cat", "name", "ts", "dur"))


@dataclass
class Columns:
    """What is kept of the blocks read so far; `ends_inside` are the open brackets where all of it was read and is at an end."""

    device: Spool = field(default_factory=Spool)
    collectives: list[pd.DataFrame] = field(default_factory=list)
    launches: list[pd.DataFrame] = field(default_factory=list)
    marks: list[pd.DataFrame] = field(default_factory=list)
    host: list[pd.DataFrame] = field(default_factory=list)
    counters: Spool = field(default_factory=Spool)
    beside: Spool = field(default_factory=Spool)
    num_spans: int = 0
    has_counted: bool = False
    lost: Counter[str] = field(default_factory=Counter)
    head: dict[str, Any] = field(default_factory=dict)
    num_events: int = 0
    repaired: int = 0
    damage: str | None = None
    ends_inside: bytes = b""

    def join(self, later: Columns) -> None:
        """Add what follows in the file."""
        if not len(self.device):
            self.host += later.host
        self.collectives += [rows.assign(row=rows["row"] + len(self.device)) for rows in later.collectives]
        for mine, theirs in ((self.device, later.device), (self.counters, later.counters), (self.beside, later.beside)):
            for frame in theirs:
                mine.append(frame)
        self.launches += later.launches
        self.marks += later.marks
        self.num_spans += later.num_spans
        self.has_counted |= later.has_counted
        self.lost += later.lost
        self.head |= later.head
        self.num_events += later.num_events
        self.repaired += later.repaired
        self.damage = later.damage

    def count(self, events: list[chrome.Counter | chrome.Instant]) -> None:
        """Add the samples of one block."""
        rows = chrome.counter_rows([event for event in events if type(event) is chrome.Counter or event.name == chrome.MEMORY])
        if len(rows):
            self.counters.append(rows.drop(columns="pid"))

    def take(self, spans: list[Span[Arguments]]) -> None:
        """Add the spans of one block."""
        self.num_spans += len(spans)
        roles = np.array([*map(_ROLES.__getitem__, map(_CATEGORY, spans))], dtype=np.int8)
        starts, lengths = exact_ns([*map(_START, spans)], "us"), exact_ns([*map(_LENGTH, spans)], "us")
        executed = roles == _DEVICE
        self.has_counted |= bool((roles == _COUNTED).any())
        if executed.any():
            device = _those(spans, executed)
            rows = _device_rows(device, _nullable(starts, executed), _nullable(lengths, executed))
            self.collectives.append(_collective_rows(device, rows["kind"], len(self.device)))
            self.device.append(rows)
        good = ~executed & starts[1] & lengths[1] & (lengths[0] >= 0)
        for reason, lost in ((NO_START, ~starts[1]), (NO_DURATION, starts[1] & ~good)):
            if (count := int((lost & ~executed).sum())) > 0:
                self.lost[reason] += count
        self._take_others(spans, roles, good, pd.DataFrame({"start_ns": starts[0][good], "duration_ns": lengths[0][good]}))

    def _take_others(self, spans: list[Span[Arguments]], roles: npt.NDArray[np.int8], good: Flags, moments: pd.DataFrame) -> None:
        """Add what is no execution and has both times: the `good` spans, whose times are `moments`."""
        of = roles[good]
        calls = of == _CALL
        if not len(self.device):
            self.host.append(moments[(of == 0) | calls])
        if calls.any():
            self.launches.append(_launch_rows(_those(spans, good & (roles == _CALL)), moments["start_ns"].to_numpy()[calls]))
        names = [*map(_NAME, spans)]
        if steps := {name for name in set(names) if name and _STEP.match(name)}:
            marks = good & np.array([*map(steps.__contains__, names)], dtype=bool)
            marks[marks] = [span.cat in STEP_CATEGORIES for span in _those(spans, marks)]
            self.marks.append(_mark_rows(_those(spans, marks), moments[marks[good]]))
        self.beside.append(pd.DataFrame({"start_ns": moments["start_ns"], "on_device": of == _ON_DEVICE}))


def _nullable(times: tuple[npt.NDArray[np.int64], Flags], which: Flags) -> pd.Series:
    return pd.Series(pd.arrays.IntegerArray(times[0][which], ~times[1][which]))


def _those(spans: list[Span[Arguments]], which: Flags) -> list[Span[Arguments]]:
    return [spans[place] for place in np.flatnonzero(which).tolist()]


def text(value: object) -> str | None:
    """A foreign value as text, `stream 7` as `7`; None for one that is no text and no number."""
    return value.removeprefix("stream ") if isinstance(value, str) else str(value) if isinstance(value, (int, float)) else None


def texts(values: list[Any]) -> pd.Series:
    """Foreign values as a column of text."""
    try:
        known = {value: text(value) for value in set(values)}
    except TypeError:  # lists and objects have no hash
        return pd.Series([text(value) for value in values], dtype="object")
    return pd.Series([known[value] for value in values], dtype="object")


def integers(values: list[Any]) -> npt.NDArray[np.int64]:
    """Foreign values as int64; 0 for one that is no whole number."""
    try:
        array = np.array(values)
    except ValueError:  # lists of different lengths
        array = np.array([])
    if array.dtype == np.int64 and array.ndim == 1:
        return array
    return np.array([value if type(value) is int and abs(value) < _INT64 else 0 for value in values], dtype=np.int64)


def _device_rows(spans: list[Span[Arguments]], starts_ns: pd.Series, durations_ns: pd.Series) -> pd.DataFrame:
    arguments = _arguments(spans)
    names = [span.name or "" for span in spans]
    communicates = {name: kinds.is_communication(name) for name in set(names)}
    kind = [
        "copy" if span.cat in COPY_CATEGORIES else "communication" if communicates[name] or argument.collective else "computing"
        for span, name, argument in zip(spans, names, arguments, strict=True)
    ]
    streams = [span.tid if argument.stream is None else argument.stream for span, argument in zip(spans, arguments, strict=True)]
    devices = [span.pid if argument.device is None else argument.device for span, argument in zip(spans, arguments, strict=True)]
    rows = pd.DataFrame({"start_ns": starts_ns, "duration_ns": durations_ns})
    rows["name"] = labels(names)
    rows["kind"] = labels(kind)
    rows["stream"] = labels(texts(streams))
    rows["device"] = labels(texts(devices))
    rows["correlation"] = integers([argument.correlation for argument in arguments])
    return rows


def _collective_rows(spans: list[Span[Arguments]], kind: pd.Series, first_row: int) -> pd.DataFrame:
    """The metadata of communication kernels; sizes that are not recorded are 0."""
    rows = np.flatnonzero((kind == "communication").to_numpy())
    arguments = _arguments([spans[int(row)] for row in rows])
    in_elements = integers([argument.in_elements for argument in arguments])
    out_elements = integers([argument.out_elements for argument in arguments])
    return pd.DataFrame(
        {
            "row": rows + first_row,
            "operation": texts([argument.collective for argument in arguments]),
            "group": texts([argument.group for argument in arguments]),
            "label": texts([argument.label for argument in arguments]),
            "members": texts([argument.members for argument in arguments]),
            "first_rank": integers([argument.first_rank for argument in arguments]),
            "stride": integers([argument.stride for argument in arguments]),
            "group_size": integers([argument.group_size for argument in arguments]),
            "elements": np.maximum(in_elements, out_elements),
            "element_type": texts([argument.element_type for argument in arguments]),
        }
    )


def _launch_rows(spans: list[Span[Arguments]], starts_ns: npt.NDArray[np.int64]) -> pd.DataFrame:
    correlations = integers([argument.correlation for argument in _arguments(spans)])
    rows = pd.DataFrame({"correlation": correlations, "start_ns": starts_ns})
    return rows[rows["correlation"] != NO_CORRELATION]


def _mark_rows(spans: list[Span[Arguments]], moments: pd.DataFrame) -> pd.DataFrame:
    numbers = np.array([int((span.name or "").partition("#")[2]) for span in spans], dtype=np.int64)
    return moments.reset_index(drop=True).assign(step=numbers)


def _arguments(spans: list[Span[Arguments]]) -> list[Arguments]:
    return [span.args if type(span.args) is Arguments else _NO_ARGUMENTS for span in spans]


def absolute(frame: pd.DataFrame, base_ns: int) -> pd.DataFrame:
    """The frame with absolute times."""
    if not base_ns or "start_ns" not in frame:
        return frame
    return frame.assign(start_ns=frame["start_ns"].where(frame["start_ns"].abs() >= _ABSOLUTE_NS, frame["start_ns"] + base_ns))


def joined(frames: list[pd.DataFrame], base_ns: int = 0) -> pd.DataFrame:
    """The frames as one, with absolute times; the list is used up."""
    absolute_frames = [absolute(frames.pop(0), base_ns) for _ in range(len(frames))]
    return stacked(absolute_frames) if absolute_frames else pd.DataFrame()


def as_one(frames: Spool) -> Spool:
    """The frames as one."""
    spool = Spool()
    if rows := list(frames):
        spool.append(stacked(rows))
    return spool


def labels(values: Iterable[str | None]) -> pd.Series:
    """Text that repeats, as a number each instead of a pointer."""
    return pd.Series(pd.Categorical(pd.Series(list(values), dtype="object")))


def base_ns_of(head: Mapping[str, Any]) -> int:
    value = head.get("baseTimeNanoseconds")
    return value if type(value) is int and 0 < value < _INT64 else 0
