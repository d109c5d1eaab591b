"""A project's own copies of the pages: recorded with their version, never written over, and what is newer shown as a difference."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import nbformat
import pytest

from perfkit import __version__
from perfkit.core.errors import InputError
from perfkit.core.resources import notebooks_folder
from perfkit.face.cli import main
from perfkit.project.notebooks import copies, copy_pages, difference, take, told


@pytest.fixture
def pages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The pages of "this perfkit", which a test may change as an upgrade does."""
    folder = tmp_path / "pages"
    folder.mkdir()
    for name in ("10_load_run", "11_step_breakdown"):
        shutil.copy(notebooks_folder() / f"{name}.ipynb", folder)
    monkeypatch.setenv("PERFKIT_PAGES", str(folder))
    return folder


@pytest.fixture
def project(tmp_path: Path, pages: Path) -> Path:
    folder = tmp_path / "project"
    copy_pages(folder, version=__version__)
    return folder


def changed(path: Path, old: str, new: str) -> None:
    text = path.read_text(encoding="utf-8")
    assert old in text
    path.write_text(text.replace(old, new), encoding="utf-8")


def states(project: Path) -> dict[str, str]:
    return {copy.name[:2]: copy.state for copy in copies(project)}


def test_every_page_is_copied_once_with_its_version(project: Path, pages: Path):
    assert states(project) == {"10": "as it came", "11": "as it came"}
    assert {copy.version for copy in copies(project)} == {__version__}
    assert (project / "notebooks" / "11_step_breakdown.ipynb").read_bytes() == (pages / "11_step_breakdown.ipynb").read_bytes()
    assert told(project) == ()


def test_running_a_notebook_is_no_edit_and_an_edit_survives_the_next_start(project: Path):
    file = project / "notebooks" / "11_step_breakdown.ipynb"
    run = nbformat.read(file, as_version=4)
    for number, cell in enumerate(cell for cell in run.cells if cell.cell_type == "code"):
        cell.execution_count, cell.outputs = number, [nbformat.v4.new_output("stream", text="1\n")]
    nbformat.write(run, file)
    assert states(project)["11"] == "as it came"
    changed(file, "typical_steps(run, step)", "typical_steps(run, step=3)")
    copy_pages(project, version=__version__)
    assert states(project)["11"] == "edited"
    assert "step=3" in file.read_text()
    assert "+    steps = typical_steps(run, step)\n" in difference(project, "11")


@pytest.mark.parametrize("edited", [False, True])
def test_an_upgrade_offers_its_difference_and_writes_over_nothing(project: Path, pages: Path, edited: bool):
    file = project / "notebooks" / "11_step_breakdown.ipynb"
    if edited:
        changed(file, "Where did the step go?", "Where did my step go?")
    own = file.read_bytes()
    changed(pages / "11_step_breakdown.ipynb", 'widgets.Choice(\\"ms\\", \\"%\\"', 'widgets.Choice(\\"%\\", \\"ms\\"')
    copy_pages(project, version=__version__)
    assert file.read_bytes() == own
    assert states(project) == {"10": "as it came", "11": "edited, newer page" if edited else "newer page"}
    first, how = told(project)
    assert first == "1 page of notebooks/ is of an older perfkit: 11"
    assert how.startswith("see the difference with: perfkit notebooks 11")
    told_lines = difference(project, "11").splitlines()
    assert any(line.startswith("-") and 'Choice("ms", "%"' in line for line in told_lines)
    assert any(line.startswith("+") and 'Choice("%", "ms"' in line for line in told_lines)
    kept = take(project, "11", version=__version__)
    assert kept.read_bytes() == own
    assert kept.name == f"11_step_breakdown.of-{__version__}.ipynb"
    assert file.read_bytes() == (pages / "11_step_breakdown.ipynb").read_bytes()
    assert states(project)["11"] == "as it came"
    with pytest.raises(InputError, match="already"):
        take(project, "11", version=__version__)
    changed(file, "Where did", "Whither did")
    assert take(project, "11", version=__version__).name == f"11_step_breakdown.of-{__version__}-2.ipynb"


def test_a_project_of_an_older_perfkit_keeps_its_pages_and_gets_those_that_are_new(tmp_path: Path, pages: Path):
    folder = tmp_path / "old" / "notebooks"
    folder.mkdir(parents=True)
    source = "from perfkit import panels\npanels.show('step-breakdown')"
    old = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(source)])
    nbformat.write(old, folder / "11_step_breakdown.ipynb")
    copy_pages(tmp_path / "old", version=__version__)
    assert states(tmp_path / "old") == {"10": "as it came", "11": "edited, newer page"}
    assert "-panels.show('step-breakdown')\n" in difference(tmp_path / "old", "11")
    with pytest.raises(ImportError, match="perfkit notebooks"):
        exec("from perfkit import panels", {})


def test_what_is_no_notebook_and_a_record_that_is_damaged_are_told(project: Path):
    file = project / "notebooks" / "11_step_breakdown.ipynb"
    file.write_text("{ half a file")
    assert states(project)["11"] == "edited"
    with pytest.raises(InputError, match="is no notebook"):
        difference(project, "11")
    (project / "notebooks" / "pages.json").write_text("[1]")
    with pytest.raises(InputError, match="no table of pages"):
        copies(project)
    (project / "notebooks" / "pages.json").write_text("{")
    with pytest.raises(InputError, match="is not what perfkit wrote"):
        copies(project)
    (project / "notebooks" / "pages.json").unlink()
    assert states(project) == {"10": "as it came", "11": "edited, newer page"}
    assert take(project, "11", version=__version__).name == "11_step_breakdown.of-before.ipynb"


def test_the_command_lists_shows_and_takes(project: Path, pages: Path, capsys: pytest.CaptureFixture[str]):
    changed(pages / "10_load_run.ipynb", "# ", "# New: ")
    assert main(["notebooks", "--folder", str(project), "--json"]) == 0
    listed = json.loads(capsys.readouterr().out)
    assert [(one["page"], one["version"], one["state"]) for one in listed] == [
        ("10_load_run", __version__, "newer page"),
        ("11_step_breakdown", __version__, "as it came"),
    ]
    assert main(["notebooks", "10", "--folder", str(project)]) == 0
    assert "+# New: " in capsys.readouterr().out
    assert main(["notebooks", "11", "--folder", str(project)]) == 0
    assert capsys.readouterr().out == "no difference\n"
    assert main(["notebooks", "10", "--take", "--folder", str(project)]) == 0
    assert "the copy from before is" in capsys.readouterr().out
    for wrong in (["--take"], ["77"], ["--folder", "nowhere"]):
        assert main(["notebooks", *wrong, *(["--folder", str(project)] if "--folder" not in wrong else [])]) == 2
        assert "no copy" in (told := capsys.readouterr().err) or "needs the number" in told or "no such folder" in told
