"""Collect: the lines that record a profile, save the graphs or compile without devices, for the user's framework."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from perfkit.config.collect import (
    DEFAULT_PARTS,
    FRAMEWORKS,
    PARTS,
    QUICK_NUM_LAYERS,
    Snippet,
    check_window,
    dryrun_commands,
    profiling_config,
    save_graphs_config,
)
from perfkit.face.widgets import context
from perfkit.face.widgets.control import Choice, Number, Toggle
from perfkit.face.widgets.panel import Answer, Code, Panel

What = Literal["profile", "graphs", "dry run"]
TITLES = {"profile": "record a profile", "graphs": "save the compiler's graphs", "dry run": "compile without devices"}


@dataclass(frozen=True, kw_only=True, slots=True)
class State:
    """What to collect, for which framework; steps count from 1 and both ends belong to the window."""

    what: What = "profile"
    framework: str = "mindformers"
    parts: tuple[str, ...] = DEFAULT_PARTS
    start_step: int = 5
    stop_step: int = 7
    quick: bool = False
    num_devices: int = 16
    num_stages: int = 2


@dataclass(frozen=True, kw_only=True, slots=True)
class Result:
    """The lines to paste; several where versions differ."""

    state: State
    snippets: tuple[Snippet, ...]


def start() -> State:
    """The framework of the project's configuration if it has one, else MindFormers."""
    project = context.current_project()
    megatron = project is not None and project.open_config is not None and project.open_config.suffix in (".sh", ".json")
    return State(framework="megatron" if megatron else "mindformers")


def compute(state: State) -> Result:
    """Write the lines; raises InputError with every setting that cannot be used."""
    num_layers = QUICK_NUM_LAYERS if state.quick else None
    if state.what == "profile":
        written = profiling_config(
            state.framework,
            missing=state.parts,
            start_step=int(state.start_step),
            stop_step=int(state.stop_step),
            num_layers=num_layers,
        )
        return Result(state=state, snippets=(written,))
    if state.what == "graphs":
        return Result(state=state, snippets=(save_graphs_config(state.framework, num_layers),))
    return Result(state=state, snippets=dryrun_commands(int(state.num_devices), int(state.num_stages)))


def view(result: Result) -> Answer:
    """The lines with a copy button, where they belong, and what to know before."""
    code = tuple(Code(text=part.text, language=part.language, title=f"Add to {part.file_hint}") for part in result.snippets)
    notes = [note for part in result.snippets for note in part.notes]
    state = result.state
    text = f"These lines {TITLES[state.what]}" + ("." if state.what == "dry run" else f" with {state.framework}.")
    if state.what == "profile":
        text = f"These lines {TITLES['profile']} of steps {state.start_step} to {state.stop_step} with {state.framework}."
        notes += [f"{advice.message} ({advice.rule})" for advice in check_window(int(state.start_step), int(state.stop_step))]
    return Answer({}, {}, text, tuple(dict.fromkeys(notes)), code)


PANEL = Panel(
    title="How to collect what is missing",
    start=start,
    compute=compute,
    view=view,
    controls=(
        Choice(
            path="what",
            options=(("Profile", "profile"), ("Graphs", "graphs"), ("Dry run", "dry run")),
            buttons=True,
            label="Collect",
        ),
        Choice(path="framework", options=FRAMEWORKS, label="Framework", visible=lambda state: state.what != "dry run"),
        Choice(path="parts", options=PARTS, multiple=True, label="Parts", visible=lambda state: state.what == "profile"),
        Number(
            path="start_step",
            low=1,
            high=1_000_000,
            step=1,
            label="First step",
            key="profile_start_step",
            visible=lambda state: state.what == "profile",
        ),
        Number(
            path="stop_step",
            low=1,
            high=1_000_000,
            step=1,
            label="Last step",
            key="profile_stop_step",
            visible=lambda state: state.what == "profile",
        ),
        Toggle(
            path="quick",
            label=f"Reduced model ({QUICK_NUM_LAYERS} layers)",
            help="quick to record; totals are not those of the model",
            visible=lambda state: state.what != "dry run",
        ),
        Number(path="num_devices", low=1, high=1_000_000, step=1, label="Devices", visible=lambda state: state.what == "dry run"),
        Number(
            path="num_stages", low=1, high=1_000, step=1, label="Pipeline stages", visible=lambda state: state.what == "dry run"
        ),
    ),
)
