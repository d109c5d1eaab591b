"""The address of a page restores all of it: every control of every page, changed and opened again."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import nbformat
import pytest

from perfkit.core.errors import PerfkitError
from perfkit.face.widgets import page_state as addresses
from perfkit.face.widgets.control import Choice, Control, Number, Slider, Text, Toggle
from perfkit.face.widgets.panel import PanelView
from perfkit.project.sample import demo
from tests import notebook_format

PAGES = [
    path for path in notebook_format.pages() if path.stem not in ("14_timeline", "40_class")
]  # views of their own; names first


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return demo(tmp_path_factory.mktemp("project") / "d").folder


@pytest.fixture
def opened(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[Path, dict[str, str]], list[PanelView]]:
    """Runs the cells of a page here, as they are with values in the address, and gives its views."""
    monkeypatch.setenv("PERFKIT_PROJECT", str(folder))
    made: list[PanelView] = []
    begin = PanelView.__init__

    def noted(view: PanelView, *arguments: Any, **named: Any) -> None:
        begin(view, *arguments, **named)
        made.append(view)

    monkeypatch.setattr(PanelView, "__init__", noted)

    def run(path: Path, values: dict[str, str]) -> list[PanelView]:
        made.clear()
        addresses.page_state.cache_clear()
        addresses.page_state().set(values)
        space: dict[str, Any] = {}
        for cell in nbformat.read(path, as_version=4).cells:
            if cell.cell_type == "code":
                with suppress(PerfkitError, NameError):  # a state that cannot be answered is restored as well
                    exec(cell.source, space)
        settled(made)
        return list(made)

    return run


def settled(views: list[PanelView]) -> None:
    for _ in range(3):  # what one view tells, the others follow
        for view in views:
            with suppress(PerfkitError):
                view.wait(timeout_s=300)


def another(control: Control, drawn: dict[str, Any], now: Any) -> Any:
    """A value of a control that is not its present one; the present one if there is no other."""
    if isinstance(control, Toggle):
        return not now
    if isinstance(control, Choice):
        options = [option["value"] for option in drawn["options"]]
        return options[:1] if control.multiple else next((option for option in reversed(options) if option != now), now)
    if isinstance(control, Slider):  # its neighbour, which takes no longer to compute
        places = drawn.get("values") or [drawn["low"], drawn["low"] + (drawn["step"] or 1), drawn["high"]]
        return min((place for place in places if place != now), key=lambda place: abs(place - now), default=now)
    if isinstance(control, Number):
        return (now or 0) + 1
    return "0" if isinstance(control, Text) else now


def shown(views: list[PanelView]) -> dict[tuple[str, str], Any]:
    return {(view.name, control.path): view.state[control.path] for view in views for control in view.panel.controls}


@pytest.mark.slow
@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.stem)
def test_every_control_comes_back_with_the_address(path: Path, opened: Callable[[Path, dict[str, str]], list[PanelView]]):
    views = opened(path, {})
    assert not any("." in name for name in addresses.page_state().values), "what nobody changed is not in the address"
    for view in views:
        for control in view.panel.controls:
            drawn = next((drawn for drawn in view.controls if drawn["name"] == control.path), None)
            if drawn is not None and not drawn["hidden"]:
                view.set({control.path: another(control, drawn, view.state[control.path])})
                settled([view])
    settled(views)
    before, address = shown(views), dict(addresses.page_state().values)
    assert shown(opened(path, address)) == before
