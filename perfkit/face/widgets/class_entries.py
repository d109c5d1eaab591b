"""Class entries: the controls of the class, and who is at the page; without a name in it, or a token, a step is empty and says so.

@widgets.step(here=choose_name, exercise=exercise_choice(), **answer_boxes())
def the_exercise(here, exercise, **_):
    return card(here, exercise)
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import pandas as pd

from perfkit.core import settings
from perfkit.core.resources import pages
from perfkit.core.texts import say, t, told
from perfkit.face.widgets.entries import Choice, Entry, Text
from perfkit.face.widgets.navigation import page_link
from perfkit.face.widgets.status import NothingYet, Waiting
from perfkit.teach import exercises, game
from perfkit.teach.capstone import next_options
from perfkit.teach.instructor import Lesson, admitted, lesson
from perfkit.teach.lesson import blocks
from perfkit.teach.play import guess
from perfkit.teach.score import Guess
from perfkit.teach.session import Session, in_class, session_of

WELCOME = (
    "Type your name below, or the one that you were given (for example s01). It chooses your numbers: the same name finds the same "
    "exercises and all that you have done, in any tab."
)
NO_CLASS = "No class is held here. Start one with: perfkit serve FOLDER --class"
FOR_INSTRUCTORS = "For instructors: type the token that perfkit serve --class was given or has printed."


def session(typed_name: str) -> Session:
    """Who is here; raises NothingYet for no name in a class."""
    found = session_of(typed_name)
    if found is None:
        raise NothingYet(WELCOME)
    return found


def lesson_of(token: str) -> Lesson:
    """The class for its instructor; raises Waiting without a class, NothingYet without a token."""
    if not in_class():
        raise Waiting(NO_CLASS)
    if not token.strip():
        raise NothingYet(FOR_INSTRUCTORS)
    return lesson(token)


def name_field() -> Text:
    """Who is at the page; not asked where the server knows it."""
    known_to_server = in_class() and bool(settings.student())
    return Text(label="Your name", placeholder="for example s01", max_length=80, shared=True, visible=lambda: not known_to_server)


def exercise_choice() -> Choice:
    """All exercises by name and title, under the blocks of the lesson."""
    return Choice(_exercises, default=next(iter(exercises())), label="Exercise", shared=True, visible=known)


def _exercises() -> list[tuple[str, str, str]]:
    return [(f"{name} {t(exercise.title)}", name, exercise.group) for name, exercise in exercises().items()]


def answer_boxes() -> dict[str, Entry]:
    """A field for the answer of every exercise, by its name; only that of the chosen `exercise` is seen."""
    return {name: _box(name, exercise.unit) for name, exercise in exercises().items()}


def _box(name: str, unit: str) -> Text:
    return Text(
        label="Your answer",
        unit="" if unit == "1" else unit,
        placeholder="2500, 2,500 or 2.5e3",
        max_length=200,
        visible=lambda here, exercise: exercise == name,
    )


def explained(exercise: str) -> pd.DataFrame:
    """The page that explains an exercise and can compute it, as a link to its step; without rows where the page is not served."""
    asked = exercises()[exercise]
    found = [page for page in pages(settings.pages_folder()) if page.number == asked.page]
    frame = pd.DataFrame({"page": [f"{page.number} {t(page.title)}" for page in found]})
    frame.attrs["title"] = t("This can compute it; use it")
    frame.attrs["links"] = {"page": [page_link(page.name, at=asked.step.replace("_", "-")) for page in found]}
    return frame


def level_choice() -> Choice:
    """The levels of the fault game."""
    return Choice(_levels, default="1", label="Level", visible=known)


def _levels() -> list[tuple[str, str]]:
    return [(f"{name}: {t(level['title'])}", name) for name, level in game.pack()["levels"].items()]


def view_choice() -> Choice:
    """The views of the run, with what a look costs."""
    return Choice(_views, default=next(iter(game.pack()["views"])), label="Look at", visible=known)


def _views() -> list[tuple[str, str]]:
    views = game.pack()["views"].items()
    return [(told(say("{view} ({cost} min)", view=view["title"], cost=str(view["cost_min"]))), name) for name, view in views]


def fault_entries() -> dict[str, Entry]:
    """What is said of each fault of the `level`: its kind, and once that is named ranks, cost and what to do."""
    return _fault(1, label="Fault 1") | _fault(2, label="Fault 2") | _fault(3, label="Fault 3")


def _fault(number: int, *, label: str) -> dict[str, Entry]:
    named = _named(number)
    return {
        f"kind_{number}": Choice(_kinds, default="", label=label, visible=_asked(number)),
        f"place_{number}": Text(label="Ranks", placeholder="3, 4-5, stage 1, or empty", max_length=60, visible=named),
        f"amount_{number}": Text(label="Costs", unit="ms a step", max_length=40, visible=named),
        f"action_{number}": Choice(_of_fault(number, _actions), label="What to do", visible=named),
    }


def faults_said(level: str, **said: str) -> list[Guess]:
    """What stands in the entries of the faults that the level has."""
    parts = ("kind", "place", "amount", "action")
    return [guess(number, *(said[f"{part}_{number}"] for part in parts)) for number in _numbers(level)]


def _numbers(level: str) -> range:
    return range(1, int(game.pack()["levels"][level]["faults"]) + 1)


def _asked(number: int) -> Callable[..., bool]:
    return lambda here, level: number in _numbers(level)


def _named(number: int) -> Callable[..., bool]:
    asked = _asked(number)
    return _of_fault(number, lambda kind, here, level: asked(here, level) and bool(kind), "here", "level")


def _of_fault(number: int, function: Callable[..., Any], *names: str) -> Callable[..., Any]:
    """`function` of what is said to be fault `number`, and of other parameters of the step by their `names`."""
    kind = f"kind_{number}"

    def of_it(**given: Any) -> Any:
        return function(given[kind], *(given[name] for name in names))

    parameters = [inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY) for name in (kind, *names)]
    of_it.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    return of_it


def _kinds() -> list[tuple[str, str]]:
    return [("choose", ""), *((t(kind["title"]), name) for name, kind in game.pack()["kinds"].items())]


def _actions(kind: str) -> list[tuple[str, str]]:
    return [("choose", ""), *((t(action), action) for action in (game.actions_for(kind) if kind else ()))]


def change_choice() -> Choice:
    """The changes of the round of the capstone that is next."""
    return Choice(lambda here: [("choose", ""), *((one, one) for one in next_options(here))], label="Change", visible=known)


def block_choice() -> Choice:
    """The blocks of the lesson."""
    return Choice(_blocks, default=blocks()[0].title, label="Block", visible=admitted)


def _blocks() -> list[str]:
    return [block.title for block in blocks()]


def known(here: Any) -> bool:
    """Whether it is known who is at the page: what asks for `here` is hidden before."""
    return here is not None
