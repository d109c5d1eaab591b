"""Failed log: the log of a job that printed errors and no step that another format reads.

A job that ends before its first step has nothing else to show. Beside logs with steps such a log is read with them.
"""

from __future__ import annotations

import re

from perfkit.record.format import Format, Match, Sink
from perfkit.record.formats.logs._incidents import MARKER
from perfkit.record.formats.logs.log_text import find_logs, rank_of, read_lines
from perfkit.record.listing import Listing

_STEPS = re.compile(
    rb"per_step_time:|step:\s*\[\s*\d+|iteration:?\s+\d+\s*/|using world size|tps:\s*\d|Device MOC memory size|Used peak memory"
)


def detect(listing: Listing) -> Match | None:
    """Claim the logs with incidents where no log has steps or memory statistics."""
    files = find_logs(listing, MARKER)
    return Match(files=files) if files and not find_logs(listing, _STEPS) else None


def read(match: Match, sink: Sink) -> None:
    """Read every log for its incidents."""
    for file in match.files:
        before = sink.count("incidents")
        for _ in read_lines(file, sink):
            pass
        rows = sink.count("incidents") - before
        sink.cover(rank_of(file) or 0, "incidents", file, rows=rows, state=None if rows else "empty")


FORMAT = Format(
    name="failed-log",
    title="log of a failed job",
    looks_for="a log with lines about failed allocations, collectives that timed out, ECC errors or errors of the device",
    detail=0,
    detect=detect,
    read=read,
)
