"""Documents: what was said of a recording as plain data, kept as long as its files and the code that said it stay the same.

Asked again, it needs neither the tables of the recording nor the libraries that read them.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

from perfkit.core.errors import PerfkitError
from perfkit.core.resources import data_folder
from perfkit.record import _state, archive, entries
from perfkit.record.listing import list_files

_KIND = "documents"
_FILE = "document.json"


def document_of(path: str | Path, question: str, make: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """The answer to `question` about the recording at `path`: the one that was kept, else what `make` gives, which is kept then.

    Nothing is kept of archives, of files that change meanwhile, or where the disk does not allow it.
    """
    origin = Path(path).expanduser()
    folder = _folder(origin, question)
    found = None if folder is None else _kept(folder)
    if found is not None:
        return found
    document = make()
    if folder is not None and folder == _folder(origin, question):
        _keep(folder, document)
    return document


def _folder(origin: Path, question: str) -> Path | None:
    """Where the answer is or would be; None for what is not kept, or is no recording, which `make` says in words."""
    try:
        if origin.is_file() and archive.is_archive(origin):
            return None
        key = _state.files_key(origin, list_files(origin).files)
    except (OSError, PerfkitError):
        return None
    return entries.entry(_KIND, _state.state_key([key, _code(), question], []))


def _kept(folder: Path) -> dict[str, Any] | None:
    try:
        found = json.loads((folder / _FILE).read_text(encoding="utf-8"))
        entries.used(folder)
        return dict(found)
    except (OSError, ValueError, TypeError):
        return None


def _keep(folder: Path, document: dict[str, Any]) -> None:
    try:
        entries.remove(folder)  # a damaged one
        with entries.new_entry(folder) as work:
            (work / _FILE).write_text(json.dumps(document), encoding="utf-8")
        entries.make_room()
    except (OSError, ValueError, TypeError):
        return  # then it is made anew the next time


@cache
def _code() -> str:
    """A hash over the code and the catalogues that make documents of recordings, which nobody can forget to change."""
    rooms = (Path(__file__).parents[1] / room for room in ("core", "config", "predict", "explain"))
    made_with = [path for room in rooms for path in sorted(room.rglob("*.py"))] + sorted(data_folder().glob("**/*.toml"))
    return hashlib.blake2b(b"".join(path.read_bytes() for path in made_with), digest_size=16).hexdigest()
