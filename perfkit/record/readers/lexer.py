"""Lexer: the events of a trace in Chrome's JSON format, block by block, decoded straight into typed structs.

A file is a list of events or an object whose `traceEvents` is that list; other keys may come before or after it. The document is
never held as a whole: each block of 16 MiB is cut after its last complete event and decoded by msgspec. The cut is a guess by
text that decoding proves or refutes, since the beginning of a list decodes only if it ends between two elements; where it is
refuted, the reader steps back and, at the worst, counts brackets and strings event by event.

Tolerated: text cut off anywhere, also at its beginning, damaged gzip, a byte order mark, lists one after another, raw control
characters, wrong escapes, bytes that are no UTF-8, NaN. An event that cannot be read is left out and counted in `lost`; its
neighbors are kept.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Collection, Iterator
from itertools import islice
from typing import Any, Generic, TypeVar

import msgspec

from perfkit.core.units import KIB, MIB
from perfkit.record.listing import File
from perfkit.record.readers._json_text import MAX_VALUE_BYTES, SMALL_CHUNK_BYTES, Cuts, Text, value_end
from perfkit.record.readers.blocks import Blocks
from perfkit.record.readers.parts import WHOLE, Part, begins_amid_events

Event = TypeVar("Event")
Value = TypeVar("Value")

LOST_EVENTS = "event that is no valid JSON"
LOST_TAIL = "bytes after the last complete event (the file ends inside an event)"
LOST_START = "bytes before the first complete event (the file begins inside its list of events)"
LOST_TEXT = "bytes that belong to no trace"
LOST_VALUES = f"JSON value longer than {MAX_VALUE_BYTES // MIB} MiB, skipped"

_MIN_EVENTS = 10_000
_LIKELY_VALUE_BYTES = 256 * KIB
_EVENTS_KEY = b'"traceEvents"'
_EVENTS_START = re.compile(_EVENTS_KEY + rb"\s*:\s*(?=\[)")
_ESCAPE = re.compile(rb'\\(["\\/bfnrt]|u[0-9a-fA-F]{4})|\\')
_FAILED_AT = re.compile(r"\(byte (\d+)\)")
_LENIENT = json.JSONDecoder(strict=False, parse_float=msgspec.Raw, parse_int=msgspec.Raw, parse_constant=lambda _: None)
_OBJECT = re.compile(rb'\{\s*"')
_MAX_OBJECTS = 256
"""How many objects of a text without its beginning are tried: an event has a few of them within."""
_UNREADABLE = (ValueError, RecursionError)


class _Phased(msgspec.Struct):
    """What tells an event from the objects within it."""

    ph: str


_PHASE = msgspec.json.Decoder(_Phased)


class EventReader(Generic[Event]):
    """Iterate once over lists of events, in the order of the file.

    `event_type` is a msgspec type that keeps what is needed and gives time stamps as `msgspec.Raw`; a Raw refers to its whole
    block, so turn it into numbers before the next list. After the last list `head` has the values of the other top-level `keys`,
    `lost` counts what was not read by reason, `repaired` the events with wrong characters that were read nevertheless, and
    `damage` says why the file ends early, or is None; `open` are the brackets around the place where it, or the `part` of it that
    is read, ends, if it is read as it stands in the file.
    """

    def __init__(
        self,
        file: File,
        event_type: Any,
        *,
        keys: Collection[str] = (),
        on_read: Callable[[int], None] | None = None,
        part: Part = WHOLE,
    ) -> None:
        self.head: dict[str, Any] = {}
        self.lost: Counter[str] = Counter()
        self.repaired = 0
        self.num_events = 0
        self.damage: str | None = None
        self._keys = frozenset(keys)
        self.open = b""
        self._inside = part.inside
        self._is_piece = not part.start and begins_amid_events(file.head)
        self._blocks = Blocks(file, on_read, part)
        self._many: msgspec.json.Decoder[list[Event]] = msgspec.json.Decoder(list[event_type])
        self._one: msgspec.json.Decoder[Event] = msgspec.json.Decoder(event_type)
        self._raw: msgspec.json.Decoder[list[msgspec.Raw]] = msgspec.json.Decoder(list[msgspec.Raw])

    def __iter__(self) -> Iterator[list[Event]]:
        ready: list[Event] = []
        for events in self._documents():
            ready += events
            events.clear()  # the consumer's list is the only one that keeps a block of events alive
            if len(ready) >= _MIN_EVENTS:
                self.num_events += len(ready)
                yield ready
                ready = []
        self.num_events += len(ready)
        if ready:
            yield ready

    def _documents(self) -> Iterator[list[Event]]:
        text = Text(iter(self._blocks))
        if self._inside:
            yield from self._list(text)
        if self._inside.startswith(b"{"):
            yield from self._object(text)
        if self._is_piece:
            self.lost[LOST_START] = text.skip(_first_event(text))
            yield from self._list(text)
            if text.peek() in (b'"', b"}"):
                yield from self._object(text)
        while mark := text.peek():
            if mark == b"[":
                text.skip(1)
                yield from self._list(text)
            elif mark == b"{":
                text.skip(1)
                yield from self._object(text)
            else:
                self._lose_rest(text, LOST_TEXT)
        if self._blocks.damage:
            self.damage = self._blocks.damage
        if not self._blocks.is_plain:
            self.open = b""

    def _object(self, text: Text) -> Iterator[list[Event]]:
        """The members of the top-level object; the position is behind its brace."""
        while (mark := text.peek()) and mark != b"}":
            key = self._key(text, mark)
            if text.peek() == b"[" and key == _EVENTS_KEY:
                text.skip(1)
                yield from self._list(text)
            elif key is not None and (value := text.take()) is not None:
                self._keep(key, value)
            elif key is not None and self._skip_value(text, _EVENTS_START, LOST_TEXT) == b"[":
                text.skip(1)
                yield from self._list(text)
        if not mark:
            self.damage = "it ends before the JSON object is closed"
            self.open = b"{" + self.open
        text.skip(1)

    def _key(self, text: Text, mark: bytes) -> bytes | None:
        """The key of the next member, with the position behind its colon; None if there is none before the end."""
        key = text.take() if mark == b'"' else None
        if key is None and mark == b'"':
            if self._skip_value(text, _EVENTS_START, LOST_TEXT) == b"[":
                return _EVENTS_KEY
            key = b'""'
        if key is not None and text.peek() == b":":
            text.skip(1)
            return key
        if text.find(_EVENTS_START):
            return _EVENTS_KEY
        self._lose_rest(text, LOST_TEXT)
        return None

    def _skip_value(self, text: Text, resume: re.Pattern[bytes], reason: str) -> bytes:
        """Skip a value that is too long to be held, or that does not end; returns the mark behind it."""
        skipped = text.skip_value(resume)
        mark = text.peek()
        if mark:
            self.lost[LOST_VALUES] += 1
        else:
            self.lost[reason] += skipped
        return mark

    def _keep(self, key: bytes, value: bytes) -> None:
        name = key.strip(b'"').decode("utf-8", "replace")
        if name not in self._keys:
            return
        try:
            self.head[name] = msgspec.json.decode(value)
        except _UNREADABLE:
            self.lost[f"top-level key {name} that is no valid JSON"] += 1

    def _list(self, text: Text) -> Iterator[list[Event]]:
        """The events of one list; the position is behind its bracket."""
        cuts = Cuts()
        one_by_one = 0  # how many events to take singly before the next guess, more after each guess in vain
        while (mark := text.peek()) and mark != b"]":
            cuts.learn(text.data, text.at)
            if one_by_one > 0:
                one_by_one -= 1
                yield self._next_event(text, cuts)
            elif (events := self._many_events(text, cuts)) is not None:
                yield events
            else:
                one_by_one = cuts.patience
                yield self._next_event(text, cuts)
        if not mark:
            self.damage = "it ends before its list of events is closed"
            self.open = b"["
        text.skip(1)

    def _many_events(self, text: Text, cuts: Cuts) -> list[Event] | None:
        """The events up to a cut that decoding proves right; None if no cut can be found."""
        cut = cuts.last(text.data, text.at, text.at + cuts.limit)
        while cut >= 0:
            events, trusted_bytes = self._chunk(_as_list(text.data, text.at, cut))
            if events is not None:
                text.at = cut
                cuts.succeeded()
                return events
            cuts.limit = SMALL_CHUNK_BYTES
            cut = cuts.last(text.data, text.at, text.at + trusted_bytes)
        cuts.failed()
        return None

    def _chunk(self, chunk: bytes) -> tuple[list[Event] | None, int]:
        """The events of a list; or None and how many of its bytes hold no error, if it is no list of whole events."""
        events = _attempt(self._many.decode, chunk)
        if events is not None:
            return events, len(chunk)
        try:
            pieces = self._raw.decode(chunk)
        except _UNREADABLE as error:
            found = _FAILED_AT.search(str(error))
            failed_at = int(found[1]) if found else len(chunk)
            return None, failed_at - 1 if failed_at < len(chunk) - 1 else len(chunk) // 2
        readable = [event for piece in pieces if (event := self._event(bytes(piece))) is not None]
        self.lost[LOST_EVENTS] += len(pieces) - len(readable)
        return readable, len(chunk)

    def _event(self, text: bytes) -> Event | None:
        """One event, after repair if it must be; None if it cannot be read."""
        event = _attempt(self._one.decode, text)
        if event is None and (repaired := _attempt(_repaired, text)) is not None:
            event = _attempt(self._one.decode, repaired)
            self.repaired += event is not None
        return event

    def _next_event(self, text: Text, cuts: Cuts) -> list[Event]:
        """The event at the position, found by its brackets; where that fails, go on at the next likely start of an event.

        A quote too many turns all that follows inside out, so the search for the end of an event goes far only where no other
        event seems to start before.
        """
        value = text.take(_LIKELY_VALUE_BYTES)
        if value is None and not cuts.boundary.search(text.data, text.at + 1, text.at + _LIKELY_VALUE_BYTES):
            value = text.take()
        if value is not None and (event := self._event(value)) is not None:
            return [event]
        start, end = (text.at, len(text.data)) if value is None else (text.at - len(value), text.at)
        following = cuts.boundary.search(text.data, start + 1, end)
        if value is None and following is None:
            self._skip_value(text, cuts.boundary, LOST_TAIL)
        else:
            self.lost[LOST_EVENTS] += 1
            text.at = following.end() if following else end
        return []

    def _lose_rest(self, text: Text, reason: str) -> None:
        """Count all that is left as lost."""
        self.lost[reason] += text.skip(len(text.data) - text.at)
        while text.more():
            self.lost[reason] += text.skip(len(text.data))


def _attempt(decode: Callable[[bytes], Value], text: bytes) -> Value | None:
    """What `decode` gives, or None if it refuses the text."""
    try:
        return decode(text)
    except _UNREADABLE:
        return None


def _first_event(text: Text) -> int:
    """Where the first whole object with a phase starts, in a text that begins inside of an event; 0 if none is near."""
    while len(text.data) < SMALL_CHUNK_BYTES and text.more():
        pass
    for start in islice(_OBJECT.finditer(text.data), _MAX_OBJECTS):
        end = value_end(text.data, start.start(), start.start() + SMALL_CHUNK_BYTES)
        if end > 0 and _attempt(_PHASE.decode, text.data[start.start() : end]) is not None:
            return start.start() - text.at
    return 0


def _as_list(data: bytes, start: int, stop: int) -> bytes:
    return b"".join((b"[", memoryview(data)[start:stop], b"]"))


def _repaired(event: bytes) -> bytes:
    """An event with control characters escaped, wrong escapes taken literally and NaN as null; digits of numbers are kept.

    Raises ValueError or RecursionError if that does not help.
    """
    literal = _ESCAPE.sub(lambda found: found[0] if found[1] else rb"\\", event)
    return msgspec.json.encode(_LENIENT.decode(literal.decode("utf-8", "replace")))
