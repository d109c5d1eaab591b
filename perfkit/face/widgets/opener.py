"""Opener: the kernel's side of "Open" in the header: what is open, what a typed, browsed, dropped or sent path is, where it leads.

What is opened becomes what the project has open, so that every page follows; where nothing can be written (no project, or one that
is only read) the address of the page that it leads to names it. A piece that is pasted is explained and goes nowhere.
"""

from __future__ import annotations

import shutil
import threading
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from perfkit.core import catalog, settings
from perfkit.core.errors import InputError, PerfkitError
from perfkit.core.resources import pages
from perfkit.core.roots import checked, is_allowed, told
from perfkit.core.texts import t
from perfkit.face.widgets import context
from perfkit.face.widgets._files import completions, list_folder
from perfkit.face.widgets._upload import offer
from perfkit.face.widgets._uploads import Uploads
from perfkit.face.widgets.navigation import page_link
from perfkit.face.widgets.page_state import page_state
from perfkit.face.widgets.pasted import explained
from perfkit.project import Project, save
from perfkit.project.experiments import ExperimentLog

FIELD = "open"
_GROUPS = {"Samples": "Bundled samples"}
_FIELDS = {"run": "open_run", "config": "open_config", "round": "open_round"}
Send = Callable[[dict[str, Any]], None]


class Opener:
    """Answers what the page asks of "Open"; `page` is the page on which it stands."""

    def __init__(self, send: Send, page: str) -> None:
        self._send, self._page = send, page
        self._uploads = Uploads("header", frozenset({FIELD}))

    def answer(self, message: Mapping[str, Any]) -> None:
        """Answer a message of the page, in a thread where that takes long."""
        kind = message["type"]
        if kind == "browse":
            self._send({"type": "listing", "listing": list_folder(message["folder"])})
        elif kind == "find":
            self._send({"type": "found", "text": message["text"], "paths": completions(message["text"])})
        elif kind == "switch":
            self._switch(message["name"], message["path"])
        elif kind == "open-path":
            threading.Thread(target=self.open, args=(message["path"],), name="perfkit-open", daemon=True).start()
        elif kind == "explain":
            threading.Thread(target=self._explain, args=(message["text"],), name="perfkit-explain", daemon=True).start()

    def upload(self, message: dict[str, Any], parts: list[memoryview]) -> None:
        """The next step of an upload; what came is opened once it is whole, and removed if nothing can read it."""
        answer, finish = self._uploads.step(message, parts)
        if answer is not None:
            self._send(answer)
        if finish is not None:
            threading.Thread(target=self._open_sent, args=(finish,), name="perfkit-open", daemon=True).start()

    def open(self, path: str) -> bool:
        """Open what lies at `path` and lead to its page; says what is wrong with it, and gives False, if nothing can read it."""
        from perfkit.project.opening import first_page, recognise, remembered  # noqa: PLC0415  readers of all formats

        try:
            given = recognise(checked(path.strip()))
            project = context.current_project()
            if project is not None and not project.read_only:
                project = remembered(project, given)
            number, values = first_page(given, project)
        except PerfkitError as error:
            self._refuse(error)
            return False
        name = next((page.name for page in pages(settings.pages_folder()) if page.number == number), self._page)
        self._go(name, values)
        return True

    def _explain(self, text: str) -> None:
        try:
            self._send(explained(text))
        except PerfkitError as error:
            self._refuse(error, "not-explained")

    def _open_sent(self, finish: Callable[[], Path]) -> None:
        try:
            path = finish()
        except PerfkitError as error:
            self._refuse(error)
            return
        if not self.open(str(path)):
            shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)

    def _switch(self, name: str, path: str) -> None:
        """Make another recording, configuration or round the open one; where nothing is written the address names it."""
        try:
            place = None if name == "round" else checked(path)
            project = context.current_project()
            if project is None or project.read_only:
                self._go(self._page, {} if place is None else {name: str(place)})
                return
            changes: dict[str, Any] = {_FIELDS[name]: int(path) if place is None else place}
            save(replace(project, **changes))
            self._go(self._page, {})
        except PerfkitError as error:
            self._refuse(error)

    def _go(self, page: str, values: Mapping[str, str]) -> None:
        self._send({"type": "go", "href": page_link(page, **values)})

    def _refuse(self, error: PerfkitError, kind: str = "refused") -> None:
        problems = [f"{error.subject}: {text}" for text in error.problems] if isinstance(error, InputError) else [str(error)]
        self._send({"type": kind, "problems": [told(problem) for problem in problems]})


def what_is_open() -> dict[str, Any]:
    """What the header shows: the open recording, configuration and round, what there is to choose from, what was opened before.

    `{"switches": [{"name", "label", "value", "sample", "options": [{"label", "value", "group"}]}], "recent": [{"label", "path"}],
    "upload": the limits of an upload}`.
    """
    project = context.current_project()
    run = _asked_for("run") or context.first_run(context.SAMPLES)
    runs = [*context.run_options(), *((label, path, group) for label, path, group in context.log_options() if group != "Samples")]
    configs = context.config_options()
    config = _asked_for("config") or context.first_config()
    if config == context.USUAL_PLAN:
        configs = [(config, config, "Published models on 16 devices"), *configs]
    switches = [_switch("run", "Recording", run, runs), _switch("config", "Configuration", config, configs)]
    if project is not None and (rounds := _rounds(project)):
        chosen = str(project.open_round) if project.open_round is not None else rounds[-1][1]
        switches.append(_switch("round", "Round", chosen, rounds))
    recent = project.recent if project is not None else ()
    return {
        "switches": switches,
        "recent": [{"label": path.name, "path": str(path)} for path in recent if path.exists()],
        "upload": offer(),
    }


def _asked_for(name: str) -> str:
    """What the address names, where pages can open it; "" for what they refuse, and show what they had."""
    asked = page_state().get(name)
    is_name = name == "config" and asked in catalog.models()
    return asked if asked and (is_name or (is_allowed(asked) and Path(asked).expanduser().exists())) else ""


def _switch(name: str, label: str, value: str, options: list[tuple[str, str, str]]) -> dict[str, Any]:
    known = {path: (text, group) for text, path, group in options}
    if value and value not in known:
        known = {value: (Path(value).name, "Project"), **known}
    return {
        "name": name,
        "label": t(label),
        "value": value,
        "sample": name != "round" and bool(value) and (value == context.USUAL_PLAN or context.is_sample(Path(value))),
        "options": [{"label": text, "value": path, "group": t(_GROUPS.get(group, group))} for path, (text, group) in known.items()],
    }


def _rounds(project: Project) -> list[tuple[str, str, str]]:
    """The rounds of a project, the newest first; none if the log cannot be read, which its pages say."""
    try:
        rounds = ExperimentLog(project.folder, read_only=True).show("json")["rounds"]
    except PerfkitError:
        return []
    return [(f"{t('Round')} {row['number']}: {row['title']}", str(row["number"]), "") for row in reversed(rounds)]
