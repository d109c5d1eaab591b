"""Encoding: text files as UTF-8 with line feeds, whatever wrote them: UTF-16, UTF-32, lines that end in a carriage return.

Tools on Windows save text as UTF-16, and a table that went through a spreadsheet may end its lines as old Macintoshes did. Such
content is changed while it is read, block by block, so that no reader has to know. What cannot be decoded becomes U+FFFD.
"""

from __future__ import annotations

import codecs
import io
from collections.abc import Iterable, Iterator
from itertools import chain

_MARKS = (
    (codecs.BOM_UTF32_LE, "utf-32-le"),
    (codecs.BOM_UTF32_BE, "utf-32-be"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)
_SAMPLE_BYTES = 64


def encoding_of(start: bytes) -> str | None:
    """How a text is encoded that is no UTF-8, by its byte order mark or by the zeros beside its first letters; else None."""
    for mark, name in _MARKS:
        if start.startswith(mark):
            return name
    sample = start[: min(_SAMPLE_BYTES, len(start) // 2 * 2)]
    even, odd = sample[::2], sample[1::2]
    if len(sample) < 4 or (0 in even) == (0 in odd):
        return None
    name, letters, zeros = ("utf-16-le", even, odd) if 0 in odd else ("utf-16-be", odd, even)
    return name if not any(zeros) and letters.isascii() and 0 not in letters else None


def is_plain(start: bytes) -> bool:
    """Whether the content that starts so can be read as it is."""
    return encoding_of(start) is None and not _ends_lines_with_cr(start)


def as_utf8(blocks: Iterable[bytes]) -> Iterator[bytes]:
    """The blocks of a text as UTF-8 with line feeds; those of any other content, and of plain text, as they are."""
    return _with_line_feeds(_decoded(iter(blocks)))


def stream(blocks: Iterable[bytes], source: io.RawIOBase) -> io.RawIOBase:
    """`as_utf8` of blocks as a file to read from; closing it closes their source."""
    return _Stream(as_utf8(blocks), source)


def _decoded(blocks: Iterator[bytes]) -> Iterator[bytes]:
    first = next(blocks, b"")
    encoding = encoding_of(first)
    if encoding is None:
        yield first
        del first
        yield from blocks
        return
    decoder = codecs.getincrementaldecoder(encoding)("replace")
    for block in chain([first], blocks):
        yield decoder.decode(block).encode("utf-8", "replace")
    yield decoder.decode(b"", final=True).encode("utf-8", "replace")


def _with_line_feeds(blocks: Iterator[bytes]) -> Iterator[bytes]:
    first = next(blocks, b"")
    by_cr = _ends_lines_with_cr(first)
    yield first.replace(b"\r", b"\n") if by_cr else first
    del first
    for block in blocks:
        yield block.replace(b"\r", b"\n") if by_cr else block


def _ends_lines_with_cr(start: bytes) -> bool:
    return b"\r" in start and b"\n" not in start


class _Stream(io.RawIOBase):
    """Blocks as a file."""

    def __init__(self, blocks: Iterator[bytes], source: io.RawIOBase) -> None:
        self._blocks, self._source = blocks, source
        self._rest = memoryview(b"")

    def close(self) -> None:
        self._source.close()
        super().close()

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview | bytearray) -> int:  # type: ignore[override]  # as RawIOBase calls it
        while not self._rest:
            block = next(self._blocks, None)
            if block is None:
                return 0
            self._rest = memoryview(block)
        size = min(len(buffer), len(self._rest))
        buffer[:size] = self._rest[:size]
        self._rest = self._rest[size:]
        return size
