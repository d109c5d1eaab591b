"""Unplaced: how much of a recording has no step, or no cause because not all members of its communication were read."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pandas as pd

from perfkit.core.run import Run
from perfkit.core.texts import say
from perfkit.explain.ledger import NOBODY, Ledger
from perfkit.explain.ledger.causes import UNEXPLAINED, WAITING_UNTOLD

FORMS = {
    "untold_communication_share": "{untold_communication_share} of all steps is communication not all members of which were read: "
    "who waits, who moves data, is not known",
    "untold_waiting_share": "{untold_waiting_share} of all steps is waiting for ranks that were not read",
    "outside_steps_ns": "{outside_steps_ns} of device time is before the first step or after the last: it is in no step and has no "
    "price",
}
LEAST_SHARE = 0.02
"""What is in no step, or has no cause, is told from this share of all steps on."""


def figures(ledger: Ledger, outside_ns: int) -> dict[str, float]:
    """How much that is, by the names of `FORMS`; `outside_ns` is the device time of kernels in no step."""
    rows, total_ns = ledger.entries, max(1, ledger.total_ns)
    is_untold = (rows["detail"] == "communication").to_numpy() & (rows["cause"] == UNEXPLAINED).to_numpy()
    for_nobody = (rows["cause"] == WAITING_UNTOLD).to_numpy() & (rows["who"] == NOBODY).to_numpy()
    found = {
        "untold_communication_share": float(rows.loc[is_untold, "ns"].sum() / total_ns),
        "untold_waiting_share": float(rows.loc[for_nobody, "ns"].sum() / total_ns),
        "outside_steps_ns": outside_ns,
    }
    limits = {name: LEAST_SHARE * (total_ns if name == "outside_steps_ns" else 1) for name in found}
    return {name: value for name, value in found.items() if value > limits[name]}


def told(run: Run, unplaced: Mapping[str, float]) -> list[str]:
    """What was lost when the run was read, and the `figures`, in sentences."""
    lost = [say("lost when it was read: {what} ({count})", what=each.what, count=each.count) for each in run.dropped]
    return [*lost, *(say(form, **{name: unplaced[name]}) for name, form in FORMS.items() if name in unplaced)]


def mostly_untold(members: pd.DataFrame) -> bool:
    """Whether of most of the time of operations neither the profiler nor other ranks say what is waiting and what moves data."""
    lengths = members["duration_ns"].to_numpy(dtype=np.float64)
    untold = (members["wait_ns"].isna() & members["transit_ns"].isna()).to_numpy(dtype=bool)
    return bool(lengths[untold].sum() > lengths.sum() / 2)
