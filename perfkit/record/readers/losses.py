"""Losses: what reading a trace in JSON left out, told to the run in one wording by every format that reads such files."""

from __future__ import annotations

from collections import Counter
from typing import Protocol

from perfkit.record.format import Sink
from perfkit.record.listing import File
from perfkit.record.readers.lexer import LOST_START, LOST_TAIL
from perfkit.record.readers.parts import begins_amid_events


class Reading(Protocol):
    """A trace file that was read: `lost` counts what was not by reason, `damage` says why the file ends early."""

    file: File
    lost: Counter[str]
    repaired: int
    damage: str | None


def report_losses(reading: Reading, sink: Sink) -> None:
    """Count what was lost against its file, and note damage and repairs."""
    for reason, count in reading.lost.items():
        sink.drop(reason, count, reading.file)
    if begins_amid_events(reading.file.head):
        if not reading.lost.get(LOST_START):
            sink.drop("beginning of the file: it begins inside its list of events", 1, reading.file)
        sink.note(
            f"{reading.file.label} is a piece of a trace without its beginning, which says the rank, the device and what times "
            "count from; its whole events were read"
        )
    if reading.damage:
        if not reading.lost.get(LOST_TAIL):
            sink.drop(f"end of the file: {reading.damage}", 1, reading.file)
        sink.note(f"{reading.file.label} is damaged: {reading.damage}; everything complete before that was read")
    if reading.repaired:
        sink.note(
            f"{reading.file.label}: {reading.repaired} event(s) had raw control characters, wrong escapes or NaN; "
            "they were repaired and read"
        )
