"""Memory plan: the peak of every stage against the card's limit, what it is made of, and which switch buys how much.

A configuration or a published model fills the sizes; every size can then be changed. The guides' figures stand beside the exact
ones with the reason. An impossible plan is answered with all reasons at once.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pandas as pd

from perfkit.core.spec.plan import Plan
from perfkit.core.spec.recompute import RecomputePlan
from perfkit.core.units import GIB, format_bytes, format_ratio
from perfkit.face.charts.memory import stage_bars, stage_rows, switch_bars, switch_rows
from perfkit.face.panels._plan_state import PLAN_CONTROLS, State, plan_of, start
from perfkit.face.widgets.chart import Figure
from perfkit.face.widgets.panel import Answer, Panel
from perfkit.face.widgets.table import Table
from perfkit.predict.memory.guide import activation_table, static_table
from perfkit.predict.memory.memory import MemoryEstimate, peak_memory
from perfkit.predict.memory.settings import SOURCES, MemorySettings, counted, preset
from perfkit.predict.memory.switches import Switch, switches

AMPLE_HEADROOM = 0.1
"""Share of the limit above which giving up recomputation comes first."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Result:
    """All that the page shows."""

    state: State
    plan: Plan
    settings: MemorySettings
    estimate: MemoryEstimate
    switches: tuple[Switch, ...]

    @property
    def limit_bytes(self) -> float:
        """The limit of a device."""
        return self.state.limit_gib * GIB


def compute(state: State) -> Result:
    """Estimate the plan and every switch; raises InputError with every reason why the plan is impossible."""
    plan = plan_of(state)
    settings = counted(preset(state.framework, state.device), plan.memory_limit)
    estimate = peak_memory(plan, schedule=state.schedule, settings=settings)
    return Result(state=state, plan=plan, settings=settings, estimate=estimate, switches=switches(plan, settings, state.schedule))


def view(result: Result) -> Answer:
    """Stages and switches as charts; parts, switches, the guides' figures and the tensors of a layer as tables."""
    limit, peak = result.limit_bytes, result.estimate.peak
    possible = [(found.name, found.price, float(found.estimate.peak.total)) for found in result.switches if found.estimate]
    charts = {
        "stages": Figure(
            chart=stage_bars(stage_rows(result.estimate.stages, limit)),
            title="Peak of one device by pipeline stage, against the limit",
            alt=_sentence(result),
            sources=[peak.source, "published: arXiv 2205.05198, table 2 (activations)", *_assumptions(result)],
            table="stages",
            wide=True,
        ),
        "switches": Figure(
            chart=switch_bars(switch_rows(float(peak.total), possible, limit)),
            title="Which switch buys how much",
            alt="Each bar goes from the present peak to the peak with one change.",
            sources=["computed: perfkit.predict.memory.memory.peak_memory of the changed plan"],
            table="switches",
            wide=True,
        ),
    }
    return Answer(charts, lambda: _tables(result), _sentence(result), lambda: _notes(result))


def _tables(result: Result) -> dict[str, Table]:
    return {
        "parts": Table(frame=_parts(result), title=f"What stage {result.estimate.fullest_stage} holds at its peak"),
        "switches": Table(frame=_switch_table(result), title="Switches, each on its own"),
        "static": Table(
            frame=static_table(result.plan, result.settings, result.estimate.fullest_stage),
            title="Static memory: the guide's 10N beside the exact count",
        ),
        "layer": Table(
            frame=_layer(result), title="One layer and micro batch: what this model keeps, and the guide's GPT with dropout"
        ),
    }


def _parts(result: Result) -> pd.DataFrame:
    frame = result.estimate.peak.to_frame().rename(columns={"path": "part", "amount": "peak_bytes"})
    return frame.sort_values("peak_bytes", ascending=False, ignore_index=True)


def _switch_table(result: Result) -> pd.DataFrame:
    peak = result.estimate.peak.total
    return pd.DataFrame(
        [
            {
                "switch": found.name,
                "peak_bytes": found.estimate.peak.total if found.estimate else None,
                "saved_bytes": peak - found.estimate.peak.total if found.estimate else None,
                "fits": "" if not found.estimate else "yes" if found.estimate.fits(result.limit_bytes) else "no",
                "price": found.price if found.estimate else f"impossible: {found.why_not}",
            }
            for found in result.switches
        ]
    )


def _layer(result: Result) -> pd.DataFrame:
    model = result.plan.model
    return activation_table(result.plan, result.settings, experts=bool(model.num_experts and not model.num_dense_layers))


def _sentence(result: Result) -> str:
    estimate, limit = result.estimate, result.limit_bytes
    peak = int(estimate.peak.total)
    where = f"stage {estimate.fullest_stage}" if len(estimate.stages) > 1 else "every device"
    name = result.plan.model.name or Path(result.state.preset).name
    text = f"{name} on {result.plan.num_devices} devices: {where} needs {format_bytes(peak)} {estimate.moment}, "
    if estimate.fits(limit):
        return f"{text}{format_bytes(limit - peak)} less than the limit of {format_bytes(limit)}."
    return f"{text}{format_bytes(peak - limit)} more than the limit of {format_bytes(limit)}. It does not fit."


def _notes(result: Result) -> tuple[str, ...]:
    estimate, limit, notes = result.estimate, result.limit_bytes, []
    peak = estimate.peak.total
    if not estimate.fits(limit):
        fitting = [found for found in result.switches if found.estimate and found.estimate.fits(limit)]
        names = ", ".join(found.name for found in fitting[::-1][:3])
        notes.append(f"One switch is enough: {names}." if names else "No single switch is enough; combine them.")
    elif (limit - peak) / limit > AMPLE_HEADROOM:
        notes.append(_with_headroom(result))
    leaves = estimate.peak.amount("dynamic/activations") / peak
    notes.append(
        f"Activations are {format_ratio(leaves)} of the peak; the guide's table counts one layer of a GPT with dropout and without "
        f"flash attention (X10), and its static 10N has neither gradients nor master weights (X09)."
    )
    return tuple(notes)


def _with_headroom(result: Result) -> str:
    free = format_bytes(result.limit_bytes - result.estimate.peak.total)
    if result.plan.recompute == RecomputePlan():
        return f"{free} are left: a larger micro batch or fewer slices of the model are worth a try."
    plain = next((found.estimate for found in result.switches if found.name == "recompute nothing" and found.estimate), None)
    if plain is not None and plain.fits(result.limit_bytes):
        return f"{free} are left: first give up recomputation, the peak would be {format_bytes(plain.peak.total)}."
    return f"{free} are left: first recompute fewer layers; without any the peak would be too high."


def _assumptions(result: Result) -> list[str]:
    shown = {name: getattr(result.settings, name) for name in ("context_bytes", "fragmentation")}
    return [f"assumed: {name.replace('_', ' ')} ({SOURCES[name]})" for name, value in shown.items() if value]


PANEL = Panel(
    title="Memory of one device",
    start=start,
    compute=compute,
    view=view,
    shared=("preset",),
    controls=PLAN_CONTROLS,
)
