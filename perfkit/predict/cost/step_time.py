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
from perfkit.predict.cost.cost_columns import CostColumns
from perfkit.predict.cost.efficiency import Efficiency
from perfkit.predict.cost.step_columns import step_parts

SOURCE = Source("computed", "perfkit.predict.cost.step_time", "roofline operators, alpha-beta collectives, pipeline formula")


def breakdown(plans: CostColumns, efficiency: Efficiency, stage: int | None = None) -> Breakdown:
    """Seconds of one step of the first of the plans, by part; the leaves sum to the step.

    First levels as of a measured step: `computing` (forward, backward, recompute, optimizer), `communication/exposed` (by group),
    `bubble` (waiting for other stages) and `free` (host). Parts that the plan does not have are left out. They are those of the
    slowest stage, or of `stage`.
    """
    amounts = {path: float(amount[0]) for path, amount in step_parts(plans, efficiency, stage).items()}
    return Breakdown("s", {path: amount for path, amount in amounts.items() if amount > 0}, SOURCE)


def seconds(plans: CostColumns, efficiency: Efficiency) -> Floats:
    """Seconds of one step of every plan."""
    return sum(step_parts(plans, efficiency).values(), start=np.zeros(len(plans)))
