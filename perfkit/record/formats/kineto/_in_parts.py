"""In parts: a large Kineto file read by several processes at once, as far as each part proves where the next begins."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any, Protocol, TypeVar

from perfkit.record import workers
from perfkit.record.listing import File
from perfkit.record.readers.chrome_events import AsyncBegin, AsyncEnd, Begin, End, Span
from perfkit.record.readers.lexer import EventReader
from perfkit.record.readers.pairs import Pairs
from perfkit.record.readers.parts import Part, parts_of

HEAD_KEYS = frozenset({"baseTimeNanoseconds", "deviceProperties", "distributedInfo"})


class _ProvesItsEnd(Protocol):
    @property
    def ends_inside(self) -> bytes:
        """The open brackets where a part ends, if all of it was read and says nothing of what comes next; else nothing."""


Found = TypeVar("Found", bound=_ProvesItsEnd)
Item = tuple[File, Part]


def in_parts(file: File, read: Callable[[Item, workers.Report], Found], on_read: Callable[[int], None]) -> Iterator[Found]:
    """What `read`, a function of a module, finds in each part, in order; behind one that is refuted the file is read as one.

    `on_read` is called with the bytes read since the last call, less than nothing where processes had read ahead in vain.
    """
    items = [(file, part) for part in parts_of(file)]
    *_, (_, last) = items
    refuted, said = None, 0

    def report(_: str, num_bytes: int) -> None:
        nonlocal said
        said += num_bytes
        on_read(num_bytes)

    with contextlib.closing(
        workers.each(read, items, report=report, name=lambda _: file.label, num_bytes=file.size_bytes)
    ) as found:
        for (_, part), more in zip(items, found, strict=True):
            if part is not last and more.ends_inside != last.inside:
                refuted = part
                break
            yield more
    if refuted is not None:  # the processes have ended, and what they read ahead counts for nothing
        report("", refuted.start - said)
        yield read((file, Part(refuted.start, last.stop, refuted.inside)), report)


def reader_of(item: Item, event_type: Any, report: workers.Report) -> tuple[EventReader[Any], Pairs]:
    """What reads the events of a part, and what makes one span of the two events in which some are written."""
    file, part = item
    reader: EventReader[Any] = EventReader(
        file, event_type, keys=HEAD_KEYS, on_read=lambda num_bytes: report(file.label, num_bytes), part=part
    )
    return reader, Pairs(Span, {Begin: False, AsyncBegin: True}, {End: False, AsyncEnd: True})


def end_of(reader: EventReader[Any], pairs: Pairs) -> bytes:
    """What a part says of its end (`ends_inside`) once its last block was taken, and before `pairs.rest`."""
    return reader.open if pairs.settled and not reader.lost else b""
