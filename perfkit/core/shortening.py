"""Shortening: how wide a text stands on a screen, a name that is too long with its middle left out, and many names as a few.

Names of operators say at both ends what they are: a C++ kernel begins with its template and ends in its argument types, a path ends
in the file. So the middle goes. Width is counted in cells of a terminal: characters that Unicode calls wide (UAX #11) take two,
marks that combine with the character before take none.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable

LEFT_OUT = "…"


def width_of(text: str) -> int:
    """Cells that `text` takes."""
    return len(text) if text.isascii() else sum(map(_cells, text))


def shortened(text: str, width: int) -> str:
    """`text`, or its beginning and end in at most `width` cells (one at least)."""
    if width_of(text) <= width:
        return text
    end = _first(text[::-1], (width - 1) // 2)[::-1]
    return f"{_first(text, width - 1 - width_of(end))}{LEFT_OUT}{end}"


def enumerated(words: Iterable[object], most: int) -> str:
    """The first `most` words with commas between, and how many more there are."""
    found = [str(word) for word in words]
    more = f" and {len(found) - most} more" if len(found) > most else ""
    return ", ".join(found[:most]) + more


def _first(text: str, width: int) -> str:
    """As much of the beginning as `width` cells hold."""
    used = 0
    for index, char in enumerate(text):
        used += _cells(char)
        if used > width:
            return text[:index]
    return text


def _cells(char: str) -> int:
    return 0 if unicodedata.combining(char) else 2 if unicodedata.east_asian_width(char) in "WF" else 1
