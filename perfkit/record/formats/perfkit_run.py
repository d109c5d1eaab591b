"""perfkit's own run folder, as `perfkit simulate` writes it: run.json and one Parquet file a table."""

from __future__ import annotations

import json

from perfkit.record.format import Format, Match, Sink
from perfkit.record.listing import Listing
from perfkit.record.run_folder import MANIFEST, MARK, read_run


def detect(listing: Listing) -> Match | None:
    """The first run.json of a listing that says that it is one."""
    for file in listing.named(MANIFEST):
        if json.dumps(MARK).encode() in file.head and b'"format"' in file.head:
            tables = tuple(other for other in listing if other.path.parent == file.path.parent and other.name.endswith(".parquet"))
            return Match(files=(file, *tables), lazy=True, is_converted=False)
    return None


def read(match: Match, sink: Sink) -> None:
    """Read what the folder says; tables are read when they are asked for."""
    read_run(match.files[0], sink)
    sink.advance(match.files[0].label, sum(file.size_bytes for file in match.files))


FORMAT = Format(
    name="perfkit-run",
    title="run folder of perfkit",
    looks_for=f"{MANIFEST} with the format {MARK}, as perfkit simulate writes it",
    detail=3,
    detect=detect,
    read=read,
)
