"""Labels: what of a plan decides which efficiencies hold for it: device, software, precision, network and stated overlaps."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from perfkit.core.numbers import Number, where
from perfkit.core.plan_columns import Coded, PlanColumns, combined
from perfkit.core.spec.hardware import HardwareSpec

NOT_STATED = 2
_STATED = (False, True, None)


class Label(NamedTuple):
    """Keys of the efficiencies of a plan; an overlap is None where the plan does not state it."""

    accelerator: str = ""
    stack: str = ""
    precision: str = ""
    network: str = ""
    overlap_dp: bool | None = None
    overlap_tp: bool | None = None
    overlap_pp: bool | None = None
    overlap_ep: bool | None = None


def labels_of(plans: PlanColumns) -> Coded[Label]:
    """The label of every plan; its stack is the program that it states, else the usual one."""
    overlaps = (_stated(column) for column in (plans.overlap_dp, plans.overlap_tp, plans.overlap_pp, plans.overlap_ep))
    found = combined(plans.hardware, plans.program, plans.dtype, *overlaps)
    return Coded(found.codes, tuple(_label(*values) for values in found.values))


def _stated(column: Number) -> Coded[bool | None]:
    return Coded.at(where(np.isnan(column), NOT_STATED, column), _STATED)


def _label(device: HardwareSpec | None, program: str, dtype: str, *overlaps: bool | None) -> Label:
    link = device.links.get("inter_node") if device else None
    return Label(device.name if device else "", program, dtype, link.kind if link else "", *overlaps)
