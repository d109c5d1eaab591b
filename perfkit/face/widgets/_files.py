"""Files: what a path picker lists while the visitor walks through folders of this machine."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from perfkit.core.roots import is_allowed, roots

MAX_ENTRIES = 300


def list_folder(folder: str) -> dict[str, Any]:
    """The visible entries of `folder`, of the folder that holds it if it is a file, or of the first place if it is empty.

    The first place is the first of the roots where there are any, else the home folder. Outside of the roots the first of them is
    listed instead; a root shows the others beside its entries. `{"folder", "parent", "entries": [{"name", "path", "folder"}],
    "note"}`; folders first. What cannot be read is said in `note`.
    """
    allowed = roots()
    first = allowed[0] if allowed else Path.home()
    place = Path(folder.strip() or first).expanduser()
    if not place.is_dir():
        place = place.parent if place.parent.is_dir() else first
    place = place.resolve() if is_allowed(place) else first
    entries, note = _entries(place)
    others = [root for root in allowed if root != place] if place in allowed else []
    return {
        "folder": str(place),
        "parent": None if place.parent == place or place in allowed else str(place.parent),
        "entries": [*({"name": root.name, "path": str(root), "folder": True} for root in others), *entries[:MAX_ENTRIES]],
        "note": note or (f"{len(entries) - MAX_ENTRIES} more entries are not listed" if len(entries) > MAX_ENTRIES else ""),
    }


def completions(text: str, most: int = 20) -> list[str]:
    """Paths that begin with `text`, folders with a slash at the end; none outside of the roots."""
    text = text.strip()
    folder, _, begin = text.rpartition(os.sep)
    place = Path(folder or os.sep).expanduser()
    if os.sep not in text or not is_allowed(place) or not place.is_dir():
        return [str(root) for root in roots() if text and str(root).startswith(text)][:most]
    found = [row for row in _entries(place)[0] if row["name"].lower().startswith(begin.lower())]
    return [f"{folder}{os.sep}{row['name']}{os.sep if row['folder'] else ''}" for row in found[:most]]


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
