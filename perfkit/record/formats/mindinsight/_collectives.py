"""MindSpore Insight communication: when every operation ran, how long its data moved, how long it waited, and over which links.

The step trace has a triple of columns an operation, `<name>`, `<name>_start_point` and `<name>_end_point`, in 10-ns ticks.
`hccl_raw_<rank>.csv` has a row a step with, as JSON, `{name: [step, cost ms, wait ms, {"src-dst": {transport: [ms, KB, KB/s]}}]}`;
cost is the time in which data moved. Its step totals add up bandwidths, so rates must be computed from size and time here.
KB = 1000 bytes: sizes are then whole numbers of elements. The last row is a mean. The ends of a link are positions inside the
group of the operation: rank 2 of a job with two stages of two ranks writes "1-0" for rank 3 to rank 2.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import numpy as np
import pandas as pd

from perfkit.core.errors import InputError
from perfkit.core.units import NS_PER_MS
from perfkit.record import store
from perfkit.record.format import Sink
from perfkit.record.formats.mindinsight._files import Layout, RankFiles
from perfkit.record.formats.mindinsight._steps import TICK_NS, StepTrace, is_mean
from perfkit.record.listing import File
from perfkit.record.readers.kinds import operation_of

BYTES_PER_KB = 1000

_START, _END = "_start_point", "_end_point"
_LINK = re.compile(r"^(\d{1,9})-(\d{1,9})$")
_KEYS = ["step", "name"]
_JSON = ("link_info", "communication_operator_cost")


@dataclass(frozen=True, slots=True)
class _Operation:
    """An operation of hccl_raw; its links are (source, target, transport, bytes, ns), the ends numbered inside its group."""

    step: int
    name: str
    transit_ns: int | None
    wait_ns: int | None
    links: tuple[tuple[int, int, str, int, int], ...]


def add_collectives(group: RankFiles, trace: StepTrace | None, layout: Layout | None, sink: Sink) -> int:
    """Add the operations of one rank to `collectives` and their links to `links`; returns the number of operations.

    An operation in both files has its start and duration from the step trace; one in hccl_raw only lasts cost + wait.
    """
    hccl = group.get("hccl")
    timed = _timed_operations(trace, sink) if trace is not None else _no_rows(*_KEYS, "start_ns", "duration_ns")
    costs = _no_rows(*_KEYS, "transit_ns", "wait_ns")
    if hccl is not None:
        operations = _read_costs(hccl, sink)
        _add_links(operations, hccl, group.rank, layout, sink)
        _note_steps_without_times(trace, operations, hccl, sink)
        costs = pd.DataFrame(
            {
                "step": pd.array([operation.step for operation in operations], dtype="Int64"),
                "name": pd.Series([operation.name for operation in operations], dtype="object"),
                "transit_ns": pd.array([operation.transit_ns for operation in operations], dtype="Int64"),
                "wait_ns": pd.array([operation.wait_ns for operation in operations], dtype="Int64"),
            }
        ).drop_duplicates(_KEYS, keep="last")
    rows = timed.merge(costs[costs["transit_ns"].notna()], on=_KEYS, how="outer")
    if rows.empty:
        return 0
    rows["duration_ns"] = rows["duration_ns"].fillna(rows["transit_ns"] + rows["wait_ns"])
    return sink.add(
        "collectives",
        source=hccl or (trace.file if trace else None),
        rank=group.rank,
        operation=[operation_of(name) for name in rows["name"]],
        **{name: rows[name] for name in (*_KEYS, "start_ns", "duration_ns", "transit_ns", "wait_ns")},
    )


def _timed_operations(trace: StepTrace, sink: Sink) -> pd.DataFrame:
    columns = set(trace.other_columns)
    names = [name.removesuffix(_START) for name in trace.other_columns if name.endswith(_START)]
    names = [name for name in names if f"{name}{_END}" in columns and operation_of(name) != "other"]
    if not names:
        return _no_rows(*_KEYS, "start_ns", "duration_ns")
    cells = {f"{name}{end}": "int" for name in names for end in (_START, _END)}
    csv = store.read_csv(trace.file, {"step_num": "int", **cells})  # type: ignore[dict-item]
    for name in cells.keys() & csv.unparsed.keys():
        sink.drop(f"{name}: not a number", csv.unparsed[name], trace.file)
    rows = csv.frame[csv.frame["step_num"].isin(trace.rows["step"]) & ~is_mean(csv.frame)].fillna(0)
    starts, ends = (rows[[f"{name}{end}" for name in names]].to_numpy(dtype=np.int64) for end in (_START, _END))
    sink.drop("communication operation that ends before it starts", int((ends < starts).sum()), trace.file)
    step, operation = np.nonzero((starts > 0) & (ends >= starts))
    return pd.DataFrame(
        {
            "step": pd.array(rows["step_num"].to_numpy(dtype=np.int64)[step], dtype="Int64"),
            "name": np.array(names, dtype=object)[operation],
            "start_ns": pd.array(starts[step, operation] * TICK_NS, dtype="Int64"),
            "duration_ns": pd.array((ends - starts)[step, operation] * TICK_NS, dtype="Int64"),
        }
    )


def _read_costs(file: File, sink: Sink) -> list[_Operation]:
    """The operations of every step of hccl_raw; of a step without operations its total, without times of its own."""
    columns: dict[str, store.Cell] = {"step_num": "int", "communication_cost": "ms"}
    try:
        csv = store.read_csv(file, {**columns, **dict.fromkeys(_JSON, "text")}, required=("step_num",))
    except InputError as error:
        sink.drop(error.problems[0], 1, file)
        return []
    for what, count in csv.losses().items():
        sink.drop(what, count, file)
    found: list[_Operation] = []
    for row in csv.frame[~is_mean(csv.frame)].to_dict("records"):
        step, total, costs = int(row["step_num"]), _parsed(row[_JSON[0]]), _parsed(row[_JSON[1]])
        operations = [_operation(step, name, values) for name, values in (costs or {}).items()]
        if not operations and total:
            operations = [_operation(step, "total", (step, None, None, total))]
        whole = [operation for operation in operations if operation is not None]
        broken = len(operations) - len(whole) + (costs is None and isinstance(row[_JSON[1]], str))
        sink.drop("communication operation of hccl_raw that cannot be read", broken, file)
        _check_sum(step, row["communication_cost"], whole, file, sink)
        found += whole
    return found


def _operation(step: int, name: str, values: Any) -> _Operation | None:
    try:
        _, cost, wait, links = values
        transit_ns, wait_ns = (None if time is None else _whole(time, NS_PER_MS) for time in (cost, wait))
        return _Operation(step, name, transit_ns, wait_ns, tuple(_links(links)))
    except (TypeError, ValueError, ArithmeticError, LookupError):
        return None


def _links(content: Any) -> Iterator[tuple[int, int, str, int, int]]:
    """Source, target, transport, bytes and ns of every link of an operation."""
    for pair, transports in content.items() if isinstance(content, dict) else ():
        ends = _LINK.match(pair)
        if ends is None or not isinstance(transports, dict):
            continue
        for transport, values in transports.items():
            yield int(ends[1]), int(ends[2]), str(transport), _whole(values[1], BYTES_PER_KB), _whole(values[0], NS_PER_MS)


def _add_links(operations: list[_Operation], file: File, rank: int, layout: Layout | None, sink: Sink) -> None:
    rows, unresolved = [], 0
    for operation in operations:
        for source, target, transport, size, transit_ns in operation.links:
            ends = _ranks_of(operation.name, source, target, rank, layout)
            unresolved += ends is None
            rows.append((operation.step, operation.name, *(ends or (source, target)), transport, size, transit_ns))
    if not rows:
        return
    if unresolved:
        sink.note(
            f"{file.label}: the ends of {unresolved} links are positions inside a group that the files do not describe; they are "
            "ranks only if the group is the whole job"
        )
    names = ("step", "operation", "source_rank", "target_rank", "transport", "bytes", "transit_ns")
    sink.add("links", source=file, rank=rank, **dict(zip(names, map(list, zip(*rows, strict=True)), strict=True)))


def _ranks_of(name: str, source: int, target: int, rank: int, layout: Layout | None) -> tuple[int, int] | None:
    """The ranks at the ends of a link, None where the group cannot be known.

    Two ranks a stage leave one group for a collective, two stages one peer for a send or receive; the rank itself is the target.
    """
    if layout is None:
        return None
    per_stage = layout.ranks_per_stage
    if operation_of(name) in ("send", "receive"):
        return (rank + (per_stage if rank < per_stage else -per_stage), rank) if layout.num_stages == 2 else None
    first = layout.stage(rank) * per_stage
    return (first + source, first + target) if per_stage == 2 and max(source, target) < 2 else None


def _check_sum(step: int, step_cost_ns: Any, operations: list[_Operation], file: File, sink: Sink) -> None:
    total_ns = sum(operation.transit_ns or 0 for operation in operations)
    if operations and not pd.isna(step_cost_ns) and abs(total_ns - int(step_cost_ns)) > len(operations) + int(step_cost_ns) // 1000:
        sink.note(f"{file.label}: the operations of step {step} cost {total_ns} ns, its communication_cost says {step_cost_ns} ns")


def _note_steps_without_times(trace: StepTrace | None, operations: list[_Operation], file: File, sink: Sink) -> None:
    extra = sorted({operation.step for operation in operations} - set(trace.rows["step"])) if trace is not None else []
    if extra:
        sink.note(f"{file.label} has operations of step(s) {', '.join(map(str, extra))}, of which the step trace has no times")


def _parsed(text: Any) -> dict[str, Any] | None:
    if not isinstance(text, str):
        return None
    try:
        content = json.loads(text, parse_float=Decimal)
    except (ValueError, RecursionError):
        return None
    return content if isinstance(content, dict) else None


def _whole(value: Any, scale: int) -> int:
    """`value` times `scale` as a whole number; raises ValueError for what fits no int64."""
    whole = int((Decimal(value) * scale).to_integral_value())
    if abs(whole) >= 2**63:
        raise ValueError(f"{value} is too large")
    return whole


def _no_rows(*names: str) -> pd.DataFrame:
    return pd.DataFrame({name: pd.Series(dtype="object" if name == "name" else "Int64") for name in names})
