"""Left over: files that no format claims although they lie among those of a recording and look like them.

A file whose beginning is damaged or missing is of no known format. Beside others of its run that is a rank less, which is said.
"""

from __future__ import annotations

import re
from collections.abc import Collection

from perfkit.core.shortening import enumerated
from perfkit.record._elsewhere import what_they_are
from perfkit.record.format import Format, Match, Sink
from perfkit.record.formats.logs.log_text import is_named_as_log
from perfkit.record.listing import File, Listing
from perfkit.record.readers import sqlite
from perfkit.record.readers.parts import begins_amid_events

NAMED = 3
_CHANGING = re.compile(r"[0-9a-f]{8,}|\d+", re.IGNORECASE)
_TIMELINES = ("trace_view", "msprof", "step_trace", "hccl", "ascend_timeline")


def report(listing: Listing, chosen: Format, matches: Collection[tuple[Format, Match]], sink: Sink) -> None:
    """Count the files that are named like those that `chosen` read, or hold its events, and that no format recognises."""
    read = next(match for known, match in matches if known is chosen)
    claimed = {file.path for _, match in matches for file in (*match.files, *match.beside)}
    names = {_pattern(file) for file in read.files} if chosen.detail > 1 else set()
    reads_logs = all(is_named_as_log(file) for file in read.files)
    silent = [file.label for file in listing if is_named_as_log(file) and file.size_bytes and file.path not in claimed]
    if reads_logs and silent:
        sink.note(f"logs without a line that is known, which were not read: {enumerated(silent, NAMED)}")
    reads_timelines = any(_is_timeline(file) for file in read.files)
    for file in listing:
        if file.path in claimed or what_they_are([file]) or file.name.endswith(sqlite.COMPANIONS):
            continue
        if _pattern(file) in names:
            sink.drop("file that is named like the others and cannot be recognised: empty, or damaged at its start", 1, file)
        elif (
            chosen.detail > 2
            and file.name.endswith((".json", ".gz"))
            and begins_amid_events(file.head)
            and (reads_timelines or not _is_timeline(file))
        ):
            sink.drop("file with events of a trace that cannot be recognised: damaged at its start", 1, file)
        elif file.name.endswith(".gz") and file.size_bytes and not (file.head and file.is_gzip):
            sink.drop("packed file that cannot be unpacked: damaged at its start", 1, file)
        elif file.head.startswith(sqlite.MAGIC) and not sqlite.table_names(file):
            sink.drop("database that cannot be opened: damaged, or not completely written", 1, file)


def _pattern(file: File) -> str:
    return _CHANGING.sub("#", file.name.partition(".")[0])


def _is_timeline(file: File) -> bool:
    """Whether a file is named like a timeline that profilers write beside their tables, which are read instead where they are."""
    return file.name.startswith(_TIMELINES) and ".json" in file.name
