"""In flight: how many activations of each chunk a stage holds at most, as the vectors that no other one exceeds.

A forward adds one activation of its chunk; the backward, or the weight gradient where it runs apart, removes it. The order of the
operations alone decides this, not their times.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from perfkit.predict.plans.schedule.order import KINDS, Ints, LaneTable, lane_table

Vectors = tuple[tuple[int, ...], ...]

_BLOCK = 2**22
"""Comparisons of vectors at once."""


@lru_cache(maxsize=64)
def inflight_vectors(schedule: str, num_stages: int, num_chunks: int, num_microbatches: int) -> tuple[Vectors, ...]:
    """For every stage the maximal vectors of live activations by chunk, sorted (directions of dualpipe count as chunks)."""
    chunks = 2 if schedule == "dualpipe" else num_chunks
    table = lane_table(schedule, num_stages, num_chunks, num_microbatches)
    return tuple(_maximal(_live(table.lane(stage), chunks)) for stage in range(num_stages))


def _live(lane: LaneTable, num_chunks: int) -> Ints:
    """Live activations by chunk after every forward of a lane."""
    present = lane.kind >= 0
    kind, chunk = lane.kind[present], lane.chunk[present]
    forward = kind == KINDS.index("F")
    change = forward.astype(np.int64) - (kind == kind.max())  # W is the last kind, B where there is no W
    return np.asarray(np.cumsum(change[:, None] * (chunk[:, None] == np.arange(num_chunks)), axis=0)[forward])


def _maximal(live: Ints) -> Vectors:
    if live.shape[1] == 1:
        return ((int(live.max()),),)
    vectors = np.unique(live, axis=0)
    size = max(1, _BLOCK // len(vectors))
    above = np.concatenate([_above(vectors[start : start + size], vectors) for start in range(0, len(vectors), size)])
    return tuple(map(tuple, vectors[above == 1].tolist()))  # each is at least itself


def _above(block: Ints, vectors: Ints) -> Ints:
    """How many of the vectors are at least each one of the block in every chunk."""
    above = np.ones((len(block), len(vectors)), dtype=np.bool_)
    for own, others in zip(block.T, vectors.T, strict=True):
        above &= others >= own[:, None]
    return np.asarray(above.sum(axis=1))
