"""Steps: plain functions of a notebook that show what they return, and run again when what they follow becomes something else.

    @step(run=open_run, unit=Choice("ms", "%"), choose="rank")
    def where_the_step_went(run, unit):
        steps = typical_steps(run)
        return rank_bars(part_rows(parts_of(run, steps)), unit=unit), steps

A parameter is the value of a control, of a picker, of an earlier step or of what was chosen in one (`earlier.selection`), or a
plain object. The function runs beside the kernel's main thread; only its newest call counts, and what the visitor reads is in one
of the six states of a panel. An exception is shown in its step, and the other steps go on.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from perfkit.core.errors import InputError
from perfkit.face.widgets.answer import Whole
from perfkit.face.widgets.control import words as in_words
from perfkit.face.widgets.entries import Button, Entry
from perfkit.face.widgets.placed import draw, put
from perfkit.face.widgets.recipe import Recipe
from perfkit.face.widgets.step_view import StepView
from perfkit.face.widgets.values import Value


class Step:
    """A function on the page: `value` is what it returned, `chosen` the row that was chosen last, `selection` the same to follow.

    Called like the function, it is the function.
    """

    def __init__(self, function: Callable[..., Any], view: StepView) -> None:
        functools.update_wrapper(self, function)
        self._function, self.view = function, view

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        """What the function returns for other values; the page stays as it is."""
        return self._function(*arguments, **named)

    @property
    def source(self) -> Value:
        """The function's newest value, to be followed by a later step."""
        return self.view.result

    @property
    def selection(self) -> Value:
        """The row that was chosen last, to be followed by a later step."""
        return self.view.selection

    @property
    def value(self) -> Any:
        """What the function returned for what stands on the page now; waits for it, and raises what the function raised."""
        return self.view.result.wait()

    @property
    def chosen(self) -> Any:
        """The row that was chosen last, by column; the first one until a row or mark is clicked. None where there is no table.

        Where several can be chosen all of them, the newest first.
        """
        return self.view.selection.wait()

    def set(self, **values: Any) -> Step:
        """Set controls, and what is chosen, as a visitor would."""
        self.view.set(values)
        return self

    def press(self, label: str = "run") -> Step:
        """Press the button of the step, of several the one with this label."""
        self.view.act(label.lower().replace(" ", "-"))
        return self

    def wait(self, timeout_s: float = 60.0) -> Whole:
        """All that the page shows, once it is there: charts, tables, sentence, notes; raises why there is none."""
        return self.view.wait(timeout_s)

    def _ipython_display_(self) -> None:
        draw(self.view)

    def __repr__(self) -> str:
        return f"step {self.__name__}{inspect.signature(self._function)}"  # type: ignore[attr-defined]


def step(
    *,
    choose: str = "",
    several: int = 0,
    settled: bool = False,
    ahead: bool = False,
    button: str = "",
    buttons: Sequence[Button] = (),
    title: str = "",
    follows_log: bool = False,
    folded: bool = False,
    refresh_s: float = 0.0,
    help: str = "",
    unless: Callable[..., str] | None = None,
    **given: Any,
) -> Callable[[Callable[..., Any]], Step]:
    """Show what the function below returns, and run it again when what it follows becomes something else.

    `given` names each parameter's control, picker, earlier step, `step.selection`, or plain value. `choose` is a column of the
    first table that has it: rows and marks can be clicked, the chosen one is `.chosen`, a dict by column, and the page's address
    keeps it. With `several` up to so many can be chosen, the newest first, and a second click gives one back: the function takes
    what stands in the column as `chosen`, runs again at every click, and `.chosen` is a tuple of dicts. Where `choose` names a
    control that is given, a click sets it to what stands in the column, also one of a step above. `settled` lets the function
    wait until the visitor has moved nothing for a moment: what takes long must not hold up a slider above. With `ahead`, for a
    function of its parameters alone, it runs for the next value of a slider while the page draws the last one. With `follows_log`
    it runs again when another step has written to the project, with `button` when that is pressed, with `refresh_s` so often,
    because others change what it shows. The button is not offered where `unless`, which takes parameters of the step, says why it
    is of no use. Each of `buttons` does something of its own with the parameters of the step, which then runs again. What is not
    the answer of a page may be `folded`: its sentence stands, and the rest when asked.
    Raises InputError that lists parameters without a value and values without a parameter.
    """
    known = {**given, "chosen": ()} if several else given

    def decorate(function: Callable[..., Any]) -> Step:
        _refuse(function, known, unless)
        words = title or (inspect.getdoc(function) or in_words(function.__name__)).splitlines()[0].rstrip(".")
        recipe = Recipe(
            name=function.__name__.replace("_", "-"),
            title=words,
            function=function,
            choose=choose,
            sets=thing if isinstance(thing := given.get(choose), Entry) else None,
            several=several,
            settled=settled,
            ahead=ahead,
            button=button,
            buttons=tuple(buttons),
            help=help,
            unless=unless,
            follows_log=follows_log,
            folded=folded,
            refresh_s=refresh_s,
            **_sorted(given),
        )
        return Step(function, put(recipe))

    return decorate


def _sorted(given: Mapping[str, Any]) -> dict[str, Any]:
    """What is given to a step: entries of its own, what it follows, and plain values."""
    sources = {name: thing.source for name, thing in given.items() if isinstance(getattr(thing, "source", None), Value)}
    sources |= {name: thing for name, thing in given.items() if isinstance(thing, Value)}
    entries = {name: thing for name, thing in given.items() if isinstance(thing, Entry) and name not in sources}
    constants = {name: thing for name, thing in given.items() if name not in sources and name not in entries}
    return {"sources": sources, "entries": entries, "constants": constants}


def _refuse(function: Callable[..., Any], given: Mapping[str, Any], unless: Callable[..., str] | None) -> None:
    parameters = inspect.signature(function).parameters.values()
    starred = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    names = {one.name for one in parameters if one.kind not in starred}
    needed = {one.name for one in parameters if one.name in names and one.default is inspect.Parameter.empty}
    needed |= set() if unless is None else set(inspect.signature(unless).parameters)
    problems = [f"parameter {name!r} has no value; give @step(…, {name}=…)" for name in sorted(needed - set(given))]
    if not any(one.kind is inspect.Parameter.VAR_KEYWORD for one in parameters):
        other = sorted(set(given) - names)
        problems += [f"{name!r} is no parameter; there are {', '.join(sorted(names)) or 'none'}" for name in other]
    if problems:
        raise InputError(f"step {function.__name__}", problems)
