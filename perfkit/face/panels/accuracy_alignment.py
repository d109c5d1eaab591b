"""Accuracy alignment: are the losses of a changed training still those of the reference, by the limits of the class of change?"""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import pandas as pd

from perfkit.config.dialects import read_config
from perfkit.core.errors import InputError
from perfkit.core.resources import data_folder
from perfkit.core.run import Run
from perfkit.core.units import format_ratio
from perfkit.explain.alignment import LIMITS, STORED, Alignment, ChangeClass, LossSeries, align_losses, series_of_run
from perfkit.explain.compare.settings import changed
from perfkit.explain.compare.sides import open_side
from perfkit.face.charts.compare import difference_band, loss_curves, loss_rows
from perfkit.face.widgets import context
from perfkit.face.widgets.chart import Figure
from perfkit.face.widgets.control import Choice, Number, PathPicker, Toggle
from perfkit.face.widgets.panel import Action, Answer, Empty, Panel
from perfkit.face.widgets.status import NothingYet
from perfkit.face.widgets.table import Table
from perfkit.project.experiments import ExperimentLog

SAMPLES = ("losses/reference.csv", "losses/tensor_parallel.csv")
MORE_SAMPLES = {
    "Losses: reference": SAMPLES[0],
    "Losses: other tensor parallel size": SAMPLES[1],
    "Losses: 16-bit, drifting": "losses/drift.csv",
    "Losses: parted from step 120": "losses/diverged.csv",
}
PROPOSED = "by the configurations"


@dataclass(frozen=True, kw_only=True, slots=True)
class State:
    """The two trainings, their configurations, and what is judged."""

    reference: str = ""
    candidate: str = ""
    old_config: str = ""
    new_config: str = ""
    change_class: str = PROPOSED
    steps: int = 10_000
    by: str = "natural"
    limit_percent: float = 0.5
    own_limit: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class Result:
    """The judged pair."""

    state: State
    found: Alignment


def start() -> State:
    """The bundled pair of losses."""
    first, second = (str(data_folder() / name) for name in SAMPLES)
    return State(reference=first, candidate=second)


def compute(state: State, progress: context.Progress | None = None) -> Result:
    """Match and judge the losses; raises NotMeasuredError if a side prints none."""
    if not state.reference or not state.candidate:
        raise NothingYet("Choose two training logs or tables of losses: the reference, and the training after the change.")
    reference, candidate = (_series(path, progress) for path in (state.reference, state.candidate))
    changes = _changes(state)
    chosen: Any = None if state.change_class == PROPOSED else state.change_class
    proposed = align_losses(reference, candidate, change_class=chosen, changes=changes, steps=int(state.steps), by=_by(state))
    if state.own_limit and proposed.limits.max_relative:
        limits = replace(proposed.limits, max_relative=state.limit_percent / 100, source="set on this page")
        name: ChangeClass = proposed.change_class
        proposed = align_losses(
            reference, candidate, change_class=name, changes=changes, steps=int(state.steps), by=_by(state), limits=limits
        )
    return Result(state=state, found=proposed)


def _by(state: State) -> Any:
    return None if state.by == "natural" else state.by


def _series(path: str, progress: context.Progress | None) -> LossSeries:
    side = open_side(path, progress)
    if isinstance(side, Run):
        return series_of_run(side)
    if isinstance(side, LossSeries):
        return side
    raise InputError(path, ["is no training log and no table of losses"])


def _changes(state: State) -> list[dict[str, Any]]:
    if not state.old_config or not state.new_config:
        return []
    return changed(read_config(state.old_config), read_config(state.new_config))


def view(result: Result) -> Answer:
    """Both losses, the difference in its band, what was compared, and which change may be the cause."""
    found, state = result.found, result.state
    judgement = found.judgement
    rows = loss_rows(found.points, band=judgement.band_relative, first_divergence=judgement.first_divergence_step)
    sources = [f"measured: {found.reference.name}", f"measured: {found.candidate.name}"]
    charts = {
        "losses": Figure(
            chart=loss_curves({name: rows[name] for name in ("losses", "divergence")}),
            title=context.marked(state.candidate, "Losses of both trainings"),
            alt=_sentence(found),
            sources=sources,
            table="losses",
            wide=True,
        ),
        "differences": Figure(
            chart=difference_band({name: rows[name] for name in ("differences", "band", "divergence")}),
            title="Relative difference, and the band that a single step may lie in",
            alt=_sentence(found),
            sources=[*sources, f"limits: {found.limits.source}"],
            table="differences",
            wide=True,
        ),
    }
    tables = {"figures": Table(frame=_figures(found), title="What was compared")}
    if found.causes:
        tables["causes"] = Table(frame=_causes(found), title="Changes of the round, the likeliest cause first")
    return Answer(charts, tables, _sentence(found), found.notes)


