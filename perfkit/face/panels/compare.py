"""Compare: did a change help, and why; or, for a run and its plan, where the prediction was wrong."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pandas as pd

from perfkit.core import catalog
from perfkit.core.errors import InputError
from perfkit.core.resources import data_folder
from perfkit.core.run import Run
from perfkit.core.spec.plan import Plan
from perfkit.core.units import NS_PER_MS, NS_PER_S
from perfkit.explain.compare import OPERATOR_COLUMNS, Comparison, compare
from perfkit.explain.compare.recalibrate import recalibrate
from perfkit.explain.compare.sides import described, name_of, open_side
from perfkit.face.charts.compare import waterfall, waterfall_rows
from perfkit.face.widgets import context
from perfkit.face.widgets.chart import Figure
from perfkit.face.widgets.control import Choice, Number, PathPicker, Toggle
from perfkit.face.widgets.panel import Action, Answer, Empty, Panel
from perfkit.face.widgets.status import NothingYet
from perfkit.face.widgets.table import Table
from perfkit.project.experiments import ExperimentLog

SAMPLES = ("case13b/round4.yaml", "case13b/round5.yaml")
AS_NAMED = "as named"
FALLBACK_DEVICE = "Ascend-910B2"
NOT_KNOWN = "cannot be decided: too few steps"
SHOWN_OPERATORS = 40


@dataclass(frozen=True, kw_only=True, slots=True)
class State:
    """The two sides, and what counts as a change."""

    a: str = ""
    b: str = ""
    device: str = FALLBACK_DEVICE
    noise_percent: float = 1.0
    operators: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class Result:
    """What was found."""

    state: State
    found: Comparison


def start() -> State:
    """The last two configurations of the project's rounds, else those of the bundled case."""
    project = context.current_project()
    own = sorted(project.folder.glob("rounds/*/config.yaml")) if project is not None else []
    a, b = (str(path) for path in own[-2:]) if len(own) > 1 else (str(data_folder() / name) for name in SAMPLES)
    return State(a=a, b=b)


def compute(state: State, progress: context.Progress | None = None) -> Result:
    """Compare both sides; raises InputError if they do not go together."""
    if not state.a or not state.b:
        raise NothingYet("Choose what to compare: recordings, configurations, saved graphs or training logs.")
    left, right = (_read(path, progress) for path in (state.a, state.b))
    operators = state.operators and all(isinstance(side, Run) and side.has("kernels") for side in (left, right))
    found = compare(left, right, noise_ratio=state.noise_percent / 100, device=_device(state), operators=operators)
    return Result(state=state, found=replace(found, a=_short(left, state.a), b=_short(right, state.b)))


def _short(side: Any, path: str) -> str:
    """The name of a side; for files called alike in every round the folder too."""
    place = Path(path)
    return name_of(side, f"{place.parent.name}/{place.name}" if place.stem in ("config", "as_run") else place.name)


def _read(path: str, progress: context.Progress | None) -> Any:
    return open_side(path, progress)


def _device(state: State) -> str | None:
    return None if state.device == AS_NAMED else state.device


def view(result: Result) -> Answer:
    """The way from a to b as a waterfall, the parts, the settings, and what each kind has more."""
    found, state = result.found, result.state
    charts: dict[str, Figure] = {}
    tables: dict[str, Any] = {}
    if found.parts and found.kind != "graphs":
        unit, scale = _unit(found)
        frame = pd.DataFrame([{"path": part.path, "a": part.a, "b": part.b} for part in found.parts])
        charts["waterfall"] = Figure(
            chart=waterfall(waterfall_rows(frame, scale=scale), unit=unit),
            title=context.marked(state.b, f"From a ({found.a}) to b ({found.b})"),
            alt=_sentence(found),
            sources=[f"a: {found.a}", f"b: {found.b}"],
            wide=True,
        )
        parts = found.to_frame()
        tables["parts"] = Table(frame=parts, title=parts.attrs["title"])
    tables |= _more(found)
    if found.config:
        frame = pd.DataFrame([{**row, "old": str(row["old"]), "new": str(row["new"])} for row in found.config])
        tables["config"] = Table(frame=frame, title="Settings that differ", labels={"key": "setting", "old": "a", "new": "b"})
    return Answer(charts, tables, _sentence(found), tuple(dict.fromkeys((*_decided(found), *found.notes))))


def _unit(found: Comparison) -> tuple[str, float]:
    factor = 1 if found.unit == "ns" else 1 / NS_PER_S
    largest_ns = max(float(found.total_a or 0), float(found.total_b or 0)) / factor
    return ("s", NS_PER_S * factor) if largest_ns >= NS_PER_S else ("ms", NS_PER_MS * factor)


def _sentence(found: Comparison) -> str:
    if not found.sentences:
        return "The run is as planned: no part is off by 1 % of the step or more."
    text = "; ".join(found.sentences[:3])
    return f"{text[0].upper()}{text[1:]}."


def _decided(found: Comparison) -> tuple[str, ...]:
    if found.kind == "runs":
        said = {True: "beyond noise", False: "no measurable change: repeat it before you keep it", None: NOT_KNOWN}[
            found.beyond_noise
        ]
        samples = found.extra["samples"]
        counts = f"{samples['a']['steps']} and {samples['b']['steps']} steady steps"
        return (f"By the noise rule ({counts}, 3 standard errors of the medians and 1 %): {said}.",)
    if found.beside is not None:
        inside = "inside" if found.extra["within_interval"] else "outside of"
        return (f"The measured step lies {inside} the 80 % interval of the prediction.",)
    return ()


