"""Notebooks of a project: its own copies of the pages, recorded with their version, so that an edit is the user's.

`notebooks/pages.json` says of every copy which version of perfkit it is of, and the digest of its cells as they were. A newer page
is never written over a copy: `difference` shows what changed, `take` puts it in the place of the copy, which is kept beside it.
"""

from __future__ import annotations

import difflib
import hashlib
import json
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from perfkit.core import settings
from perfkit.core.errors import InputError
from perfkit.core.resources import notebooks_folder
from perfkit.core.texts import say

FOLDER, RECORD = "notebooks", "pages.json"
State = Literal["as it came", "edited", "newer page", "edited, newer page"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Copy:
    """A page in a project: its name, the version of perfkit that it is of ("" if nothing is recorded), and its file."""

    name: str
    version: str
    file: Path
    edited: bool
    newer: bool

    @property
    def state(self) -> State:
        """Whether it was edited, and whether the page of this perfkit is another one."""
        if self.newer:
            return "edited, newer page" if self.edited else "newer page"
        return "edited" if self.edited else "as it came"


def copies(project: Path) -> list[Copy]:
    """The copies of pages in a project, in their order; none where there are no notebooks. Raises InputError for a bad record."""
    folder, record = project / FOLDER, _record(project)
    found = []
    for page in _pages():
        file = folder / page.name
        if not file.is_file():
            continue
        own, now, known = _digest(file), _digest(page), record.get(page.stem, {})
        edited, newer = own not in (now, known.get("digest")), now not in (own, known.get("digest"))
        found.append(Copy(name=page.stem, version=str(known.get("version", "")), file=file, edited=edited, newer=newer))
    return found


def copy_pages(project: Path, *, version: str) -> Path:
    """Write the pages of this `version` that the project has no copy of, with what is recorded; the folder that they lie in.

    A file that is there stays as it is. In the folder of the pages themselves nothing is written.
    """
    folder = project / FOLDER
    missing = [page for page in _pages() if not (folder / page.name).exists()]
    if missing:
        folder.mkdir(parents=True, exist_ok=True)
        for page in missing:
            shutil.copyfile(page, folder / page.name)
        _write(project, {page.stem: _entry(page, version) for page in missing})
    return folder


def told(project: Path) -> tuple[str, ...]:
    """Which pages of a project have newer ones, and how to see the difference; nothing where all are as this perfkit has them."""
    behind = [copy for copy in copies(project) if copy.newer]
    if not behind:
        return ()
    form = (
        "{count} page of notebooks/ is of an older perfkit: {names}"
        if len(behind) == 1
        else "{count} pages of notebooks/ are of an older perfkit: {names}"
    )
    names = ", ".join(copy.name[:2] for copy in behind)
    return (
        say(form, count=str(len(behind)), names=names),
        say("see the difference with: perfkit notebooks {page} --folder {folder}", page=behind[0].name[:2], folder=str(project)),
    )


def difference(project: Path, page: str) -> str:
    """What the page of this perfkit has that the copy has not, as a unified diff of their cells as text; empty for none."""
    copy, new = _both(project, page)
    own, other = f"{FOLDER}/{copy.file.name} (of {copy.version or 'no version'})", f"{new.name} (of this perfkit)"
    return "".join(difflib.unified_diff(_lines_of(copy.file), _lines_of(new), own, other))


def take(project: Path, page: str, *, version: str) -> Path:
    """Put the page of this `version` of perfkit in the place of the copy, which is kept beside it; the file that keeps it.

    Raises InputError if there is nothing newer.
    """
    copy, new = _both(project, page)
    if _digest(copy.file) == _digest(new):
        raise InputError(copy.name, ["is the page of this perfkit already"])
    kept = copy.file.with_name(f"{copy.name}.of-{copy.version or 'before'}.ipynb")
    number = 2
    while kept.exists():
        kept = copy.file.with_name(f"{copy.name}.of-{copy.version or 'before'}-{number}.ipynb")
        number += 1
    copy.file.rename(kept)
    shutil.copyfile(new, copy.file)
    _write(project, {copy.name: _entry(new, version)})
    return kept


def _both(project: Path, page: str) -> tuple[Copy, Path]:
    found = {name: copy for copy in copies(project) for name in (copy.name, copy.name[:2])}
    if page not in found:
        there = ", ".join(dict.fromkeys(copy.name[:2] for copy in found.values())) or "none; `perfkit serve --lab` makes them"
        raise InputError(str(project / FOLDER), [f"there is no copy of page {page!r}; there are {there}"])
    return found[page], next(path for path in _pages() if path.stem == found[page].name)


def _pages() -> list[Path]:
    return sorted((settings.pages_folder() or notebooks_folder()).glob("[0-9][0-9]_*.ipynb"))


def _entry(page: Path, version: str) -> dict[str, str]:
    return {"version": version, "digest": _digest(page)}


def _record(project: Path) -> dict[str, dict[str, Any]]:
    path = project / FOLDER / RECORD
    if not path.is_file():
        return {}
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise InputError(
            str(path), [f"is not what perfkit wrote there: {error}; remove it, and every page counts as edited"]
        ) from error
    whole = isinstance(found, dict) and all(isinstance(entry, dict) for entry in found.values())
    if not whole:
        raise InputError(str(path), ["is no table of pages; remove it, and every page counts as edited"])
    return dict(found)


def _write(project: Path, entries: dict[str, dict[str, str]]) -> None:
    path = project / FOLDER / RECORD
    text = json.dumps(_record(project) | entries, indent=1, sort_keys=True) + "\n"
    half = path.with_suffix(".part")
    half.write_text(text, encoding="utf-8")
    half.replace(path)


def _digest(path: Path) -> str:
    """Of the cells as one reads them: what running a notebook adds to its file is no edit."""
    try:
        return hashlib.sha256("".join(_lines_of(path)).encode("utf-8")).hexdigest()
    except InputError:  # a file that is no notebook any more is one that was edited
        return ""


def _lines_of(path: Path) -> Sequence[str]:
    """The cells of a notebook as the lines of a text. Raises InputError for what is none."""
    lines: list[str] = []
    try:
        for cell in json.loads(path.read_text(encoding="utf-8"))["cells"]:
            source = "".join(cell["source"]).rstrip("\n")
            lines += [f"# %% [{cell['cell_type']}]\n", *(f"{line}\n" for line in source.split("\n"))]
    except (ValueError, KeyError, TypeError) as error:
        raise InputError(str(path), ["is no notebook"]) from error
    return lines
