"""The cells of a page, run one after the other without a kernel, and the objects that they leave behind."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import suppress
from functools import cache
from pathlib import Path
from types import CodeType
from typing import Any

from perfkit.core.errors import NotMeasuredError
from perfkit.face.widgets.page_state import page_state
from perfkit.face.widgets.pickers import Picker
from perfkit.face.widgets.status import NothingYet
from perfkit.face.widgets.step_view import StepView
from perfkit.face.widgets.steps import Step
from tests.notebook_format import FOLDER, pages


def code_cells(name: str) -> list[dict[str, Any]]:
    """The code cells of a page."""
    cells = json.loads((FOLDER / f"{name}.ipynb").read_text(encoding="utf-8"))["cells"]
    return [cell for cell in cells if cell["cell_type"] == "code"]


def with_steps() -> list[str]:
    """The pages that are written with steps."""
    return [path.stem for path in pages() if any("@widgets.step" in "".join(cell["source"]) for cell in code_cells(path.stem))]


def run_page(name: str, **parameters: str | Path) -> dict[str, Any]:
    """Run the cells of a page; `parameters` take the place of those in its tagged cell. Returns the objects by name."""
    objects: dict[str, Any] = {}
    for _ in _cells(objects, name, parameters):
        continue
    return objects


def opened_page(name: str, **parameters: str | Path) -> dict[str, Any]:
    """`run_page` as far as it goes: the lines for a person's own objects may need what a recording does not hold."""
    objects: dict[str, Any] = {}
    with suppress(NotMeasuredError, NothingYet):
        for _ in _cells(objects, name, parameters):
            continue
    return objects


def cell_by_cell(name: str, **parameters: str | Path) -> Iterator[dict[str, Any]]:
    """`opened_page`, with the objects that are there after each cell: what asks for the first steps waits for no other."""
    with suppress(NotMeasuredError, NothingYet):
        yield from _cells({}, name, parameters)


def _cells(objects: dict[str, Any], name: str, parameters: Mapping[str, str | Path]) -> Iterator[dict[str, Any]]:
    page_state.cache_clear()  # a page of its own has an address of its own
    objects["__name__"] = "page"
    for cell in code_cells(name):
        exec(_compiled("".join(cell["source"]), f"{name}/{cell['id']}"), objects)
        if "parameters" in cell["metadata"].get("tags", ()):
            assert set(parameters) <= set(objects)
            objects.update({key: str(value) for key, value in parameters.items()})
        yield objects


@cache
def _compiled(source: str, file: str) -> CodeType:
    """The code of a cell; pages are opened hundreds of times."""
    return compile(source, file, "exec")


def views(objects: dict[str, Any]) -> dict[str, StepView]:
    """The views of the pickers and steps among the objects of a page, by the names of the objects."""
    return {name: thing.view for name, thing in objects.items() if isinstance(thing, Picker | Step)}
