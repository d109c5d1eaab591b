"""Counted kernels of a Kineto trace: what CUPTI counted in each, and which operator of the host launched it.

In this mode of the profiler kernels run one after the other, each as often as its counters need, so a range has no true time and no
correlation: the k-th range is that of the k-th call that launches a kernel, as Holistic Trace Analysis pairs them
(hta/analyzers/cupti_counter_analysis.py). Where their numbers differ no operator is named.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import msgspec
import numpy as np
import pandas as pd

from perfkit.record.formats.kineto._columns import COUNTED_CATEGORY, LAUNCH_CATEGORIES, absolute, base_ns_of
from perfkit.record.formats.kineto._in_parts import HEAD_KEYS
from perfkit.record.listing import File
from perfkit.record.placing import Marks
from perfkit.record.readers.chrome_events import Span, event_of
from perfkit.record.readers.host import NONE, innermost, parents_of
from perfkit.record.readers.lexer import EventReader
from perfkit.record.steps import Window
from perfkit.record.store import times_ns

TABLE = "kernel_counters"
_EVENT: Any = event_of(Span[dict[str, Any]])
_LAUNCH = re.compile(r"LaunchKernel|LaunchCooperativeKernel")
_OPERATORS = ("cpu_op", "Operator")
_MOST = 2.0**1023
"""Greater ones are no counts: nan and inf are not below it, and JSON's integers have no end."""
_KEY = ["step", "name", "operator", "outer_operator", "counter"]


def read_counted(file: File, steps: Sequence[Window]) -> pd.DataFrame:
    """The table `kernel_counters` of one trace file, without `rank`; a trace without steps is step 0."""
    reader: EventReader[Any] = EventReader(file, _EVENT, keys=HEAD_KEYS)
    counted: list[tuple[str, Any, dict[str, Any]]] = []
    launches: list[tuple[str, Any]] = []
    operators: list[tuple[str, str, Any, Any]] = []
    for events in reader:
        for span in (event for event in events if type(event) is Span):
            if span.cat == COUNTED_CATEGORY:
                counted.append((span.name or "", span.ts, span.args if isinstance(span.args, dict) else {}))
            elif span.cat in LAUNCH_CATEGORIES and _LAUNCH.search(span.name or ""):
                launches.append((f"{span.pid}/{span.tid}", span.ts))
            elif span.cat in _OPERATORS:
                operators.append((span.name or "", f"{span.pid}/{span.tid}", span.ts, span.dur))
    base_ns = base_ns_of(reader.head)
    ranges = _timed({"name": [name for name, _, _ in counted], "values": [values for _, _, values in counted]},
                    [time for _, time, _ in counted], base_ns)  # fmt: skip
    calls = _timed({"thread": [thread for thread, _ in launches]}, [time for _, time in launches], base_ns)
    told = _with_operators(ranges, calls, _spans(operators, base_ns), Marks(steps))
    return _summed(told)


def _timed(columns: dict[str, list[Any]], times: list[msgspec.Raw], base_ns: int) -> pd.DataFrame:
    """Rows in order of time, those without one left out."""
    rows = pd.DataFrame({name: pd.Series(values, dtype="object") for name, values in columns.items()})
    rows = absolute(rows.assign(start_ns=times_ns(times, "us")), base_ns)
    return rows.dropna(subset=["start_ns"]).sort_values("start_ns", kind="stable", ignore_index=True)


def _spans(operators: list[tuple[str, str, Any, Any]], base_ns: int) -> pd.DataFrame:
    columns = {"name": [each[0] for each in operators], "thread": [each[1] for each in operators]}
    lengths = times_ns([each[3] for each in operators], "us").fillna(0)
    return _timed({**columns, "length": lengths.tolist()}, [each[2] for each in operators], base_ns)


def _with_operators(ranges: pd.DataFrame, calls: pd.DataFrame, operators: pd.DataFrame, marks: Marks) -> pd.DataFrame:
    """The ranges with `step`, `operator` and `outer_operator`, null where no call is theirs."""
    if len(ranges) != len(calls) or ranges.empty:
        places = marks.places(ranges["start_ns"].to_numpy(dtype=np.int64))
        return ranges.assign(step=marks.steps(places), operator=None, outer_operator=None)
    moments = calls["start_ns"].to_numpy(dtype=np.int64)
    threads = pd.factorize(pd.concat([operators["thread"], calls["thread"]], ignore_index=True))[0].astype(np.int64)
    starts = operators["start_ns"].to_numpy(dtype=np.int64)
    ends = starts + operators["length"].to_numpy(dtype=np.int64)
    inner = innermost(starts, ends, threads[: len(operators)], moments, threads[len(operators) :])
    parents = parents_of(starts, ends, threads[: len(operators)])
    outer = inner.copy()
    while (rising := (outer != NONE) & (parents[outer] != NONE)).any():
        outer[rising] = parents[outer[rising]]
    names = np.array([*operators["name"], None], dtype=object)
    return ranges.assign(step=marks.steps(marks.places(moments)), operator=names[inner], outer_operator=names[outer])


def _summed(ranges: pd.DataFrame) -> pd.DataFrame:
    """One row a step, kernel, operator and counter."""
    rows = [
        (*(getattr(row, column) for column in _KEY[:-1]), counter, float(value))
        for row in ranges.itertuples()
        for counter, value in row.values.items()  # type: ignore[union-attr]
        if type(value) in (int, float) and abs(value) < _MOST
    ]
    table = pd.DataFrame(rows, columns=[*_KEY, "value"]).astype({"value": "float64"})
    found = table.groupby(_KEY, dropna=False, sort=False)["value"].agg(["size", "sum", "min", "max"])
    return found.set_axis(["count", "total", "least", "most"], axis=1).reset_index()
