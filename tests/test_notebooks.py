"""Every page has the normal form, keeps to the rules, and runs from top to bottom without a browser."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import nbformat
import pytest
from jupyter_client.manager import KernelManager
from nbclient import NotebookClient
from traitlets.config import LoggingConfigurable

from perfkit import widgets
from perfkit.face.app import forks, provisioner
from perfkit.project.sample import demo
from tests import notebook_format

PAGES = notebook_format.pages()


class Kernels(LoggingConfigurable):
    """What the server is to the kernels of its pages: here too they are forks of one process with all imports."""

    def __init__(self) -> None:
        super().__init__()
        self.preloaded = forks.Preloaded()
        provisioner.register()

    def manager(self) -> KernelManager:
        manager = KernelManager(parent=self)
        manager.kernel_spec.metadata["kernel_provisioner"] = {"provisioner_name": provisioner.NAME}
        return manager


@pytest.fixture(scope="module")
def kernels() -> Iterator[Kernels]:
    found = Kernels()
    yield found
    found.preloaded.end()


@pytest.fixture(scope="module")
def sample(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The sample project, of which every page gets a copy."""
    return demo(tmp_path_factory.mktemp("sample") / "project").folder


@pytest.fixture
def folder(project: str, sample: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder that a page runs in; below it a copy of the sample project, or an empty one."""
    place = tmp_path / "project"
    if project == "sample":
        shutil.copytree(sample, place)
    else:
        place.mkdir()
    monkeypatch.setenv("PERFKIT_PROJECT", str(place))
    monkeypatch.setenv("PERFKIT_WAIT_FOR_PANELS", "1")
    return tmp_path


def test_the_kit_stays_small():
    """Who writes a notebook learns twelve names at most; what a frame or chart is shown like is said with these."""
    assert len(widgets.__all__) <= 12


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
def test_page_runs_from_top_to_bottom(path: Path, kernels: Kernels, folder: Path):
    notebook = nbformat.read(path, as_version=4)
    place = {"metadata": {"path": str(folder)}}
    manager = kernels.manager()
    try:
        NotebookClient(notebook, km=manager, timeout=120, resources=place).execute()
    finally:
        manager.shutdown_kernel(now=True)
    outputs = [output for cell in notebook.cells if cell.cell_type == "code" for output in cell.outputs]
    assert outputs
    assert not [output for output in outputs if output.output_type == "error"]
    assert not [output for output in outputs if output.output_type == "stream" and output.name == "stderr"]
