"""Sides: a picker for one of two things to compare: a recording, a configuration, saved graphs, or losses of a training."""

from __future__ import annotations

from pathlib import Path

from perfkit.core.resources import data_folder
from perfkit.core.run import Run
from perfkit.core.spec.plan import Plan
from perfkit.explain.compare.sides import Side, described, open_side, short_name
from perfkit.face.widgets import context
from perfkit.face.widgets.entries import Folder
from perfkit.face.widgets.pickers import Picker, make_picker, plan_told, run_told
from perfkit.face.widgets.status import NothingYet
from perfkit.face.widgets.worker import running

CASE = {f"Llama2-13B, round {number}": f"case13b/round{number}.yaml" for number in range(6)}
LAST = ("case13b/round4.yaml", "case13b/round5.yaml")


def choose_side(path: str | Path = "", *, name: str, label: str) -> Picker:
    """What is compared: `.value` is what was read.

    It starts with `path`, else with one of `first_sides`, the earlier one for the name "a".
    """
    entry = Folder(
        str(path) or first_sides()[name != "a"], _options, label=label, help="a recording, a configuration, a saved graph, a log"
    )

    def read(**chosen: str) -> Side:
        if not chosen[name]:
            raise NothingYet("Choose what to compare: recordings, configurations, saved graphs or training logs.")
        return open_side(chosen[name], running())

    return make_picker(
        name, label, entry, read, _told, named=lambda side, place: "" if isinstance(side, Run) else short_name(side, place)
    )


def first_sides() -> tuple[str, str]:
    """What is compared before anything is chosen, the old side first.

    The configurations of the project's last two rounds; else what the header says is open: a recording beside its plan, or beside
    the recording or plan that was open before; else two rounds of the bundled case.
    """
    project = context.current_project()
    if project is not None:
        rounds = sorted(project.folder.glob("rounds/*/config.yaml"))[-2:]
        if len(rounds) > 1:
            return str(rounds[0]), str(rounds[1])
        here = [place for place in (project.open_config, project.open_run) if place is not None and place.exists()]
        before = [place for place in project.recent if place.exists() and place not in here]
        own = [str(place) for place in (*before[:1], *here)[-2:] if not context.is_sample(place)]
        if own:
            return own[0] if len(own) > 1 else "", own[-1]
    return str(data_folder() / LAST[0]), str(data_folder() / LAST[1])


def _told(side: Side) -> str:
    if isinstance(side, Run):
        return run_told(side)
    return plan_told(side) if isinstance(side, Plan) else f"{described(side).capitalize()}."


def _options(_state: object = None) -> list[tuple[str, str, str]]:
    """Everything that can be compared: recordings, configurations, logs, first of the project, then the samples; each once."""
    case = [(label, str(data_folder() / place), "Samples") for label, place in CASE.items()]
    found = {option[1]: option for option in [*context.run_options(), *context.config_options(), *context.log_options(), *case]}
    return sorted(found.values(), key=lambda option: option[2] != "Project")
