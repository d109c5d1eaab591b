"""Small runs with known faults, as a recording would show them."""

from __future__ import annotations

from typing import Any

import numpy as np

from perfkit.run import Position, Run
from perfkit.trace._format import Sink

US = 1_000
MS = 1_000_000


def run_of(sink: Sink, placement: dict[int, Position] | None = None, name: str = "made") -> Run:
    return Run(name=name, kind="measured", format="made", tables=sink.tables(), placement=placement or {})


def summaries(
    computing_ms: dict[int, Any], *, stages: dict[int, int] | None = None, step_ms: float = 200.0, steps: int = 10
) -> Run:
    """A run of step summaries: computing in ms by rank, one number or one a step; what is left of a step is communication."""
    sink = Sink()
    for rank, values in computing_ms.items():
        computing = np.rint(np.broadcast_to(np.asarray(values, dtype=float), steps) * MS).astype(np.int64)
        duration = np.full(steps, round(step_ms * MS))
        sink.add(
            "steps",
            rank=rank,
            step=list(range(1, steps + 1)),
            pipeline_stage=(stages or {}).get(rank),
            duration_ns=duration,
            computing_ns=computing,
            communication_ns=duration - computing,
            overlapped_ns=0,
            exposed_communication_ns=duration - computing,
            free_ns=0,
        )
    return run_of(sink)
