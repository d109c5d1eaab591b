"""Recognise: which formats there are, and which of them know the files of a listing, by content."""

from __future__ import annotations

from perfkit.core import discover
from perfkit.core.errors import InputError
from perfkit.core.shortening import enumerated
from perfkit.record.format import Format, Match
from perfkit.record.listing import Listing, printable


def formats() -> tuple[Format, ...]:
    """All trace formats, in the order of their module names."""
    return discover.constants("perfkit.record.formats", "FORMAT")


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
    from perfkit.record._elsewhere import what_they_are  # noqa: PLC0415  (its patterns take as long as a small file)

    return what_they_are([file for file in listing.files if file.size_bytes])


def _nothing_found(listing: Listing, candidates: list[Format]) -> list[str]:
    from perfkit.record.readers.parts import begins_amid_events  # noqa: PLC0415  (as above)

    names = enumerated([file.label for file in listing.files], 5)
    empty = sum(file.size_bytes == 0 for file in listing.files)
    if len(candidates) > 1 and (known := looks_like(listing)):
        return known
    if len(candidates) > 1 and (cut := [file.label for file in listing.files if begins_amid_events(file.head)]):
        return [
            f"{enumerated(cut, 5)}: events of a trace without its beginning, which says what they are; copy it again as a whole"
        ]
    problems = [f"no known format in {len(listing.files)} files: {names}"]
    if empty:
        problems.append(f"{empty} of them {'is' if empty == 1 else 'are'} empty (0 bytes)")
    return problems + [f"looked for {candidate.title}: {candidate.looks_for}" for candidate in candidates]
