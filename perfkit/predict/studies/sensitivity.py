"""Sensitivity: how much the predicted step changes when one number of the device, the links or the host is better or worse."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields, replace
from typing import Any

import numpy as np
import pandas as pd

from perfkit.core.errors import InputError
from perfkit.core.spec.hardware import HardwareSpec
from perfkit.core.spec.plan import Plan
from perfkit.core.texts import say
from perfkit.predict.calibration import Calibration, calibration
from perfkit.predict.cost import step_time as step
from perfkit.predict.cost.cost_columns import CostColumns, costs_of
from perfkit.predict.cost.efficiency import Efficiency
from perfkit.predict.estimate import efficiency_of

COLUMNS = ("input", "step_time_worse_s", "step_time_better_s", "swing_ratio", "source")
CHANGE = 0.1

LINKS = {
    "intra_node": ("links inside a node", "intra_bytes_per_s"),
    "inter_node": ("links between nodes", "node_bytes_per_s"),
}
HOST = tuple(item.name for item in fields(Efficiency) if item.name.endswith("_host_s"))

Input = tuple[str, str, str]
"""What is varied in words, where its number comes from, and the column of the plan that has it; "" for the times of the host."""


def sensitivity(plan: Plan, change: float = CHANGE, *, chosen: str | Calibration | None = None) -> pd.DataFrame:
    """The step in seconds when one input is worse or better by `change` (a ratio), the largest swing first.

    `swing_ratio` is the difference of the two over the step as planned. An input that the plan does not use (the network of a job
    inside one node) has no row. Raises InputError if the plan names no device, or `change` is not between 0 and 1.
    """
    if not 0 < change < 1:
        raise InputError("sensitivity", [f"change = {change} must be between 0 and 1"])
    if plan.hardware is None:
        raise InputError("sensitivity", ["the plan names no device"])
    known = chosen if isinstance(chosen, Calibration) else calibration(chosen or "default")
    inputs = list(_inputs(plan, plan.hardware, known))
    step_s, *varied_s = step.seconds(*_varied(plan, inputs, change, known)).tolist()
    rows = [
        (name, worse, better, (worse - better) / step_s, source)
        for (name, source, _), worse, better in zip(inputs, varied_s[::2], varied_s[1::2], strict=True)
        if abs(worse - better) > 1e-9 * step_s
    ]
    rows.sort(key=lambda row: -row[3])
    return pd.DataFrame(rows, columns=list(COLUMNS))


PEAK = "peak of "
"""With what the input of a dtype's peak begins."""


def sensitivity_told(found: pd.DataFrame, change: float = CHANGE) -> str:
    """The input that moves the step most, in a sentence."""
    if found.empty:
        return "No number of the machine moves this step."
    first = found.iloc[0]
    form = "What matters most is {input}: from {change_ratio} better to {change_ratio} worse the step grows by {swing_ratio}."
    name = str(first["input"])
    dtype = name.removeprefix(PEAK)
    words = say("the peak of {dtype}", dtype=dtype) if dtype != name else f"the {name}"
    return say(form, input=words, change_ratio=change, swing_ratio=float(first["swing_ratio"]))


def _inputs(plan: Plan, device: HardwareSpec, known: Calibration) -> Iterator[Input]:
    dtype, sources = plan.workload.dtype, device.sources
    yield f"{PEAK}{dtype}", str(sources.get("peak_flops_per_s", "stated by the plan")), "peak_flops_per_s"
    yield "memory bandwidth", str(sources.get("memory_bytes_per_s", "stated by the plan")), "memory_bytes_per_s"
    for name, (title, column) in LINKS.items():
        if name in device.links:
            yield title, str(sources.get(f"links.{name}", "stated by the plan")), column
    yield "speed of the host", f"calibration {known.name}", ""


def _varied(plan: Plan, inputs: list[Input], change: float, known: Calibration) -> tuple[CostColumns, Efficiency]:
    """The plan as it is, then worse and better in every input."""
    efficiency = efficiency_of(plan, known)
    columns = costs_of([plan]).take(np.zeros(1 + 2 * len(inputs), dtype=np.intp))
    scaled: dict[str, Any] = {}
    for index, (_, _, column) in enumerate(inputs):
        factors = np.ones(len(columns))
        factors[1 + 2 * index : 3 + 2 * index] = 1 - change, 1 + change
        if column:
            scaled[column] = getattr(columns, column) * factors
        else:
            efficiency = replace(efficiency, **{name: getattr(efficiency, name) * (1 / factors) for name in HOST})
    return replace(columns, **scaled), efficiency
