"""Blocks: the content of a plain or gzip file in pieces of bounded size, as much of it as is there.

Gzip is recognised by its first bytes, whatever the name says. A file that was cut in half, or whose checksum is wrong, gives every
byte before the damage; `damage` then says what is wrong. Content that grows beyond any trace is read up to that point.
"""

from __future__ import annotations

import contextlib
import os
import sys
import zlib
from collections.abc import Callable, Iterator
from io import RawIOBase

from perfkit.core.settings import free_memory_bytes
from perfkit.core.units import GIB, KIB, MIB
from perfkit.record.encoding import as_utf8, is_plain
from perfkit.record.listing import File
from perfkit.record.readers.parts import WHOLE, Part

BLOCK_BYTES = 12 * MIB
MAX_RATIO = 200
_HARMLESS_BYTES = 256 * MIB
_PIECE_BYTES = 64 * KIB
_SMALL_BYTES = GIB
"""Of files up to this nobody asks whether they fit: asking takes longer than to read the smallest."""
_GZIP = 16 + zlib.MAX_WBITS


class Blocks:
    """Iterate once over the blocks of a file; `damage` is None or says, after the last block, why the content ends early.

    `on_read` is called with the number of bytes read from the disk, which is less than the content of a gzip file. Of a plain file
    a `part` may be read alone. `is_plain` says after the first block whether the content is as it stands in the file: how it is
    encoded and ends its lines shows only at its beginning.
    """

    def __init__(self, file: File, on_read: Callable[[int], None] | None = None, part: Part = WHOLE) -> None:
        self.damage: str | None = None
        self.is_plain = True
        self._file = file
        self._part = part
        self._on_read = on_read

    def __iter__(self) -> Iterator[bytes]:
        gzipped = self._file.is_gzip
        with self._file.path.open("rb", buffering=0) as stream:
            stream.seek(self._part.start)
            left = self._part.stop - self._part.start
            blocks = _joined(self._inflated(stream)) if gzipped else self._pieces(stream, BLOCK_BYTES, left)
            yield from blocks if self._part.start else as_utf8(self._judged(blocks))

    def _judged(self, blocks: Iterator[bytes]) -> Iterator[bytes]:
        first = next(blocks, b"")
        self.is_plain = is_plain(first)
        yield first
        del first
        yield from blocks

    def _pieces(self, stream: RawIOBase, num_bytes: int, left: int = sys.maxsize) -> Iterator[bytes]:
        is_kept, place = _is_kept(self._file), self._part.start
        while piece := stream.read(min(num_bytes, left)):
            left -= len(piece)
            _advise(stream, place + len(piece), min(num_bytes, left), "POSIX_FADV_WILLNEED")
            if not is_kept:
                _advise(stream, place, len(piece), "POSIX_FADV_DONTNEED")
            place += len(piece)
            if self._on_read is not None:
                self._on_read(len(piece))
            yield piece

    def _inflated(self, stream: RawIOBase) -> Iterator[bytes]:
        """The members of a gzip file, one after the other, up to the first defect."""
        member = zlib.decompressobj(_GZIP)
        inside = False
        num_packed = num_content = 0
        for piece in self._pieces(stream, _PIECE_BYTES):
            rest = piece
            num_packed += len(piece)
            while rest:
                before = member.copy()
                try:
                    content = member.decompress(rest, BLOCK_BYTES)
                except zlib.error as error:
                    self.damage = f"the gzip data is damaged ({error})"
                    yield _until_defect(before, rest)
                    return
                yield content
                num_content += len(content)
                if num_content > max(_HARMLESS_BYTES, MAX_RATIO * num_packed):
                    self.damage = f"the gzip data grows more than {MAX_RATIO}-fold, as no trace does; the rest was not read"
                    return
                inside = not member.eof
                rest = member.unconsumed_tail
                if member.eof:
                    rest = member.unused_data.lstrip(b"\0")
                    member = zlib.decompressobj(_GZIP)
        if inside:
            self.damage = "the gzip data ends early"


def _is_kept(file: File) -> bool:
    """Whether the system can keep what is read of a file for the next reader.

    Of one that does not fit the beginning is gone before the end is read, and to find room for each block costs the kernel more
    than to read it (of 20 GB 36 CPU-s in place of 13).
    """
    return file.size_bytes <= _SMALL_BYTES or file.size_bytes <= free_memory_bytes() // 2


def _advise(stream: RawIOBase, start: int, num_bytes: int, advice: str) -> None:
    """Say what comes next, so that it is read while what was read is decoded, or what is over; not all systems listen."""
    if num_bytes and hasattr(os, "posix_fadvise"):  # 0 would be all that follows
        with contextlib.suppress(OSError):  # some network file systems
            os.posix_fadvise(stream.fileno(), start, num_bytes, getattr(os, advice))


def mentions(file: File, word: bytes) -> bool:
    """Whether `word` stands anywhere in the content of a file; looking costs a fiftieth of decoding its events."""
    end = b""
    for block in Blocks(file):
        if word in block or word in end + block[: len(word)]:
            return True
        end = (end + block[-len(word) :])[-len(word) :]
    return False


def _joined(pieces: Iterator[bytes]) -> Iterator[bytes]:
    """Pieces put together to blocks of at least BLOCK_BYTES; the last one may be shorter."""
    ready: list[bytes] = []
    num_ready = 0
    for piece in pieces:
        ready.append(piece)
        num_ready += len(piece)
        if num_ready >= BLOCK_BYTES:
            yield b"".join(ready)
            ready, num_ready = [], 0
    if num_ready:
        yield b"".join(ready)


def _until_defect(inflate: zlib._Decompress, data: bytes) -> bytes:
    """What can be inflated before the byte that is wrong; `inflate` is in the state before `data`."""
    found = []
    for index in range(len(data)):
        try:
            found.append(inflate.decompress(data[index : index + 1]))
        except zlib.error:
            break
    return b"".join(found)
