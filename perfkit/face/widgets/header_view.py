"""Header: project, goal and the steps of the tuning cycle above every page; it also keeps the page's address."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import traitlets

from perfkit.core import settings
from perfkit.core.errors import InputError, PerfkitError
from perfkit.core.resources import pages
from perfkit.core.texts import t, told
from perfkit.face.widgets.log import Seen, changed_since, seen
from perfkit.face.widgets.navigation import page_link
from perfkit.face.widgets.opener import Opener, what_is_open
from perfkit.face.widgets.page_state import page_state
from perfkit.face.widgets.placed import on_picker, picked
from perfkit.face.widgets.view import Content
from perfkit.project import CycleOrder, Project, find_project, open_project
from perfkit.project.experiments import ExperimentLog
from perfkit.project.goals import written
from perfkit.teach.session import bulletin

CYCLE: tuple[tuple[str, str, str, tuple[str, ...]], ...] = (
    ("S0", "Goal", "State the goal and measure the start", ("01", "00")),
    ("S1", "Strategy", "Choose how the work is split", ("02", "03", "06")),
    ("S2", "Memory", "Check that it fits", ("04", "05", "19")),
    ("S3", "Predict", "Write down what you expect, before you measure", ("02",)),
    ("S4", "Measure", "Record and load a run", ("10",)),
    ("S5", "Analyse", "Find where the step goes", ("11", "12", "13", "14", "15", "16", "17", "18", "20", "23")),
    ("S6", "Align", "Check that the accuracy stayed", ("22",)),
    ("S7", "Decide", "Keep, revert or repeat", ("21",)),
)
"""The states of a round: id, name, what is done there, numbers of its pages."""

OUT_OF_ROUNDS = ("30", "31", "40")
"""Pages that neither read nor write the rounds of the project."""

LOOK_S = 5.0
"""How often a page looks whether somebody else has changed the project."""


class HeaderView(Content):
    """The header; it also keeps the values of `page_state` and the page's address equal."""

    values = traitlets.Dict().tag(sync=True)
    bulletin = traitlets.Dict().tag(sync=True)
    changed = traitlets.Unicode().tag(sync=True)

    places = traitlets.Dict().tag(sync=True)

    def __init__(self, read: Callable[[], Mapping[str, Any]], folder: Path | None = None, page: str = "") -> None:
        state = page_state()
        self._opener = Opener(self.send, page)
        self._read, self._folder, self._page = read, folder, page
        self._seen, self._named = _seen(folder), _named()
        super().__init__(
            kind="header",
            content=dict(read()),
            values=dict(state.values),
            bulletin=bulletin(state.values.get("student", "")),
            places=self._places(),
        )
        on_picker(self._on_picker)
        state.on_change(self._on_change)
        state.on_saved(self._on_saved)
        if folder is not None and settings.in_app():
            threading.Thread(target=self._watch, args=(folder,), name="perfkit-header", daemon=True).start()

    def _places(self) -> dict[str, Any]:
        """What is open, of which the bar names what the page reads; a page that reads something else says itself what it is."""
        if not settings.in_app():
            return {}
        found = what_is_open()
        return {**found, "switches": [switch for switch in found["switches"] if self._is_read(**switch)]}

    def _is_read(self, *, name: str, value: str, **_: Any) -> bool:
        if self._page[:2] == "00":  # of all that is open
            return True
        if name == "round":
            return self._page[:2] not in OUT_OF_ROUNDS
        return picked(name) is not None or (name == "run" and picked("log") == value)

    def _on_picker(self) -> None:
        with self.lock:
            self.places = self._places()

    def look(self, folder: Path) -> None:
        """Say who else has changed the project since this page read or wrote it."""
        try:
            text = changed_since(folder, self._seen)
        except (PerfkitError, OSError):
            # The pages of the log say what is wrong with it.
            return
        with self.lock:
            self.changed = text

    def _watch(self, folder: Path) -> None:
        # From here and not from the browser: a page that asks every few seconds never looks idle to the server.
        while True:
            time.sleep(LOOK_S)
            self.look(folder)

    def _on_saved(self, _origin: object) -> None:
        self._seen = _seen(self._folder)
        with self.lock:
            self.content, self.changed = dict(self._read()), ""
            self.places = self._places()

    def on_message(self, message: dict[str, Any]) -> None:
        """The visitor changed the address, or opened a link with values in it."""
        if message.get("type") == "hash":
            self.values = {str(name): str(value) for name, value in message["values"].items()}
            page_state().set(self.values, origin=self)
        elif message.get("type") == "class":
            with self.lock:
                self.bulletin = bulletin(page_state().values.get("student", ""))
        else:
            self._opener.answer(message)

    def on_upload(self, message: dict[str, Any], parts: list[memoryview]) -> None:
        """A file that was dropped on the page, or chosen in the header."""
        self._opener.upload(message, parts)

    def _on_change(self, _values: Mapping[str, str], origin: object) -> None:
        with self.lock:  # what the page has now: of two threads that tell of a change, the older one may come last
            if origin is not self:
                self.values = dict(page_state().values)
            if self._named != _named():
                self._named, self.places = _named(), self._places()


