"""Step view: a panel that computes what the function of a step returns, and is followed by the steps after it.

What the function follows is waited for in the panel's thread. A call with the same values as the one before is left out: choosing a
row of a table tells the steps that follow the choice, and draws nothing anew.
"""

from __future__ import annotations

import inspect
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from typing import Any

from perfkit.core.texts import say, t, told
from perfkit.face.widgets._ahead import AFTER_S, LONGEST_S, Ahead, Made, foreseen, going_on
from perfkit.face.widgets._fills import Fills
from perfkit.face.widgets._given import chosen_in, marked, origin_of, same
from perfkit.face.widgets.answer import Answer, Whole
from perfkit.face.widgets.control import Control, refusals
from perfkit.face.widgets.entries import Button, seen
from perfkit.face.widgets.page_state import page_state
from perfkit.face.widgets.panel import Action, Panel, PanelView
from perfkit.face.widgets.recipe import Recipe
from perfkit.face.widgets.shown import shown
from perfkit.face.widgets.status import NothingYet, Waiting, loading
from perfkit.face.widgets.values import Value, no_answer_yet
from perfkit.face.widgets.worker import Cancelled, Progress, check, running, unasked

MOST_SETTLING_S = 10.0
SETTLED_S = 0.1
"""A slider that is dragged moves again sooner than this."""


