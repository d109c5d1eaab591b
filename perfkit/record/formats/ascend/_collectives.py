"""Collectives of rank folders: their communication files, and their communication kernels joined with them.

communication.json: {step: {"p2p" or "collective": {operation: blocks}}}; communication_matrix.json: the same with links in place
of the blocks. The kernel row has the exact start and duration, the JSON the transit, the wait and the size: they are joined by
step and name, in order of their starts where a name repeats.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from itertools import chain
from typing import Annotated, Any

import msgspec
import numpy as np
import pandas as pd

from perfkit.record.format import Sink
from perfkit.record.formats.ascend._layout import Groups
from perfkit.record.formats.ascend.communication import (
    TOTAL,
    Link,
    Losses,
    Operation,
    ends_of,
    entries,
    group_of,
    link,
    operation,
    step_number,
)
from perfkit.record.formats.ascend.json import read_json
from perfkit.record.listing import File
from perfkit.record.readers.kinds import operation_of

TIMED = ("kind", "step", "name", "start_ns", "duration_ns")
"""What is needed of kernels."""
Use = tuple[str, str | None]
"""The name of an operation and its group; without the numbers at the end of the name if the group is known."""
_NUMBERS = "0123456789_"
_KEY = ["rank", "step", "name", "occurrence"]
_AS_TOLD = {"start_ns": "start_ns_told", "duration_ns": "duration_ns_told"}


class _Blocks(msgspec.Struct, gc=False):
    """What is told of an operation, unread."""


_Plain = Annotated[float, msgspec.Meta(ge=0, le=1e9)]


class _Sent(msgspec.Struct, gc=False):
    """What is told of a link, if its numbers are such that none is lost."""

    size: _Plain | None = msgspec.field(name="Transit Size(MB)", default=None)
    time: _Plain | None = msgspec.field(name="Transit Time(ms)", default=None)


_OPERATIONS = msgspec.json.Decoder(dict[str, dict[str, dict[str, _Blocks]]])
_LINKS = msgspec.json.Decoder(dict[str, dict[str, dict[str, dict[str, _Sent]]]])


def read_operations(file: File, rank: int, sink: Sink) -> list[Operation]:
    """The operations of communication.json; what of it cannot be read is counted."""
    content, losses = _open(file, sink), Losses()
    found = [
        read
        for step, kinds in entries(content, losses)
        for _, operations in entries(kinds, losses)
        for key, info in entries(operations, losses)
        if key != TOTAL and (read := operation(rank, step_number(step), key, info, losses)) is not None
    ]
    _report(losses, file, sink)
    return found


def read_use(file: File) -> set[Use] | None:
    """Which operations communication.json has, without their times, which takes a tenth; None if it must be read with care."""
    try:
        content = _OPERATIONS.decode(file.path.read_bytes())
    except (OSError, ValueError, RecursionError):
        return None
    found = {key.partition("@") for kinds in content.values() for keys in kinds.values() for key in keys if key != TOTAL}
    return {use_named(name, group or None) for name, _, group in found}


def use_named(name: str, group: str | None) -> Use:
    """What an operation of that name uses its group for."""
    return name.rstrip(_NUMBERS) if group else name, group


def use_of(operations: Sequence[Operation]) -> set[Use]:
    """What `read_use` finds, of operations that were read."""
    return {use_named(item.name, item.group) for item in operations}


def use_rows(uses: Mapping[int, Collection[Use]], groups: Groups) -> pd.DataFrame:
    """The different `rank`, `group`, `group_size` and `operation` of the rows that `as_table` makes of the same operations."""
    tails = _tails(groups)
    rows = [
        (rank, *pair)
        for rank, use in uses.items()
        for pair in dict.fromkeys((group or _group_of_tail(name, tails), operation_of(name)) for name, group in use)
    ]
    used = pd.Series([group for _, group, _ in rows], dtype="object")
    return pd.DataFrame(
        {
            "rank": np.array([rank for rank, _, _ in rows], dtype=np.int64),
            "group": used,
            "group_size": used.map(_sizes(used, groups)).astype("Int64"),
            "operation": pd.Series([operation for _, _, operation in rows], dtype="object"),
        }
    )


def _sizes(used: pd.Series, groups: Groups) -> dict[Any, int]:
    return {name: len(members) for name in used.dropna().unique() if (members := groups.members(name)) is not None}


def read_links(file: File, rank: int, sink: Sink) -> list[Link]:
    """The links of communication_matrix.json with their numbers as recorded; what of it cannot be read is counted."""
    content, losses = _open(file, sink), Losses()
    found = [
        read
        for step, kinds in entries(content, losses)
        for _, operations in entries(kinds, losses)
        for name, links in entries(operations, losses)
        for key, info in entries(links, losses)
        if (read := link(step_number(step), name, key, info, losses, rank=rank)) is not None
    ]
    _report(losses, file, sink)
    return found


def read_linked(file: File) -> set[str | None] | None:
    """The groups of the links that `read_links` finds, in a quarter of its time; None if it would count something as lost."""
    try:
        content = _LINKS.decode(file.path.read_bytes())
    except (OSError, ValueError, RecursionError):
        return None
    linked = [(name, links) for kinds in content.values() for names in kinds.values() for name, links in names.items() if links]
    ends = set(chain.from_iterable(links for _, links in linked))
    return {group_of(name) for name, _ in linked} if all(map(ends_of, ends)) else None


def _open(file: File, sink: Sink) -> object:
    content, dropped_bytes = read_json(file, depth=3)
    sink.drop("bytes after the break of a cut file", dropped_bytes, file)
    return content


def _report(losses: Losses, file: File, sink: Sink) -> None:
    for what, count in losses.counts.items():
        sink.drop(what, count, file)


def matched(told: pd.DataFrame, executed: Sequence[tuple[int, pd.DataFrame]]) -> pd.DataFrame:
    """What is told of each operation beside its kernel; null where there is only one of them."""
    timed = pd.concat([_timed(rank, kernels) for rank, kernels in executed] or [_timed(0, None)])
    if not len(timed):  # to match many operations with nothing takes a third as long as to read them
        nothing = pd.Series(pd.NA, index=told.index, dtype="Int64")
        return told.rename(columns=_AS_TOLD).assign(start_ns=nothing, duration_ns=nothing)
    _number_steps(told, timed)
    return _numbered(timed).merge(_numbered(told), on=_KEY, how="outer", suffixes=("", "_told"))


def unmatched(both: pd.DataFrame) -> tuple[int, int]:
    """How many operations have no kernel, and how many kernels are not told of, of ranks that have some of both."""
    is_kernel, is_told = both["start_ns"].notna(), both["start_ns_told"].notna()
    ranks = set(both.loc[is_kernel, "rank"]) & set(both.loc[is_told, "rank"])
    known = both["rank"].isin(ranks)
    return int((known & ~is_kernel).sum()), int((known & ~is_told).sum())


def as_table(both: pd.DataFrame, groups: Groups) -> pd.DataFrame:
    """Operations beside their kernels as the table `collectives`."""
    tails = _tails(groups)
    names = pd.Categorical(both["name"])
    operations = np.array([operation_of(name.rstrip(_NUMBERS)) for name in names.categories], dtype="object")
    unnamed = both["group"].isna()
    by_tail = {name: _group_of_tail(name, tails) for name in both.loc[unnamed, "name"].unique()}
    group = both["group"].where(~unnamed, both["name"].map(by_tail))
    rows = pd.DataFrame(
        {
            "rank": both["rank"],
            "step": both["step"],
            "name": names,
            "operation": operations[names.codes],
            "group": group,
            "group_size": group.map(_sizes(group, groups)).astype("Int64"),
            "start_ns": both["start_ns"].fillna(both["start_ns_told"]),
            "duration_ns": both["duration_ns"].fillna(both["duration_ns_told"]),
            "transit_ns": both["transit_ns"],
            "wait_ns": both["wait_ns"],
            "bytes": both["bytes"],
        }
    )
    return rows.sort_values(["rank", "step", "start_ns", "name"], ignore_index=True)


def told_of(recorded: Sequence[tuple[int, Sequence[Operation]]]) -> pd.DataFrame:
    """The operations of each rank as columns."""
    items = [item for _, operations in recorded for item in operations]
    ranks = [rank for rank, _ in recorded]
    return pd.DataFrame(
        {
            "rank": np.repeat(np.array(ranks, dtype=np.int64), [len(operations) for _, operations in recorded]),
            "step": pd.array([item.step for item in items], dtype="Int64"),
            "name": pd.Series([item.name for item in items], dtype="object"),
            "group": pd.Series([item.group for item in items], dtype="object"),
            "start_ns": pd.array([item.start_ns for item in items], dtype="Int64"),
            "duration_ns": pd.array([item.duration_ns for item in items], dtype="Int64"),
            "transit_ns": pd.array([item.transit_ns for item in items], dtype="Int64"),
            "wait_ns": pd.array([item.wait_ns for item in items], dtype="Int64"),
            "bytes": pd.array([item.size_bytes for item in items], dtype="Int64"),
        }
    )


def _timed(rank: int, kernels: pd.DataFrame | None) -> pd.DataFrame:
    if kernels is None:
        kernels = pd.DataFrame({name: [] for name in TIMED})
    frame = kernels.loc[kernels["kind"] == "communication", list(TIMED[1:])]
    frame = frame.astype({"step": "Int64", "name": "object", "start_ns": "Int64", "duration_ns": "Int64"})
    return frame.assign(rank=np.int64(rank))


def _number_steps(told: pd.DataFrame, timed: pd.DataFrame) -> None:
    """Give operations of ranks recorded without a schedule, which write "step" in place of a number, the step of the kernels."""
    if not len(timed) or not len(told):
        return
    schedules = told.groupby("rank")["step"].agg(["min", "max"])
    without = schedules.index[((schedules["min"] == 0) & (schedules["max"] == 0)).to_numpy(dtype=bool)]
    steps = timed[timed["rank"].isin(without)].groupby("rank")["step"].agg(["nunique", "first"])
    numbers = steps.loc[(steps["nunique"] == 1).to_numpy(dtype=bool), "first"]
    told["step"] = told["rank"].map(numbers).astype("Int64").fillna(told["step"])


def _numbered(frame: pd.DataFrame) -> pd.DataFrame:
    ordered = frame.sort_values("start_ns", kind="stable").reset_index(drop=True)
    return ordered.assign(occurrence=ordered.groupby(["rank", "step", "name"], dropna=False).cumcount())


def _tails(groups: Groups) -> dict[str, list[str]]:
    tails: dict[str, list[str]] = {}
    for group in groups.users:
        tails.setdefault(group[-3:], []).append(group)
    return tails


def _group_of_tail(name: str, tails: dict[str, list[str]]) -> str | None:
    """The group of "hcom_allReduce__586_0_1": the hash that ends in 586 if the run has one such, else the tail itself."""
    _, found, rest = name.partition("__")
    tail = rest.split("_")[0]
    if not found or not tail.isdigit():
        return None
    known = tails.get(tail.zfill(3), [])
    return known[0] if len(known) == 1 else tail
