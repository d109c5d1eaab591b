"""Row blocks: a text table in pieces of whole rows, so that memory does not grow with the file."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from perfkit.errors import InputError
from perfkit.trace._listing import File
from perfkit.units import MIB

BLOCK_BYTES = 16 * MIB
MAX_ROW_BYTES = 64 * MIB
"""Rows end outside of quotes; where a quote is open for longer than this it is taken for a stray one."""
_CUTS_TRIED = 64
_TAIL_BYTES = MIB
_BOM = b"\xef\xbb\xbf"
_QUOTE = 0x22


def row_blocks(file: File) -> Iterator[bytes]:
    """The content of a file in blocks that begin with its first line and end behind the end of a row.

    A byte order mark and blank lines before the first line are left out. Raises InputError if the file cannot be read.
    """
    buffer = memoryview(bytearray(min(BLOCK_BYTES, file.size_bytes + 1)))
    first_line = carry = b""
    at_start = True
    try:
        with file.path.open("rb", buffering=0) as stream:
            while size := stream.readinto(buffer):
                piece: memoryview | bytes = buffer[:size]
                if at_start:
                    piece = b"".join((carry, piece)).removeprefix(_BOM).lstrip(b"\r\n")
                    carry, at_start = b"", not piece
                cut = _last_row_end(carry, piece)
                if not cut:
                    carry = b"".join((carry, piece))
                    continue
                block = b"".join((first_line, carry, piece[:cut]))
                carry = bytes(piece[cut:])
                first_line = first_line or block[: block.find(b"\n") + 1]
                yield block
                del block
    except OSError as error:
        raise InputError(file.label, [f"cannot be read: {error.strerror}"]) from error
    if carry:
        yield first_line + carry


def _last_row_end(carry: bytes, piece: memoryview | bytes) -> int:
    """The index in `piece` behind the last line end outside of quotes, 0 if none of the last lines ends so."""
    data = bytes(piece[-_TAIL_BYTES:])
    skipped = len(piece) - len(data)
    quotes = carry.count(b'"') + int(np.count_nonzero(np.frombuffer(piece, dtype=np.uint8) == _QUOTE))
    end = len(data)
    for _ in range(_CUTS_TRIED):
        cut = data.rfind(b"\n", 0, end) + 1
        if not cut:
            break
        quotes -= data.count(b'"', cut, end)
        if quotes % 2 == 0:
            return skipped + cut
        end = cut - 1
    too_long = len(carry) + len(piece) > MAX_ROW_BYTES
    return skipped + (data.rfind(b"\n") + 1 or len(data)) if too_long else 0