class StepView(PanelView):
    """A step on a page: `result` is the newest value of its function, `selection` the row that was chosen last (else the first)."""

    def __init__(self, recipe: Recipe) -> None:
        self._recipe = recipe
        self.result, self.selection = Value(recipe.title), Value(recipe.title)
        self._resolved: dict[str, Any] = {}
        self._missing: NothingYet | None = None
        self._remembered: tuple[dict[str, Any], Any] | None = None
        self._refused: tuple[dict[str, Any], Exception] | None = None
        self._whole = Whole({}, {}, "", (), ())
        self._complete, self._must_show = False, False
        self._set_by_hand: set[str] = set()
        self._presses = self._seen_presses = self._answered_presses = 0
        self._news = self._seen_news = self._answered_news = 0
        self._own = {name: Value(recipe.title) for name in recipe.entries}
        self._options_are_known, self._settled = False, threading.Event()
        self._fills, self._is_undone = Fills(recipe.entries), False
        self._ahead, self._took_s = Ahead(), 0.0
        self._questions: dict[Value, int] = {}
        for name, entry in recipe.entries.items():
            entry.source, entry.set = self._own[name], partial(self._set_own, name)
        for source in recipe.sources.values():
            source.listen(self._follow)
        super().__init__(_panel(recipe, self), name=recipe.name)

    def choices(self) -> dict[str, Any]:
        """What the visitor, or the page's address, has set, and the row that was chosen, as `set` takes it."""
        choose, state = self._recipe.choose, self.state
        found = {name: state[name] for name in self._recipe.entries if name in self._set_by_hand}
        return found | ({choose: state[choose]} if choose in state and state[choose] not in ("", ()) else {})

    def _accept_one(self, state: Any, path: str, value: Any) -> Any:
        self._set_by_hand.add(path)
        return super()._accept_one(state, path, value)

    def retire(self, heir: Recipe) -> None:
        """The cell was run again, and another view stands in this one's place: follow nothing, unless something follows this.

        Where its code begins with something else than before, that is what it shows, and not what the page's address has kept.
        """
        before = self._recipe.entries
        self._shared.tell(self.state, origin=self)  # an answer is out before the page is told what was chosen for it
        now = {name: entry.default for name, entry in heir.entries.items() if name in before}
        self._shared.begin_with({name: value for name, value in now.items() if value not in (None, before[name].default)})
        if not any(value.followed for value in self._values()):
            for source in self._recipe.sources.values():
                source.forget(self._follow)

    def on_message(self, message: dict[str, Any]) -> None:
        """What the visitor did. A choice of a row or mark needs no answer of this step; everything else gets one."""
        kind, sets = message.get("type"), self._recipe.sets
        if sets is not None and kind in ("row", "select"):
            datum = message["datum"] if kind == "select" else self._tables.row(message)
            if datum is not None and datum.get(self._recipe.choose) is not None:
                sets.set(datum[self._recipe.choose])
            return
        self._must_show |= kind not in ("row", "select")
        self._news += kind == "retry" and self._recipe.refresh_s > 0
        super().on_message(message)

    def _set_own(self, name: str, value: Any) -> None:
        self.set({name: value})

    def act(self, name: str, values: Mapping[str, Any] | None = None) -> None:
        """A button was pressed: the function runs in its thread, as if something that it follows had changed.

        It does not run with the value before a field that is refused; what stands against it is said beside the field. A button
        with something of its own to do does that first, here.
        """
        if name != "run":
            self._settled.wait(MOST_SETTLING_S)  # what was set just before may fill other fields
            super().act(name, values)
            return
        self._offered(name)
        with self.lock:  # a thread that begins between the two would run for the press, be overtaken by its question and run again
            self._presses += not refusals(self.panel.controls, values or {}, self.state)
            self._ask(lambda state: state)

    def _on_saved(self, origin: object) -> None:
        if self.panel.follows_log and origin is not self:  # what the function reads in the log may be something else now
            self._news += 1
            self._ask(lambda state: state)

    def _follow(self) -> None:
        self._begin()
        if hasattr(self, "_background"):  # else it is about to ask by itself
            self._background.ask()

    def _begin(self) -> None:
        for value in self._values():
            value.begin()

    def _values(self) -> tuple[Value, ...]:
        return (self.result, self.selection, *self._own.values())

    def _finish(self, value: Value, now: Any = None, error: Exception | None = None) -> None:
        value.finish(self._questions[value], now, error)

    def _ask(self, change: Callable[[Any], Any], seq: int = 0) -> None:
        self._begin()
        with self.lock:  # a thread that ends between the two would let a button go on without the change
            self._settled.clear()
            super()._ask(change, seq)

    def _on_address(self, values: Mapping[str, str], origin: object) -> None:
        if origin is not self and self._shared.news(self.state):
            self._must_show = True  # also where nothing but the chosen row is another one
            self._begin()
            super()._on_address(values, origin)

    # The thread -------------------------------------------------------------

    def _work(self, progress: Progress) -> None:
        self._questions = {value: value.question() for value in self._values()}
        with self.lock:
            self._seen_presses = self._presses  # a later press is not for the values that this run finds
        self._seen_news = self._news
        super()._work(progress)
        self._is_undone = False
        self._have_settled()

    def _look_up(self) -> None:
        """Wait for what the step follows."""
        self._options_are_known = False
        self._resolved, self._missing = dict(self._recipe.constants), None
        try:
            for name, source in self._recipe.sources.items():
                self._resolved[name] = source.needed(late=self._late, check=check)
        except NothingYet as error:
            self._missing = error

    def _settle_choices(self) -> None:
        """Settle what its options allow; raises NothingYet where what the step follows is not there."""
        self._fill()  # also with a part: a control does not lose its value to something else that fails
        if self._missing is not None:
            raise self._missing
        before = self.state
        super()._settle_choices()
        if self.state != before:  # what is filled by a size that was no option any more
            self._fill()
        for name, value in self._own.items():
            self._finish(value, self.state[name])
        self._options_are_known = True
        self._have_settled()

    def _have_settled(self) -> None:
        """Let a button go on that waits until the state has all that was set."""
        with self.lock:
            if not self._changes:
                self._settled.set()

    def own(self, name: str) -> Value:
        """The newest value of a control."""
        return self._own[name]

    def _fill(self) -> None:
        """Controls that follow something take its value; the undo of a change that filled others takes that back with it."""
        self.state, of_another = self._fills.fill(self.known, self.state, keep=self._is_undone)
        if of_another:
            self._before, self.can_undo = None, False

    def _undone(self, state: Mapping[str, Any]) -> Mapping[str, Any]:
        self._is_undone = self._before is not None
        return super()._undone(state)  # type: ignore[no-any-return]

    def _described(self, control: Control) -> dict[str, Any] | None:
        """Nothing to draw while what fills a control is not there."""
        waits = self._recipe.entries[control.path].follows and self.state[control.path] is None
        return None if waits else super()._described(control)

    def _late(self) -> None:
        with self.lock:
            self.status = loading(again=bool(self.data))

    def known(self, name: str, state: Mapping[str, Any]) -> Any:
        """A parameter's value while options are made; raises NothingYet if what the step follows is not there yet."""
        if name in self._resolved:
            return self._resolved[name]
        if name not in state:
            source = self._recipe.sources.get(name)
            raise no_answer_yet(source.title if source else name)
        return state[name]

    def compute(self, state: Mapping[str, Any]) -> Whole:
        """What the function returns now, as an answer; raises Cancelled where everything is as it was and stands on the page."""
        given = self._given(state)
        pressed = (pressed_for := self._seen_presses) > self._answered_presses
        known = self._remembered is not None and same(self._remembered[0], given) and self._seen_news == self._answered_news
        if not known or pressed:
            self._remembered, self._complete = None, False
            if not self._recipe.ahead or pressed or self._seen_news != self._answered_news:
                self._ahead.forget()
            try:
                found = self._ahead.take(given) or self._run(given, pressed=pressed)
                if (progress := running()) is not None and progress.ended_early:  # for a newer question, of which it knows nothing
                    raise Cancelled
                self._whole, self._remembered = found
                self._ahead.stands(found)
            except Cancelled:  # a newer question has the press too; the visitor's own word ends it
                if (progress := running()) is not None and progress.by_visitor:
                    self._answered_presses = pressed_for
                raise
            except Exception as error:
                if pressed:
                    self._answered_presses, self._refused, self._answered_news = pressed_for, (given, error), self._seen_news
                raise
            self._answered_presses, self._refused, self._answered_news = pressed_for, None, self._seen_news
        shows, self._must_show = self._must_show or not self._complete, False
        self._complete = not shows
        if not shows:
            self._tell()
            with self.lock:
                self.status = {"state": "result"}
            raise Cancelled
        return self._whole

    def _given(self, state: Mapping[str, Any]) -> dict[str, Any]:
        """What the function is called with."""
        given = self._resolved | {name: state[name] for name in self._recipe.entries}
        return given | ({"chosen": state[self._recipe.choose]} if self._recipe.several else {})

    def _rest(self, progress: Progress, *, moved: bool) -> None:
        """Make the answer to the next value of the slider that was moved, while the page draws this one."""
        is_quick = moved and self._recipe.ahead and self._took_s <= LONGEST_S
        if further := going_on(self.panel.controls, self._before, self.state) if is_quick else {}:
            progress.rest(AFTER_S)
            with unasked() as silent:
                self._ahead.make(partial(self._foretold, {**self.state, **further}, silent))
        super()._rest(progress, moved=moved)

    def _foretold(self, state: Mapping[str, Any], progress: Progress) -> Made:
        """The answer that a state will have."""
        given = self._given(foreseen(self.panel.controls, self._fills, self.known, state))
        result = self._called(given)
        if progress.ended_early:
            raise Cancelled
        return self._shown(result), (given, result)

    def _run(self, given: dict[str, Any], *, pressed: bool) -> Made:
        recipe = self._recipe
        if recipe.button and not pressed:
            if why := self._why_not(given):
                raise Waiting(why)
            if self._refused is not None and same(self._refused[0], given) and self._seen_news == self._answered_news:
                raise self._refused[1]  # it stands as long as all that was pressed with
            raise NothingYet(t(recipe.help) if recipe.help else say("Press “{button}”.", button=recipe.button))
        check()  # a newer question has the press too
        if recipe.settled and (progress := running()) is not None:
            progress.pause(SETTLED_S)
        result = self._called(given)
        if not recipe.button:
            check()  # what was cut short by a newer question is no answer; what was written is written
        else:
            page_state().saved(origin=self)
            given |= self._after_saving()
        show = StepView._shown if recipe.show is None else recipe.show
        return show(self, result), (given, result)

    def _called(self, given: Mapping[str, Any]) -> Any:
        began_s = time.monotonic()
        result = self._recipe.function(**given)
        self._took_s = time.monotonic() - began_s
        return result

    def _why_not(self, given: Mapping[str, Any]) -> str:
        unless = self._recipe.unless
        return unless(**{name: given[name] for name in inspect.signature(unless).parameters}) if unless else ""

    def is_of_use(self) -> bool:
        """Whether the button can be pressed again once it was: not where `unless` says why not by now."""
        return self._remembered is None or not self._why_not(self._remembered[0])

    def _after_saving(self) -> dict[str, Any]:
        """What the step follows, once the steps above know what it has written: its own doing does not take its answer away."""
        now = {}
        for name, source in self._recipe.sources.items():
            with suppress(Exception):  # it is told where it is shown, and when the step is asked next
                now[name] = source.wait()
        return now

    def do(self, button: Button, state: Mapping[str, Any]) -> str:
        """What a button does, with what stands on the page now; gives the sentence that says what was done."""
        recipe, parameters = self._recipe, inspect.signature(button.run).parameters.values()
        everything = any(one.kind is inspect.Parameter.VAR_KEYWORD for one in parameters)
        asked = {one.name for one in parameters}
        given = dict(recipe.constants) | {name: state[name] for name in recipe.entries}
        given |= {name: source.needed() for name, source in recipe.sources.items() if everything or name in asked}
        try:
            return button.run(**{name: value for name, value in given.items() if everything or name in asked})
        finally:
            self._news += 1  # what the function reads may be something else now

    def _shown(self, result: Any) -> Whole:
        names = {origin_of(value) for value in self._resolved.values()} - {""}
        return shown(result, choose=self._recipe.choose, sources=sorted(names))

    def _tell(self) -> None:
        """Let what follows the step begin."""
        assert self._remembered is not None
        self._finish(self.result, self._remembered[1])
        self._finish(self.selection, chosen_in(self._whole, self._recipe.choose, self.state, several=bool(self._recipe.several)))

    def _show_details(self, whole: Whole) -> None:
        """Its charts are out, and whoever moves a slider rests: what follows the step is in nobody's way now."""
        self._tell()
        recipe = self._recipe
        tables = {name: marked(table, recipe.choose, self.state, recipe.several) for name, table in whole.tables.items()}
        super()._show_details(whole._replace(tables=tables))
        self._complete = True

    def _fail(self, error: Exception) -> None:
        self._remembered, self._complete = None, False
        super()._fail(error)
        if self.status.get("details"):
            title = f"{self.title}: {type(error).__name__}"
            with self.lock:
                self.status = {**self.status, "title": told(title), "problems": [told(str(error))]}
        self._finish(self.result, error=error)
        self._finish(self.selection, error=error)
        for name, value in self._own.items():  # a control without options has no value yet: none was chosen
            now = self.state[name]
            self._finish(value, now, error if now is None and not self._options_are_known else None)


