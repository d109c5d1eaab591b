"""Load: find out what a folder or file is, read it, and give a `Run`.

Files are listed once; every format is asked by content. If several match, the one with the most detail is read and the others
are named in the run's notes, so that nothing is mixed in silence. What reads is imported when something has to be read: a kept run
opens without it, and without the libraries of its tables.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from perfkit.core.errors import InputError
from perfkit.core.run import Dropped, LazyTable, Run
from perfkit.record import _cache, _state, archive
from perfkit.record.listing import Listing, list_files, printable

if TYPE_CHECKING:
    from perfkit.record.format import Format, Match, Progress


def load(path: str | Path, *, format: str | None = None, progress: Progress | None = None, cache: bool = True) -> Run:
    """Read a recorded run: a folder at any depth, one file, or a .zip or .tar(.gz) of them, in any format of `formats()`.

    `format` forces one by name where a folder holds several. With `cache` a large run is kept as tables in the folder of the
    setting PERFKIT_CACHE, so that it opens at once as long as its files do not change. Raises InputError that says what was looked
    for and found if nothing matches, or with everything that is wrong if nothing can be read; otherwise what could not be read is
    counted in `dropped` of the run.
    """
    origin = Path(path).expanduser()
    place = _place(origin, format, cache=cache)
    kept = _kept(origin, place)
    if kept is not None:
        if progress is not None:
            total_bytes = sum(file.size_bytes for file in place.listing.files)
            progress(kept.name, total_bytes, total_bytes)
        return kept
    from perfkit.record import _reading  # noqa: PLC0415  (as above)

    match = place.matches[0][1]
    run, recipe = _reading.read(place.listing, place.matches, progress)
    if not place.is_converted or _reading.growing(match.files):
        return run
    if not _cache.keep(place.key, run, () if match.lazy else match.files, recipe, lazy=match.lazy):
        return run
    return run if match.lazy else _cache.keeping_later(replace(run, cache_key=place.key))


def bytes_to_convert(path: str | Path) -> int:
    """How much `load` would read now to keep it as tables; 0 if that is done or nothing is kept of it. Raises as it does."""
    place = _place(Path(path).expanduser(), None, cache=True)
    if not place.key or _cache.is_kept(place.key) or not place.is_converted:
        return 0
    match = place.matches[0][1]
    return 0 if match.lazy else sum(file.size_bytes for file in match.files)


@dataclass(frozen=True)
class _Place:
    """What is at a path; `key` names what is kept of it in the cache, "" if it is too small for that."""

    root: Path
    listing: Listing
    format: str | None
    key: str

    @cached_property
    def matches(self) -> list[tuple[Format, Match]]:
        """The formats that know the files, which are asked only where nothing is kept."""
        from perfkit.record.recognise import find  # noqa: PLC0415  (as above)

        return find(self.listing, self.format)

    @property
    def is_converted(self) -> bool:
        """Whether what is read of it is worth keeping."""
        match = self.matches[0][1]
        return bool(self.key) and match.is_converted and _state.worth_keeping(match.files)


def _place(origin: Path, format: str | None, *, cache: bool) -> _Place:
    root = archive.unpacked(origin) if origin.is_file() and archive.is_archive(origin) else origin
    listing = list_files(root)
    worth = cache and _state.worth_keeping(listing.files)
    return _Place(root, listing, format, _cache.key_of(_state.files_key(root, listing.files), format) if worth else "")


def _kept(origin: Path, place: _Place) -> Run | None:
    """The kept run, or None if there is none."""
    if not place.key:
        return None
    again = _cache.Again(
        read=lambda: _read_again(origin, place),
        offer=lambda recipe, dropped: _offer_again(origin, place, recipe, dropped),
    )
    return _cache.open_kept(place.key, place.root, again)


def _read_again(origin: Path, place: _Place) -> Run:
    """Read a run whose kept tables were deleted while it was open."""
    from perfkit.record import _reading  # noqa: PLC0415  (as above)

    now = _same(origin, place)
    return _reading.read(now.listing, now.matches, None)[0]


def _offer_again(origin: Path, place: _Place, recipe: Any, dropped: list[Dropped]) -> Mapping[str, LazyTable] | None:
    """The tables of a kept run that are read later, without reading the others; None if its format cannot do that."""
    from perfkit.record.format import Sink  # noqa: PLC0415  (as above)

    chosen, match = _same(origin, place).matches[0]
    if recipe is None or chosen.offer_again is None:
        return None
    sink = Sink(dropped=dropped)
    chosen.offer_again(match, sink, recipe)
    return sink.later


def _same(origin: Path, place: _Place) -> _Place:
    """The place of a kept run as it is now, if that is what was kept."""
    now = _place(origin, place.format, cache=True)
    if now.key != place.key:
        raise InputError(printable(str(now.root)), ["the files have changed since the run was opened; open it again"])
    return now
