"""A page as a notebook of one's own: what was chosen on it is code, and run again it shows the same."""

from __future__ import annotations

import json
from pathlib import Path

import nbformat
import pytest

from perfkit.core.resources import notebooks_folder
from perfkit.face import widgets
from perfkit.face.widgets.new_notebook import keep_notebook, with_choices
from perfkit.face.widgets.page_state import page_state
from perfkit.project import create_project
from tests import page_cells
from tests.page_cells import run_page

OWN = Path(__file__).parents[2] / "data" / "traces" / "dlrm_8xV100"


@pytest.fixture(autouse=True)
def _project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PERFKIT_PROJECT", str(tmp_path))


def source_of(text: str, cell_id: str) -> str:
    return next("".join(cell["source"]) for cell in json.loads(text)["cells"] if cell["id"] == cell_id)


def made_of(name: str, objects: dict) -> str:
    text = with_choices(notebooks_folder() / f"{name}.ipynb", objects)
    nbformat.validate(nbformat.reads(text, as_version=4))
    return text


def test_what_was_chosen_is_code_that_shows_the_same_again(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    page = run_page("11_step_breakdown", path=OWN)
    page["where_the_step_went"].set(unit="%", ranks="2-5").wait()
    page["where_the_step_went"].view.set({"rank": "4"})
    page["what_it_ran"].set(by="type").wait()
    text = made_of("11_step_breakdown", page)
    assert source_of(text, "parameters").endswith(f"path = {str(OWN)!r}")
    assert source_of(text, "ranks").endswith("\n\nwhere_the_step_went.set(ranks='2-5', unit='%', rank='4');")
    assert source_of(text, "kernels").endswith("what_it_ran.set(by='type');")
    original = (notebooks_folder() / "11_step_breakdown.ipynb").read_text()
    assert source_of(text, "trend") == source_of(original, "trend"), "nothing was chosen there"
    (tmp_path / "11_step_breakdown.ipynb").write_text(text)
    monkeypatch.setattr(page_cells, "FOLDER", tmp_path)
    again = run_page("11_step_breakdown")
    assert again["slowest"] == 4
    assert again["what_it_ran"].wait().text == page["what_it_ran"].wait().text
    frames = [next(iter(one["what_it_ran"].value[-1].values())) for one in (page, again)]
    assert frames[0].equals(frames[1])


def test_a_second_recording_and_what_a_picker_has_besides_are_written_too(tmp_path: Path):
    graph = tmp_path / "two"
    graph.mkdir()
    for name in ("strategy_mismatch.ir", "silu_mul_not_in_effect.ir"):
        (graph / name).write_bytes((notebooks_folder().parent / "data" / "ir" / name).read_bytes())
    page = run_page("18_graph_ir", path=graph)
    page["open_graph"].view.set({"file": "strategy_mismatch.ir"})
    page["open_graph"].view.wait()
    text = made_of("18_graph_ir", page)
    assert "open_graph.view.set({'file': 'strategy_mismatch.ir'});" in text
    page = run_page("21_compare")
    text = made_of("21_compare", page)
    assert "path = ''" not in source_of(text, "parameters").splitlines()[-1]


@pytest.mark.parametrize("name", page_cells.with_steps())
def test_every_page_makes_a_notebook_that_reads(name: str):
    json.loads(made_of(name, run_page(name)))


def test_it_lies_in_the_project_and_never_over_another_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    assert keep_notebook("11_step_breakdown", "{}") is None, "there is no project to write to"
    create_project(tmp_path, "mine")
    paths = [keep_notebook("11_step_breakdown", "{}") for _ in range(2)]
    assert [path.name for path in paths if path] == ["11_step_breakdown_1.ipynb", "11_step_breakdown_2.ipynb"]
    monkeypatch.setenv("PERFKIT_READ_ONLY", "1")
    assert keep_notebook("11_step_breakdown", "{}") is None


def test_in_jupyterlab_it_is_made_of_the_notebook_that_is_open_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    own = nbformat.read(notebooks_folder() / "11_step_breakdown.ipynb", as_version=4)
    own.cells[0].source = "# My question?"
    own.cells[1].outputs = [nbformat.v4.new_output("stream", text="1")]
    nbformat.write(own, tmp_path / "own.ipynb")
    monkeypatch.setenv("JPY_SESSION_NAME", str(tmp_path / "own.ipynb"))
    assert widgets.next_pages("10").content["notebook"] is True
    text = with_choices(tmp_path / "own.ipynb", {})
    assert source_of(text, "question") == "# My question?"
    assert not any(cell.get("outputs") for cell in json.loads(text)["cells"])


def test_the_button_says_where_it_lies_or_sends_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    class Shell:
        user_ns = run_page("11_step_breakdown", path=OWN)

    monkeypatch.setenv("SCRIPT_NAME", "/11_step_breakdown")
    page_state.cache_clear()
    links, sent = widgets.next_pages("10"), []
    links.send = sent.append
    links._dispatch(links, {"type": "notebook"}, [])
    assert (links.content["notebook"], sent) == (True, []), "outside of a notebook there are no objects"
    monkeypatch.setattr("IPython.get_ipython", lambda: Shell)
    links._dispatch(links, {"type": "notebook"}, [])
    assert sent[0]["name"] == "11_step_breakdown.ipynb"
    assert str(OWN) in sent[0]["text"]
    create_project(tmp_path, "mine")
    links._dispatch(links, {"type": "notebook"}, [])
    assert sent[1]["told"] == "Written to the project: notebooks/11_step_breakdown_1.ipynb. It opens with: perfkit serve --lab"
    monkeypatch.setenv("SCRIPT_NAME", "/my_own")
    assert widgets.next_pages("10").content["notebook"] is False
