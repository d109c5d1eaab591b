"""Pickers: a recording, a training log or a configuration, chosen on a page; `.value` is the plain object that was read.

A picker follows the address of its page (`#run=…`), starts with what the project has open, and offers the project's files, the
samples, a path, and an upload. Where nothing is chosen, the steps that follow it say so.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from perfkit.config.presets import read_plan
from perfkit.core.errors import NotMeasuredError
from perfkit.core.resources import data_folder
from perfkit.core.roots import checked
from perfkit.core.run import Run
from perfkit.core.spec.plan import Plan
from perfkit.core.texts import joined, say, t
from perfkit.face.widgets import context
from perfkit.face.widgets.answer import Whole
from perfkit.face.widgets.entries import Entry, Folder
from perfkit.face.widgets.page_state import page_state
from perfkit.face.widgets.panel import Empty
from perfkit.face.widgets.placed import draw, put
from perfkit.face.widgets.recipe import Recipe
from perfkit.face.widgets.status import NothingYet
from perfkit.face.widgets.step_view import StepView
from perfkit.face.widgets.values import Value


class Picker:
    """What was chosen on the page: `value` is the plain object, read once; `path` is where it lies, `name` the parameter of it."""

    def __init__(self, view: StepView, name: str) -> None:
        self.view, self.name = view, name

    @property
    def source(self) -> Value:
        """The newest value, to be followed by a step."""
        return self.view.result

    @property
    def value(self) -> Any:
        """What is chosen, once it is read; raises what is wrong with it."""
        return self.view.result.wait()

    @property
    def path(self) -> str:
        """Where it lies; "" if nothing is chosen."""
        return str(self.view.state[self.name])

    @property
    def place(self) -> Value:
        """Where the newest one lies, as text; to be followed by another picker or a step."""
        return self.view.own(self.name)

    def choose(self, path: str | Path) -> Picker:
        """Choose another one, as a visitor would."""
        self.view.set({self.name: str(path)})
        return self

    def _ipython_display_(self) -> None:
        draw(self.view)

    def __repr__(self) -> str:
        return f"{self.view.title}: {self.path or 'nothing chosen'}"


def choose_recording(
    path: str | Path = "",
    *,
    name: str = "run",
    label: str = "Recording",
    remember: bool = False,
    logs: bool = False,
    optional: bool = False,
    samples: Mapping[str, str] = context.SAMPLES,
) -> Picker:
    """A recording: `.value` is its `Run`. It starts with `path`, else with what the project has open, else with a sample.

    `name` is the name in the page's address; a second recording needs another one, and starts with none. With `remember` the
    choice becomes the project's open recording; with `logs` training logs are offered, too. Where none is chosen the value of an
    `optional` one is None. `samples` are paths below the bundled data, by what they are.
    """
    first = str(path) or (context.first_run(samples) if name == "run" else "")
    options = partial(_runs_and_logs if logs else context.run_options, samples=samples)
    entry = Folder(first, options, label=label, help="a folder of profiles at any depth, a trace file, or a training log")

    def read(**chosen: str) -> Run | None:
        if not chosen[name] and optional:
            return None
        if not chosen[name] and name != "run":
            raise NothingYet("No other recording is chosen yet. Choose a folder of profiles, a trace file or a training log.")
        run = context.read_run(chosen[name])
        if remember and context.remember_run(chosen[name]):
            page_state().saved()  # by this page, not by somebody else
        return run

    return make_picker(name, label, entry, read, run_told, samples=samples if name == "run" else None)


def choose_log(path: str | Path = "", *, name: str = "log", label: str = "Training log") -> Picker:
    """A training log: `.value` is the `Run` that was read from it. It starts with `path`, else the project's, else a sample."""
    entry = Folder(str(path) or context.first_log(), context.log_options, label=label, help="what the training printed")

    def read(**chosen: str) -> Run:
        run = context.read_run(chosen[name])
        if not run.has("log"):
            raise NotMeasuredError(
                f"steps of a training log: {run.name} is {run.format}", how_to_collect="keep what the training prints"
            )
        return run

    return make_picker(name, label, entry, read, run_told, samples=context.SAMPLE_LOGS)


