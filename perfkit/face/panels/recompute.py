"""Recompute: which layers and operators to compute again, what each frees and costs, and the choice as configuration.

Every setting is predicted by the same step and memory model, so that they differ by nothing but recomputation.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache

import pandas as pd

from perfkit.config.dialects import write_config
from perfkit.config.dialects.registry import dialect_named
from perfkit.config.presets import read_plan
from perfkit.core import catalog
from perfkit.core.errors import InputError
from perfkit.core.patterns import PatternCheck, check_patterns, layer_paths, pattern_of
from perfkit.core.spec.plan import Plan
from perfkit.core.spec.recompute import RecomputePlan
from perfkit.core.units import GIB, format_bytes, format_ratio, significant
from perfkit.face.charts.recompute import curve_chart, curve_rows, settings_chart
from perfkit.face.panels._plan_state import on_device, preset_key, preset_options
from perfkit.face.panels._plan_state import start as plan_start
from perfkit.face.panels._strategy_export import DIALECTS
from perfkit.face.widgets.chart import Figure
from perfkit.face.widgets.control import Choice, Number, Slider, Text, Toggle
from perfkit.face.widgets.panel import Answer, Code, Panel
from perfkit.face.widgets.table import Table
from perfkit.predict.estimate import Estimate, efficiency_of, estimate, estimates
from perfkit.predict.plans.balance.recompute_curve import Point, exact_front, greedy_curve, least_seconds
from perfkit.predict.plans.balance.recompute_options import Option, full_option, independent, operator_options, saved_bytes

SILU_MUL = (r"feed_forward\.mul", r"feed_forward\.w1\.activation")
FINE = tuple(
    pattern_of(path)
    for path in (
        *("feed_forward.mul", "feed_forward.w1.activation", "feed_forward.w1.reshape", "feed_forward.w1.matmul"),
        *("feed_forward.w3.matmul", "feed_forward.w3.reshape", "feed_forward.w2.matmul", "feed_forward.w2.reshape"),
        *("ffn_norm.norm", "ffn_norm.rcast", "attention_norm.norm", "attention_norm.rcast"),
        *("attention.wq.reshape", "attention.wk.reshape", "attention.wv.reshape", "attention.wo.matmul"),
        *("attention.wo.reshape", "attention.merger_head_transpose", "add", "attention.flash_attention"),
    )
)
CHOICES = ("as in the file", "none", "Silu and Mul", "fine list", "all layers", "exact for a saving", "my patterns")


@dataclass(frozen=True, kw_only=True, slots=True)
class State:
    """The plan, the device and its limit, and what is recomputed; `full` layers of each stage come first."""

    preset: str = "llama2-13b"
    device: str = "Ascend-910B2"
    limit_gib: float = 58.0
    choice: str = "Silu and Mul"
    patterns: str = "\n".join(SILU_MUL)
    wanted_mib: float = 300.0
    full: int = 0
    communication: bool = False
    dialect: str = "mindformers"


@dataclass(frozen=True, kw_only=True, slots=True)
class Setting:
    """What a setting needs: seconds of a step, and bytes of the fullest stage at its peak."""

    step_time_s: float
    peak_bytes: float


@dataclass(frozen=True, kw_only=True, slots=True)
class Ground:
    """What holds for a plan on a device whatever is recomputed: the usual settings, the operators, and both curves."""

    plan: Plan
    settings: dict[str, Setting]
    options: tuple[Option, ...]
    greedy: tuple[Point, ...]
    exact: tuple[Point, ...]
    whole: Option


@dataclass(frozen=True, kw_only=True, slots=True)
class Result:
    """The plan with the choice, what the choice needs, and the patterns checked, on their ground."""

    state: State
    plan: Plan
    ground: Ground
    chosen: Setting
    checks: tuple[PatternCheck, ...]

    @property
    def settings(self) -> dict[str, Setting]:
        """Every setting with its estimate."""
        return {**self.ground.settings, "chosen": self.chosen}


def start() -> State:
    """The project's configuration against its usable limit, as on page 04; else the Llama2-13B of the guides."""
    found = plan_start()
    return State(preset=found.preset, device=found.device, limit_gib=found.limit_gib or State().limit_gib)


def compute(state: State) -> Result:
    """Predict the usual settings and the chosen one, rank the operators, and check the patterns."""
    ground = _ground(state.preset, state.device, preset_key(state.preset))
    chosen = _patterns(state, ground)
    plan = replace(ground.plan, recompute=_chosen(state, ground.plan, chosen))
    return Result(state=state, plan=plan, ground=ground, chosen=_setting(estimate(plan)), checks=tuple(check_patterns(chosen)))