def _more(found: Comparison) -> dict[str, Table]:
    """Tables that only some kinds have: stages and findings of a plan, operators, graph nodes, losses."""
    tables: dict[str, Table] = {}
    if found.beside is not None:
        rows = [{"stage": stage["stage"], **part} for stage in found.extra["stages"] for part in stage["parts"]]
        if rows:
            tables["stages"] = Table(
                frame=pd.DataFrame(rows), title="Every stage beside its plan (residual: measured minus planned)"
            )
    if found.operators is not None and len(found.operators.operators):
        frame = found.operators.operators[OPERATOR_COLUMNS].head(SHOWN_OPERATORS)
        tables["operators"] = Table(frame=frame, title="Operators of both, per step and rank")
        for name, frame in (("only in a", found.operators.missing), ("only in b", found.operators.extra)):
            if len(frame):
                tables[name] = Table(frame=frame.drop(columns="names").head(SHOWN_OPERATORS), title=f"Operators {name}")
        if len(found.operators.fusions):
            tables["fusions"] = Table(frame=found.operators.fusions, title="Fused on one side, several operators on the other")
    if found.kind == "graphs":
        rows = [{"what": name, **entry} for name in ("added", "removed", "moved", "changed") for entry in found.extra[name]]
        if rows:
            frame = pd.DataFrame(rows)[["what", "op", "node", "scope"]]
            tables["nodes"] = Table(frame=frame, title="Operators that differ")
    return tables


def recalibrate_from_run(state: State) -> str:
    """Fit the calibration to the run and say how the prediction changes; kept in the project if there is one to write to."""
    sides = [_read(path, None) for path in (state.a, state.b)]
    run = next((side for side in sides if isinstance(side, Run)), None)
    plan = next((side for side in sides if isinstance(side, Plan)), None)
    if run is None or plan is None:
        named = " and ".join(described(side) for side in sides)
        raise InputError("recalibrate", [f"needs a run and its plan; chosen are {named}"])
    device = _device(state)
    if plan.hardware is None and device is not None:
        plan = replace(plan, hardware=catalog.hardware_named(device))
    found = recalibrate(run, plan)
    if not context.can_save():
        return found.sentence
    project = context.current_project()
    if project is None:
        return found.sentence
    target = project.folder / "calibration.toml"
    found.calibration.write(target)
    return f"{found.sentence} Written to {target.name} of the project: use it with --calibration {target}."


def save(state: State) -> str:
    """Keep the comparison with the open round of the project, as an event with its figures."""
    project = context.current_project()
    if project is None:
        raise InputError("compare", ["no project is open; make one on page 00"])
    found = compute(state).found
    log = ExperimentLog(project.folder)
    number = next((row["number"] for row in log.show("json")["rounds"] if not row["verdict"]), None)
    if number is None:
        raise InputError("compare", [f"no round of {project.name} is open; start the next one first"])
    document = found.to_json()
    detail = {"a": state.a, "b": state.b, "kind": found.kind, "total": document["total"], "beyond_noise": found.beyond_noise}
    log.record_event("compare", {**detail, "sentences": list(found.sentences)}, page="21", number=number)
    return f"Saved to round {number} of {project.name}: {_sentence(found)}"


def options(_state: object = None) -> list[tuple[str, str, str]]:
    """Everything that can be compared: recordings, configurations, logs, first of the project, then the samples; each once."""
    case = [(f"Llama2-13B, round {number}", str(data_folder() / f"case13b/round{number}.yaml"), "Samples") for number in range(6)]
    found = {option[1]: option for option in [*context.run_options(), *context.config_options(), *context.log_options(), *case]}
    return sorted(found.values(), key=lambda option: option[2] != "Project")


def _has_run_and_plan(state: State) -> bool:
    suffixes = {Path(path).suffix.lower() in {".yaml", ".yml", ".toml", ".sh"} for path in (state.a, state.b) if path}
    return suffixes == {True, False}


PANEL = Panel(
    title="What changed, and by how much",
    start=start,
    compute=compute,
    view=view,
    empty=Empty(action="Use the sample case", fill=lambda _state: start()),
    shared=("a", "b"),
    controls=(
        PathPicker(path="a", options=options, label="A, the old side", help="a recording, a configuration, a saved graph, a log"),
        PathPicker(path="b", options=options, label="B, the new side"),
        Number(path="noise_percent", low=0, high=10, step=0.1, label="Smallest change that counts", unit="%"),
        Choice(path="device", options=lambda _: [AS_NAMED, *catalog.hardware()], label="Device of plans that name none"),
        Toggle(path="operators", label="Match operators", help="kernels of two recordings, on NPU or GPU"),
    ),
    actions=(
        Action(
            name="recalibrate",
            label="Recalibrate from this run",
            run=recalibrate_from_run,
            help="fits the prediction to the run and says how it changes",
            visible=_has_run_and_plan,
        ),
        Action(
            name="save",
            label="Save to round",
            run=save,
            help="keeps the figures of this comparison with the open round",
            visible=context.can_save,
        ),
    ),
)
