"""Reading: what a format reads of its files becomes a `Run`, with all that was lost and left over on the way."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from perfkit.core import clock, placement
from perfkit.core.errors import InputError
from perfkit.core.run import LazyTable, LazyTables, Run
from perfkit.core.settings import memory_limit_bytes
from perfkit.core.units import MIB
from perfkit.record import _left_over, _state
from perfkit.record._jobs import keep_one_job
from perfkit.record.format import Format, Match, Progress, Sink
from perfkit.record.listing import File, Listing, printable

LEAST_MEMORY_BYTES = 256 * MIB
"""What a process takes at the least: Python with its libraries, and blocks of a file as they are decoded."""

_ABOUT_FILES = ("coverage", "accounts")
"""Tables that tell of files, not of the run."""


def read(listing: Listing, matches: list[tuple[Format, Match]], progress: Progress | None) -> tuple[Run, Any]:
    """Read the first of the matches; the others become notes. With what it takes to offer again the tables that are read later."""
    root, (chosen, match) = listing.root, matches[0]
    sink = Sink(progress=progress, total_bytes=sum(file.size_bytes for file in match.files))
    if (limit_bytes := memory_limit_bytes()) < LEAST_MEMORY_BYTES:
        sink.note(
            f"PERFKIT_MEMORY_LIMIT allows {limit_bytes / MIB:.4g} MiB; reading takes about {LEAST_MEMORY_BYTES // MIB} MiB "
            "whatever the size of the files, so the limit cannot be kept"
        )
    chosen.read(match, sink)
    if not match.lazy and sink.clock is None:
        keep_one_job(sink)
        if grown := growing(match.files):
            sink.note(f"{grown[0].label} grew while it was read: a program still writes it; open it again when that is done")
        if torn := unended(listing, match.files):
            first, rest = torn[0].label, len(torn) - 1
            what = "if a table is cut or still being written, its last number may be too"
            sink.note(f"the last line of {first} has no end{f', and {rest} more' if rest else ''}: {what}")
        _left_over.report(listing, chosen, matches, sink)
    if match.lazy and progress is not None:
        progress(printable(root.name), sink.total_bytes, sink.total_bytes)
    for other, left in matches[1:]:
        sink.note(
            f"also found and not read: {other.title}, {len(left.files)} file(s) from {left.files[0].label} on; open that on its own"
        )
    sink.sum_up_losses()
    tables, large = sink.small_tables(), sink.large_tables()
    if not sink.placement and not large and not any(name not in _ABOUT_FILES and len(frame) for name, frame in tables.items()):
        problems = [f"{dropped.file}: {dropped.what} ({dropped.count})" for dropped in sink.dropped]
        raise InputError(
            printable(str(root)), [f"recognised as {chosen.title}, but nothing in it can be read", *problems, *sink.notes]
        )
    run = Run(
        name=printable(root.resolve().name),
        kind=sink.kind,
        format=chosen.name,
        tables=LazyTables({name: LazyTable.of(frame) for name, frame in tables.items()} | {**large, **sink.later})
        if large or sink.later
        else tables,
        placement=sink.placement,
        facts=sink.facts,
        dropped=sink.dropped if sink.later else tuple(sink.dropped),
        notes=tuple(sink.notes),
        clock=sink.clock or {},
    )
    if match.lazy or sink.clock is not None:
        return run, sink.recipe
    return replace(run, placement=placement.positions(run), clock=clock.offsets(clock.estimate(run))), sink.recipe


def growing(files: Sequence[File]) -> list[File]:
    """The files whose size is not what it was when they were listed, unless they are too many to ask."""
    few = files if len(files) <= _state.MANY_FILES else ()
    return [file for file in few if file.path.exists() and file.path.stat().st_size != file.size_bytes]


def unended(listing: Listing, read: Sequence[File]) -> list[File]:
    """The tables beside files `read` whose last line has no end: written so, or cut, which no byte tells apart."""
    folders = {file.path.parent for file in read}
    tables = (file for file in listing if file.name.endswith(".csv") and file.path.parent in folders)
    return [file for file in tables if _last_byte(file) not in b"\r\n" and file.is_plain]


def _last_byte(file: File) -> bytes:
    """The last byte of a file, empty if it has none or cannot be read, which is told where it is read."""
    try:
        with file.path.open("rb", buffering=0) as stream:
            stream.seek(max(0, file.size_bytes - 1))
            return stream.read(1) or b""
    except OSError:
        return b""
