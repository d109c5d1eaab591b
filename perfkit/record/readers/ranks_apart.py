"""Ranks apart: reads every rank into a sink of its own, in several processes if that pays off, and joins them in order."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TypeVar

from perfkit.core.run import Position
from perfkit.record import workers
from perfkit.record.format import Sink
from perfkit.record.formats.ascend.folders import Rank

Found = TypeVar("Found")
Record = Callable[[Rank, Mapping[int, Position], Sink], Found]
"""Reads one rank, whose position is among those given, into a sink; a function of a module."""


def read_ranks(record: Record[Found], ranks: Sequence[Rank], sink: Sink, num_bytes: int) -> list[Found]:
    """`record` of every rank in order; what it adds, drops and notes ends in `sink` as if one process had read all of them."""
    if not workers.pays_off(len(ranks), num_bytes):
        return [record(rank, sink.placement, sink) for rank in ranks]
    task = partial(_read_rank, record, dict(sink.placement))
    found: list[Found] = []
    for result, apart in workers.each(task, ranks, report=sink.advance, name=lambda rank: rank.source.label, num_bytes=num_bytes):
        sink.absorb(apart)
        found.append(result)
    return found


def _read_rank(record: Record[Found], placement: dict[int, Position], rank: Rank, report: workers.Report) -> tuple[Found, Sink]:
    told_bytes = 0

    def tell(what: str, done_bytes: int, _: int) -> None:
        nonlocal told_bytes
        report(what, done_bytes - told_bytes)
        told_bytes = done_bytes

    apart = Sink(progress=tell, placement=placement)
    result = record(rank, placement, apart)
    apart.progress = None  # it stays in this process
    return result, apart
