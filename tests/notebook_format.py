"""The one form of a page: readable cell ids, no outputs, no counts, minimal metadata.

`python -m tests.notebook_format --fix` normalises every page; `--edit 02` opens one as text in $EDITOR and writes it back with
its cell ids. `test_notebooks.py` fails on a page that is not normal.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

FOLDER = Path(__file__).resolve().parents[1] / "notebooks"
MAX_LINES = 18
"""Of one cell: controls, and about ten lines that one reads."""
TAGS = ("parameters", "yours")
"""What a cell can be besides: `parameters` are set by `perfkit run-notebook`; `yours` is to go on from and left out by the app."""
CELL_ID = re.compile(r"^[a-z][a-z0-9-]{1,40}$")
METADATA = {
    "kernelspec": {"display_name": "Python 3 (ipykernel)", "language": "python", "name": "python3"},
    "language_info": {"name": "python"},
}


def pages() -> list[Path]:
    """All pages, in order."""
    return sorted(FOLDER.glob("*.ipynb"))


def normal(text: str) -> str:
    """The normal form of a page's text."""
    notebook = json.loads(text)
    cells = []
    for cell in notebook["cells"]:
        source = "".join(cell["source"]).rstrip()
        clean = {
            "cell_type": cell["cell_type"],
            "id": cell.get("id", ""),
            "metadata": {"tags": tags} if (tags := cell.get("metadata", {}).get("tags")) else {},
            "source": source.splitlines(keepends=True),
        }
        if cell["cell_type"] == "code":
            clean |= {"execution_count": None, "outputs": []}
        cells.append(dict(sorted(clean.items())))
    document = {"cells": cells, "metadata": METADATA, "nbformat": 4, "nbformat_minor": 5}
    return json.dumps(document, indent=1, ensure_ascii=False) + "\n"


def problems(text: str) -> list[str]:
    """What breaks the rules of a page, beyond its form."""
    found = []
    cells = json.loads(text)["cells"]
    ids = [cell.get("id", "") for cell in cells]
    found += [f"cell id {cell_id!r} is not readable" for cell_id in ids if not CELL_ID.match(cell_id)]
    found += [f"cell id {cell_id!r} is used twice" for cell_id in {i for i in ids if ids.count(i) > 1}]
    for cell in cells:
        source = "".join(cell["source"])
        if cell["cell_type"] != "code":
            continue
        found += [f"cell {cell.get('id')!r} has the unknown tag {tag!r}" for tag in set(_tags(cell)) - set(TAGS)]
        if len(source.splitlines()) > MAX_LINES:
            found.append(f"cell {cell.get('id')!r} has more than {MAX_LINES} lines")
        if re.search(r"^\s*(class|while|try)\b", source, re.MULTILINE):
            found.append(f"cell {cell.get('id')!r} holds more than a composition; it belongs into the package")
    return found


def _tags(cell: dict) -> list[str]:
    return cell.get("metadata", {}).get("tags", [])


def _as_text(notebook: dict) -> str:
    return "\n".join(
        f"# %% {cell['id']} [{' '.join([cell['cell_type'], *_tags(cell)])}]\n{''.join(cell['source'])}\n"
        for cell in notebook["cells"]
    )


def _from_text(text: str) -> dict:
    pieces = re.split(r"^# %% (\S+) \[([\w ]+)\]\n", text, flags=re.MULTILINE)[1:]
    cells = [
        {
            "id": cell_id,
            "cell_type": kind.split()[0],
            "metadata": {"tags": kind.split()[1:]},
            "source": source.strip("\n").splitlines(keepends=True),
        }
        for cell_id, kind, source in zip(pieces[::3], pieces[1::3], pieces[2::3], strict=True)
    ]
    return {"cells": cells}


def write(page: str, text: str) -> None:
    """Write the page `page` (its name without ending) from its text, as `--edit` shows it."""
    (FOLDER / f"{page}.ipynb").write_text(normal(json.dumps(_from_text(text))), encoding="utf-8")


def edit(page: str) -> None:
    """Open the page whose name starts with `page` as text and write it back."""
    path = next(path for path in pages() if path.name.startswith(page))
    with tempfile.NamedTemporaryFile("w+", suffix=".py", encoding="utf-8") as file:
        file.write(_as_text(json.loads(path.read_text(encoding="utf-8"))))
        file.flush()
        subprocess.run([os.environ.get("EDITOR", "vi"), file.name], check=True)
        changed = _from_text(Path(file.name).read_text(encoding="utf-8"))
    path.write_text(normal(json.dumps(changed)), encoding="utf-8")


if __name__ == "__main__":
    if "--edit" in sys.argv:
        edit(sys.argv[sys.argv.index("--edit") + 1])
    for page in pages():
        before = page.read_text(encoding="utf-8")
        if "--fix" in sys.argv and normal(before) != before:
            page.write_text(normal(before), encoding="utf-8")
            print(f"normalised {page.name}")
