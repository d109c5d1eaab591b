"""Ranks apart: reads every rank into a sink of its own, in several processes if that pays off, and joins them in order."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TypeVar

from perfkit.run import Position
from perfkit.trace import _workers
from perfkit.trace._ascend_folders import Rank
from perfkit.trace._format import Sink

Found = TypeVar("Found")
Record = Callable[[Rank, Mapping[int, Position], Sink], Found]
"""Reads one rank, whose position is among those given, into a sink; a function of a module."""


def read_ranks(record: Record[Found], ranks: Sequence[Rank], sink: Sink, num_bytes: int) -> list[Found]:
    """`record` of every rank in order; what it adds, drops and notes ends in `sink` as if one process had read all of them."""
    if not _workers.pays_off(len(ranks), num_bytes):
        return [record(rank, sink.placement, sink) for rank in ranks]
    task = partial(_read_rank, record, dict(sink.placement))
    found: list[Found] = []
    for result, apart in _workers.each(task, ranks, report=sink.advance, name=lambda rank: rank.source.label, num_bytes=num_bytes):
        sink.absorb(apart)
        found.append(result)
    return found


def _read_rank(record: Record[Found], placement: dict[int, Position], rank: Rank, report: _workers.Report) -> tuple[Found, Sink]:
    told_bytes = 0

    def tell(what: str, done_bytes: int, _: int) -> None:
        nonlocal told_bytes
        report(what, done_bytes - told_bytes)
        told_bytes = done_bytes

    apart = Sink(progress=tell, placement=placement)
    result = record(rank, placement, apart)
    apart.progress = None  # it stays in this process
    return result, apart