def choose_configuration(
    path: Any = "",
    *,
    name: str = "config",
    label: str = "Configuration",
    optional: bool = False,
    samples: Mapping[str, str] | None = None,
    **follows: Any,
) -> Picker:
    """A configuration, or a published model on 16 devices: `.value` is its `Plan`.

    It starts with `path`, else with what the project has open, else with a sample. An `optional` one starts with none, and its
    value is then None. A function as `path` gives it by what the picker follows, such as the place of another picker:
    `choose_configuration(config_beside, recording=open_run.place)`. `samples` are paths below the bundled data, by what they are.
    """
    first = path if callable(path) else str(path) or ("" if optional else context.first_config())
    entry = Folder(
        first,
        partial(context.plan_options, samples=samples or {}),
        label=label,
        help="of any supported framework, or a published model",
    )

    def read(**chosen: Any) -> Plan | None:
        if not chosen[name] and not optional:
            raise NothingYet(t("No configuration is chosen yet. Choose one above."))
        return read_plan(chosen[name]) if chosen[name] else None

    sources = {known: getattr(thing, "source", thing) for known, thing in follows.items()}
    return make_picker(name, label, entry, read, plan_told, sources=sources, named=lambda _, place: Path(place).name)


def choose_files(path: str | Path = "", *, samples: Mapping[str, str], name: str = "path") -> Picker:
    """Scripts and settings: `.value` is their `Path`. It starts with `path`, else with the project's uploads, else a sample."""
    entry = Folder(
        str(path) or context.first_files(samples),
        partial(context.file_options, samples=samples),
        label="File or folder",
        help="a script, a notebook, a configuration, or a folder of them",
    )

    def read(**chosen: str) -> Path:
        if not chosen[name].strip():
            raise NothingYet(t("Choose a file or a folder of scripts."))
        return checked(chosen[name].strip())

    return make_picker(name, "File or folder", entry, read, lambda place: f"{place.name}.", samples=samples)


def make_picker(
    name: str,
    label: str,
    entry: Folder,
    read: Callable[..., Any],
    told: Callable[[Any], str],
    *,
    samples: Mapping[str, str] | None = None,
    sources: Mapping[str, Value] | None = None,
    more: Mapping[str, Entry] | None = None,
    named: Callable[[Any, str], str] | None = None,
) -> Picker:
    """A picker of what `read` gives for `entry`, and for `more` controls beside it, by the names of its parameters.

    Where what is `told` of it does not name it, what it and its place are `named` stands before that.
    """
    entries = {name: entry, **(more or {})}
    sample = None if not samples else str(data_folder() / next(iter(samples.values())))
    empty = None if sample is None else Empty(action="Use the sample", fill=lambda state: {**state, name: sample})

    def show(view: StepView, value: Any) -> Whole:
        name_of = named(value, view.state[name]) if named else ""
        text = told(value)
        text = say("{plan}: {held}", plan=name_of, held=text) if name_of else text
        own = not context.is_sample(Path(view.state[name]))
        return Whole({}, {}, text if own else joined([text, say("A sample.")]), (), ())

    recipe = Recipe(
        name=f"choose-{name}", title=label, function=read, entries=entries, sources=sources or {}, empty=empty, show=show
    )
    return Picker(put(recipe), name)


def _runs_and_logs(_state: object, samples: Mapping[str, str]) -> list[tuple[str, str, str]]:
    return [*context.run_options(samples=samples), *context.log_options()]


def run_told(run: Run | None) -> str:
    """What a recording holds, in a sentence."""
    if run is None:
        return t("No recording is chosen.")
    num_ranks, num_steps = len(run.ranks), len(run.distinct("steps", columns=["step"])) if run.has("steps") else 0
    ranks = say("{num_ranks} rank" if num_ranks == 1 else "{num_ranks} ranks", num_ranks=num_ranks)
    steps = say("{num_steps} step" if num_steps == 1 else "{num_steps} steps", num_steps=num_steps) if num_steps else ""
    return say("{run}: {held}.", run=run.name, held=joined([run.format, ranks, steps], ", "))


def plan_told(plan: Plan | None) -> str:
    """What a configuration asks for, in a sentence."""
    if plan is None:
        return t("No plan is chosen.")
    devices = say("{num_devices} devices", num_devices=plan.num_devices)
    layers = say("{num_layers} layers", num_layers=plan.model.num_layers)
    return say("{held}.", held=joined([devices, plan.hardware.name if plan.hardware else "", layers], ", "))
