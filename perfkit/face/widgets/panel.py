"""Panel: controls, one pure function, figures, tables and a sentence; and the six states that a visitor can see.

`compute(state)` gives a result and `view(result)` its figures; both are pure and run in a thread. A changed control makes a new
state; only the newest one is computed. The page gets charts and sentence as soon as there are any (`data`), then tables, notes,
code and controls (`details` of the same version), unless a newer state is asked for. How `compute` ends says which state is shown:

    returns                    result (meanwhile the page greys the old figure)
    raises NothingYet          empty: what would be here, and the button of `Panel.empty` that fills it
    raises NotMeasuredError    not measured: what is missing and the lines that collect it
    raises InputError          error: all problems in words
    raises anything else       error: one line, the traceback folded
    calls `running()(...)`     loading, with a bar and a cancel button
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import traitlets

from perfkit.core.errors import InputError, NotMeasuredError, PerfkitError
from perfkit.core.texts import path_words, say, t, told
from perfkit.face.charts.spec import split, unchecked
from perfkit.face.widgets._beside import Beside
from perfkit.face.widgets._chart_words import in_words
from perfkit.face.widgets._drawn_tables import DrawnTables
from perfkit.face.widgets._shared_values import SharedValues
from perfkit.face.widgets._uploads import Uploads
from perfkit.face.widgets.answer import Answer, Code, Whole
from perfkit.face.widgets.chart import as_figure, describe, rows_of_tables
from perfkit.face.widgets.control import Control, PathPicker, refusals, settling
from perfkit.face.widgets.control import describe as describe_control
from perfkit.face.widgets.page_state import page_state
from perfkit.face.widgets.status import NothingYet, failure, loading
from perfkit.face.widgets.table import Table, table_content
from perfkit.face.widgets.view import View
from perfkit.face.widgets.worker import Background, Cancelled, Progress

__all__ = ["Action", "Answer", "Code", "Empty", "Panel", "PanelView"]

_SEND_S = 0.001
"""Python lets a thread compute for 5 ms before another one may run; a pause lets the kernel's own send the charts at once."""
_NEXT_MOVE_S = 0.15
"""A slider that is dragged moves again sooner; until it rests, neither tables nor what follows the panel are in its way."""

State = Any
Change = Callable[[State], State]


@dataclass(frozen=True, kw_only=True, slots=True)
class Action:
    """A button that does something outside of the panel, such as saving to the project.

    `run(state)` gives the sentence that says what was done; a PerfkitError that it raises is shown beside the button. The panel
    computes anew after it.
    """

    name: str
    label: str
    run: Callable[[State], str]
    help: str = ""
    visible: Callable[[State], bool] | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Empty:
    """What an empty panel offers: the label of its button and the state that the button leads to."""

    action: str
    fill: Callable[[State], State]


@dataclass(frozen=True, kw_only=True, slots=True)
class Panel:
    """One question of a page.

    `start` is the first state. `on_select(state, chart, datum)` and `on_row(state, table, row)` give the next state after a click
    on a mark or row. The paths in `shared` are kept in the page's address, so that a link restores the view and panels of one page
    agree. With `refresh_s` an open panel that shows a result computes anew so often, because others change what it shows, with
    `follows_log` when another one of its page has written to the project. A `folded` one shows its sentence, the rest when asked.
    """

    compute: Callable[[State], Any]
    view: Callable[[Any], tuple[Any, ...]]
    start: State = field(default_factory=dict)
    controls: tuple[Control, ...] = ()
    actions: tuple[Action, ...] = ()
    title: str = ""
    empty: Empty | None = None
    on_select: Callable[[State, str, dict[str, Any]], State] | None = None
    on_row: Callable[[State, str, dict[str, Any]], State] | None = None
    shared: tuple[str, ...] = ()
    refresh_s: float = 0.0
    follows_log: bool = False
    folded: bool = False


