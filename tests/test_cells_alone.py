"""A cell of a page that is copied into an empty notebook, after the imports and what it names, answers as it does on the page."""

from __future__ import annotations

import ast
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from perfkit.core.errors import PerfkitError
from perfkit.face.widgets.page_state import page_state
from perfkit.face.widgets.steps import Step
from perfkit.project.sample import demo
from tests.page_cells import code_cells, views, with_steps


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("alone") / "demo"
    demo(folder)
    return folder


def defined(tree: ast.Module) -> set[str]:
    """The names that the top level of a cell binds."""
    names = {
        alias.asname or alias.name for node in tree.body if isinstance(node, ast.ImportFrom | ast.Import) for alias in node.names
    }
    names |= {node.name for node in tree.body if isinstance(node, ast.FunctionDef | ast.ClassDef)}
    return names | {node.id for node in ast.walk(tree) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}


def used(tree: ast.Module) -> set[str]:
    """The names that a cell reads, those of its own functions' places included."""
    return {node.id for node in ast.walk(tree) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)}


def needed(trees: list[ast.Module], index: int) -> list[int]:
    """The cells before one that bind what it names, and what they name in turn, in their order."""
    wanted, found = used(trees[index]), {index}
    for earlier in range(index - 1, -1, -1):
        if bound := defined(trees[earlier]) & wanted:
            wanted = (wanted - bound) | used(trees[earlier])
            found.add(earlier)
    return sorted(found)


def run(name: str, trees: list[ast.Module], cells: list[int]) -> dict[str, Any]:
    page_state.cache_clear()
    objects: dict[str, Any] = {"__name__": "page"}
    for index in cells:
        exec(compile(trees[index], f"{name}/{index}", "exec"), objects)
    return objects


@pytest.mark.slow
@pytest.mark.parametrize("name", with_steps())
def test_a_step_needs_only_what_it_names(name: str, project: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("PERFKIT_PROJECT", str(project))
    trees = [ast.parse("".join(cell["source"])) for cell in code_cells(name)]
    whole = views(run(name, trees, list(range(len(trees)))))
    steps = [
        (index, node.name)
        for index, tree in enumerate(trees)
        for node in tree.body
        if isinstance(node, ast.FunctionDef) and node.name in whole
    ]
    assert steps
    for index, step in steps:
        alone = run(name, trees, needed(trees, index))
        assert isinstance(alone[step], Step)
        view = alone[step].view
        for one in (whole[step], view):
            with suppress(PerfkitError):  # a step that waits for a press, or for what is not there, says so alone, too
                one.wait()
        assert view.status == whole[step].status
        assert view.data == whole[step].data
