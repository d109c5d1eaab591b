"""Where the bundled samples and notebooks are: beside the package in a checkout, inside it in a wheel.

A page is a notebook named NN_topic.ipynb. Its number and group come from its name, its title from its first heading.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

_PACKAGE = Path(__file__).resolve().parents[1]


def data_folder() -> Path:
    """The folder with models.toml, hardware.toml, reference tables and samples."""
    return _first_existing(_PACKAGE / "_data", _PACKAGE.parent / "data")


def notebooks_folder() -> Path:
    """The folder with the guided pages."""
    return _first_existing(_PACKAGE / "_notebooks", _PACKAGE.parent / "notebooks")


@dataclass(frozen=True, slots=True)
class Page:
    """A guided page: `name` is its file name without suffix, `number` its first two digits, `group` its part of the app.

    `title` is its question, `short` what it is about in a word or two: its file name in words.
    """

    name: str
    number: str
    title: str
    group: str

    @property
    def short(self) -> str:
        """What the page is about, for a list of pages."""
        words = " ".join(_SPELLED.get(word, word) for word in self.name[3:].split("_"))
        return words[0].upper() + words[1:]


_SPELLED = {"13b": "13B", "dryrun": "dry run", "ir": "IR", "silu": "SiLU"}


GROUPS = {"0": "Plan", "1": "Find", "2": "Find", "3": "Learn", "4": "Learn"}
"""The group of a page by its first digit."""
OTHER_GROUPS = {"00": "", "10": "Measure", "19": "Measure", "21": "Decide", "22": "Decide"}
"""The group of pages whose first digit does not tell it; that of the first page has no name."""
GROUP_ORDER = ("", "Plan", "Measure", "Find", "Decide", "Learn", "More")

_PAGE_NAME = re.compile(r"^(\d)(\d)_[a-z0-9_]+$")


def pages(folder: Path | None = None) -> tuple[Page, ...]:
    """The pages in `folder` (the bundled ones), in order of their numbers."""
    folder = folder or notebooks_folder()
    found = []
    for path in sorted(folder.glob("*.ipynb")):
        if match := _PAGE_NAME.match(path.stem):
            number = match[1] + match[2]
            group = OTHER_GROUPS.get(number, GROUPS.get(match[1], "More"))
            found.append(Page(path.stem, number, _first_heading(path) or path.stem[3:].replace("_", " ").capitalize(), group))
    return tuple(found)


def _first_heading(path: Path) -> str | None:
    """Read once: a page asks for the titles of all several times, as does the server for each page."""
    state = path.stat()
    return _heading_in(path, state.st_mtime_ns, state.st_size)


@lru_cache(maxsize=256)
def _heading_in(path: Path, _mtime_ns: int, _size_bytes: int) -> str | None:
    cells = json.loads(path.read_text(encoding="utf-8")).get("cells", [])
    for cell in cells:
        for line in "".join(cell.get("source", "")).splitlines():
            if cell.get("cell_type") == "markdown" and line.startswith("# "):
                return line[2:].strip()
    return None


def _first_existing(*folders: Path) -> Path:
    for folder in folders:
        if folder.is_dir():
            return folder
    raise FileNotFoundError(f"perfkit is installed without its {folders[-1].name} folder; reinstall it")
