"""Every control of every step, emptied and filled again, changed and undone: what is shown was used, and nothing is lost."""

from __future__ import annotations

from typing import Any

import pytest

from perfkit.core.errors import PerfkitError
from perfkit.face.widgets.control import Number, PathPicker, Slider
from perfkit.face.widgets.panel import PanelView
from perfkit.project.sample import demo
from tests.face.test_address import another
from tests.page_cells import run_page, views, with_steps


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return demo(tmp_path_factory.mktemp("project") / "d").folder


@pytest.fixture(autouse=True)
def _in_the_sample_project(folder, monkeypatch):
    monkeypatch.setenv("PERFKIT_PROJECT", str(folder))


def _told(view: PanelView) -> Any:
    """The sentence and notes that a visitor reads, or the words of what there is instead of an answer."""
    try:
        answer = view.wait()
    except PerfkitError as error:
        return str(error)
    return answer.text, answer.notes, {name: str(table) for name, table in answer.tables.items()}


@pytest.mark.slow
@pytest.mark.parametrize("page", with_steps())
def test_a_field_of_a_step_is_emptied_and_filled_again(page: str):
    found = list(views(run_page(page)).values())
    for view in found:
        _empty_and_back(view, found)


def _empty_and_back(view: PanelView, page: list[PanelView]) -> None:
    """Empty and fill each field of `view`; all that its page shows is then what it was."""
    before = [_told(other) for other in page]
    for control in view.panel.controls:
        if not isinstance(control, Number | PathPicker | Slider):
            continue
        path, own = control.path, view.state[control.path]
        shown = next((drawn for drawn in view.controls if drawn["name"] == path), None)
        if shown is None or shown["hidden"]:
            continue
        view.set({path: None if not isinstance(control, PathPicker) else ""})
        _told(view)
        drawn = next(drawn for drawn in view.controls if drawn["name"] == path)
        used = view.state[path]
        assert drawn["value"] == used, "the field shows what the answer used"
        empty = "" if isinstance(control, PathPicker) else getattr(control, "empty", None)
        if used != empty:
            assert used == own, "what cannot be empty keeps what it had"
            assert "not changed" in drawn["note"], "and says so"
        assert used == empty or not isinstance(control, Number) or control.empty is None, "what may be empty is"
        view.set({path: own})
        assert [_told(other) for other in page] == before, f"{path} is what it was, so the answer must be too"


@pytest.mark.slow
@pytest.mark.parametrize("page", with_steps())
def test_a_change_of_a_control_is_undone_with_all_that_followed_it(page: str):
    found = list(views(run_page(page)).values())
    before = [_told(view) for view in found]
    for view in found:
        for control in view.panel.controls:
            drawn = next((drawn for drawn in view.controls if drawn["name"] == control.path), None)
            if drawn is None or drawn["hidden"]:
                continue
            state = dict(view.state)
            view.set({control.path: another(control, drawn, state[control.path])})
            _told(view)
            if view.state == state:
                continue
            assert view.can_undo, f"{view.name}: {control.path}"
            view.on_message({"type": "undo"})
            assert [_told(other) for other in found] == before, f"{view.name}: {control.path} was undone"
            assert dict(view.state) == state
