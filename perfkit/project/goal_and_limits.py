"""Goal and limits: the settings of a tuning project in the units in which people type them, beside those that are saved."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import pandas as pd

from perfkit.core import catalog, quantity, settings
from perfkit.core.errors import InputError, PerfkitError
from perfkit.core.texts import Said, say
from perfkit.core.units import GIB, TERA, significant
from perfkit.explain.alignment.changes import LIMITS
from perfkit.project import Attention, CycleOrder, GoalMetric, Project, create_project, project_here, save
from perfkit.project.experiments import ExperimentLog
from perfkit.project.goals import GOALS

PRESETS = ("Ascend 376", "Ascend 313", "A100 312", "H100 989")
CUSTOM = "custom"
NOT_SAID = "not said"
ACCURACY = (NOT_SAID, "exact", "re-association", "precision", "batch")
"""Kinds of change with their limits, see page 22."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Settings:
    """The settings as they are typed: a goal of 0 means none, `accuracy` is a kind of change or `NOT_SAID`."""

    name: str = "my tuning project"
    goal_metric: GoalMetric = "tokens_per_s_per_device"
    goal_value: float = 0.0
    peak_tflops_per_s: float = 376.0
    memory_gib: float = 64.0
    usable_gib: float = 58.0
    attention: Attention = "full"
    count_head: bool = True
    accuracy: str = NOT_SAID
    cycle_order: CycleOrder = "newer"

    def on(self, device: str) -> Settings:
        """With peak and memory of a device of the catalogue; as they are for `CUSTOM`."""
        if device == CUSTOM:
            return self
        hardware = catalog.hardware_named(device)
        peak, memory_gib = max(hardware.peak_flops_per_s.values()) / TERA, hardware.memory_bytes / GIB
        return replace(self, peak_tflops_per_s=peak, memory_gib=memory_gib, usable_gib=min(self.usable_gib, memory_gib))

    def fields(self) -> dict[str, Any]:
        """The fields of a `Project` that they are, in SI units."""
        return {
            "name": self.name,
            "goal_metric": self.goal_metric,
            "goal_op": "<=" if self.goal_metric == "step_time_ns" else ">=",
            "goal_value": self.goal_value * GOALS[self.goal_metric][1] if self.goal_value else None,
            "peak_flops_per_s": self.peak_tflops_per_s * TERA,
            "device_memory_bytes": round(self.memory_gib * GIB),
            "usable_limit_bytes": round(self.usable_gib * GIB),
            "attention": self.attention,
            "count_head": self.count_head,
            "cycle_order": self.cycle_order,
        }

    def problems(self) -> list[str]:
        """What contradicts in them; empty if nothing does."""
        found = [] if self.name.strip() else ["name is empty; every project has one"]
        if self.usable_gib > self.memory_gib:
            usable, whole = significant(self.usable_gib), significant(self.memory_gib)
            told = "the usable limit, {usable} GiB, is more than the device has, {whole} GiB"
            found.append(say(told, usable=usable, whole=whole))
        return found


@dataclass(frozen=True, kw_only=True, slots=True)
class Beside:
    """Settings beside the project that has others, or none."""

    settings: Settings
    project: Project | None

    def told(self) -> tuple[str, ...]:
        """How many are not saved, and what the file of the project holds that nobody knows."""
        project = self.project
        if project is None:
            text = say(
                "No project is open. “{name}” would be made in {folder}.", name=self.settings.name, folder=str(_new_folder())
            )
            return text, "Without a project nothing is remembered."
        count = len(self.to_frame())
        form = "{count} setting is not saved yet." if count == 1 else "{count} settings are not saved yet."
        state = say(form, count=str(count)) if count else "Everything is saved."
        return say("{name} in {folder}. {state}", name=project.name, folder=str(project.folder), state=state), *project.warnings

    def to_frame(self) -> pd.DataFrame:
        """The settings that differ: `setting`, `saved`, `here`, as text; without rows if all are saved or there is no project."""
        project, rows = self.project, []
        for name, value in self.settings.fields().items() if project is not None else ():
            if (saved := getattr(project, name)) != value:
                shown = {"saved": _shown(project, name, saved), "here": _shown(project, name, value)}
                rows.append({"setting": name.replace("_", " "), **shown})
        frame = pd.DataFrame(rows, columns=["setting", "saved", "here"])
        frame.attrs["title"] = "Not saved yet"
        return frame


def settings_of_project() -> Settings:
    """The settings of the page's project, else the usual ones of a new one."""
    project = project_here()
    return Settings() if project is None else replace(_settings(project), accuracy=_accuracy_of(project))


def limits_on(device: str) -> Settings:
    """Settings with peak and memory of a device, for `CUSTOM` those of the page's project."""
    project = project_here()
    return (Settings() if project is None else _settings(project)).on(device)


def _settings(project: Project) -> Settings:
    return Settings(
        name=project.name,
        goal_metric=project.goal_metric,
        goal_value=(project.goal_value or 0.0) / GOALS[project.goal_metric][1],
        peak_tflops_per_s=(project.peak_flops_per_s or 376 * TERA) / TERA,
        memory_gib=(project.device_memory_bytes or 64 * GIB) / GIB,
        usable_gib=(project.usable_limit_bytes or 58 * GIB) / GIB,
        attention=project.attention,
        count_head=project.count_head,
        cycle_order=project.cycle_order,
    )


def beside_saved(asked: Settings) -> Beside:
    """Settings beside those of the page's project; raises InputError with every one that contradicts another."""
    if problems := asked.problems():
        raise InputError("project settings", problems)
    return Beside(settings=asked, project=project_here())


def save_settings(asked: Settings) -> Said:
    """Write settings to the page's project, or make one, and say so; its log judges rounds by the same goal and limits."""
    project = beside_saved(asked).project
    if project is None:
        made = create_project(_new_folder(), **asked.fields())
        _tell_log(made, asked)
        return say("Made the project {name} in {folder}.", name=made.name, folder=str(made.folder))
    count = len(Beside(settings=asked, project=project).to_frame())
    saved = save(replace(project, **asked.fields()))
    _tell_log(saved, asked)
    form = "Saved {count} setting to {file}." if count == 1 else "Saved {count} settings to {file}."
    return say(form, count=str(count), file=str(saved.folder / settings.PROJECT_FILE))


def _tell_log(project: Project, asked: Settings) -> None:
    limits = asdict(LIMITS[asked.accuracy]) if asked.accuracy in LIMITS else {}
    ExperimentLog(project.folder).set_project(
        project.name,
        goal_metric=project.goal_metric,
        goal_value=project.goal_value,
        goal_op=project.goal_op,
        peak_flops_per_s=project.peak_flops_per_s,
        device_memory_bytes=project.device_memory_bytes,
        accuracy_rule=None if asked.accuracy == NOT_SAID else {"class": asked.accuracy, **limits},
    )


def _accuracy_of(project: Project) -> str:
    try:
        rule = ExperimentLog(project.folder, read_only=True).show("json")["project"]["accuracy_rule"]
    except PerfkitError:
        return NOT_SAID
    return str(rule["class"]) if rule and rule.get("class") in ACCURACY else NOT_SAID


def _shown(project: Project | None, name: str, value: Any) -> str:
    if value is None or project is None:
        return "none"
    return quantity.text(project.goal_metric if name == "goal_value" else name, value)


def _new_folder() -> Path:
    return (settings.project_folder() or Path.cwd()).resolve()
