"""Cut: whether a timeline ends before its list of events does, told by its end alone, long before its events are read."""

from __future__ import annotations

import gzip
import os
import zlib

from perfkit.record.listing import File

_END_BYTES = 64
_PIECE_BYTES = 2**20
LIST_IS_OPEN = "it ends before its list of events is closed; what follows is lost"
ARCHIVE_ENDS = "the gzip data ends early; what follows is lost"


def ends_early(file: File) -> str | None:
    """Why a timeline that is a list of events is not whole; None if it is, or if it is no plain or compressed text."""
    if not file.head.lstrip(b"\xef\xbb\xbf \t\r\n").startswith(b"["):
        return None
    try:
        if file.is_gzip:
            end = _end_unpacked(file)
        elif file.is_plain:
            with file.path.open("rb") as stream:
                stream.seek(max(0, file.size_bytes - _END_BYTES), os.SEEK_SET)
                end = stream.read()
        else:
            return None
    except (EOFError, OSError, zlib.error):
        return ARCHIVE_ENDS
    return None if end.rstrip(b"\0 \t\r\n").endswith(b"]") else LIST_IS_OPEN


def _end_unpacked(file: File) -> bytes:
    end = b""
    with gzip.open(file.path) as stream:
        while piece := stream.read(_PIECE_BYTES):
            end = (end + piece)[-_END_BYTES:]
    return end
