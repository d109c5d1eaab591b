"""Load: find out what a folder or file is, read it, and give a `Run`.

Files are listed once; every format is asked by content. If several match, the one with the most detail is read and the others
are named in the run's notes, so that nothing is mixed in silence.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from perfkit.core import clock, discover, placement
from perfkit.core.errors import InputError
from perfkit.core.run import Dropped, LazyTable, LazyTables, Run
from perfkit.core.settings import memory_limit_bytes
from perfkit.core.shortening import enumerated
from perfkit.core.units import MIB
from perfkit.record import _cache, _state, archive
from perfkit.record._jobs import keep_one_job
from perfkit.record.format import Format, Match, Progress, Sink
from perfkit.record.listing import File, Listing, list_files, printable

LEAST_MEMORY_BYTES = 256 * MIB
"""What a process takes at the least: Python with its libraries, and blocks of a file as they are decoded."""

_ABOUT_FILES = ("coverage", "accounts")
"""Tables that tell of files, not of the run."""


def formats() -> tuple[Format, ...]:
    """All trace formats, in the order of their module names."""
    return discover.constants("perfkit.record.formats", "FORMAT")


def load(path: str | Path, *, format: str | None = None, progress: Progress | None = None, cache: bool = True) -> Run:
    """Read a recorded run: a folder at any depth, one file, or a .zip or .tar(.gz) of them, in any format of `formats()`.

    `format` forces one by name where a folder holds several. With `cache` a large run is kept as tables in the folder of the
    setting PERFKIT_CACHE, so that it opens at once as long as its files do not change. Raises InputError that says what was looked
    for and found if nothing matches, or with everything that is wrong if nothing can be read; otherwise what could not be read is
    counted in `dropped` of the run.
    """
    origin = Path(path).expanduser()
    place = _place(origin, format, cache=cache)
    if not place.key:
        return _read(place.listing, place.matches, progress)[0]
    chosen, match = place.matches[0]
    again = _cache.Again(
        read=lambda: _read_again(origin, format, place.key),
        offer=lambda recipe, dropped: _offer_again(origin, format, place.key, recipe, dropped),
    )
    kept = _cache.open_kept(place.key, place.root, again)
    if kept is not None:
        total_bytes = sum(file.size_bytes for file in match.files)
        if progress is not None:
            progress(kept.name, total_bytes, total_bytes)
        return kept
    run, recipe = _read(place.listing, find(place.listing, format), progress)
    if _growing(match.files) or not _cache.keep(place.key, run, () if match.lazy else match.files, recipe, lazy=match.lazy):
        return run
    _cache.remember(place.files, format, chosen)
    return run if match.lazy else _cache.keeping_later(replace(run, cache_key=place.key))


def bytes_to_convert(path: str | Path) -> int:
    """How much `load` would read now to keep it as tables; 0 if that is done or nothing is kept of it. Raises as it does."""
    place = _place(Path(path).expanduser(), None, cache=True)
    match = place.matches[0][1]
    return 0 if not place.key or match.lazy or _cache.is_kept(place.key) else sum(file.size_bytes for file in match.files)


def files_beside(path: str | Path) -> tuple[File, ...]:
    """The files that the format of a recording reads beside those at `path`."""
    return tuple(_place(Path(path).expanduser(), None, cache=True).matches[0][1].beside)


@dataclass(frozen=True, slots=True)
class _Place:
    """What is at a path: `key` names what is kept of it in the cache, "" for nothing, `files` the state of its files."""

    root: Path
    listing: Listing
    matches: list[tuple[Format, Match]]
    key: str = ""
    files: str = ""


def _place(origin: Path, format: str | None, *, cache: bool) -> _Place:
    root = _opened(origin)
    listing = list_files(root)
    if not cache or not _state.worth_keeping(listing.files):
        return _Place(root, listing, find(listing, format))
    files = _state.files_key(root, listing.files)
    known = _remembered(_cache.remembered(files, format), listing)
    matches = find(listing, format) if known is None else [known]
    chosen, match = matches[0]
    if not _state.worth_keeping(match.files):
        return _Place(root, listing, matches)
    return _Place(root, listing, matches, _cache.key_of(files, chosen, match.beside), files)


def _remembered(name: str | None, listing: Listing) -> tuple[Format, Match] | None:
    """The format of that name with what it claims, if there is one and it claims something; no other one is imported."""
    if name is None:
        return None
    try:
        chosen: Format = discover.constant("perfkit.record.formats", name.replace("-", "_"), "FORMAT")
    except (ImportError, AttributeError):
        return None
    match = chosen.detect(listing)
    return None if match is None else (chosen, match)


def _read(listing: Listing, matches: list[tuple[Format, Match]], progress: Progress | None) -> tuple[Run, Any]:
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
        if growing := _growing(match.files):
            sink.note(f"{growing[0].label} grew while it was read: a program still writes it; open it again when that is done")
        from perfkit.record import _left_over  # noqa: PLC0415  (its patterns take a tenth of opening a kept run)

        _left_over.report(listing, chosen, matches, sink)
    if match.lazy and progress is not None:
        progress(printable(root.name), sink.total_bytes, sink.total_bytes)
    for other, left in matches[1:]:
        sink.note(
            f"also found and not read: {other.title}, {len(left.files)} file(s) from {left.files[0].label} on; open that on its own"
        )
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


def _growing(files: Sequence[File]) -> list[File]:
    """The files whose size is not what it was when they were listed, unless they are too many to ask."""
    few = files if len(files) <= _state.MANY_FILES else ()
    return [file for file in few if file.path.exists() and file.path.stat().st_size != file.size_bytes]


def _opened(origin: Path) -> Path:
    return archive.unpacked(origin) if origin.is_file() and archive.is_archive(origin) else origin


def _read_again(origin: Path, format: str | None, key: str) -> Run:
    """Read a run whose kept tables were deleted while it was open."""
    return _read(*_same(origin, format, key), None)[0]


def _offer_again(origin: Path, format: str | None, key: str, recipe: Any, dropped: list[Dropped]) -> Mapping[str, LazyTable] | None:
    """The tables of a kept run that are read later, without reading the others; None if its format cannot do that."""
    chosen, match = _same(origin, format, key)[1][0]
    if recipe is None or chosen.offer_again is None:
        return None
    sink = Sink(dropped=dropped)
    chosen.offer_again(match, sink, recipe)
    return sink.later


def _same(origin: Path, format: str | None, key: str) -> tuple[Listing, list[tuple[Format, Match]]]:
    """The place of a kept run and what is there, if that is what was kept."""
    root = _opened(origin)
    listing = list_files(root)
    matches = find(listing, format)
    chosen, match = matches[0]
    if _cache.key_of(_state.files_key(root, listing.files), chosen, match.beside) != key:
        raise InputError(printable(str(root)), ["the files have changed since the run was opened; open it again"])
    return listing, matches


def find(listing: Listing, format: str | None = None) -> list[tuple[Format, Match]]:
    """The formats that recognise something in a listing, the most detailed first; InputError if none does."""
    candidates = [candidate for candidate in formats() if format in (None, candidate.name)]
    if not candidates:
        raise InputError("format", [f"{format!r} is no format; known are {', '.join(known.name for known in formats())}"])
    found = [(candidate, match) for candidate in candidates if (match := candidate.detect(listing)) is not None]
    if not found:
        raise InputError(printable(str(listing.root)), _nothing_found(listing, candidates))
    return sorted(found, key=lambda pair: (-pair[0].detail, -len(pair[1].files), pair[0].name))


def looks_like(listing: Listing) -> list[str]:
    """What the files look like that no format takes, one line a kind with where it belongs; empty if nothing is known of them."""
    from perfkit.record._elsewhere import what_they_are  # noqa: PLC0415  (as above)

    return what_they_are([file for file in listing.files if file.size_bytes])


def _nothing_found(listing: Listing, candidates: list[Format]) -> list[str]:
    names = enumerated([file.label for file in listing.files], 5)
    empty = sum(file.size_bytes == 0 for file in listing.files)
    if len(candidates) > 1 and (known := looks_like(listing)):
        return known
    problems = [f"no known format in {len(listing.files)} files: {names}"]
    if empty:
        problems.append(f"{empty} of them {'is' if empty == 1 else 'are'} empty (0 bytes)")
    return problems + [f"looked for {candidate.title}: {candidate.looks_for}" for candidate in candidates]