def _panel(recipe: Recipe, view: StepView) -> Panel:
    """The panel of a step; its state is a mapping of what the visitor sets and, under `choose`, of what was chosen."""
    choose = recipe.choose
    none = () if recipe.several else ""
    start = ({choose: none} if choose else {}) | {name: entry.default for name, entry in recipe.entries.items()}
    controls: list[Control] = [entry.control(name, view.known) for name, entry in recipe.entries.items()]

    def chosen(state: Mapping[str, Any], _where: str, datum: Mapping[str, Any]) -> Mapping[str, Any]:
        if datum.get(choose) is None:
            return state
        key, before = str(datum[choose]), state[choose]
        if not recipe.several:
            return {**state, choose: key}
        others = tuple(one for one in before if one != key)
        return {**state, choose: others if key in before else (key, *others)[: recipe.several]}

    def action(button: Button) -> Action:
        visible = None if button.visible is None else seen(button.visible, view.known)
        return Action(name=button.name, label=button.label, run=partial(view.do, button), help=button.help, visible=visible)

    pressed = Action(name="run", label=recipe.button, run=lambda _: "", help=recipe.help, visible=lambda _: view.is_of_use())
    return Panel(
        title=recipe.title,
        start=start,
        compute=view.compute,
        view=lambda whole: Answer(*whole),
        controls=tuple(controls),
        actions=(*([pressed] if recipe.button else []), *map(action, recipe.buttons)),
        on_select=chosen if choose else None,
        on_row=chosen if choose else None,
        shared=(
            *(name for name, entry in recipe.entries.items() if entry.shared),
            *((choose,) if choose and recipe.sets is None else ()),
        ),
        empty=recipe.empty,
        follows_log=recipe.follows_log,
        folded=recipe.folded,
        refresh_s=recipe.refresh_s,
    )