@lru_cache(maxsize=8)
def _ground(preset: str, device: str, _key: tuple[int, ...]) -> Ground:
    # A slider asks several times a second; all of this takes ten times as long as the one setting that a move changes.
    plan = on_device(read_plan(preset), device)
    efficiency = efficiency_of(plan)
    options = operator_options(plan, layer_paths(), efficiency)
    alone = independent(plan, options)
    usual = {
        "none": RecomputePlan(),
        "Silu and Mul": _recompute(plan, SILU_MUL),
        "fine list": _recompute(plan, FINE),
        "all layers": RecomputePlan(all_layers=True),
        "as in the file": plan.recompute,
    }
    if plan.parallel.sequence_parallel:
        usual["gather again"] = RecomputePlan(communication=plan.stage_layers)
    found = estimates([replace(plan, recompute=one) for one in usual.values()])
    return Ground(
        plan=plan,
        settings={name: _setting(one) for name, one in zip(usual, found, strict=True)},
        options=tuple(options),
        greedy=tuple(greedy_curve(alone)),
        exact=tuple(exact_front(alone)),
        whole=full_option(plan, efficiency),
    )


def _setting(found: Estimate) -> Setting:
    return Setting(step_time_s=found.step_time_s, peak_bytes=float(found.memory.total) if found.memory else 0.0)


def _patterns(state: State, ground: Ground) -> tuple[str, ...]:
    if state.choice == "my patterns":
        return tuple(dict.fromkeys(line.strip().strip("'\",") for line in state.patterns.splitlines() if line.strip()))
    if state.choice == "exact for a saving":
        point = least_seconds(ground.exact, state.wanted_mib * 2**20)
        if point is None:
            raise InputError(
                "saving",
                [f"{state.wanted_mib:g} MiB a layer: all operators together free {format_bytes(ground.exact[-1].saved_bytes)}"],
            )
        return tuple(pattern_of(path) for path in point.paths)
    return {"Silu and Mul": SILU_MUL, "fine list": FINE, "as in the file": tuple(ground.plan.recompute.operators)}.get(
        state.choice, ()
    )


def _recompute(base: Plan, patterns: tuple[str, ...]) -> RecomputePlan:
    return RecomputePlan(operators=dict.fromkeys(patterns, base.stage_layers))


def _chosen(state: State, base: Plan, patterns: tuple[str, ...]) -> RecomputePlan:
    if state.choice == "as in the file":
        return base.recompute
    if state.choice == "all layers":
        return RecomputePlan(all_layers=True)
    full = tuple(tuple(min(int(state.full), count) for count in row) for row in base.stage_layers) if state.full else ()
    gathers = base.stage_layers if state.communication else ()
    return replace(_recompute(base, patterns), full_layers=full, communication=gathers)


def view(result: Result) -> Answer:
    """Settings and curves as pictures, operators and patterns as tables, the choice as configuration."""
    limit = result.state.limit_gib
    none_s = result.settings["none"].step_time_s
    points: dict[tuple[float, float], list[str]] = {}
    for name, found in result.settings.items():
        points.setdefault((found.step_time_s / none_s - 1, _gib(found)), []).append(name)
    rows = [
        {"name": ", ".join(names), "more": more, "gib": gib, "fits": "fits" if gib <= limit else "does not fit"}
        for (more, gib), names in points.items()
    ]
    curves = {
        name: [(point.seconds, point.saved_bytes, ", ".join(point.paths) or "nothing") for point in points]
        for name, points in (("greedy", result.ground.greedy), ("exact", result.ground.exact))
    }
    charts = {
        "settings": Figure(
            chart=settings_chart({"settings": rows, "limit": [{"limit": limit}]}),
            title="What each setting costs and needs; dashed: the limit",
            sources=["computed: step model and memory model, docs/prediction.md"],
            table="settings",
        ),
        "curve": Figure(
            chart=curve_chart({"curve": curve_rows(curves)}),
            title="Freed for time lost, a layer: most bytes a second first, and the exact optimum",
            sources=["computed: tensors by the operator that makes them; every subset, docs/plans.md"],
            table="curve",
        ),
    }
    return Answer(charts, lambda: _tables(result), _sentence(result, none_s), _notes(result), lambda: _configuration(result))


def _tables(result: Result) -> dict[str, Table]:
    return {
        "operators": Table(frame=_operators(result), title="Operators, most memory for the time first"),
        "patterns": Table(frame=_checked(result), title="Patterns of the choice and what they name"),
    }


def _gib(found: Setting) -> float:
    return found.peak_bytes / GIB


