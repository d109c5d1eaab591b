"""JSON text: the unread part of a document, where a value ends, and where a list of events may be cut.

Nothing is decoded here: brackets and strings are counted, as far as that is needed, and starts of events are guessed.
"""

from __future__ import annotations

import re
import sys
from collections import deque
from collections.abc import Iterator

from perfkit.core.units import KIB, MIB

MAX_VALUE_BYTES = 32 * MIB
"""A value that is longer is skipped and counted: no event of a trace comes near it, and two such texts are held while reading."""
SMALL_CHUNK_BYTES = 64 * KIB
_MAX_FIRST_KEYS = 8
_MAX_PATIENCE = 1024
_SPACE = re.compile(rb"[\s,\x00]*")
_FIRST_KEY = re.compile(rb'\{\s*"([^"\\]{0,32})"\s*:')
_TOKEN = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"|["\[\]{}]', re.DOTALL)
_STRING_REST = re.compile(rb'[^"\\]*+(?:\\.[^"\\]*+)*+"', re.DOTALL)
_SCALAR = re.compile(rb"[^\s,\[\]{}\"]+")


class Cuts:
    """Where a list may be cut: between the end of one event and the start of another, known by its first key."""

    def __init__(self) -> None:
        self._keys = [b"ph", b"name"]
        self.boundary = self._pattern()
        self.limit = MAX_VALUE_BYTES
        self.patience = 1

    def learn(self, data: bytes, start: int) -> None:
        """Take the first key of the event at `start` for one that events begin with."""
        first = _FIRST_KEY.match(data, start)
        if first and first[1] not in self._keys and len(self._keys) < _MAX_FIRST_KEYS:
            self._keys.append(first[1])
            self.boundary = self._pattern()

    def last(self, data: bytes, start: int, stop: int) -> int:
        """The index behind the last event in [start, stop) that another one follows; -1 if there is none."""
        reach = SMALL_CHUNK_BYTES
        stop = min(stop, len(data))
        while True:
            begin = max(start, stop - reach)
            found = deque(self.boundary.finditer(data, begin, stop), maxlen=1)
            if found:
                return found[0].start() + 1
            if begin == start:
                return -1
            reach *= 16

    def succeeded(self) -> None:
        """Guess larger and more often."""
        self.limit = min(4 * self.limit, MAX_VALUE_BYTES)
        self.patience = 1

    def failed(self) -> None:
        """Guess less often, so that the cost stays in proportion to the text."""
        self.patience = min(2 * self.patience, _MAX_PATIENCE)

    def _pattern(self) -> re.Pattern[bytes]:
        keys = b"|".join(re.escape(key) for key in self._keys)
        return re.compile(rb'\}\s*,\s*(?=\{\s*"(?:' + keys + rb')"\s*:)')


class Text:
    """The part of the content that was read and not yet used: `data` from `at` on."""

    def __init__(self, blocks: Iterator[bytes]) -> None:
        self.data = b""
        self.at = 0
        self._blocks = blocks
        if self.more() and self.data.startswith(b"\xef\xbb\xbf"):
            self.at = 3

    def more(self) -> bool:
        """Read another block; False at the end."""
        rest = self.data[self.at :]
        self.data, self.at = b"", 0  # before the next block is read, so that two of them are never held
        block = next(self._blocks, None)
        if block is None:
            self.data = rest
            return False
        self.data, self.at = rest + block, 0
        return True

    def peek(self) -> bytes:
        """The next byte that is neither space nor comma; empty at the end. The position moves to it."""
        while True:
            found = _SPACE.match(self.data, self.at)
            self.at = found.end() if found else self.at
            if self.at < len(self.data) or not self.more():
                return self.data[self.at : self.at + 1]

    def skip(self, num_bytes: int) -> int:
        """Move on by up to `num_bytes`; returns by how many."""
        before = self.at
        self.at = min(self.at + num_bytes, len(self.data))
        return self.at - before

    def take(self, limit: int = MAX_VALUE_BYTES) -> bytes | None:
        """The JSON value at the position, which moves behind it; None if the content, or `limit` bytes, end inside it."""
        while (end := value_end(self.data, self.at, self.at + limit)) < 0:
            if len(self.data) - self.at > limit or not self.more():
                return None
        value, self.at = self.data[self.at : end], end
        return value

    def skip_value(self, resume: re.Pattern[bytes]) -> int:
        """Move behind the JSON value at the position, or behind the first match of `resume` in it; to the end if there is neither.

        Nothing of the value is kept, so it may be of any size. Returns the bytes skipped.
        """
        if self.peek() not in (b"{", b"[", b'"'):
            return self._skip_scalar()
        skipped, depth, in_string = 0, 0, False
        while True:
            found = resume.search(self.data, self.at)
            end, depth, in_string = _walk(self.data, self.at, found.start() if found else len(self.data), depth, in_string)
            if found and (depth or in_string):
                end, depth, in_string = found.end(), 0, False
            skipped += end - self.at
            self.at = end
            if not depth and not in_string:
                return skipped
            if not self.more():
                skipped += self.skip(len(self.data))
                return skipped

    def _skip_scalar(self) -> int:
        skipped = 0
        while found := _SCALAR.match(self.data, self.at):
            skipped += self.skip(found.end() - self.at)
            if self.at < len(self.data) or not self.more():
                break
        return skipped or self.skip(1)

    def find(self, pattern: re.Pattern[bytes]) -> bool:
        """Move behind the next match of `pattern`; False if there is none in what was read."""
        found = pattern.search(self.data, self.at)
        if found:
            self.at = found.end()
        return found is not None


def _walk(data: bytes, start: int, stop: int, depth: int, in_string: bool) -> tuple[int, int, bool]:
    """Walk on through a value of which `depth` brackets, and a string if `in_string`, are open at `start`.

    Returns the index behind the value, or, if it does not end before `stop`, where to go on when there is more, with what is open.
    """
    at = start
    if in_string:
        rest = _STRING_REST.match(data, start, stop)
        if rest is None:
            return _behind_escapes(data, start, stop), depth, True
        at = rest.end()
        if depth == 0:
            return at, 0, False
    for token in _TOKEN.finditer(data, at, stop):
        text = token[0]
        if text in (b"{", b"["):
            depth += 1
        elif text in (b"}", b"]"):
            depth -= 1
        elif text == b'"':
            return _behind_escapes(data, token.end(), stop), depth, True
        if depth <= 0:
            return token.end(), 0, False
    return stop, max(depth, 1), False


def _behind_escapes(data: bytes, start: int, stop: int) -> int:
    """`stop`, or the index of a backslash before it that escapes what comes next."""
    return stop - (stop - start - len(data[start:stop].rstrip(b"\\"))) % 2


def value_end(data: bytes, start: int, stop: int = sys.maxsize) -> int:
    """The index behind the JSON value that starts at `start`, or -1 if `data`, up to `stop`, ends inside it.

    Counts brackets outside of strings; the value itself need not be valid. A single stray byte is a value of its own.
    """
    if data[start : start + 1] not in (b"{", b"[", b'"'):
        scalar = _SCALAR.match(data, start)
        end = scalar.end() if scalar else start + 1
        return end if end < len(data) else -1
    depth = 0
    for token in _TOKEN.finditer(data, start, stop):
        text = token[0]
        if text in (b"{", b"["):
            depth += 1
        elif text in (b"}", b"]"):
            depth -= 1
        elif text == b'"':
            return -1
        if depth == 0:
            return token.end()
    return -1
