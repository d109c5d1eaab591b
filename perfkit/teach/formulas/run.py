"""Run: input queue, fusion and losses of a run (E38, E39, E41)."""

from __future__ import annotations

from statistics import fmean

import numpy as np
import pandas as pd

from perfkit.explain.alignment import LossSeries, align_losses
from perfkit.teach.worked import Draw, Group, Worked

QUEUE = (2, 5, 4, 1, 3, 6, 2, 2, 7, 1, 4, 3, 2, 5, 6, 1, 3)
"""Lengths after the zeros."""
OTHER_US = 15_000
FUSED = 0.6
REFERENCE = (10.649, 10.633, 9.673, 9.101, 8.702, 8.377, 8.120, 7.931, 7.760, 7.612)
"""Losses made for the class."""


def empty_queue(draw: Draw) -> Worked:
    """E38: steps that found no input waiting."""
    lengths = [0] * draw["zeros"] + list(QUEUE[: draw["n"] - draw["zeros"]])
    empty = 100 * lengths.count(0) / len(lengths)
    return Worked({"queue_len": lengths}, empty, {"nonempty": 100 - empty})


def fusion(draw: Draw) -> Worked:
    """E39: the speed-up when a part of the vector time goes."""
    matmul, attention, vector = draw["matmul"], draw["fa"], draw["vector"]
    share = vector / (matmul + attention + vector + OTHER_US)
    shown = {"MatMul_us": matmul, "FlashAttention_us": attention, "vector_ops_us": vector}
    shown |= {"other_us": OTHER_US, "fuse_saves_of_vector": FUSED}
    saved = FUSED * share
    return Worked(shown, 100 * (1 / (1 - saved) - 1), {"share": 100 * share, "saved_share": 100 * saved})


def losses(draw: Draw) -> Worked:
    """E41: the largest relative difference of two series of losses."""
    new = [round(loss * (1.0062 if step == draw["k"] else 1 + 0.0004 * (step % 3)), 3) for step, loss in enumerate(REFERENCE)]
    found = align_losses(_series("reference", REFERENCE), _series("new", new))
    apart = [abs(a - b) for a, b in zip(new, REFERENCE, strict=True)]
    wrong = {"mean": 100 * fmean(gap / loss for gap, loss in zip(apart, REFERENCE, strict=True)), "absolute": max(apart)}
    shown = {"ref_loss": list(REFERENCE), "new_loss": new, "limit_rel": 0.005}
    return Worked(shown, 100 * (found.max_relative or 0.0), wrong)


def _series(name: str, values: tuple[float, ...] | list[float]) -> LossSeries:
    points = pd.DataFrame({"step": np.arange(len(values), dtype=np.int64), "loss": np.asarray(values, dtype=np.float64)})
    unknown = dict.fromkeys(("gradient_norm", "tokens", "samples"), np.nan)
    return LossSeries(name=name, points=points.assign(**unknown, overflow=False))


GROUP = Group(title="The run", order=6, formulas={"E38": empty_queue, "E39": fusion, "E41": losses})
