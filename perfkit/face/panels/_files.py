"""Files: what a path picker lists while the visitor walks through folders of this machine."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from perfkit.core import settings
from perfkit.core.resources import data_folder

MAX_ENTRIES = 300


def roots() -> tuple[Path, ...]:
    """Folders that may be opened: those of the settings, the project and the bundled samples; empty: any."""
    allowed = settings.allowed_roots()
    project = settings.project_folder()
    return (*allowed, *([project.resolve()] if project else []), data_folder().resolve()) if allowed else ()


def is_allowed(path: str) -> bool:
    """Whether `path`, with its links followed, lies where pages may open files."""
    found = roots()
    return not found or any(Path(path).expanduser().resolve().is_relative_to(root) for root in found)


def list_folder(folder: str) -> dict[str, Any]:
    """The visible entries of `folder`, of the folder that holds it if it is a file, or of the home folder if it is empty.

    Outside of `roots` the first of them is listed instead. `{"folder", "parent", "entries": [{"name", "path", "folder"}], "note"}`;
    folders first. What cannot be read is said in `note`.
    """
    place = Path(folder.strip() or Path.home()).expanduser()
    if not place.is_dir():
        place = place.parent if place.parent.is_dir() else Path.home()
    place = place.resolve()
    allowed = roots()
    if not is_allowed(str(place)):
        place = allowed[0]
    entries, note = _entries(place)
    return {
        "folder": str(place),
        "parent": None if place.parent == place or place in allowed else str(place.parent),
        "entries": entries[:MAX_ENTRIES],
        "note": note or (f"{len(entries) - MAX_ENTRIES} more entries are not listed" if len(entries) > MAX_ENTRIES else ""),
    }


def _entries(place: Path) -> tuple[list[dict[str, Any]], str]:
    try:
        with os.scandir(place) as found:
            rows = [
                {"name": _printable(entry.name), "path": _printable(entry.path), "folder": entry.is_dir()}
                for entry in found
                if not entry.name.startswith(".")
            ]
    except OSError as error:
        return [], f"cannot be listed: {error.strerror}"
    return sorted(rows, key=lambda row: (not row["folder"], row["name"].lower())), ""


def _printable(text: str) -> str:
    # Names that are no UTF-8 arrive with surrogates, which JSON cannot carry to a browser.
    return text.encode("utf-8", "surrogateescape").decode("utf-8", "replace")
