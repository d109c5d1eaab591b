"""Memory: how much every rank holds after each pass: what stays, and the activations of the micro batches that it waits for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pandas as pd

from perfkit.predict.memory.memory import chunk_activations, peak_memory
from perfkit.predict.simulate.disturbances import Disturbances
from perfkit.predict.simulate.faults import Fault
from perfkit.predict.simulate.lanes import StageStep
from perfkit.predict.simulate.tables import Columns, Recorded

Ints = npt.NDArray[np.int64]

FRAGMENTED = 1.62
"""Reserved over allocated bytes of an allocator that finds no block that fits."""


def memory_curve(
    disturbances: Disturbances, steps: Sequence[Sequence[StageStep]], recorded: Recorded, faults: Sequence[Fault]
) -> list[Columns]:
    """Allocated and reserved bytes after every pass; at the peak they are those that are predicted for the stage's allocator."""
    plan = disturbances.job.costs.plan
    estimate = peak_memory(plan, schedule="vpp" if disturbances.job.num_chunks > 1 else "1f1b")
    pieces: list[Columns] = []
    for stage, ranks in recorded.by_stage.items():
        # What the driver keeps for itself is not held by the allocator; the fixed buffers of libraries are handed out by it.
        peak = float(estimate.stages[stage].total) - float(estimate.stages[stage].amount("reserved/context"))
        held = [
            sum(chunk_activations(plan, estimate.settings, chunk, stage).values()) for chunk in range(disturbances.job.num_chunks)
        ]
        tensors = peak - float(estimate.stages[stage].amount("reserved/fragmentation"))
        struck = np.zeros(len(ranks), dtype=bool)
        at = recorded.columns_of(stage, ranks)
        for fault in faults:
            if fault.kind == "memory_fragmentation":
                struck |= disturbances.struck(fault, stage)[at]
        curve = _Curve(stage, held, max(tensors, 0.0), peak, struck)
        pieces += [curve.of(step[stage], ranks, at, recorded) for step in steps]
    return pieces


@dataclass(frozen=True)
class _Curve:
    """A stage's bytes: what the layers of each chunk hold of a micro batch, all tensors and the pool at the peak, who wastes."""

    stage: int
    held: Sequence[float]
    tensors: float
    peak: float
    struck: npt.NDArray[np.bool_]

    def of(self, step: StageStep, ranks: Sequence[int], at: Ints, recorded: Recorded) -> Columns:
        """The curve of one step."""
        order = sorted(step.ends, key=lambda key: int(step.ends[key][0]))
        change = np.array([self.held[chunk] if kind == "F" else -self.held[chunk] for chunk, kind, _ in order])
        live = np.concatenate([[0.0], np.cumsum(change)])
        allocated = np.rint(np.maximum(self.tensors - live.max(), 0.0) + np.maximum(live, 0.0)).astype(np.int64)
        times = np.stack([step.begin, *(step.ends[key] for key in order)])[:, at] + recorded.skews(ranks)
        wide = np.repeat(allocated[:, None], len(ranks), axis=1)
        whole = max(self.peak, float(allocated.max()))
        reserved = np.where(self.struck, np.maximum(np.rint(wide * FRAGMENTED), whole), whole).astype(np.int64)
        return {
            "rank": np.repeat(np.array(ranks, dtype=np.int64), len(times)),
            "component": pd.Categorical(["total"] * (len(times) * len(ranks))),
            "time_ns": times.T.reshape(-1),
            "allocated_bytes": wide.T.reshape(-1),
            "reserved_bytes": reserved.T.reshape(-1),
        }
