"""Sensitivity: how much the predicted step changes when one number of the device, the links or the host is better or worse."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import fields, replace
from types import MappingProxyType

import pandas as pd

from perfkit.calc._efficiency import Efficiency
from perfkit.calibration import Calibration, calibration
from perfkit.errors import InputError
from perfkit.estimate import estimate
from perfkit.spec.hardware import HardwareSpec
from perfkit.spec.plan import Plan

COLUMNS = ("input", "step_time_worse_s", "step_time_better_s", "swing_ratio", "source")
CHANGE = 0.1

LINKS = {"intra_node": "links inside a node", "inter_node": "links between nodes"}
HOST = tuple(item.name for item in fields(Efficiency) if item.name.endswith("_host_s"))

Variation = Callable[[float], tuple[Plan, Calibration]]


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
    step_s = estimate(plan, calibration=known).step_time_s
    rows = []
    for name, source, vary in _inputs(plan, plan.hardware, known):
        worse, better = (_seconds(*vary(factor)) for factor in (1 - change, 1 + change))
        if abs(worse - better) > 1e-9 * step_s:
            rows.append((name, worse, better, (worse - better) / step_s, source))
    frame = pd.DataFrame(rows, columns=list(COLUMNS))
    return frame.sort_values("swing_ratio", ascending=False, ignore_index=True)


def _seconds(plan: Plan, known: Calibration) -> float:
    return estimate(plan, calibration=known).step_time_s


def _inputs(plan: Plan, device: HardwareSpec, known: Calibration) -> Iterator[tuple[str, str, Variation]]:
    dtype, sources = plan.workload.dtype, device.sources

    def with_device(changed: HardwareSpec) -> tuple[Plan, Calibration]:
        return replace(plan, hardware=changed), known

    def peak(factor: float) -> tuple[Plan, Calibration]:
        peaks = {**device.peak_flops_per_s, dtype: device.peak(dtype) * factor}
        return with_device(replace(device, peak_flops_per_s=MappingProxyType(peaks)))

    def bandwidth(factor: float) -> tuple[Plan, Calibration]:
        return with_device(replace(device, memory_bytes_per_s=device.memory_bytes_per_s * factor))

    def link(name: str) -> Variation:
        def vary(factor: float) -> tuple[Plan, Calibration]:
            found = device.links[name]
            changed = {**device.links, name: replace(found, bytes_per_s=found.bytes_per_s * factor)}
            return with_device(replace(device, links=MappingProxyType(changed)))

        return vary

    def host(factor: float) -> tuple[Plan, Calibration]:
        return plan, _scaled(known, 1 / factor)

    yield f"peak of {dtype}", str(sources.get("peak_flops_per_s", "stated by the plan")), peak
    yield "memory bandwidth", str(sources.get("memory_bytes_per_s", "stated by the plan")), bandwidth
    for name, title in LINKS.items():
        if name in device.links:
            yield title, str(sources.get(f"links.{name}", "stated by the plan")), link(name)
    yield "speed of the host", f"calibration {known.name}", host


def _scaled(known: Calibration, factor: float) -> Calibration:
    """The calibration with all times of the host times `factor`, in every group that states them."""
    paths = [f"common.{name}" for name in HOST]
    paths += [
        f"{group}.{start}.{name}"
        for group, members in known.groups.items()
        for start, own in members.items()
        for name in HOST
        if name in own
    ]
    return known.with_values({path: known.value(path) * factor for path in paths})
