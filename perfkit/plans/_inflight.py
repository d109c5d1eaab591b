"""In flight: how many activations of each chunk a stage holds at most, as the vectors that no other one exceeds.

A forward adds one activation of its chunk; the backward, or the weight gradient where it runs apart, removes it. The order of the
operations alone decides this, not their times.
"""

from __future__ import annotations

from functools import lru_cache

from perfkit.plans._order import Lane, lanes

Vectors = tuple[tuple[int, ...], ...]


@lru_cache(maxsize=64)
def inflight_vectors(schedule: str, num_stages: int, num_chunks: int, num_microbatches: int) -> tuple[Vectors, ...]:
    """For every stage the maximal vectors of live activations by chunk, sorted (directions of dualpipe count as chunks)."""
    chunks = 2 if schedule == "dualpipe" else num_chunks
    return tuple(_maximal(lane, chunks) for lane in lanes(schedule, num_stages, num_chunks, num_microbatches))


def _maximal(lane: Lane, num_chunks: int) -> Vectors:
    releases = "W" if any(op.kind == "W" for item in lane for op in item) else "B"
    live = [0] * num_chunks
    seen: set[tuple[int, ...]] = set()
    for item in lane:
        for op in item:
            live[op.chunk] += (op.kind == "F") - (op.kind == releases)
            if op.kind == "F":
                seen.add(tuple(live))
    return tuple(sorted(vector for vector in seen if not any(_exceeds(other, vector) for other in seen)))


def _exceeds(other: tuple[int, ...], vector: tuple[int, ...]) -> bool:
    return other != vector and all(a >= b for a, b in zip(other, vector, strict=True))
