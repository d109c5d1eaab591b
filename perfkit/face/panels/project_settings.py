"""Project settings: the goal, the device and the counting convention of a tuning project; and a new project."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import pandas as pd

from perfkit.core import catalog, quantity, settings
from perfkit.core.errors import InputError, PerfkitError
from perfkit.core.units import GIB, TERA, significant
from perfkit.explain.alignment.changes import LIMITS
from perfkit.face.widgets import context
from perfkit.face.widgets.control import Choice, Number, Text, Toggle
from perfkit.face.widgets.panel import Action, Answer, Panel
from perfkit.face.widgets.table import Table
from perfkit.project import Attention, CycleOrder, GoalMetric, Project, create_project, save
from perfkit.project.experiments import ExperimentLog
from perfkit.project.goals import GOALS

PRESETS = ("Ascend 376", "Ascend 313", "A100 312", "H100 989")
CUSTOM = "custom"
NOT_SAID = "not said"
ACCURACY = (NOT_SAID, "exact", "re-association", "precision", "batch")
"""Kinds of change with their limits, see page 22."""


@dataclass(frozen=True, kw_only=True, slots=True)
class State:
    """The settings in the units of the page; a goal of 0 means none. Choosing another `device` fills peak and memory anew."""

    name: str = "my tuning project"
    goal_metric: GoalMetric = "tokens_per_s_per_device"
    goal_value: float = 0.0
    device: str = CUSTOM
    filled: str = CUSTOM
    peak_tflops_per_s: float = 376.0
    memory_gib: float = 64.0
    usable_gib: float = 58.0
    attention: Attention = "full"
    count_head: bool = True
    accuracy: str = NOT_SAID
    cycle_order: CycleOrder = "newer"

    def __post_init__(self) -> None:
        if self.device == self.filled:
            return
        object.__setattr__(self, "filled", self.device)
        if self.device != CUSTOM:
            hardware = catalog.hardware_named(self.device)
            object.__setattr__(self, "peak_tflops_per_s", max(hardware.peak_flops_per_s.values()) / TERA)
            object.__setattr__(self, "memory_gib", hardware.memory_bytes / GIB)
            object.__setattr__(self, "usable_gib", min(self.usable_gib, hardware.memory_bytes / GIB))


def start() -> State:
    """The settings of the open project, else the defaults of a new one."""
    project = context.current_project()
    if project is None:
        return State()
    scale = GOALS[project.goal_metric][1]
    return State(
        name=project.name,
        goal_metric=project.goal_metric,
        goal_value=(project.goal_value or 0.0) / scale,
        peak_tflops_per_s=(project.peak_flops_per_s or 376 * TERA) / TERA,
        memory_gib=(project.device_memory_bytes or 64 * GIB) / GIB,
        usable_gib=(project.usable_limit_bytes or 58 * GIB) / GIB,
        attention=project.attention,
        count_head=project.count_head,
        accuracy=_accuracy_of(project),
        cycle_order=project.cycle_order,
    )


def _accuracy_of(project: Project) -> str:
    try:
        rule = ExperimentLog(project.folder, read_only=True).show("json")["project"]["accuracy_rule"]
    except PerfkitError:
        return NOT_SAID
    return str(rule["class"]) if rule and rule.get("class") in ACCURACY else NOT_SAID


def fields_of(state: State) -> dict[str, Any]:
    """The fields of a `Project` that the page sets, in SI units."""
    return {
        "name": state.name,
        "goal_metric": state.goal_metric,
        "goal_op": "<=" if state.goal_metric == "step_time_ns" else ">=",
        "goal_value": state.goal_value * GOALS[state.goal_metric][1] if state.goal_value else None,
        "peak_flops_per_s": state.peak_tflops_per_s * TERA,
        "device_memory_bytes": round(state.memory_gib * GIB),
        "usable_limit_bytes": round(state.usable_gib * GIB),
        "attention": state.attention,
        "count_head": state.count_head,
        "cycle_order": state.cycle_order,
    }


def compute(state: State) -> tuple[State, Project | None]:
    """The settings beside the project on disk; raises InputError with every setting that contradicts another."""
    problems = []
    if not state.name.strip():
        problems.append("name is empty; every project has one")
    if state.usable_gib > state.memory_gib:
        usable, whole = significant(state.usable_gib), significant(state.memory_gib)
        problems.append(f"the usable limit, {usable} GiB, is more than the device has, {whole} GiB")
    if problems:
        raise InputError("project settings", problems)
    return state, context.current_project()


def view(result: tuple[State, Project | None]) -> Answer:
    """What differs from the file, in one table."""
    state, project = result
    if project is None:
        return Answer(
            {},
            {},
            f"No project is open. “{state.name}” would be made in {_new_folder()}.",
            ("Without a project nothing is remembered.",),
        )
    changes = _changes(project, state)
    text = f"{project.name} in {project.folder}. " + (
        "Everything is saved." if not changes else f"{len(changes)} settings are not saved yet."
    )
    tables = {"changes": Table(frame=pd.DataFrame(changes), title="Not saved yet")} if changes else {}
    return Answer({}, tables, text, project.warnings)


def _changes(project: Project, state: State) -> list[dict[str, str]]:
    wanted = fields_of(state)
    return [
        {
            "setting": name.replace("_", " "),
            "saved": _shown(name, getattr(project, name), project),
            "here": _shown(name, value, project),
        }
        for name, value in wanted.items()
        if getattr(project, name) != value
    ]


def _shown(name: str, value: Any, project: Project) -> str:
    if value is None:
        return "none"
    return quantity.text(project.goal_metric if name == "goal_value" else name, value)


def save_project(state: State) -> str:
    """Write the settings to the project, or make one; gives the sentence that says what was written."""
    project = context.current_project()
    if project is None:
        made = create_project(_new_folder(), **fields_of(state))
        _tell_log(made, state)
        return f"Made the project {made.name} in {made.folder}."
    changes = _changes(project, state)
    saved = save(replace(project, **fields_of(state)))
    _tell_log(saved, state)
    return f"Saved {len(changes)} setting{'s' if len(changes) != 1 else ''} to {saved.folder / 'perfkit.toml'}."


def _tell_log(project: Project, state: State) -> None:
    """The log judges rounds by the goal and the limits, so it has them too."""
    limits = asdict(LIMITS[state.accuracy]) if state.accuracy in LIMITS else {}
    ExperimentLog(project.folder).set_project(
        project.name,
        goal_metric=project.goal_metric,
        goal_value=project.goal_value,
        goal_op=project.goal_op,
        peak_flops_per_s=project.peak_flops_per_s,
        device_memory_bytes=project.device_memory_bytes,
        accuracy_rule=None if state.accuracy == NOT_SAID else {"class": state.accuracy, **limits},
    )


def _new_folder() -> Path:
    return (settings.project_folder() or Path.cwd()).resolve()


PANEL = Panel(
    title="Goal and limits",
    start=start,
    compute=compute,
    view=view,
    actions=(Action(name="save", label="Save to the project", run=save_project, help="writes perfkit.toml of the project"),),
    controls=(
        Text(path="name", label="Project"),
        Choice(path="goal_metric", options=[(title, metric) for metric, (title, _) in GOALS.items()], label="Goal is measured in"),
        Number(
            path="goal_value", low=0.0, high=1e12, label="Goal", empty=0.0, placeholder="none yet", help="in the unit chosen above"
        ),
        Choice(path="device", options=(*PRESETS, CUSTOM), label="Device", help="fills peak and memory; TFLOP/s stand in the name"),
        Number(
            path="peak_tflops_per_s",
            low=0.1,
            high=100_000,
            label="Peak of one device",
            unit="TFLOP/s",
            help="dense, of the training dtype",
        ),
        Number(path="memory_gib", low=1, high=1024, label="Device memory", unit="GiB"),
        Number(path="usable_gib", low=1, high=1024, label="Usable limit", unit="GiB", key="context.max_device_memory"),
        Choice(path="attention", options=(("full", "full"), ("causal half", "causal")), buttons=True, label="MFU counts attention"),
        Toggle(path="count_head", label="MFU counts the output head"),
        Choice(
            path="accuracy",
            options=ACCURACY,
            label="Accuracy is judged as",
            help="the kind of changes you plan; page 22 has their limits",
        ),
        Choice(
            path="cycle_order",
            options=(("strategy, memory, time", "newer"), ("operators, communication, memory", "classic")),
            buttons=True,
            label="Pages lead in the order",
            help="of the newer guides, or of the classic ones; what a round has to show is the same",
        ),
    ),
)