def _named() -> tuple[str, ...]:
    """What the address names of what the switches show; of a link it comes once the header is drawn."""
    return tuple(page_state().get(name) for name in ("run", "config"))


def header(page: str = "", *, sample: bool = False) -> HeaderView:
    """Show project, goal and cycle; `page` is the page's name ("11_step_breakdown"), known by itself in the app.

    `sample` marks what the page shows as a sample that is not the project's own.
    """
    page = page or os.environ.get("SCRIPT_NAME", "").rsplit("/", 1)[-1]
    return HeaderView(lambda: _content(page, sample=sample), find_project(), page)


def _seen(folder: Path | None) -> Seen:
    try:
        return Seen(0, 0) if folder is None else seen(folder)
    except (PerfkitError, OSError):
        return Seen(0, 0)


def _content(page: str, *, sample: bool) -> dict[str, Any]:
    folder = find_project()
    project, problem = None, ""
    if folder is not None:
        try:
            project = open_project(folder)
        except InputError as error:
            problem = str(error)
    return {
        "project": project.name if project else t("No project open"),
        "round": f"{t('Round')} {project.open_round}" if project and project.open_round is not None else "",
        "goal": _goal_text(project) if project else "",
        "sample": sample,
        "read_only": project.read_only if project else settings.read_only(),
        "warnings": [problem] if problem else list(project.warnings) if project else [],
        "chips": _chips(page, standing(project), project.cycle_order if project else "newer"),
    }


def _goal_text(project: Project) -> str:
    value = project.goal_value
    if value is None:
        return ""
    what = {"step_time_ns": "{} a step", "mfu": "MFU {}"}.get(project.goal_metric, "{}")
    return f"{t('Goal')} {'≥' if project.goal_op == '>=' else '≤'} {what.format(written(project.goal_metric, value))}"


STATES = ("goal", "strategy", "memory", "predict", "measure", "analyse", "align", "decide")
"""The states of a round in the log, in the order of `CYCLE`."""
CLASSIC = ("goal", "measure", "analyse", "memory", "strategy", "predict", "align", "decide")
"""The same states as the classic guides walk them: a profile and its operators first, then memory and strategy."""


@dataclass(frozen=True, slots=True)
class Standing:
    """What the open round (else the last one) lacks, by state, and the reasons of what was skipped; both empty without a round.

    In a round that is decided nothing comes next.
    """

    missing: Mapping[str, list[str]] = field(default_factory=dict)
    skipped: Mapping[str, str] = field(default_factory=dict)
    is_decided: bool = False


def standing(project: Project | None) -> Standing:
    """Where the project's round stands; nothing if the log cannot be read."""
    if project is None:
        return Standing()
    log = ExperimentLog(project.folder, read_only=True)
    try:
        rounds = log.show("json")["rounds"]
        if not rounds:
            return Standing()
        row = next((row for row in rounds if not row["verdict"]), rounds[-1])
        skipped = {item["state"]: item["reason"] for item in row["skipped"]}
        return Standing(log.missing(row["number"]), skipped, is_decided=bool(row["verdict"]))
    except PerfkitError:
        # The pages of the log say what is wrong with it; the header of every other page must still open.
        return Standing()


def _chips(page: str, stand: Standing, order: CycleOrder) -> list[dict[str, str]]:
    """The states: done, skipped with a reason, `next` where the round stands, blocked behind; `current` on a page of the state."""
    missing = stand.missing
    existing = {found.number: found.name for found in pages(settings.pages_folder())}
    walked = CLASSIC if order == "classic" else STATES
    waiting = [state for state in walked if missing.get(state)]
    own = [stage for stage in walked if page[:2] in CYCLE[STATES.index(stage)][3]]  # a page may serve two states; it shows one
    ahead = () if stand.is_decided else waiting[:1]
    here = next((stage for stage in own if stage in ahead), own[0] if own else "")
    chips = []
    for stage in walked:
        id_, label, english, numbers = CYCLE[STATES.index(stage)]
        work = t(english)
        names = [existing[number] for number in numbers if number in existing]
        state, why = "open" if names else "blocked", work if names else f"{work}: {t('there is no page for it yet')}"
        if stage in stand.skipped:
            state, why = "skipped", f"{work}: {t('skipped')}, {stand.skipped[stage]}"
        elif missing and not missing[stage]:
            state, why = "done", f"{work}: {t('done')}"
        elif missing:
            state = "open" if stand.is_decided else "next" if stage in ahead else "blocked"
            after = f" ({t('after')} {waiting[0]})" if state == "blocked" else ""
            why = f"{work}. {t('Missing')}: {', '.join(map(told, missing[stage]))}{after}"
        if stage == here:
            state = "current"
        chips.append({"id": id_, "label": t(label), "state": state, "why": why, "href": page_link(names[0]) if names else ""})
    return chips
