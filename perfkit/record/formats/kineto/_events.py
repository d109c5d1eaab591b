"""Kineto events: one trace file as columns of absolute times, a large one read by several processes.

Times are us in decimal text, absolute, or relative to the top-level `baseTimeNanoseconds`, which may stand at the end of the file;
here they become absolute int64 ns.
"""

from __future__ import annotations

import operator
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import chain, compress, repeat
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from perfkit.record import times, workers
from perfkit.record.accounts import NO_DURATION, NO_START
from perfkit.record.formats.kineto._columns import Arguments, Columns, absolute, as_one, base_ns_of, joined
from perfkit.record.formats.kineto._in_parts import Item, end_of, in_parts, reader_of
from perfkit.record.listing import File
from perfkit.record.readers import chrome_counters as chrome
from perfkit.record.readers.chrome_events import AsyncBegin, AsyncEnd, Begin, End, Span, event_of
from perfkit.record.readers.lexer import LOST_EVENTS
from perfkit.record.readers.pairs import NO_BEGINNING, NO_END, NO_TIME
from perfkit.record.readers.parts import WHOLE
from perfkit.record.readers.spool import Spool
from perfkit.record.steps import Window

_CUT_SHARE = 0.1
"""A step in which executions stop sooner than in others by more than this share of it was not recorded whole."""
_LOST_BEFORE = (LOST_EVENTS, NO_END, NO_BEGINNING, NO_TIME)
_LOST_SPANS = (NO_START, NO_DURATION, *_LOST_BEFORE)

_EVENT: Any = event_of(
    Span[Arguments], Begin[Arguments], End[Arguments], AsyncBegin[Arguments], AsyncEnd[Arguments], chrome.Counter, chrome.Instant
)
_SAMPLED = frozenset({chrome.Counter, chrome.Instant})


@dataclass
class Recording:
    """One trace file as columns.

    `device` has a row per execution: `name`, `kind`, `stream`, `device`, `start_ns`, `duration_ns`, `correlation`, in frames whose
    times `executions` makes absolute with `base_ns`; `collectives` one per communication: `row` (its number in `device`) and what
    its metadata says; `launches` the `correlation` and `start_ns` of calls on the host. `steps` are the marks of the host in order
    of start, `host` its span, only if there is no device event. `counters` has samples, `time_ns` as absolute as `start_ns`.
    `num_spans` counts what has a duration, `num_lost` those of them that cannot be read; `beside` has the starts of those that are
    no execution: of the host, and (`on_device`) of spans that the profiler drew over executions. `middle_ns` is that of the times.
    `has_counted` says whether CUPTI counted for kernels. `cut` are marked steps of whose executions a damaged file lacks the end.
    """

    file: File
    num_events: int = 0
    head: Mapping[str, Any] = field(default_factory=dict)
    lost: Counter[str] = field(default_factory=Counter)
    repaired: int = 0
    damage: str | None = None
    base_ns: int = 0
    device: Spool = field(default_factory=Spool)
    collectives: pd.DataFrame = field(default_factory=pd.DataFrame)
    launches: pd.DataFrame = field(default_factory=pd.DataFrame)
    steps: list[Window] = field(default_factory=list)
    host: Window | None = None
    counters: Spool = field(default_factory=Spool)
    middle_ns: int | None = None
    num_spans: int = 0
    num_lost: int = 0
    beside: Spool = field(default_factory=Spool)
    has_counted: bool = False
    cut: list[int] = field(default_factory=list)

    def executions(self) -> Iterator[pd.DataFrame]:
        """The rows of `device` frame by frame, with absolute times, numbered through."""
        first = 0
        for frame in self.device:
            rows = absolute(frame, self.base_ns)
            if self.base_ns:  # relative times begin long after the base
                rows["start_ns"] = rows["start_ns"].where(frame["start_ns"] > 0)
            yield rows.set_axis(pd.RangeIndex(first, first + len(rows)))
            first += len(rows)

    def others(self) -> Iterator[pd.DataFrame]:
        """The rows of `beside` frame by frame, with absolute times."""
        return (absolute(frame, self.base_ns) for frame in self.beside)

    def samples(self) -> Iterator[pd.DataFrame]:
        """The rows of `counters` frame by frame, with absolute times."""
        for frame in self.counters:
            yield absolute(frame.rename(columns={"time_ns": "start_ns"}), self.base_ns).rename(columns={"start_ns": "time_ns"})


