"""Row blocks: a text table in pieces of whole rows, so that memory does not grow with the file."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from perfkit.core.errors import InputError
from perfkit.core.units import MIB
from perfkit.record.listing import File

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
    size = min(BLOCK_BYTES, file.size_bytes + 1)
    data = np.empty(size, dtype=np.uint8)  # used again and again: fresh memory takes as long as reading
    first_line = carry = b""
    try:
        with file.open() as stream:
            while True:
                kept = first_line + carry
                if len(data) < len(kept) + size:
                    data = np.empty(len(kept) + size, dtype=np.uint8)
                data[: len(kept)] = np.frombuffer(kept, dtype=np.uint8)
                end = len(kept) + (stream.readinto(data.data[len(kept) : len(kept) + size]) or 0)
                if end == len(kept):
                    break
                start = 0 if first_line else end - len(data[:end].tobytes().removeprefix(_BOM).lstrip(b"\r\n"))
                cut = _last_row_end(data[:end], start + len(first_line), max(start, len(kept)))
                if cut:
                    block = data[start:cut].tobytes()
                    first_line = first_line or block[: block.find(b"\n") + 1]
                    yield block
                    del block
                carry = data[cut or start + len(first_line) : end].tobytes()
    except OSError as error:
        raise InputError(file.label, [f"cannot be read: {error.strerror}"]) from error
    if carry:
        yield first_line + carry


def _last_row_end(data: npt.NDArray[np.uint8], rows_start: int, new_start: int) -> int:
    """The index behind the last line end outside of quotes, 0 if none of the last lines of what is new ends so."""
    tail_start = max(new_start, len(data) - _TAIL_BYTES)
    tail = data[tail_start:].tobytes()
    quotes = sum(int(np.count_nonzero(data[at : at + _TAIL_BYTES] == _QUOTE)) for at in range(rows_start, len(data), _TAIL_BYTES))
    end = len(tail)
    for _ in range(_CUTS_TRIED):
        cut = tail.rfind(b"\n", 0, end) + 1
        if not cut:
            break
        quotes -= tail.count(b'"', cut, end)
        if quotes % 2 == 0:
            return tail_start + cut
        end = cut - 1
    too_long = len(data) - rows_start > MAX_ROW_BYTES
    return tail_start + (tail.rfind(b"\n") + 1 or len(tail)) if too_long else 0
