"""Paths of parts in words: code and files have `computing/backward/matmul`, people read `computing · backward · matmul`."""

from __future__ import annotations

import re
from collections.abc import Mapping

PARTS = frozenset({"path", "part"})
"""Columns that hold parts, in charts and tables."""
_ROOTS = "computing|communication|free|static|dynamic|reserved|layers|head|embedding"
_PATH = re.compile(rf"(?<![\w/.-])(?:{_ROOTS})(?:/[a-z][a-z0-9_]*)+(?![\w/-]|\.\w)")
_CALLED: Mapping[str, str] = {
    "communication/exposed": "exposed communication",
    "communication/hidden": "hidden communication",
}
"""What has a name of its own."""
PATH_LABELS = (
    f"{_CALLED!r}[datum.label] || (test(regexp('^({_ROOTS})/'), datum.label) ? "
    "replace(replace(datum.label, regexp('/', 'g'), ' · '), regexp('_', 'g'), ' ') : datum.label)"
)
"""The same as an expression of the chart library."""


def words_of_paths(text: str) -> str:
    """`text` with the paths of parts in it as words; any other text as it is."""
    return _PATH.sub(lambda found: _words(found[0]), text) if "/" in text else text


def _words(path: str) -> str:
    whole = next((known for known in _CALLED if path == known or path.startswith(f"{known}/")), "")
    pieces = [_CALLED[whole], *path[len(whole) :].split("/")[1:]] if whole else path.split("/")
    return " · ".join(piece.replace("_", " ") for piece in pieces)
