"""Tables of the database in which Ascend tools keep what they computed for a rank, as the frames that their text files also give.

Its columns are those of step_trace_time.csv (us), communication.json and communication_matrix.json (ms, MB of 10^6 bytes), stored
as numbers. Decimal text of a number is what was meant: 8843.91 us are 8 843 910 ns.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import pandas as pd

from perfkit.core.errors import InputError
from perfkit.core.units import NS_PER_US, decimal_to_ns
from perfkit.record.formats.ascend.communication import TOTAL, Link, Losses, Operation, is_rank, link, operation, step_number
from perfkit.record.readers.sqlite import Database, cells


@dataclass(frozen=True, slots=True)
class Schema:
    """What the tables of communication and two of their columns are called."""

    times: str
    sizes: str
    links: str
    elapse: str = "elapsed_time"
    transport: str = "band_type"


SUMMARY = "StepTraceTime"
OF_RANK = Schema("CommAnalyzerTime", "CommAnalyzerBandwidth", "CommAnalyzerMatrix", "elapse_time", "transport_type")
_TIME_COLUMNS = {
    "Computing": "computing",
    "Communication(Not Overlapped)": "communication_not_overlapped",
    "Overlapped": "overlapped",
    "Communication": "communication",
    "Free": "free",
    "Stage": "stage",
    "Bubble": "bubble",
}


def read_steps(database: Database, table: str, *, more: Mapping[str, str] = MappingProxyType({})) -> pd.DataFrame:
    """A step summary with the column names of its text file, in ns; `more` names columns of texts that it has beyond those."""
    texts = {"Step": "step", **more}
    rows = database.read(table, cells(texts=texts.values(), values=_TIME_COLUMNS.values()))
    lacking = [name for name in ("computing", "communication_not_overlapped", "free") if rows[name].isna().all()]
    if lacking and len(rows):
        raise InputError(database.file.label, [f"table {table} has no values of {', '.join(lacking)}"])
    named = {shown: rows[name] for shown, name in texts.items()}
    return pd.DataFrame({**named, **{shown: _us(rows[name]) for shown, name in _TIME_COLUMNS.items()}})


def read_operations(database: Database, schema: Schema, rank: int | None = None) -> list[tuple[str, Operation]]:
    """Operations with their waits and sizes, each with the text of its ranks where the table has one.

    `rank` is that of a rank's own file, which has no column for it.
    """
    losses = Losses()
    times = database.read(
        schema.times,
        cells(
            texts=("hccl_op_name", "group_name", "step", "rank_set"),
            ints=("rank_id",),
            values=("start_timestamp", schema.elapse, "transit_time", "wait_time"),
        ),
    )
    sizes = _sizes(database, schema)
    found = []
    for row in times.to_dict("records"):
        name, group, step, of_rank = row["hccl_op_name"], row["group_name"], row["step"] or "", rank
        if name is None or name == TOTAL:
            continue
        if of_rank is None:
            of_rank = None if pd.isna(row["rank_id"]) else int(row["rank_id"])
        if not is_rank(of_rank):
            losses.add("operation of something that is no rank")
            continue
        info = {
            "Communication Time Info": {
                "Start Timestamp(us)": row["start_timestamp"],
                "Elapse Time(ms)": row[schema.elapse],
                "Transit Time(ms)": row["transit_time"],
                "Wait Time(ms)": row["wait_time"],
            },
            "Communication Bandwidth Info": sizes.get((of_rank if rank is None else None, name, group, step)),
        }
        if (read := operation(of_rank, step_number(step), f"{name}@{group or ''}", info, losses)) is not None:
            found.append((row["rank_set"] or "", read))
    database.lose(losses.counts)
    return found


def read_links(database: Database, schema: Schema, rank: int | None = None) -> list[Link]:
    """Links with their numbers as recorded; each belongs to its source unless it is of a `rank`'s own file."""
    losses = Losses()
    columns = cells(
        texts=("hccl_op_name", "group_name", "src_rank", "dst_rank", "transport_type", "step"),
        values=("transit_size", "transit_time"),
    )
    found = []
    for row in database.read(schema.links, columns).to_dict("records"):
        info = {
            "Transport Type": row["transport_type"],
            "Transit Size(MB)": row["transit_size"],
            "Transit Time(ms)": row["transit_time"],
        }
        name = f"{row['hccl_op_name']}@{row['group_name']}" if row["group_name"] else str(row["hccl_op_name"])
        read = link(step_number(row["step"] or ""), name, f"{row['src_rank']}-{row['dst_rank']}", info, losses, rank=rank)
        if read is not None:
            found.append(read)
    database.lose(losses.counts)
    return found


def _sizes(database: Database, schema: Schema) -> dict[tuple[int | None, str, str | None, str], dict[str, Any]]:
    columns = cells(
        texts=("hccl_op_name", "group_name", "step", schema.transport),
        ints=("rank_id",),
        values=("transit_size",),
    )
    sizes: dict[tuple[int | None, str, str | None, str], dict[str, Any]] = {}
    for row in database.read(schema.sizes, columns).to_dict("records"):
        rank = None if pd.isna(row["rank_id"]) else int(row["rank_id"])
        blocks = sizes.setdefault((rank, row["hccl_op_name"], row["group_name"], row["step"] or ""), {})
        blocks[str(row[schema.transport])] = {"Transit Size(MB)": row["transit_size"]}
    return sizes


def _us(values: pd.Series) -> pd.Series:
    return pd.Series(pd.array([_exact_ns(value) for value in values], dtype="Int64"), index=values.index)


def _exact_ns(value: Any) -> int | None:
    try:
        ns = decimal_to_ns(str(value), NS_PER_US)
    except (ValueError, ArithmeticError):
        return None
    return ns if abs(ns) < 2**63 else None
