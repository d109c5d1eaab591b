"""Placed: views of steps below the cells that make them, in a notebook, a page, or the output of a run without a browser."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress

import IPython

from perfkit.core import settings
from perfkit.face.widgets.recipe import Recipe
from perfkit.face.widgets.step_view import StepView
from perfkit.face.widgets.view import waited

STEP_MIME = "application/vnd.perfkit.step+json"
"""What a step shows, as data in the output of its cell."""
PUBLISH_TIMEOUT_S = 600.0
_PICKER = "choose-"
_known: dict[str, StepView] = {}
"""The newest view of each name: a cell that is run again takes the place of what it made before."""
_followers: list[Callable[[], None]] = []
"""Who hears of pickers: the newest header."""


def draw(view: StepView) -> None:
    """Show a view below the cell that is being run; without a notebook there is nothing to draw on."""
    if IPython.get_ipython() is not None:
        IPython.display.display(view)  # type: ignore[no-untyped-call]


def _publish(view: StepView) -> None:
    """Put what a step shows into the notebook, whatever came of it: the next steps are run, too."""
    with suppress(Exception):  # it stands in `status`
        view.wait(PUBLISH_TIMEOUT_S)
    shown = {name: getattr(view, name) for name in ("name", "title", "status", "frame", "data", "details")}
    IPython.display.display({STEP_MIME: shown}, raw=True)  # type: ignore[no-untyped-call]


def on_picker(follower: Callable[[], None]) -> None:
    """Call `follower`, and nobody else any more, for each further picker on the page."""
    _followers[:] = [follower]


def picked(name: str) -> str | None:
    """Where lies what the page's picker of that name has chosen; None where the page has no such picker."""
    view = _known.get(f"{_PICKER}{name}")
    return None if view is None else str(view.state[name])


def put(recipe: Recipe) -> StepView:
    """A step on the page that is being made; a view of the same name gives way."""
    if (before := _known.get(recipe.name)) is not None:
        before.retire(recipe)
    view = _known[recipe.name] = StepView(recipe)
    if recipe.name.startswith(_PICKER):
        for follower in _followers:
            follower()
    draw(view)
    if settings.publish_steps():
        _publish(view)
        return view
    return waited(view)
