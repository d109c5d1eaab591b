"""Step time: how long one training step takes on the slowest pipeline stage, and what that time is made of.

Operators by roofline with the losses of their shape, collectives by alpha-beta over the links that their group uses, the pipeline
by (m - 1) slowest stages plus one pass through all of them (arXiv 2104.04473), what computing hides, recomputation, optimizer and
host. How the parts are computed and how far they are off on measured runs: docs/prediction.md.
"""

from __future__ import annotations

import numpy as np

from perfkit.core.breakdown import Breakdown
from perfkit.core.plan_columns import Floats
from perfkit.core.source import Source
from perfkit.core.spec.plan import Plan
from perfkit.predict.cost.cost_columns import CostColumns, costs_of
from perfkit.predict.cost.efficiency import Efficiency
from perfkit.predict.cost.step_columns import step_parts

SOURCE = Source(
    "computed", "perfkit.predict.cost.step_time.step_time", "roofline operators, alpha-beta collectives, pipeline formula"
)


def step_time(plan: Plan, efficiency: Efficiency | None = None) -> Breakdown:
    """Seconds of one step by part; the leaves sum to the step.

    First levels as of a measured step: `computing` (forward, backward, recompute, optimizer), `communication/exposed` (by group),
    `bubble` (waiting for other stages) and `free` (host). Parts that the plan does not have are left out. Raises InputError if the
    plan names no device or the device's numbers do not suffice.
    """
    return breakdown(costs_of([plan]), efficiency or Efficiency())


def breakdown(plans: CostColumns, efficiency: Efficiency, stage: int | None = None) -> Breakdown:
    """As `step_time`, for the first of the plans in columns; with `stage` the parts are those of that pipeline stage."""
    amounts = {path: float(amount[0]) for path, amount in step_parts(plans, efficiency, stage).items()}
    return Breakdown("s", {path: amount for path, amount in amounts.items() if amount > 0}, SOURCE)


def seconds(plans: CostColumns, efficiency: Efficiency) -> Floats:
    """Seconds of one step of every plan."""
    return sum(step_parts(plans, efficiency).values(), start=np.zeros(len(plans)))
