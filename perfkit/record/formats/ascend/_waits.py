"""Waits: when an operation of HCCL did nothing but wait for one of its peers, from the tasks that it is made of.

HCCL makes an operation of tasks on planes: on each it waits for a notify of one peer, and copies or reduces. Its profiler sums up
the waiting of one plane (`Wait Time(ms)` of communication.json) and calls the time of the others idle: 85 of 89 ms of an operation
whose rank 0 waited for rank 6 on another plane. While several peers are waited for, it is the one that comes last.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pandas as pd

from perfkit.record.format import Sink
from perfkit.record.formats.ascend._db import TASKS, label_of, read_texts
from perfkit.record.listing import File
from perfkit.record.overlap import union
from perfkit.record.readers import host_tables
from perfkit.record.readers.sqlite import cells, open_database

TABLE = "waits"
_PARTS = "COMMUNICATION_TASK_INFO"
NOTIFY_WAIT = "Notify_Wait"
_NOTIFY = "Notify_"
_NO_MEMBER = 2**32 - 1
"""What stands for no member of a group."""
COLUMNS = ("start_ns", "duration_ns", "position", "peer")


def only_waiting(tasks: pd.DataFrame) -> pd.DataFrame:
    """The table `waits` of one rank, without `rank`, from tasks with `kind`, `start_ns`, `duration_ns`, `position`, `peer`."""
    known = tasks[tasks["start_ns"].notna() & (tasks["duration_ns"] > 0).fillna(False)]
    kinds = known["kind"].astype(str)
    waits = known[(kinds == NOTIFY_WAIT).to_numpy(dtype=bool)].sort_values(["start_ns", "duration_ns"], kind="stable")
    begin = waits["start_ns"].to_numpy(dtype=np.int64)
    end = begin + waits["duration_ns"].to_numpy(dtype=np.int64)
    before = np.maximum.accumulate(np.concatenate([[np.iinfo(np.int64).min], end]))[:-1]
    last = np.flatnonzero(end > before)  # of those that are waited for at a time, the one that comes last
    begin, end, waits = begin[last], end[last], waits.iloc[last]
    end = np.minimum(end, np.append(begin[1:], np.iinfo(np.int64).max))
    moving = known[~kinds.str.startswith(_NOTIFY).to_numpy(dtype=bool)]
    moves = moving["start_ns"].to_numpy(dtype=np.int64)
    moved = union(moves, moves + moving["duration_ns"].to_numpy(dtype=np.int64))
    gaps_from = np.concatenate([[np.iinfo(np.int64).min], moved.ends])
    gaps_to = np.concatenate([moved.starts, [np.iinfo(np.int64).max]])
    first, after = np.searchsorted(gaps_to, begin, side="right"), np.searchsorted(gaps_from, end, side="left")
    count = np.maximum(after - first, 0)
    piece = np.repeat(np.arange(len(begin)), count)
    gap = first[piece] + np.arange(len(piece)) - np.repeat(np.cumsum(count) - count, count)
    starts, ends = np.maximum(begin[piece], gaps_from[gap]), np.minimum(end[piece], gaps_to[gap])
    keep = ends > starts
    own = waits.iloc[piece[keep]]
    position, peer = (_member(own[name]) for name in COLUMNS[2:])
    return pd.DataFrame(
        {
            "start_ns": starts[keep],
            "duration_ns": (ends - starts)[keep],
            "position": position.to_numpy(),
            "peer": peer.mask((peer == position).fillna(False)).to_numpy(),  # nobody waits for himself
        }
    )


def _member(positions: pd.Series) -> pd.Series:
    numbers = positions.astype("Int64")
    return numbers.where(((numbers >= 0) & (numbers < _NO_MEMBER)).fillna(False))


def offer(sink: Sink, files: Mapping[int, tuple[File, int | None]]) -> None:
    """Offer the table for the databases that have it; of one with several devices that of the device that is given."""
    found = {rank: (file, device) for rank, (file, device) in files.items() if _has_parts(file)}
    host_tables.offer(sink, found, lambda rank: ([read_database(*found[rank])],), [TABLE])


def read_database(file: File, device: int | None = None) -> pd.DataFrame:
    """The table `waits` of one rank, without `rank`, from the tasks of a database of events."""
    with open_database(file) as database:
        texts = read_texts(database)
        parts = database.read(_PARTS, cells(ints=("globalTaskId", "taskType", "srcRank", "dstRank"))).dropna(
            subset=["globalTaskId"]
        )
        tasks = database.read(TASKS, cells(ints=("globalTaskId", "startNs", "endNs", "deviceId"))).dropna(subset=["globalTaskId"])
    rows = parts.merge(tasks.drop_duplicates("globalTaskId"), on="globalTaskId")
    if device is not None:
        rows = rows[(rows["deviceId"] == device).fillna(False).to_numpy(dtype=bool)]
    return only_waiting(
        pd.DataFrame(
            {
                "kind": label_of(rows["taskType"], texts),
                "start_ns": rows["startNs"],
                "duration_ns": rows["endNs"] - rows["startNs"],
                "position": rows["srcRank"],
                "peer": rows["dstRank"],
            }
        )
    )


def _has_parts(file: File) -> bool:
    with open_database(file) as database:
        return database.has(_PARTS)
