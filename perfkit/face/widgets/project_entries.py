"""Project entries: the controls of a tuning project: its goal and limits, and its next round.

@widgets.step(**settings_entries(), buttons=…)
def goal_and_limits(device, **asked):
    return beside_saved(Settings(**asked))
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from perfkit.face.widgets import context
from perfkit.face.widgets.entries import Choice, Entry, Folder, Number, Text, Toggle
from perfkit.project.goal_and_limits import ACCURACY, CUSTOM, PRESETS, limits_on, settings_of_project
from perfkit.project.goals import GOALS
from perfkit.project.rounds import LATEST, can_start, is_open, rounds_to_choose

GOAL_METRICS = [(title, metric) for metric, (title, _) in GOALS.items()]
DEVICES = (*PRESETS, CUSTOM)


def settings_entries() -> dict[str, Entry]:
    """Name, goal, device, counting convention and order of pages, as the project has them; a device fills peak and memory."""
    own = settings_of_project()
    return {
        "name": Text(own.name, label="Project"),
        "goal_metric": Choice(*GOAL_METRICS, default=own.goal_metric, label="Goal is measured in"),
        "goal_value": Number(
            own.goal_value, low=0.0, high=1e12, label="Goal", empty=0.0, placeholder="none yet", help="in the unit chosen above"
        ),
        "device": Choice(*DEVICES, default=CUSTOM, label="Device", help="fills peak and memory; TFLOP/s stand in the name"),
        "peak_tflops_per_s": Number(
            _of_device("peak_tflops_per_s"),
            low=0.1,
            high=100_000,
            label="Peak of one device",
            unit="TFLOP/s",
            help="dense, of the training dtype",
        ),
        "memory_gib": Number(_of_device("memory_gib"), low=1, high=1024, label="Device memory", unit="GiB"),
        "usable_gib": Number(
            _of_device("usable_gib"), low=1, high=1024, label="Usable limit", unit="GiB", key="context.max_device_memory"
        ),
        "attention": Choice(
            ("full", "full"), ("causal half", "causal"), default=own.attention, buttons=True, label="MFU counts attention"
        ),
        "count_head": Toggle(own.count_head, label="MFU counts the output head"),
        "accuracy": Choice(
            *ACCURACY,
            default=own.accuracy,
            label="Accuracy is judged as",
            help="the kind of changes you plan; page 22 has their limits",
        ),
        "cycle_order": Choice(
            ("strategy, memory, time", "newer"),
            ("operators, communication, memory", "classic"),
            default=own.cycle_order,
            buttons=True,
            label="Pages lead in the order",
            help="of the newer guides, or of the classic ones; what a round has to show is the same",
        ),
    }


def round_entries() -> dict[str, Entry]:
    """Which round is looked at, the next one as it is typed while none is open, and a reason while one is."""
    return {
        "round": Choice(partial(rounds_to_choose, "the open one, else the last"), default=LATEST, label="Look at", shared=True),
        "lever": Text(label="Title of the next round", placeholder="its one lever", visible=can_start),
        "hypothesis": Text(label="Hypothesis", placeholder="what you expect and why, at least 15 characters", visible=can_start),
        "parent": Choice(partial(rounds_to_choose, "the last kept round"), default=LATEST, label="Changes", visible=can_start),
        "planned": Folder(
            "",
            context.config_options,
            label="Planned configuration",
            help="kept with the round; optional here, page 03 saves one too",
            visible=can_start,
        ),
        "reason": Text(label="Reason to abandon it or to skip a state", placeholder="at least 15 characters", visible=is_open),
    }


def _of_device(field: str) -> Callable[[str], Any]:
    """What fills a limit: that of the device, else of the project."""
    return lambda device: getattr(limits_on(device), field)
