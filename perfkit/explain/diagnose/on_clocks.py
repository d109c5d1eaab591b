"""On clocks: moments of ranks on the clock that they share, and the steps in which a clock was set while it was recorded."""

from __future__ import annotations

from collections.abc import Collection, Mapping

import numpy as np
import pandas as pd

from perfkit.core.clock import Clock, Ints
from perfkit.core.texts import say


def common_ns(rows: pd.DataFrame, clocks: Mapping[int, Clock], shifts: Mapping[int, int]) -> Ints:
    """The `start_ns` of rows on the common clock; of ranks without a clock shifted as the run has it."""
    starts: Ints = rows["start_ns"].to_numpy(dtype=np.int64).copy()
    ranks = rows["rank"].to_numpy(dtype=np.int64)
    for rank in np.unique(ranks).tolist():
        mine, own = ranks == rank, clocks.get(rank)
        starts[mine] = starts[mine] + shifts.get(rank, 0) if own is None else own.common_ns(starts[mine])
    return starts


def set_steps(clocks: Mapping[int, Clock], among: Collection[int]) -> tuple[int, ...]:
    """The steps in which the clock of a rank was set, so that they seem longer or shorter than they were; none, if all are such."""
    found = {step for own in clocks.values() if own.jump is not None for step in own.jump.steps}
    return tuple(sorted(found)) if set(among) - found else ()


def told(steps: tuple[int, ...]) -> str:
    """That steps in which a clock was set are left out."""
    form = "steps {steps} are not judged: a clock was set" if len(steps) > 1 else "step {steps} is not judged: a clock was set"
    return say(form, steps=", ".join(map(str, steps)))