class PanelView(View):
    """A panel on a page. `state` is what is or will be shown, `answer` what `view` returned last, `error` why there is none."""

    name = traitlets.Unicode().tag(sync=True)
    title = traitlets.Unicode().tag(sync=True)
    refresh_s, folded = traitlets.Float().tag(sync=True), traitlets.Bool().tag(sync=True)
    controls: traitlets.List[Any] = traitlets.List().tag(sync=True)
    actions: traitlets.List[Any] = traitlets.List().tag(sync=True)
    can_undo = traitlets.Bool().tag(sync=True)
    outcome = traitlets.Dict().tag(sync=True)
    status = traitlets.Dict().tag(sync=True)
    frame = traitlets.Dict().tag(sync=True)
    data = traitlets.Dict().tag(sync=True)
    details = traitlets.Dict().tag(sync=True)

    def __init__(self, panel: Panel, *, name: str = "panel", state: State | None = None) -> None:
        self.panel = panel
        self.state = panel.start if state is None else state
        self.answer: Whole | None = None
        self.error: Exception | None = None
        self._changes: list[tuple[int, Change]] = []
        self._waiting: dict[str, Any] = {}  # what was asked for before the options that it is one of could be made
        self._seq, self._version = 0, 0
        self._notes: dict[str, str] = {}
        self._tables, self._beside = DrawnTables(), Beside()
        self._uploads = Uploads(name, frozenset(control.path for control in panel.controls if isinstance(control, PathPicker)))
        self._before: State | None = None
        self._page = page_state()
        self._shared = SharedValues(self._page, panel.shared, self.state, own=[each.path for each in panel.controls], name=name)
        shape = {"refresh_s": panel.refresh_s, "folded": panel.folded}
        super().__init__(kind="panel", name=name, title=t(panel.title), status=loading(), **shape)
        self._follow_address()
        self._background = Background(self._work, self._show_progress)
        self._page.on_change(self._on_address)
        self._page.on_saved(self._on_saved)
        self._background.ask()

    def set(self, values: Mapping[str, Any]) -> None:
        """Change values of the state by path, as a visitor would with the controls."""
        self.on_message({"type": "set", "seq": self._seq, "values": dict(values)})

    def wait(self, timeout_s: float = 60.0) -> Whole:
        """The answer to the present state, with tables, notes and code; raises the error if there is none."""
        if not self._background.wait(timeout_s):
            raise TimeoutError(f"panel {self.name} still computes after {timeout_s} s")
        if self.error is not None:
            raise self.error
        assert self.answer is not None
        return self.answer

    def on_message(self, message: dict[str, Any]) -> None:
        """What the visitor did in the panel."""
        panel, kind = self.panel, message.get("type")
        if kind == "set":
            self._ask(lambda state: self._accept(state, message["values"]), seq=int(message["seq"]))
        elif kind == "select" and panel.on_select is not None:
            select, chart, datum = panel.on_select, self._drawn(message["chart"]), message["datum"]
            self._ask(lambda state: select(state, chart, datum))
        elif kind == "row" and panel.on_row is not None and (row := self._tables.row(message)) is not None:
            choose, table = panel.on_row, message["table"]
            self._ask(lambda state: choose(state, table, row))
        elif kind == "action" and panel.empty is not None:
            self._ask(panel.empty.fill)
        elif kind == "act":
            values = message.get("values") or {}
            self._ask(lambda state: self._accept(state, values))
            self.act(message["name"], values)
        elif kind == "undo":
            self._ask(self._undone)
        elif kind == "retry":
            self._ask(lambda state: state)
        elif kind == "cancel":
            self._background.cancel()
        elif kind == "browse":
            self._browse(message["name"], message["folder"])

    def _drawn(self, chart: str) -> str:
        """The name of a chart that the page shows."""
        if chart not in {described["name"] for described in self.frame.get("charts", ())}:
            raise InputError(self.name, [f"shows no chart {chart[:60]!r}"])
        return chart

    def on_upload(self, message: dict[str, Any], parts: list[memoryview]) -> None:
        """The next step of an upload; the page sends the next part when it is answered."""
        answer, finish = self._uploads.step(message, parts)
        if answer is not None:
            self.send(answer)
        if finish is not None:
            self._ask(lambda state: self._accept(state, {message["name"]: str(finish())}))

    def act(self, name: str, values: Mapping[str, Any] | None = None) -> None:
        """Do what the button `name` does, say how it went, and compute anew; nothing if one of the fields' `values` is refused."""
        try:
            if refused := refusals(self.panel.controls, values or {}, self.state):
                raise InputError(name, refused)
            outcome = {"name": name, "text": told(self._offered(name).run(self._newest())), "problems": []}
        except PerfkitError as error:
            problems = list(map(told, error.problems)) if isinstance(error, InputError) else []
            outcome = {"name": name, "text": told("Not done:" if problems else str(error)), "problems": problems}
        with self.lock:
            self.outcome = {**outcome, "count": self.outcome.get("count", 0) + 1}
        self._ask(lambda state: state)
        self._page.saved(origin=self)

    def _offered(self, name: str) -> Action:
        """The action `name`; raises InputError if the panel does not offer it now."""
        for action in self.panel.actions:
            if action.name == name and (action.visible is None or action.visible(self.state)):
                return action
        raise InputError(self.name, [f"offers no action {name[:60]!r} now"])

    def _on_saved(self, origin: object) -> None:
        if self.panel.follows_log and origin is not self:
            self._ask(lambda state: state)

    def _newest(self) -> State:
        """The state with the changes that the thread has not come to yet: a field that was left by pressing a button."""
        with self.lock:
            state = self.state
            for _, change in self._changes:
                state = change(state)
        return state

    def _ask(self, change: Change, seq: int = 0) -> None:
        with self.lock:
            self._changes.append((seq, change))
        self._background.ask()

    def _undone(self, state: State) -> State:
        """The state before the visitor's last change; undone again it is that change."""
        return state if self._before is None else self._before

    def _accept(self, state: State, values: Mapping[str, Any]) -> State:
        """The state with `values`; one whose options cannot be made yet waits until they can."""
        for path, value in values.items():
            self._waiting.pop(path, None)
            try:
                state = self._accept_one(state, path, value)
            except (NothingYet, NotMeasuredError):
                self._waiting[path] = value
        return state

    def _accept_one(self, state: State, path: str, value: Any) -> State:
        control = next((control for control in self.panel.controls if control.path == path), None)
        if control is None:
            return {**state, path: self._shared_value(state, path, value)}
        try:
            accepted, note = control.accept(value, state)
        except InputError as error:  # said beside the field; what was there before stays
            accepted, note = state[path], say("{problem}; not changed", problem=error.problems[0])
        self._notes[path] = note
        return {**state, path: accepted}

    def _shared_value(self, state: State, path: str, value: Any) -> Any:
        """A value of the address that no control shows, such as the chosen row; of the kind that it has already."""
        if path not in self.panel.shared:
            raise InputError(
                self.name, [f"has no control {path[:60]!r}; there are {', '.join(c.path for c in self.panel.controls)}"]
            )
        before = state[path]
        if before is not None and value is not None and not isinstance(value, type(before)):
            raise InputError(self.name, [f"{path}: {value!r} does not fit; wanted is a value such as {before!r}"])
        return value

    # The thread -------------------------------------------------------------

    def _work(self, progress: Progress) -> None:
        try:
            self._look_up()
            with self.lock:
                changes, self._changes = self._changes, []
                if changes:
                    self._notes = {}
            self._follow_address()
            waiting: Change = partial(self._accept, values=dict(self._waiting))
            for seq, change in ((0, waiting), *changes):
                self._seq, before = max(self._seq, seq), self.state
                self.state = change(before)
                if self.state != before:
                    self._before, self.can_undo = before, True
            self._settle_choices()
            if not self.controls:
                with self.lock:
                    self._draw_controls()
            result = self.panel.compute(self.state)
            with unchecked():  # half of a slider's time
                answer = Answer(*self.panel.view(result))
                progress.check()
                self._show(answer)
            self._rest(progress, moved=bool(answer.charts) and any(seq for seq, _ in changes))  # 0: not by the visitor
            whole = answer.whole(progress.check)
            progress.check()
            self._show_details(whole)
        except Cancelled as cancelled:
            if progress.by_visitor:
                self._fail(cancelled)
        except Exception as error:  # every end of `compute` is a state that the visitor sees
            self._fail(error)
        self._shared.tell(self.state, origin=self)

    def _rest(self, progress: Progress, *, moved: bool) -> None:
        """Leave the kernel to the charts that are out; where the visitor `moved` something, to the next move as well."""
        progress.rest(_NEXT_MOVE_S if moved else _SEND_S)

    def _look_up(self) -> None:
        """Get what options are made of, as far as it is there; changes wait for it."""

    def _settle_choices(self) -> None:
        """Options follow the state: a value that is none of them any more gives way to one that is."""
        for state, path, note in settling(self.panel.controls, self.state):
            self.state = state
            self._notes[path] = self._notes.get(path) or note

    def _show(self, answer: Answer) -> None:
        """The first half of an answer: charts and sentence."""
        figures = {name: as_figure(chart) for name, chart in answer.charts.items()}
        specs = {name: in_words(split(figure.chart)) for name, figure in figures.items()}
        with self.lock, self.hold_sync():
            self.error = None
            self._version += 1
            charts = [{**describe(name, figures[name], spec), "alt": ""} for name, spec in specs.items()]
            self.frame = {"charts": charts, "beside_ch": self._beside.room_ch(figures, answer.tables)}
            self.data = {
                "version": self._version,
                "seq": self._seq,
                "sentence": path_words(told(answer.text)),
                "datasets": {name: spec.datasets for name, spec in specs.items()},
                "params": {name: {**specs[name].params, **figure.params} for name, figure in figures.items()},
                "alt": {name: told(figure.alt or answer.text) for name, figure in figures.items()},
            }
            self.status = {"state": "result"}

    def _show_details(self, whole: Whole) -> None:
        """The second half: all that a visitor reads after the charts."""
        tables = {name: table if isinstance(table, Table) else Table(frame=table) for name, table in whole.tables.items()}
        contents, rows = [table_content(name, table) for name, table in tables.items()], rows_of_tables(whole.charts)
        with self.lock, self.hold_sync():
            self.answer = whole
            self._tables.draw(self._version, tables)
            self._draw_controls()
            self.details = {
                "version": self._version,
                "notes": [path_words(told(note)) for note in whole.notes],
                "tables": contents,
                "rows": rows,
                "code": [{**part._asdict(), "title": told(part.title)} for part in whole.code],
            }

    def _fail(self, error: Exception) -> None:
        with self.lock, self.hold_sync():
            self.error = error
            self._draw_controls()
            self.status = {**failure(error, t(self.panel.empty.action) if self.panel.empty else ""), "seq": self._seq}

    def _show_progress(self, what: str, done: int, total: int) -> None:
        with self.lock:
            self.status = loading(what, done, total, again=bool(self.data))

    def _draw_controls(self) -> None:
        before = {drawn["name"]: drawn for drawn in self.controls}
        drawn = (self._described(control) or before.get(control.path) for control in self.panel.controls)
        self.controls = [control for control in drawn if control]
        self.actions = [
            {"name": action.name, "label": t(action.label), "help": t(action.help)}
            for action in self.panel.actions
            if action.visible is None or action.visible(self.state)
        ]

    def _described(self, control: Control) -> dict[str, Any] | None:
        """What the page needs to draw a control; None where its options cannot be known because their run cannot be read."""
        try:
            return describe_control(control, self.state, self.state[control.path], self._notes.get(control.path, ""))
        except PerfkitError:
            return None

    def _browse(self, name: str, folder: str) -> None:
        for control in self.panel.controls:
            if control.path == name and hasattr(control, "browse"):
                listing = control.browse(folder)
                with self.lock:
                    self.controls = [{**drawn, "listing": listing} if drawn["name"] == name else drawn for drawn in self.controls]

    def _on_address(self, _values: Mapping[str, str], origin: object) -> None:
        if origin is not self and self._shared.news(self.state):
            self._background.ask()

    def _follow_address(self) -> None:
        """Take over what others have changed. A value that is not accepted changes nothing; the reason stands by the control."""
        if values := self._shared.news(self.state):
            self._notes = {}
        for path, value in values.items():
            before = self.state
            try:
                self.state = self._accept_one(before, path, value)
            except InputError as error:  # of a value that no control shows
                self._notes[path] = error.problems[0]
            except (NothingYet, NotMeasuredError):  # its options follow something that is not there yet
                continue
            self._shared.took(path, before, self.state)