def _operators(result: Result) -> pd.DataFrame:
    return pd.DataFrame(
        {
            "operator": [option.path for option in result.ground.options],
            "frees a layer": [format_bytes(option.saved_bytes) for option in result.ground.options],
            "costs": [
                f"{significant(option.seconds * 1e3)} ms" if option.seconds else "nothing" for option in result.ground.options
            ],
            "frees per ms": [
                format_bytes(option.saved_bytes / option.seconds / 1e3) if option.seconds else "-"
                for option in result.ground.options
            ],
        }
    )


def _checked(result: Result) -> pd.DataFrame:
    rows = []
    for check in result.checks:
        hint = f"names nothing; meant {check.repaired}?" if check.repaired else "names nothing"
        costly = "repeats the attention kernel: dear for what it frees" if check.is_costly else ", ".join(check.matched[:3])
        rows.append(
            {
                "pattern": check.pattern,
                "operators": len(check.matched),
                "verdict": "✓ in effect" if check.matched else "✗ no effect",
                "names": costly if check.matched else hint,
            }
        )
    return pd.DataFrame(rows, columns=["pattern", "operators", "verdict", "names"])


def _sentence(result: Result, none_s: float) -> str:
    chosen, state = result.settings["chosen"], result.state
    peak, longer = _gib(chosen), chosen.step_time_s / none_s - 1
    fits = "fits" if peak <= state.limit_gib else "does not fit"
    freed = saved_bytes(result.plan, [check.pattern for check in result.checks])
    text = f"{state.choice}: the step is {format_ratio(longer)} longer than without recomputation; {significant(peak)} GiB {fits} "
    text += f"into {state.limit_gib:g} GiB."
    if result.checks:
        whole = format_bytes(result.ground.whole.saved_bytes)
        text += f" The operators free {format_bytes(freed)} a layer and micro batch, a whole layer {whole}."
    dead = [check.pattern for check in result.checks if not check.matched]
    return text + (f" ✗ {len(dead)} of {len(result.checks)} patterns name no operator and have no effect." if dead else "")


def _notes(result: Result) -> tuple[str, ...]:
    notes = []
    names = {path for check in result.checks for path in check.matched}
    if {"feed_forward.mul", "feed_forward.w1.activation"} & names and "feed_forward.w2.reshape" not in names:
        notes.append(
            "Without multi-copy a Reshape between Mul and w2 can keep the result: check the graph on page 31, or add w2.reshape."
        )
    if any(path.endswith("rcast") for path in names) and not any(path.endswith(".norm") for path in names):
        notes.append("Repeating only the cast back to 16 bit keeps the wide copy: memory grows. Name the norm as well.")
    return tuple(notes)


def _configuration(result: Result) -> tuple[Code, ...]:
    dialect = result.state.dialect
    try:
        written = write_config(
            result.plan if result.plan.document is None else replace(result.plan, hardware=None), dialect=dialect
        )
    except InputError as error:
        return (Code("\n".join(error.problems), "", "This choice cannot be written"),)
    lost = [line for line in written.lost if not line.startswith("hardware")]
    title = f"The choice for {dialect_named(dialect).title}"
    title += f" (not said there: {'; '.join(lost)})" if lost else ""
    if written.before:
        return (Code(written.diff() or "nothing changes", "diff", title),)
    return (Code(written.text, dialect_named(dialect).language, title),)


PANEL = Panel(
    title="Which layers and operators to recompute?",
    start=start,
    compute=compute,
    view=view,
    shared=("choice", "dialect"),
    controls=(
        Choice(path="preset", options=preset_options, label="Plan", help="a configuration, or a published model on 16 devices"),
        Choice(path="device", options=lambda _state: list(catalog.hardware()), label="Device"),
        Number(path="limit_gib", low=0.5, high=2048, label="Limit", unit="GiB", key="context.max_device_memory"),
        Choice(path="choice", options=CHOICES, label="Recompute", key="recompute_config"),
        Text(
            path="patterns",
            label="Patterns, one a line",
            key="recompute_config.select_recompute",
            visible=lambda state: state.choice == "my patterns",
        ),
        Number(
            path="wanted_mib",
            low=1,
            high=1_000_000,
            label="Free at least, a layer",
            unit="MiB",
            visible=lambda state: state.choice == "exact for a saving",
        ),
        Slider(
            path="full",
            low=0,
            high=200,
            label="Layers a stage, in full",
            key="recompute_config.recompute",
            visible=lambda state: state.choice not in ("all layers", "as in the file"),
        ),
        Toggle(
            path="communication",
            label="Gather again",
            key="recompute_config.select_comm_recompute",
            visible=lambda state: read_plan(state.preset).parallel.sequence_parallel and state.choice != "all layers",
        ),
        Choice(path="dialect", options=DIALECTS, label="Export for"),
    ),
)
