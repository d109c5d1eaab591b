"""New notebook: a page as a notebook of its visitor's, with what was chosen written as code, so that it can be run again and kept.

A picker's path stands in the cell of parameters, and below each step that something was chosen in a line sets it. Nothing else is
added and there are no outputs, so that version control and jupytext show what a person changed.
"""

from __future__ import annotations

import ast
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from perfkit.core.errors import InputError
from perfkit.core.syntax import tree_of
from perfkit.face.widgets.pickers import Picker
from perfkit.face.widgets.steps import Step
from perfkit.project.keep import own_project
from perfkit.project.notebooks import FOLDER


def with_choices(page: Path, objects: Mapping[str, Any]) -> str:
    """The notebook of a page, as the text of its file, with the choices that the pickers and steps among `objects` hold."""
    notebook = json.loads(page.read_text(encoding="utf-8"))
    parameters = {name for cell in notebook["cells"] if _is_parameters(cell) for name in _assigned(_source(cell))}
    chosen: dict[str, str] = {}
    for cell in notebook["cells"]:
        if cell["cell_type"] == "code" and not _is_parameters(cell):
            lines = list(_lines(_source(cell), objects, parameters, chosen))
            cell["source"] = _cell(_source(cell), lines)
    for cell in notebook["cells"]:
        if _is_parameters(cell):
            lines = [f"{name} = {path!r}" for name, path in chosen.items()]
            cell["source"] = _cell(_source(cell), lines)
        if cell["cell_type"] == "code":
            cell["outputs"], cell["execution_count"] = [], None
    return json.dumps(notebook, indent=1, ensure_ascii=False) + "\n"


def _lines(source: str, objects: Mapping[str, Any], parameters: set[str], chosen: dict[str, str]) -> list[str]:
    """What a cell needs besides to make the choices of what it makes; a path that is a parameter goes to `chosen`."""
    lines = []
    for node in tree_of(source).body:
        for name in _names(node):
            thing = objects.get(name)
            choices = dict(thing.view.choices()) if isinstance(thing, Picker | Step) else {}
            if isinstance(thing, Picker):
                choices[thing.name] = thing.path  # also where nobody chose it: what a project has open changes
                if (parameter := _first_argument(node)) in parameters:
                    chosen[parameter] = choices.pop(thing.name)
            if choices:
                lines.append(f"{name}{'.view' if isinstance(thing, Picker) else ''}.{_setting(choices, thing)}")
    return lines


def _setting(choices: Mapping[str, Any], thing: object) -> str:
    """The call that makes choices; the semicolon keeps Jupyter from showing the step twice."""
    values = ", ".join(f"{key}={value!r}" for key, value in choices.items())
    return f"set({dict(choices)!r});" if isinstance(thing, Picker) else f"set({values});"


def _names(node: ast.stmt) -> list[str]:
    if isinstance(node, ast.FunctionDef):
        return [node.name]
    return [target.id for target in node.targets if isinstance(target, ast.Name)] if isinstance(node, ast.Assign) else []


def _first_argument(node: ast.stmt) -> str:
    """The name that a picker is made of: `choose_recording(path)`."""
    made = node.value if isinstance(node, ast.Assign) else None
    return made.args[0].id if isinstance(made, ast.Call) and made.args and isinstance(made.args[0], ast.Name) else ""


def _is_parameters(cell: Mapping[str, Any]) -> bool:
    return "parameters" in cell["metadata"].get("tags", ())


def _assigned(source: str) -> list[str]:
    return [name for node in tree_of(source).body for name in _names(node)]


def _source(cell: Mapping[str, Any]) -> str:
    return "".join(cell["source"])


def _cell(source: str, lines: list[str]) -> list[str]:
    return "\n".join([source, *([""] if lines and "\n" in source else []), *lines]).splitlines(keepends=True)


def keep_notebook(page: str, text: str) -> Path | None:
    """Write a notebook into the project under the page's name and the next number; None where nothing can be written."""
    try:
        folder = own_project("notebook").folder / FOLDER
    except InputError:
        return None
    folder.mkdir(exist_ok=True)
    for number in range(1, 10_000):
        path = folder / f"{page}_{number}.ipynb"
        try:
            with path.open("x", encoding="utf-8") as file:
                file.write(text)
        except FileExistsError:
            continue
        return path
    raise InputError(str(folder), ["holds 9999 notebooks of this page; remove some"])
