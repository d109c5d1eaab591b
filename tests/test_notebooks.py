"""Every page has the normal form, keeps to the rules, and runs from top to bottom without a browser."""

from __future__ import annotations

from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

from perfkit.sample import demo
from tests import notebook_format

PAGES = notebook_format.pages()


def test_there_are_pages():
    assert {"00", "01", "02", "04", "10", "11"} <= {page.name[:2] for page in PAGES}


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.stem)
def test_page_has_the_normal_form(path: Path):
    text = path.read_text(encoding="utf-8")
    assert notebook_format.normal(text) == text, "run: python -m tests.notebook_format --fix"
    assert notebook_format.problems(text) == []


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.stem)
def test_page_asks_one_question_in_its_title(path: Path):
    first = nbformat.read(path, as_version=4).cells[0]
    assert first.cell_type == "markdown"
    assert first.source.startswith("# ")
    assert first.source.splitlines()[0].rstrip().endswith("?")


@pytest.mark.slow
@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.stem)
@pytest.mark.parametrize("project", ["sample", "empty"])
def test_page_runs_from_top_to_bottom(path: Path, project: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    folder = tmp_path / "project"
    if project == "sample":
        demo(folder)
    else:
        folder.mkdir()
    monkeypatch.setenv("PERFKIT_PROJECT", str(folder))
    notebook = nbformat.read(path, as_version=4)
    NotebookClient(notebook, timeout=120, resources={"metadata": {"path": str(tmp_path)}}).execute()
    outputs = [output for cell in notebook.cells if cell.cell_type == "code" for output in cell.outputs]
    assert outputs
    assert not [output for output in outputs if output.output_type == "error"]
    assert not [output for output in outputs if output.output_type == "stream" and output.name == "stderr"]
