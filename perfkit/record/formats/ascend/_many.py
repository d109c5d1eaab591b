"""Many Ascend ranks: the step summaries of all at once, everything else of a rank when it is asked for.

A thousand ranks have gigabytes of kernels, and a question needs those of a few. So `steps` comes from the summaries alone (without
the start of a step, which only kernels tell); `kernels` are read rank by rank; `collectives` and `links` need the communication
files of all ranks, because groups are known by the ranks that use them. What is lost then is counted when it is read.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property, partial
from threading import RLock
from typing import Any

import pandas as pd

from perfkit.core.run import LazyTable, Position, empty
from perfkit.core.units import MIB
from perfkit.record import store
from perfkit.record.format import Sink
from perfkit.record.formats.ascend import _layout, _memory
from perfkit.record.formats.ascend import steps as _ascend_steps
from perfkit.record.formats.ascend._collectives import (
    TIMED,
    Use,
    as_table,
    matched,
    read_linked,
    read_use,
    told_of,
    use_named,
    use_of,
    use_rows,
)
from perfkit.record.formats.ascend._operations import read_columns
from perfkit.record.formats.ascend._recording import Recording, add_all_links, add_groups, add_rows, add_steps, groups_of_use
from perfkit.record.formats.ascend.communication import Operation
from perfkit.record.formats.ascend.folders import COLLECTIVES, KERNELS, LINKS, STEPS, Rank
from perfkit.record.steps import add_summary_steps

MANY_RANKS = 64
MEMORY_CURVES, MEMORY_BLOCKS = (_memory.CURVE, _memory.MODULES), (_memory.BLOCKS,)
Record = Callable[[Rank, int | None, Sink, Sequence[str]], Recording]
"""Reads some files of a rank, named by what they are called, and adds its kernels to the sink if they are among them."""
Groups = list[tuple[str, tuple[int, ...]]]

_KEPT_BYTES = 128 * MIB
_USE = frozenset({"rank", "group", "group_size", "operation"})
_AT_ONCE = 64
"""Ranks whose kernels are held to put their collectives together: one after the other they take far longer."""


def read_many(ranks: Sequence[Rank], named: Groups, sink: Sink, record: Record) -> list[Recording]:
    """Add the steps of all ranks and offer their other tables for later; `named` are the process groups that the run names."""
    later = offer_many(ranks, named, sink, record)
    recordings = _add_all_steps(ranks, sink, later)
    sink.note(
        f"{len(ranks)} ranks: kernels, collectives, links and memory are read when they are asked for; until then it is not known "
        "what of them is damaged, and the steps, taken from the summaries, are not compared with the kernels"
    )
    if sentence := _layout.missing_ranks([rank.rank for rank in ranks], _num_devices(sink), ()):
        sink.note(sentence)
    add_groups(_layout.Groups({}, (), frozenset(rank.rank for rank in ranks)), named, sink)
    return recordings


def offer_many(ranks: Sequence[Rank], named: Groups, sink: Sink, record: Record) -> _Later:
    """Offer the tables of many ranks that are read when they are asked for."""
    later = _Later(ranks, named, sink, record)
    sink.later.update(later.tables())
    return later


def _num_devices(sink: Sink) -> int | None:
    fact = sink.facts.get("num_devices")
    return int(fact.value) if fact else None


def _add_all_steps(ranks: Sequence[Rank], sink: Sink, later: _Later) -> list[Recording]:
    recordings = {rank.rank: Recording(rank, later.stage(rank.rank)) for rank in ranks}
    plain = {rank.rank: found[1] for rank in ranks if (found := _plain_cells(rank)) is not None}
    numbers = [number for number, cells in plain.items() for _ in cells[_ascend_steps.COMPUTING]]
    frame = _as_frame(plain)
    stages = pd.array([recordings[number].stage for number in numbers], dtype="Int64")
    steps = _ascend_steps.summary(frame).assign(rank=numbers, pipeline_stage=stages)
    trial = Sink()
    if plain:
        add_summary_steps(trial, steps, next(rank.source.files[STEPS] for rank in ranks if rank.rank in plain))
    if trial.dropped:  # then each file must be named with its own losses
        plain = {}
    elif plain:
        sink.absorb(trial)
        _ascend_steps.check_sums(sink, steps, STEPS)
    for number, cells in plain.items():
        recordings[number].rows[STEPS] = len(cells[_ascend_steps.COMPUTING])
        file = recordings[number].rank.source.files[STEPS]
        sink.advance(file.label, file.size_bytes)
    for rank in ranks:
        if rank.rank not in plain:
            recordings[rank.rank] = later.add_steps_alone(rank)
    return list(recordings.values())


def _plain_cells(rank: Rank) -> tuple[list[str], dict[str, list[Any]]] | None:
    file = rank.file(STEPS)
    return None if file is None else store.read_plain(file, _ascend_steps.COLUMNS, required=_ascend_steps.REQUIRED)


def _as_frame(plain: Mapping[int, Mapping[str, list[Any]]]) -> pd.DataFrame:
    """The summaries of ranks one after the other."""
    columns: dict[str, list[Any]] = {name: [] for name in _ascend_steps.COLUMNS}
    for cells in plain.values():
        rows = len(cells[_ascend_steps.COMPUTING])
        for name, values in columns.items():
            values.extend(cells.get(name, [None] * rows))
    return pd.DataFrame({name: store.series(columns[name], cell) for name, cell in _ascend_steps.COLUMNS.items()})


class _Later:
    """The tables of many ranks that are read when asked for; what is lost in a file is counted the first time."""

    def __init__(self, ranks: Sequence[Rank], named: Groups, sink: Sink, record: Record) -> None:
        self._ranks = {rank.rank: rank for rank in ranks}
        self._named, self._sink, self._record = named, sink, record
        self._counted: set[str] = set()
        self._accounts: dict[int, pd.DataFrame] = {}
        self._operations: dict[int, list[Operation]] = {}
        self._use: dict[int, set[Use]] = {}
        self._joined: tuple[list[int], pd.DataFrame] | None = None
        self._lock = RLock()
        self._kept: OrderedDict[int, pd.DataFrame] = OrderedDict()

    def tables(self) -> dict[str, LazyTable]:
        """The tables, each with the ranks that have files for it."""
        sources: dict[str, tuple[Sequence[str], Callable[[list[int]], pd.DataFrame]]] = {
            "kernels": ((KERNELS,), self._kernel_rows),
            "accounts": ((KERNELS,), self._account_rows),
            "collectives": ((COLLECTIVES, KERNELS), self._collective_rows),
            "links": ((LINKS,), self._link_rows),
            "memory_curve": (MEMORY_CURVES, partial(self._memory_rows, "memory_curve", MEMORY_CURVES)),
            "memory_blocks": (MEMORY_BLOCKS, partial(self._memory_rows, "memory_blocks", MEMORY_BLOCKS)),
        }
        found: dict[str, LazyTable] = {}
        for table, (files, rows) in sources.items():
            ranks = frozenset(number for number, rank in self._ranks.items() if any(rank.file(name) for name in files))
            if ranks:
                distinct = self._distinct_use if table == "collectives" else None
                found[table] = LazyTable(ranks=ranks, num_rows=None, read=partial(self._read, rows), distinct=distinct)
        return found

    def stage(self, rank: int) -> int | None:
        """The pipeline stage of a rank."""
        return self._sink.placement.get(rank, Position()).pipeline

    def add_steps_alone(self, rank: Rank) -> Recording:
        """Add the steps of one rank whose summary is missing or odd, from its kernels if need be."""
        recording = self._recorded(rank.rank, STEPS)
        recording.kernels = None if recording.rows.get(STEPS) else self._kernels(rank.rank)
        add_steps([recording], self._sink)
        recording.kernels = None
        return recording

    def _recorded(self, rank: int, *files: str) -> Recording:
        scratch = Sink()
        recording = self._record(self._ranks[rank], self.stage(rank), scratch, files)
        self._count(scratch)
        if KERNELS in files:
            self._accounts[rank] = scratch.tables().get("accounts", empty("accounts"))
        return recording

    def _count(self, scratch: Sink) -> None:
        self._sink.dropped += [lost for lost in scratch.dropped if lost.file not in self._counted]
        self._counted.update(lost.file for lost in scratch.dropped)

    def _kernels(self, rank: int) -> pd.DataFrame | None:
        """The kernels of a rank; those asked for last are kept while their files are small together, and at least one."""
        if self._ranks[rank].file(KERNELS) is None:
            return None
        if rank in self._kept:
            self._kept.move_to_end(rank)
            return self._kept[rank]
        kernels = self._recorded(rank, STEPS, KERNELS).kernels
        if kernels is not None:
            self._kept[rank] = kernels
            while len(self._kept) > 1 and sum(map(self._kernel_bytes, self._kept)) > _KEPT_BYTES:
                self._kept.popitem(last=False)
        return kernels

    def _kernel_bytes(self, rank: int) -> int:
        file = self._ranks[rank].file(KERNELS)
        return file.size_bytes if file is not None else 0

    def _read(
        self, rows: Callable[[list[int]], pd.DataFrame], ranks: Sequence[int] | None, columns: Sequence[str] | None
    ) -> pd.DataFrame:
        with self._lock:
            chosen = None if ranks is None else set(ranks)
            wanted = [rank for rank in self._ranks if chosen is None or rank in chosen]
            frame = rows(wanted)
            return frame if columns is None else frame.loc[:, list(columns)]

    def _kernel_rows(self, ranks: list[int]) -> pd.DataFrame:
        return _table("kernels", [kernels for rank in ranks if (kernels := self._kernels(rank)) is not None])

    def _account_rows(self, ranks: list[int]) -> pd.DataFrame:
        for rank in ranks:
            if rank not in self._accounts and self._ranks[rank].file(KERNELS) is not None:
                self._kernels(rank)
        found = [self._accounts[rank] for rank in ranks if rank in self._accounts]
        return pd.concat(found, ignore_index=True) if found else empty("accounts")

    def _collective_rows(self, ranks: list[int]) -> pd.DataFrame:
        """The collectives of some ranks; the last ones are kept, because one question after the other is about the same ranks."""
        if self._joined is None or self._joined[0] != ranks:
            self._joined = (ranks, self._joined_collectives(ranks))
        return self._joined[1].copy(deep=False)

    def _joined_collectives(self, ranks: list[int]) -> pd.DataFrame:
        sink = Sink()
        # What is told of all ranks is one table at once; their kernels are held a few ranks at a time.
        at_once = _AT_ONCE if any(self._ranks[rank].file(KERNELS) is not None for rank in ranks) else max(1, len(ranks))
        for first in range(0, len(ranks), at_once):
            part = ranks[first : first + at_once]
            add_rows(as_table(matched(self._told(part), list(self._executed(part))), self._groups), sink)
        return sink.tables().get("collectives", empty("collectives"))

    def _told(self, ranks: Sequence[int]) -> pd.DataFrame:
        """The operations of some ranks, read with care where that is needed."""
        files = {rank: file for rank in ranks if (file := self._ranks[rank].file(COLLECTIVES)) is not None}
        frame, careful = read_columns(files)
        told = pd.concat([frame, told_of([(rank, self._operations_of(rank)) for rank in careful])], ignore_index=True)
        # A file that is read with care may name groups in operations that are lost: `read_use` tells them.
        for rank, use in set(zip(frame["rank"].tolist(), map(use_named, frame["name"], frame["group"]), strict=True)):
            self._use.setdefault(rank, set()).add(use)
        return told

    def _executed(self, ranks: Sequence[int]) -> Iterator[tuple[int, pd.DataFrame]]:
        """What of the kernels of some ranks the collectives are made of."""
        for rank in ranks:
            if (kernels := self._kernels(rank)) is not None:
                yield rank, kernels.loc[kernels["kind"] == "communication", list(TIMED)]

    def _operations_of(self, rank: int) -> list[Operation]:
        if rank not in self._operations:
            self._operations[rank] = self._recorded(rank, COLLECTIVES).operations
        return self._operations[rank]

    def _use_of(self, rank: int) -> set[Use]:
        """What a rank used which group for, by its communication file; of a thousand ranks the times of a few are asked for."""
        if rank not in self._use:
            file = self._ranks[rank].file(COLLECTIVES)
            use = None if file is None else read_use(file)
            self._use[rank] = use_of(self._operations_of(rank)) if use is None else use
        return self._use[rank]

    def _distinct_use(self, columns: Sequence[str]) -> pd.DataFrame | None:
        """Different rows of the columns by which groups are found, which needs all ranks; by the kernels where no file tells."""
        if not _USE.issuperset(columns):
            return None
        with self._lock:
            uses = {rank: self._use_of(rank) for rank in self._ranks}
            others = self._joined_collectives([rank for rank, use in uses.items() if not use]).loc[:, list(columns)]
            told = use_rows(uses, self._groups).loc[:, list(columns)]
        return pd.concat([told, others.astype(told.dtypes.to_dict())], ignore_index=True)

    def _link_rows(self, ranks: list[int]) -> pd.DataFrame:
        links = self._link_table
        return links[links["rank"].isin(ranks)].reset_index(drop=True)

    @cached_property
    def _link_table(self) -> pd.DataFrame:
        sink = Sink()
        add_all_links(self._linked, self._groups, sink)
        self._sink.dropped += sink.dropped
        return sink.tables().get("links", empty("links"))

    @cached_property
    def _linked(self) -> list[Recording]:
        """All ranks with their links."""
        return [self._recorded(rank, LINKS) for rank in self._ranks]

    @cached_property
    def _groups(self) -> _layout.Groups:
        used: dict[int, set[str | None]]
        if "_linked" in self.__dict__:  # no file of links is read twice
            used = {recording.rank.rank: {link.group for link in recording.links} for recording in self._linked}
        else:
            used = {rank: self._linked_groups(rank) for rank in self._ranks}
        for rank, groups in used.items():
            groups.update(group for _, group in self._use_of(rank))
        return groups_of_use(used, self._named)

    def _linked_groups(self, rank: int) -> set[str | None]:
        file = self._ranks[rank].source.files.get(LINKS)
        groups = set() if file is None else read_linked(file)
        return {link.group for link in self._recorded(rank, LINKS).links} if groups is None else groups

    def _memory_rows(self, table: str, files: Sequence[str], ranks: list[int]) -> pd.DataFrame:
        scratch = Sink()
        for rank in ranks:
            self._record(self._ranks[rank], self.stage(rank), scratch, files)
        self._count(scratch)
        return scratch.tables().get(table, empty(table))


def _table(name: str, frames: list[pd.DataFrame]) -> pd.DataFrame:
    sink = Sink()
    for frame in frames:
        columns: dict[str, Any] = {str(column): frame[column] for column in frame.columns}
        sink.add(name, **columns)
    return sink.tables().get(name, empty(name))
