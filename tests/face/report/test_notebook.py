"""A page run without a browser: its numbers are those of the run, a step that fails leaves the others alone."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from perfkit.core.errors import InputError
from perfkit.core.texts import path_words
from perfkit.core.units import THIN_SPACE
from perfkit.explain.steps import step_told, typical_steps
from perfkit.face.cli import main
from perfkit.face.report.notebook import run_notebook
from perfkit.record.load import load

OWN = Path(__file__).parents[2] / "data" / "traces" / "dlrm_8xV100"


@pytest.fixture(autouse=True)
def _no_project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PERFKIT_PROJECT", str(tmp_path))


def written(folder: Path, *sources: str) -> Path:
    cells = [{"cell_type": "markdown", "id": "question", "metadata": {}, "source": "# Is it so?"}]
    for index, source in enumerate(sources):
        tags = ["parameters"] if source.startswith("path") else []
        cells.append({"cell_type": "code", "id": f"cell-{index}", "metadata": {"tags": tags}, "source": source})
    path = folder / "own.ipynb"
    path.write_text(json.dumps({"cells": cells, "metadata": {}, "nbformat": 4, "nbformat_minor": 5}))
    return path


def test_page_11_holds_the_numbers_of_the_run(tmp_path: Path):
    out = tmp_path / "report.html"
    assert main(["run-notebook", "11", "--run", str(OWN), "--out", str(out)]) == 0
    page = out.read_text(encoding="utf-8")
    run = load(OWN)
    slowest = typical_steps(run).iloc[0]
    words = path_words(step_told(run, rank=int(slowest["rank"]), step=int(slowest["step"])))
    assert "exposed communication 9.45 ms" in words.replace(THIN_SPACE, " ")
    assert words.replace(THIN_SPACE, " ") in page.replace(THIN_SPACE, " ")
    assert "Where did the step go?" in page
    assert "perfkit-charts" in page


def test_a_step_that_fails_leaves_the_others_alone(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    notebook = written(
        tmp_path,
        "from perfkit import widgets",
        'path = ""',
        "@widgets.step(n=1)\ndef broken(n):\n    return n / 0",
        "@widgets.step(n=broken)\ndef after(n):\n    return n",
        "@widgets.step(text=path)\ndef fine(text):\n    return f'given: {text}'",
    )
    out = tmp_path / "out.html"
    assert main(["run-notebook", str(notebook), "--run", "<b>here</b>", "--out", str(out)]) == 1
    page = out.read_text(encoding="utf-8")
    assert "given: &lt;b&gt;here&lt;/b&gt;" in page
    assert "division by zero" in page
    assert "needs “Broken” above, which has failed" in page
    said = capsys.readouterr().err
    assert "failed: Broken" in said
    assert "nothing to show: After" in said


def test_what_is_wrong_with_a_call_is_said_at_once(tmp_path: Path):
    with pytest.raises(InputError, match="'config' is no parameter of the page; there are path"):
        run_notebook("11", {"config": "x"})
    with pytest.raises(InputError, match="page '99' does not exist; there are 00, 01"):
        run_notebook("99")
    with pytest.raises(InputError, match="cell 'cell-0': NameError: name 'open_run' is not defined"):
        run_notebook(str(written(tmp_path, "open_run.value")))
