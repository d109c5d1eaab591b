"""Process groups of a Kineto trace: from `pg_config` of its head, and from the metadata of its collectives.

PyTorch cuts long lists of ranks ("[0, 1, ..., 63]"); the first rank and the stride beside them tell the rest.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pandas as pd

from perfkit.core.placement import members_text
from perfkit.record.format import Sink
from perfkit.record.formats.ascend.communication import is_rank
from perfkit.record.formats.kineto._columns import text
from perfkit.record.formats.kineto._events import Recording

_LIST = re.compile(r"\s*\[\s*(\d{1,7}(?:\s*,\s*\d{1,7})*)\s*\]\s*")


def add_groups(sink: Sink, rank: int, recording: Recording) -> None:
    """Add the groups that the trace of a rank states, with members where it lists them."""
    found = dict.fromkeys([*_configured(recording.head.get("distributedInfo")), *_used(recording.collectives)])
    named = {(group, members) for group, label, members in found if label is not None}
    rows = [row for row in found if row[1] is not None or (row[0], row[2]) not in named]
    if rows:
        sink.add(
            "groups",
            source=recording.file,
            rank=rank,
            group=[group for group, _, _ in rows],
            label=[label for _, label, _ in rows],
            members=[members_text(members) for _, _, members in rows],
        )


def _configured(info: Any) -> Iterator[tuple[str | None, str | None, tuple[int, ...]]]:
    configured = info.get("pg_config") if isinstance(info, dict) else None
    for group in configured if isinstance(configured, list) else ():
        members = group.get("ranks") if isinstance(group, dict) else None
        if isinstance(members, list) and members and all(map(is_rank, members)):
            yield text(group.get("pg_name")), text(group.get("pg_desc")), tuple(members)


def _used(collectives: pd.DataFrame) -> Iterator[tuple[str | None, str | None, tuple[int, ...]]]:
    if collectives.empty:
        return
    columns = ["group", "label", "members", "first_rank", "stride", "group_size"]
    for row in collectives[columns].drop_duplicates().to_dict("records"):
        members = _members(row)
        if members:
            yield _known(row["group"]), _known(row["label"]), members


def _members(row: dict[Any, Any]) -> tuple[int, ...]:
    stated = _known(row["members"])
    if stated is not None and (listed := _LIST.fullmatch(stated)) is not None:
        ranks = tuple(int(rank) for rank in listed[1].split(","))
    elif stated is not None and "..." in stated and row["stride"] > 0 and 0 < row["group_size"] < 2**20:
        ranks = tuple(row["first_rank"] + row["stride"] * index for index in range(row["group_size"]))
    else:
        return ()
    return ranks if all(map(is_rank, ranks)) and len(set(ranks)) == len(ranks) else ()


def _known(value: Any) -> str | None:
    return None if pd.isna(value) else str(value)
