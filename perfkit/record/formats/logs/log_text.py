"""Log text: finds training logs by what they print and reads them line by line, whatever bytes they hold.

Logs are written by many processes at once: lines are cut, glued and mixed with progress bars, colour codes and binary junk. So a
line is decoded with replacement, never refused, and readers search inside it instead of expecting it to start somewhere.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from perfkit.core.units import MIB, decimal_to_ns
from perfkit.record.format import Sink
from perfkit.record.formats.logs._failed_request import FIGURES, NO_REQUEST, failed_request
from perfkit.record.formats.logs._incidents import MARKER as INCIDENT
from perfkit.record.formats.logs._incidents import Incident, incident_of
from perfkit.record.listing import File, Listing
from perfkit.record.readers.blocks import Blocks

NUMBER = r"[+-]?(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][+-]?\d+)?|[+-]?(?i:nan|inf)"

MAX_INCIDENTS = 10_000
"""Of one file: a process that fails in a loop prints its error for hours."""
_MAX_LINE_BYTES = MIB
_SEARCHED_BYTES = 64 * MIB
_LARGEST_NS = 2**62
_LOG_NAME = re.compile(r"(?:\.(?:log|txt|out|err)(?:\.\d+)?|^stdout|^stderr|^log)(?:\.gz)?$", re.IGNORECASE)
_OTHER_NAME = re.compile(r"\.(?:json|csv|db|ya?ml|py|md|pt|zip|tar)(?:\.gz)?$", re.IGNORECASE)
_COLOUR = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")
_RANK = re.compile(r"(?:worker|rank)[_-]?(\d{1,9})(?!\d)", re.IGNORECASE)
_TIMESTAMP = re.compile(r"(\d{4})-(\d\d)-(\d\d)[ T](\d\d):(\d\d):(\d\d)(?:[.,](\d{1,9}))?\s?(Z|[+-]\d\d:?\d\d)?(?!\d)")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Line:
    """One line of a log: its 1-based number and its text without colour codes."""

    number: int
    text: str


def is_named_as_log(file: File) -> bool:
    """Whether a file is named as programs name what they print."""
    return _LOG_NAME.search(file.name) is not None


def find_logs(listing: Listing, marker: re.Pattern[bytes]) -> tuple[File, ...]:
    """The text files in whose first 64 MiB `marker` matches; a file chosen on its own may have any name that is no other format.

    Where there is one, logs beside it that tell of an incident are found too: a rank that failed may have printed nothing else.
    """
    alone = len(listing.files) == 1
    named = [
        file for file in listing if file.size_bytes and (is_named_as_log(file) or (alone and not _OTHER_NAME.search(file.name)))
    ]
    found = [file for file in named if _contains(file, marker)]
    failed = [file for file in named if file not in found and _contains(file, INCIDENT)] if found else []
    return tuple(file for file in named if file in found or file in failed)


def read_lines(file: File, sink: Sink) -> Iterator[Line]:
    """The lines of a log, gzip or not; a last line without its end loses a number that may be cut off.

    A line longer than 1 MiB is handed out in pieces with one number. Reports progress to `sink`, counts a damaged archive, and adds
    the incidents that the lines tell of.
    """
    incidents: list[tuple[Line, Incident]] = []
    for line in _lines(file, sink):
        if (incident := incident_of(line.text)) is not None:
            incidents.append((line, incident))
        yield line
    _add_incidents(incidents, file, sink)


def _add_incidents(found: list[tuple[Line, Incident]], file: File, sink: Sink) -> None:
    sink.drop(f"incidents after the first {MAX_INCIDENTS}", max(len(found) - MAX_INCIDENTS, 0), file, "incidents")
    kept, of_file = found[:MAX_INCIDENTS], rank_of(file)
    requests = [failed_request(line.text) if incident.kind == "out_of_memory" else NO_REQUEST for line, incident in kept]
    if kept:
        sink.add(
            "incidents",
            source=file,
            rank=[of_file or 0 if incident.rank is None else incident.rank for _, incident in kept],
            unnamed=[incident.rank is None and of_file is None for _, incident in kept],
            peer=[incident.peer for _, incident in kept],
            kind=[incident.kind for _, incident in kept],
            code=[incident.code for _, incident in kept],
            file=file.label,
            line=[line.number for line, _ in kept],
            time_ns=[timestamp_ns(line.text) for line, _ in kept],
            text=[incident.text for _, incident in kept],
            **{name: [figures[name] for figures in requests] for name in FIGURES},
        )


def _lines(file: File, sink: Sink) -> Iterator[Line]:
    blocks = Blocks(file, lambda num_bytes: sink.advance(file.label, num_bytes))
    number, rest = 1, b""
    for block in blocks:
        *whole, rest = (rest + block).split(b"\n")
        for raw in whole:
            yield from (Line(number, text) for text in _pieces(raw))
            number += 1
        if len(rest) > _MAX_LINE_BYTES:
            yield from (Line(number, text) for text in _pieces(rest))
            rest = b""
    if rest:
        yield from (Line(number, text.rstrip("0123456789.eE+-")) for text in _pieces(rest))
    if blocks.damage is not None:
        sink.drop(f"{blocks.damage}; what follows is lost", 1, file)


def number_after(label: str, unit: str = "") -> re.Pattern[str]:
    """A pattern whose group 1 is the number behind `label` (a regular expression), bracketed or not, and before `unit`."""
    end = rf"\s*{unit}(?![A-Za-z])" if unit else ""
    return re.compile(rf"(?<![A-Za-z_]){label}[\s\[(]*({NUMBER}){end}")


def find_float(pattern: re.Pattern[str], text: str) -> float | None:
    """The number that `pattern` finds, None if it finds none; a printed nan is nan."""
    found = pattern.search(text)
    return float(found[1]) if found else None


def find_int(pattern: re.Pattern[str], text: str) -> int | None:
    """The whole number that `pattern` finds; None if it finds none or one that fits no int64."""
    found = pattern.search(text)
    return int(found[1]) if found and found[1].isdecimal() and len(found[1]) < 19 else None


def find_ns(pattern: re.Pattern[str], text: str, ns_per_unit: int) -> int | None:
    """The exact time in ns that `pattern` finds; None if there is none or it is no possible time."""
    found = pattern.search(text)
    return None if found is None else exact_ns(found[1], ns_per_unit)


def exact_ns(text: str, ns_per_unit: int) -> int | None:
    """The time in ns of a decimal text; None if it is no number or fits no int64."""
    try:
        ns = decimal_to_ns(text, ns_per_unit)
    except (ValueError, ArithmeticError):
        return None
    return ns if abs(ns) < _LARGEST_NS else None


def timestamp_ns(text: str) -> int | None:
    """The first date and time in `text` as ns since 1970, UTC if no zone is given; None if there is none."""
    found = _TIMESTAMP.search(text)
    if found is None:
        return None
    try:
        moment = datetime(*(int(part) for part in found.groups()[:6]), tzinfo=UTC)  # type: ignore[arg-type, misc]
    except ValueError:
        return None
    zone = found[8] or "Z"
    if zone != "Z":
        minutes = int(zone[1:3]) * 60 + int(zone[-2:])
        moment -= timedelta(minutes=-minutes if zone[0] == "-" else minutes)
    return (moment - _EPOCH) // timedelta(seconds=1) * 1_000_000_000 + int((found[7] or "0").ljust(9, "0"))


def rank_of(file: File) -> int | None:
    """The rank that the name of a log or of a folder above it states: worker_3.log, rank_3/info.log; None if none does."""
    for name in (file.name, *reversed(file.relative.parts[:-1]), file.path.parent.name):
        if found := _RANK.search(name):
            return int(found[1])
    return None


def _pieces(raw: bytes) -> Iterator[str]:
    for start in range(0, max(1, len(raw)), _MAX_LINE_BYTES):
        yield _COLOUR.sub("", raw[start : start + _MAX_LINE_BYTES].decode("utf-8", "replace")).rstrip("\r")


def _contains(file: File, marker: re.Pattern[bytes]) -> bool:
    tail, searched = b"", 0
    for block in Blocks(file):
        if marker.search(tail + block):
            return True
        tail, searched = block[-512:], searched + len(block)
        if searched >= _SEARCHED_BYTES:
            break
    return False
