"""Parts: where a large file of events may be cut, so that several processes read it at once.

A border is a guess by text: between two events, or inside a text that looks like them. Who reads proves it: if one part ends in the
list of events and after a whole one, the next begins with an event. So parts are proven one after the other from the beginning of
the file; behind the first that is refuted the file is read as one, and so is one that is itself a piece, without its beginning.
"""

from __future__ import annotations

import re
import sys
from dataclasses import dataclass

from perfkit.core.units import KIB, MIB
from perfkit.record.listing import File
from perfkit.record.readers._json_text import Cuts

PART_BYTES = 128 * MIB
_BORDER_BYTES = 256 * KIB
_EVENT = re.compile(rb'"ph"\s*:\s*"')
_BEGINNING = re.compile(
    rb"""(?:\xef\xbb\xbf)?[\s,\x00]*(?:\[\s*(?:[{\]]|\Z)|\{(?:(?!"ph"\s*:\s*").)*"traceEvents")""",
    re.DOTALL,
)


@dataclass(frozen=True)
class Part:
    """The bytes of a file from `start` up to `stop`, and the brackets around its first event (none at the beginning)."""

    start: int = 0
    stop: int = sys.maxsize
    inside: bytes = b""


WHOLE = Part()


def parts_of(file: File) -> list[Part]:
    """A file cut into parts of about `PART_BYTES`; one part if it is packed, is in another encoding, or shows no borders."""
    if file.size_bytes < 2 * PART_BYTES or not file.is_plain or begins_amid_events(file.head):
        return [WHOLE]
    inside = b"{[" if file.head.lstrip().startswith(b"{") else b"["
    borders = [0]
    with file.path.open("rb", buffering=0) as stream:
        for place in range(PART_BYTES, file.size_bytes - PART_BYTES // 2, PART_BYTES):
            stream.seek(place)
            if found := Cuts().boundary.search(stream.read(_BORDER_BYTES)):
                borders.append(place + found.end())
    ends = zip(borders, [*borders[1:], WHOLE.stop], strict=True)
    return [Part(start, stop, inside if start else b"") for start, stop in ends]


def begins_amid_events(start: bytes) -> bool:
    """Whether what starts like this holds events of a trace but not how a trace begins."""
    return _EVENT.search(start) is not None and not _BEGINNING.match(start)
