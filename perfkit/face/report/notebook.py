"""Notebook: a page run from top to bottom without a browser, as one HTML page that requests nothing.

The cells run in a kernel of their own, those tagged `parameters` with the values that were given. A step that fails says so in its
place, and the others go on.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from jupyter_client.manager import KernelManager

from perfkit.core import settings
from perfkit.core.errors import InputError
from perfkit.core.resources import notebooks_folder
from perfkit.face.charts.spec import ChartSpec
from perfkit.face.report._page import html_page
from perfkit.face.report._parts import Drawing, Part
from perfkit.face.widgets.placed import STEP_MIME
from perfkit.project.experiments.export import Section

KERNEL_TIMEOUT_S, CELL_TIMEOUT_S = 120.0, 900.0
_ASSIGNED = re.compile(r"^(\w+) = ", re.MULTILINE)
_TAG = re.compile(r"<[^>]+>|\*\*|`|^[-#] ", re.MULTILINE)
Cell = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Finished:
    """A page that was run: as HTML, with the titles of the steps that failed and of those that had nothing to show."""

    page: str
    failed: tuple[str, ...]
    empty: tuple[str, ...]


def run_notebook(page: str, parameters: Mapping[str, str] | None = None) -> Finished:
    """Run the page of a number ("11"), a name, or a notebook file, with `parameters` in place of those in its tagged cell.

    Raises InputError for a page or parameter that does not exist, and for a cell that fails outside of a step.
    """
    path = _found(page)
    cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    _refuse(path, cells, parameters or {})
    parts: list[Part] = []
    failed: list[str] = []
    empty: list[str] = []
    for cell, outputs in _executed(path, cells, parameters or {}):
        if cell["cell_type"] == "markdown":
            parts += list(_words("".join(cell["source"]), title=not parts))
        for step in outputs:
            parts += list(_step_parts(step))
            if step["status"]["state"] != "result":
                (failed if step["status"]["state"] == "error" else empty).append(step["title"])
    return Finished(html_page(parts), tuple(failed), tuple(empty))


def _found(page: str) -> Path:
    if Path(page).suffix == ".ipynb" and Path(page).is_file():
        return Path(page)
    folder = settings.pages_folder() or notebooks_folder()
    known = sorted(folder.glob("*.ipynb"))
    for path in known:
        if page in (path.stem, path.name[:2]):
            return path
    raise InputError("run-notebook", [f"page {page!r} does not exist; there are {', '.join(path.name[:2] for path in known)}"])


def _refuse(path: Path, cells: list[Cell], parameters: Mapping[str, str]) -> None:
    known = {name for cell in cells if _is_parameters(cell) for name in _ASSIGNED.findall("".join(cell["source"]))}
    problems = [
        f"{name!r} is no parameter of the page; there are {', '.join(sorted(known)) or 'none'}"
        for name in parameters
        if name not in known
    ]
    if problems:
        raise InputError(path.name, problems)


def _is_parameters(cell: Cell) -> bool:
    return "parameters" in cell.get("metadata", {}).get("tags", ())


def _executed(path: Path, cells: list[Cell], parameters: Mapping[str, str]) -> Iterator[tuple[Cell, list[dict[str, Any]]]]:
    """Every cell with what its steps show."""
    environment = {**os.environ, "PERFKIT_PUBLISH_STEPS": "1", "SCRIPT_NAME": path.stem, "QUERY_STRING": ""}
    manager = KernelManager(kernel_name="python3", transport="tcp" if os.name == "nt" else "ipc")
    manager.start_kernel(env=environment)
    client = manager.client()
    client.start_channels()
    try:
        client.wait_for_ready(timeout=KERNEL_TIMEOUT_S)
        for cell in cells:
            source = "".join(cell["source"]) if cell["cell_type"] == "code" else ""
            if _is_parameters(cell):
                source += "".join(f"\n{name} = {value!r}" for name, value in parameters.items())
            yield cell, _run_cell(client, path, cell, source) if source else []
    finally:
        client.stop_channels()
        manager.shutdown_kernel(now=True)


def _run_cell(client: Any, path: Path, cell: Cell, source: str) -> list[dict[str, Any]]:
    shown: list[dict[str, Any]] = []

    def take(message: Mapping[str, Any]) -> None:
        data = message["content"].get("data") or {}
        if STEP_MIME in data:
            shown.append(data[STEP_MIME])

    reply = client.execute_interactive(source, output_hook=take, store_history=False, timeout=CELL_TIMEOUT_S)["content"]
    if reply["status"] == "error":
        raise InputError(path.name, [f"cell {cell.get('id', '')!r}: {reply['ename']}: {reply['evalue']}"])
    return shown


def _words(source: str, *, title: bool) -> Iterator[Part]:
    """A cell of text: its heading and its sentences, without marks."""
    lines = [_TAG.sub("", line).strip() for line in source.splitlines()]
    sentences = [line for line in lines if line]
    if source.lstrip().startswith("#"):
        yield Part(Section(title=sentences[0], level=1 if title else 2, text=tuple(sentences[1:])))
    elif sentences:
        yield Part(Section(title=sentences[0], level=4, text=tuple(sentences[1:])))


def _first(name: str | None, datasets: Mapping[str, Any]) -> dict[str, Any]:
    """The data sets of a chart, first the one that its table and its file show."""
    return {**({name: datasets[name]} if name else {}), **datasets}


def _step_parts(step: Mapping[str, Any]) -> Iterator[Part]:
    """What a step shows: its sentence, charts and tables, or the words of the state that it is in."""
    status, data, details = step["status"], step["data"], step["details"]
    if status["state"] != "result":
        said = (status.get("title", ""), status.get("text", ""), *status.get("problems", ()), status.get("how", ""))
        yield Part(Section(title=step["title"], level=3, text=tuple(text for text in said if text)))
        return
    text = tuple(sentence for sentence in (data["sentence"], *details.get("notes", ())) if sentence)
    drawings = [
        Drawing(
            ChartSpec(
                chart["spec"],
                chart["digest"],
                _first(chart["table"], data["datasets"][chart["name"]]),
                chart["headers"],
                data["params"][chart["name"]],
            ),
            title=chart["title"],
            alt=data["alt"].get(chart["name"], ""),
            sources=tuple(chart["sources"]),
        )
        for chart in step["frame"].get("charts", ())
    ]
    yield Part(Section(title=step["title"], level=3, text=text), tuple(drawings))
    for table in details.get("tables", ()):
        header = tuple(f"{column['label']} {column['unit']}".strip() for column in table["columns"])
        rows = tuple(zip(*(column["text"] for column in table["columns"]), strict=True))
        yield Part(Section(title=table["title"] or table["label"], level=4, header=header, rows=rows))
    for code in details.get("code", ()):
        yield Part(Section(title=code["title"] or step["title"], level=4, text=tuple(code["text"].splitlines())))
