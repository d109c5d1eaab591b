"""Measured rows: the plans of a table whose step time was measured, and the groups that a prediction must be tested across."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
import pandas as pd

from perfkit.config.dialects.table import MICRO
from perfkit.core.errors import InputError
from perfkit.core.plan_columns import Coded, Floats
from perfkit.core.spec.hardware import HardwareSpec
from perfkit.predict.calibration.file import Calibration
from perfkit.predict.cost.cost_columns import CostColumns, cost_columns, unpriced
from perfkit.predict.cost.efficiency import Amount, Efficiency
from perfkit.predict.cost.labels import Label, labels_of
from perfkit.predict.cost.step_time import seconds
from perfkit.predict.unstated import read_table

MANY = 4096
"""Plans beyond which one call of the formulas no longer fits the processor's cache."""


@dataclass(frozen=True, slots=True)
class Measured:
    """Plans with their measured step time in s; `rows` are positions in the table, `groups` the code of every plan's group."""

    plans: CostColumns
    labels: Coded[Label]
    seconds: Floats
    rows: Any
    groups: Any

    def take(self, rows: Any) -> Measured:
        """The plans at `rows` (positions or flags)."""
        rows = np.flatnonzero(rows) if rows.dtype == bool else rows
        return Measured(self.plans.take(rows), self.labels.take(rows), self.seconds[rows], self.rows[rows], self.groups[rows])

    def ratios(self, chosen: Calibration) -> Floats:
        """Predicted over measured time."""
        return self.predict(chosen.efficiency(self.labels)) / self.seconds

    def ratios_of(self, chosen: Sequence[Calibration]) -> Floats:
        """As `ratios`, a row a calibration: one call of the formulas for all, which for few plans cost the same as for many."""
        count, times = len(self.seconds), len(chosen)
        if count * times > MANY:
            return np.stack([self.ratios(one) for one in chosen])
        efficiencies = [one.efficiency(self.labels) for one in chosen]
        stacked: dict[str, Amount] = {}
        for item in fields(Efficiency):
            values = [getattr(one, item.name) for one in efficiencies]
            if all(isinstance(value, float) for value in values):
                stacked[item.name] = values[0] if len(set(values)) == 1 else np.repeat(values, count)
            else:
                stacked[item.name] = np.concatenate([np.broadcast_to(value, count) for value in values])
        plans = self.plans.take(np.tile(np.arange(count), times))
        return np.asarray(seconds(plans, Efficiency(**stacked)).reshape(times, count) / self.seconds)

    def predict(self, efficiency: Efficiency) -> Floats:
        """Seconds of one step of every plan."""
        return seconds(self.plans, efficiency)


def read_measured(frame: pd.DataFrame, devices: Mapping[str, HardwareSpec] | None = None) -> Measured:
    """The rows of a table that can be computed, were measured, and are not marked `exclude` = 1.

    The step time is `step_time_s`, or follows from `tokens_per_s_per_device`. Plans of one model on one number of devices are one
    group: they resemble each other too much to test a prediction on each other. Raises InputError if no row is left.
    """
    table = read_table(frame, devices)
    priced = np.delete(np.arange(len(table.rows)), list(unpriced(table.plans)))
    rows, plans = table.rows[priced], table.plans.take(priced)
    speed = _numbers(frame, "tokens_per_s_per_device")[rows]
    tokens = plans.global_batch_size * plans.seq_length / plans.num_devices
    time = _numbers(frame, "step_time_s")[rows]
    measured = np.where(time > 0, time, tokens / np.where(speed > 0, speed, np.nan))
    kept = np.isfinite(measured) & ~table.is_open[MICRO][priced] & (_numbers(frame, "exclude")[rows] != 1)
    if not kept.any():
        raise InputError("measured table", ["no row states a step time and a plan that can be computed"])
    sizes = np.stack((plans.model_name.codes, plans.num_layers, plans.hidden_size, plans.num_devices))
    groups = np.unique(sizes, axis=1, return_inverse=True)[1].ravel()
    return Measured(cost_columns(plans), labels_of(plans), measured, rows, groups).take(kept)


def _numbers(frame: pd.DataFrame, column: str) -> Floats:
    if column not in frame:
        return np.full(len(frame), np.nan)
    return np.asarray(pd.to_numeric(frame[column], errors="coerce").to_numpy(dtype=np.float64, na_value=np.nan))