def _sentence(found: Alignment) -> str:
    first = found.judgement.first_divergence_step
    reasons = "; ".join(found.judgement.reasons)
    text = f"{found.verdict.capitalize()}: {reasons}."
    if found.verdict != "aligned" and first is not None and str(first) not in reasons:
        text += f" The first step that differs is {first}."
    likely = [cause.key for cause in found.causes if cause.could_cause][:3]
    if found.verdict != "aligned" and likely:
        text += f" It may come from {', '.join(likely)}."
    elif found.verdict == "diverged" and found.causes:
        text += " No change of the configurations may change a loss: look at seed, data order and software versions."
    return text


def _figures(found: Alignment) -> pd.DataFrame:
    judgement, limits = found.judgement, found.limits
    same = {True: "yes, their noise is shared", False: "no, or in another order", None: "too few steps to tell"}[
        judgement.same_samples
    ]
    trend = judgement.trend
    rows = [
        ("steps compared", str(found.num_compared), f"aligned by {found.by}"),
        ("largest difference", _percent(found.max_relative), f"{_limit(limits.max_relative)} in the first {limits.steps} steps"),
        ("mean difference", _percent(found.mean_relative), f"{_limit(limits.mean_relative)} in the first {limits.steps} steps"),
        ("drift over all steps", _percent(trend.end if trend else None), "significant above a Student t of 5"),
        ("noise of the reference", _percent(judgement.reference_noise), "from step to step"),
        ("same samples in the same order", same, ""),
        ("gradient norm, largest difference", _percent(found.norm_max_relative), "shown, not judged"),
        ("steps with overflow", ", ".join(map(str, found.overflow_steps[:8])) or "none", "left out where the loss is no number"),
        ("class of the change", found.change_class, limits.source),
    ]
    return pd.DataFrame(rows, columns=["figure", "value", "limit or origin"])


def _causes(found: Alignment) -> pd.DataFrame:
    return pd.DataFrame(
        [
            {
                "setting": cause.key,
                "old": str(cause.old),
                "new": str(cause.new),
                "class": cause.change_class,
                "may be the cause": "yes" if cause.could_cause else "no",
                "why": cause.why,
            }
            for cause in found.causes
        ]
    )


def _percent(value: float | None) -> str:
    return "not measured" if value is None else format_ratio(value)


def _limit(value: float | None) -> str:
    return "no limit" if value is None else "equal" if value == 0 else f"at most {format_ratio(value)}"


def save(state: State) -> str:
    """Write the verdict to the open round of the project."""
    project = context.current_project()
    if project is None:
        raise InputError("accuracy", ["no project is open; make one on page 00"])
    found = compute(state).found
    log = ExperimentLog(project.folder)
    number = next((row["number"] for row in log.show("json")["rounds"] if not row["verdict"]), None)
    if number is None:
        raise InputError("accuracy", [f"no round of {project.name} is open; start the next one first"])
    if any(context.is_sample(Path(path)) for path in (state.reference, state.candidate)):
        raise InputError("accuracy", ["a bundled sample says nothing about this project; choose logs of your own"])
    log.record_accuracy(
        number,
        STORED[found.verdict],
        note=f"{found.verdict}: {'; '.join(found.judgement.reasons)}",
        steps=found.num_compared,
        limits={"class": found.change_class, **asdict(found.limits)},
        max_rel=found.max_relative,
        mean_rel=found.mean_relative,
        norm_max_rel=found.norm_max_relative,
    )
    return f"Saved to round {number} of {project.name}: {found.verdict}, stored as {STORED[found.verdict]}."


def options(_state: object = None) -> list[tuple[str, str, str]]:
    """Logs and tables to choose from: the project's, then the bundled samples."""
    tables = [(label, str(data_folder() / path), "Samples") for label, path in MORE_SAMPLES.items()]
    return [*context.log_options(), *tables]


PANEL = Panel(
    title="Are the losses still the same?",
    start=start,
    compute=compute,
    view=view,
    empty=Empty(action="Use the sample losses", fill=lambda _state: start()),
    shared=("reference", "candidate"),
    controls=(
        PathPicker(path="reference", options=options, label="Reference", help="a training log, or a table with step and loss"),
        PathPicker(path="candidate", options=options, label="After the change"),
        PathPicker(path="old_config", options=context.config_options, label="Its configuration before", help="names the change"),
        PathPicker(path="new_config", options=context.config_options, label="and after"),
        Choice(path="change_class", options=(PROPOSED, *LIMITS), label="Class of the change"),
        Number(path="steps", low=10, high=1_000_000, step=1, label="Steps compared at most"),
        Choice(path="by", options=(("by itself", "natural"), "step", "tokens"), buttons=True, label="Align by"),
        Toggle(path="own_limit", label="Another limit for single steps"),
        Number(path="limit_percent", low=0, high=100, label="Limit", unit="%", visible=lambda state: state.own_limit),
    ),
    actions=(
        Action(
            name="save",
            label="Save to round",
            run=save,
            help="writes the verdict, the figures and the limits to the open round",
            visible=context.can_save,
        ),
    ),
)
