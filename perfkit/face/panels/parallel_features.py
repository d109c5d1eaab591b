"""Parallel features: what every way to split the work would do to this plan: speed, memory, bytes sent, bubble."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pandas as pd

from perfkit.core.spec.plan import Plan
from perfkit.core.units import format_bytes, format_change, format_ratio, significant
from perfkit.face.charts.studies import feature_points, feature_rows
from perfkit.face.panels import _plan_state as plan_state
from perfkit.face.widgets.chart import Figure
from perfkit.face.widgets.control import Choice
from perfkit.face.widgets.panel import Answer, Panel
from perfkit.face.widgets.table import Table
from perfkit.predict.studies.features import parallel_features

NOT_ASKED = frozenset({"schedule", "framework", "attention_kernel", "limit_gib"})


@dataclass(frozen=True, kw_only=True, slots=True)
class State(plan_state.State):
    """A plan, and where the devices of a larger group come from."""

    more_devices: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class Result:
    """The plan and the effect of every feature."""

    plan: Plan
    effects: pd.DataFrame


def start() -> State:
    """The project's configuration."""
    found = plan_state.start()
    return State(preset=found.preset)


def compute(state: State) -> Result:
    """The effect of every feature; raises InputError with every reason why the plan itself is impossible."""
    plan = plan_state.plan_of(state)
    return Result(plan=plan, effects=parallel_features(plan, more_devices=state.more_devices))


def view(result: Result) -> Answer:
    """Features by memory and speed, and the table of all effects."""
    figure = Figure(
        chart=feature_points(feature_rows(result.effects)),
        title="Speed and memory with each feature on its own",
        alt=_sentence(result),
        sources=["computed: prediction, peak memory and ring volumes of the changed plan"],
        table="features",
        wide=True,
    )
    return Answer(
        {"features": figure},
        lambda: {"features": Table(frame=_table(result.effects), title="Every feature, computed for this plan")},
        _sentence(result),
        lambda: _notes(result),
    )


def _table(effects: pd.DataFrame) -> pd.DataFrame:
    rows = effects.to_dict("records")
    base = rows[0]
    return pd.DataFrame(
        [
            {
                "feature": row["feature"],
                "change": row["change"] or row["why_not"],
                "devices": "" if pd.isna(row["num_devices"]) else str(row["num_devices"]),
                "speed of a device": _against(row["tokens_per_s_per_device"], base["tokens_per_s_per_device"], "not modelled", row),
                "peak memory": _change(row["peak_memory_bytes"], base["peak_memory_bytes"]),
                "static memory": _change(row["static_bytes"], base["static_bytes"]),
                "sent by a device": _change(row["sent_bytes"], base["sent_bytes"]),
                "bubble": "" if pd.isna(row["bubble_ratio"]) else format_ratio(row["bubble_ratio"]),
                "splits": row["splits"],
                "limits": row["limits"],
            }
            for row in rows
        ]
    )


def _against(value: Any, base: Any, missing: str, row: Mapping[Any, Any]) -> str:
    if pd.isna(value):
        return "" if row["why_not"] else missing
    if row["feature"] == "as planned":
        return f"{significant(value, 4)} tokens/s"
    return format_change(value / base - 1)


def _change(value: Any, base: Any) -> str:
    if pd.isna(value):
        return ""
    if value == base:
        return format_bytes(value)
    return f"{format_bytes(value)} ({format_change(value / base - 1)})" if base else format_bytes(value)


def _sentence(result: Result) -> str:
    names, speeds, peaks = (result.effects[name].tolist() for name in ("feature", "tokens_per_s_per_device", "peak_memory_bytes"))
    faster = [(speed, name) for name, speed in zip(names[1:], speeds[1:], strict=True) if speed > speeds[0] * 1.005]
    smaller = [(peak, name) for name, peak in zip(names[1:], peaks[1:], strict=True) if not pd.isna(peak)]
    parts = ["No single feature makes a device faster"]
    if faster:
        speed, name = max(faster)
        parts = [f"Fastest with {name} ({format_change(speed / speeds[0] - 1)} a device)"]
    if smaller:
        peak, name = min(smaller)
        parts.append(f"least memory with {name} ({format_bytes(peak)})")
    return "; ".join(parts) + "."


def _notes(result: Result) -> tuple[str, ...]:
    unusable = int((result.effects["why_not"] != "").sum())
    notes = ["One change at a time: effects of several together are not their sum."]
    if unusable:
        notes.append(f"{unusable} features cannot be used with this plan; the table says why.")
    return tuple(notes)


PANEL = Panel(
    title="What every parallel feature would do",
    start=start,
    compute=compute,
    view=view,
    shared=("preset",),
    controls=(
        *(control for control in plan_state.PLAN_CONTROLS if control.path not in NOT_ASKED),
        Choice(
            path="more_devices",
            options=(("from data parallel", False), ("added", True)),
            buttons=True,
            label="Devices of a larger group",
        ),
    ),
)