def read_recording(file: File, on_read: Callable[[int], None] | None = None) -> Recording:
    """Read one trace file; what cannot be read is counted in `lost`, why it ends early is said in `damage`."""
    columns = Columns()
    for more in in_parts(file, _read_part, on_read or (lambda num_bytes: None)):
        columns.join(more)
    base_ns = base_ns_of(columns.head)
    recording = Recording(file, columns.num_events, columns.head, columns.lost, columns.repaired, columns.damage)
    recording.num_lost = sum(columns.lost[reason] for reason in _LOST_SPANS)
    recording.num_spans = columns.num_spans + sum(columns.lost[reason] for reason in _LOST_BEFORE)
    recording.base_ns = base_ns
    recording.device = columns.device
    recording.beside = columns.beside
    recording.counters = columns.counters
    recording.has_counted = columns.has_counted
    recording.collectives = joined(columns.collectives)
    launches, marks, host = (joined(frames, base_ns) for frames in (columns.launches, columns.marks, columns.host))
    middle_ns = _middle_ns(chain([launches], recording.executions(), [host]))
    recording.middle_ns = middle_ns
    recording.launches = _sound(launches, middle_ns)
    recording.steps = _windows(_sound(marks, middle_ns), recording.lost)
    recording.host = None if len(columns.device) else _extent(_sound(host, middle_ns))
    if columns.damage is not None and len(columns.device):
        known = [_sound(rows, middle_ns)["start_ns"].dropna() for rows in recording.executions()]
        starts_ns = np.concatenate([rows.to_numpy(dtype=np.int64) for rows in known])
        recording.steps, recording.cut = _whole_steps(recording.steps, np.sort(starts_ns))
    return recording


def _whole_steps(steps: list[Window], starts_ns: npt.NDArray[np.int64]) -> tuple[list[Window], list[int]]:
    """The steps of a file that ends early without those at its end that lack executions, and the numbers of these.

    Executions start until a usual part of a step before its mark ends; where they stop much sooner it was not recorded whole.
    """
    if len(steps) < 2 or not len(starts_ns):
        return steps, []
    at = np.searchsorted(starts_ns, [step.end_ns for step in steps], side="right") - 1
    last = np.where(at >= 0, starts_ns[at], [step.start_ns for step in steps])
    shares = [
        min(1.0, (step.end_ns - at) / max(1, step.end_ns - step.start_ns)) for step, at in zip(steps, last.tolist(), strict=True)
    ]
    usual, count = float(np.median(shares)), len(steps)
    while count > 1 and shares[count - 1] > usual + _CUT_SHARE:
        count -= 1
    return steps[:count], [step.step for step in steps[count:]]


def _read_part(item: Item, report: workers.Report) -> Columns:
    reader, pairs = reader_of(item, _EVENT, report)
    columns = Columns()
    for events in reader:
        types = [*map(type, events)]
        columns.take([*compress(events, map(operator.is_, types, repeat(Span))), *pairs.take(events)])
        columns.count([*compress(events, map(_SAMPLED.__contains__, types))])
        del events  # so that one block of events is alive at a time, not two
    columns.ends_inside = end_of(reader, pairs)
    columns.take(pairs.rest())
    columns.lost += reader.lost + pairs.lost
    columns.head, columns.damage = reader.head, reader.damage
    columns.num_events, columns.repaired = reader.num_events, reader.repaired
    _, part = item
    if part != WHOLE:  # one frame costs those who go through them less than one a block
        columns.device, columns.counters, columns.beside = map(as_one, (columns.device, columns.counters, columns.beside))
    return columns


def _middle_ns(frames: Iterable[pd.DataFrame]) -> int | None:
    """The middle of the first of some frames that has one."""
    found = (times.middle_of(frame["start_ns"]) for frame in frames if len(frame))
    return next((middle_ns for middle_ns in found if middle_ns is not None), None)


def _sound(rows: pd.DataFrame, middle_ns: int | None) -> pd.DataFrame:
    """The rows whose start can be true; the others are counted with those of `beside`."""
    return rows if rows.empty else rows[times.possible(rows["start_ns"], middle_ns)]


def _windows(marks: pd.DataFrame, lost: Counter[str]) -> list[Window]:
    """The steps that the host marked, in order of start; of marks with one number the first counts."""
    if marks.empty:
        return []
    first = marks.sort_values("start_ns", kind="stable").drop_duplicates("step")
    lost["step mark with a number used before"] += len(marks) - len(first)
    return [
        Window(int(step), int(start_ns), int(start_ns + duration_ns))
        for step, start_ns, duration_ns in first[["step", "start_ns", "duration_ns"]].itertuples(index=False)
    ]


def _extent(spans: pd.DataFrame) -> Window | None:
    """From the first to the last moment of the spans, as one step 0."""
    if spans.empty:
        return None
    return Window(0, int(spans["start_ns"].min()), int((spans["start_ns"] + spans["duration_ns"]).max()))
