"""Tables of the database in which Ascend tools keep what they computed for a rank, as the frames that their text files also give.

Its columns are those of step_trace_time.csv (us), communication.json and communication_matrix.json (ms, MB of 10^6 bytes), stored
as numbers. Decimal text of a number is what was meant: 8843.91 us are 8 843 910 ns.
"""

from __future__ import annotations

from typing import Any

import pandas as pd

from perfkit.errors import InputError
from perfkit.trace import _ascend_steps
from perfkit.trace._ascend_communication import TOTAL, Link, Losses, Operation, link, operation, step_number
from perfkit.trace._sqlite import Database, cells
from perfkit.units import NS_PER_US, decimal_to_ns

SUMMARY, TIMES, SIZES, LINKS = "StepTraceTime", "CommAnalyzerTime", "CommAnalyzerBandwidth", "CommAnalyzerMatrix"
_SUMMARY_COLUMNS = {
    "Step": "step",
    "Computing": "computing",
    "Communication(Not Overlapped)": "communication_not_overlapped",
    "Overlapped": "overlapped",
    "Communication": "communication",
    "Free": "free",
    "Stage": "stage",
    "Bubble": "bubble",
}


def read_summary(database: Database) -> pd.DataFrame:
    """The step summary with the columns of `_ascend_steps.summary`, in ns."""
    rows = database.read(SUMMARY, cells(texts=("step",), values=(name for name in _SUMMARY_COLUMNS.values() if name != "step")))
    lacking = [name for name in ("computing", "communication_not_overlapped", "free") if rows[name].isna().all()]
    if lacking and len(rows):
        raise InputError(database.file.label, [f"table {SUMMARY} has no values of {', '.join(lacking)}"])
    named = {shown: rows[name] if name == "step" else _us(rows[name]) for shown, name in _SUMMARY_COLUMNS.items()}
    return _ascend_steps.summary(pd.DataFrame(named))


def read_operations(database: Database, rank: int) -> list[Operation]:
    """Operations of the analysis database with their waits and sizes."""
    losses = Losses()
    times = database.read(
        TIMES,
        cells(
            texts=("hccl_op_name", "group_name", "step"),
            values=("start_timestamp", "elapse_time", "transit_time", "wait_time"),
        ),
    )
    sizes = _sizes(database)
    found = []
    for row in times.to_dict("records"):
        name, group, step = row["hccl_op_name"], row["group_name"], row["step"] or ""
        if name is None or name == TOTAL:
            continue
        info = {
            "Communication Time Info": {
                "Start Timestamp(us)": row["start_timestamp"],
                "Elapse Time(ms)": row["elapse_time"],
                "Transit Time(ms)": row["transit_time"],
                "Wait Time(ms)": row["wait_time"],
            },
            "Communication Bandwidth Info": sizes.get((name, group, step)),
        }
        if (read := operation(rank, step_number(step), f"{name}@{group or ''}", info, losses)) is not None:
            found.append(read)
    database.lose(losses.counts)
    return found


def read_links(database: Database, rank: int) -> list[Link]:
    """Links of the analysis database with their numbers as recorded."""
    losses = Losses()
    columns = cells(
        texts=("hccl_op_name", "group_name", "src_rank", "dst_rank", "transport_type", "step"),
        values=("transit_size", "transit_time"),
    )
    found = []
    for row in database.read(LINKS, columns).to_dict("records"):
        info = {
            "Transport Type": row["transport_type"],
            "Transit Size(MB)": row["transit_size"],
            "Transit Time(ms)": row["transit_time"],
        }
        name = f"{row['hccl_op_name']}@{row['group_name']}" if row["group_name"] else str(row["hccl_op_name"])
        read = link(step_number(row["step"] or ""), name, f"{row['src_rank']}-{row['dst_rank']}", info, losses)
        if read is not None:
            found.append(Link(rank, *(getattr(read, key) for key in Link.__slots__ if key != "rank")))
    database.lose(losses.counts)
    return found


def _sizes(database: Database) -> dict[tuple[str, str | None, str], dict[str, Any]]:
    columns = cells(texts=("hccl_op_name", "group_name", "step", "transport_type"), values=("transit_size",))
    sizes: dict[tuple[str, str | None, str], dict[str, Any]] = {}
    for row in database.read(SIZES, columns).to_dict("records"):
        blocks = sizes.setdefault((row["hccl_op_name"], row["group_name"], row["step"] or ""), {})
        blocks[str(row["transport_type"])] = {"Transit Size(MB)": row["transit_size"]}
    return sizes


def _us(values: pd.Series) -> pd.Series:
    return pd.Series(pd.array([_exact_ns(value) for value in values], dtype="Int64"), index=values.index)


def _exact_ns(value: Any) -> int | None:
    try:
        ns = decimal_to_ns(str(value), NS_PER_US)
    except (ValueError, ArithmeticError):
        return None
    return ns if abs(ns) < 2**63 else None
