"""In flight: how many micro batches wait for their backward pass on a pipeline stage.

The counts follow from the order of operations of a schedule: forward adds one, backward removes one, and the largest count vectors
over the chunks are kept (no vector is below another one). They are exact, not the usual closed forms.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import Literal, get_args

from perfkit.core.errors import InputError

Schedule = Literal["gpipe", "1f1b", "zbh1", "vpp", "vpp_lm", "dualpipe"]
Vector = tuple[int, ...]


@cache
def in_flight(
    schedule: str, stages: int, chunks: int, micro_batches: int, sequence_chunks: int = 1
) -> tuple[tuple[Vector, ...], ...]:
    """For every stage the largest vectors of live micro batches by chunk, sorted.

    With `sequence_chunks` the unit is a piece of a micro batch: all pieces of one go forward before the first comes back.
    Raises InputError for a schedule that is not known or does not fit the number of chunks.
    """
    return tuple(
        in_flight_of(schedule, stages, chunks, micro_batches, stage, sequence_chunks=sequence_chunks) for stage in range(stages)
    )


@cache
def in_flight_of(
    schedule: str, stages: int, chunks: int, micro_batches: int, stage: int, *, sequence_chunks: int = 1
) -> tuple[Vector, ...]:
    """As `in_flight`, for one stage."""
    if schedule not in get_args(Schedule):
        raise InputError("schedule", [f"{schedule!r} must be one of {', '.join(get_args(Schedule))}"])
    if schedule == "1f1b" and chunks > 1:
        schedule = "vpp"
    if schedule in ("gpipe", "zbh1", "dualpipe") and chunks > 1:
        raise InputError("schedule", [f"{schedule} has one chunk a stage, the plan has {chunks}"])
    if chunks == 1:
        return _single(schedule, stages, stage, micro_batches, sequence_chunks)
    # The order repeats every `stages` micro batches, so that four groups and the remainder show all that happens.
    shown = micro_batches if micro_batches <= 4 * stages else 4 * stages + micro_batches % stages
    return _interleaved(schedule, stages, chunks, shown, stage)


def _single(schedule: str, stages: int, stage: int, micro_batches: int, pieces: int) -> tuple[Vector, ...]:
    units = micro_batches * pieces
    if schedule == "gpipe":
        return ((units,),)
    if schedule == "zbh1":
        return ((min(units, stages * pieces),),)
    if schedule == "dualpipe":  # Two directions: this stage's layers, and those of its mirror image.
        return ((min(micro_batches, stages - stage), min(micro_batches, stage + 1)),)
    return ((min(units, stages - stage - 1 + pieces),),)


def _interleaved(schedule: str, stages: int, chunks: int, micro_batches: int, stage: int) -> tuple[Vector, ...]:
    live, seen = [0] * chunks, set()
    for chunk, step in _operations(schedule, stages, chunks, micro_batches, stage):
        live[chunk] += step
        if step > 0:
            seen.add(tuple(live))
    kept: list[Vector] = []
    for vector in sorted(seen, key=sum, reverse=True):  # what exceeds a vector has a larger sum
        if not any(_below(vector, other) for other in kept):
            kept.append(vector)
    return tuple(sorted(kept))


def _operations(schedule: str, stages: int, chunks: int, micro_batches: int, stage: int) -> Iterator[tuple[int, int]]:
    """Forward (chunk, +1) and backward (chunk, -1) operations of a stage in the order of interleaved 1F1B.

    Groups of `stages` micro batches go through all chunks; those that are over join the first group, and the warm-up grows.
    """
    spare = micro_batches % stages if micro_batches >= stages else 0
    groups = [min(stages + spare, micro_batches)]
    groups += [stages] * ((micro_batches - groups[0]) // stages)
    forward = [chunk for size in groups for chunk in range(chunks) for _ in range(size)]
    backward = [chunk for size in groups for chunk in reversed(range(chunks)) for _ in range(size)]
    warm_up = chunks * stages - stage - 1 if schedule == "vpp_lm" else (chunks + 1) * stages - 2 * stage - 2
    warm_up = min(warm_up + spare * (chunks - 1), len(forward))
    yield from ((chunk, 1) for chunk in forward[:warm_up])
    for ahead, behind in zip(forward[warm_up:], backward, strict=False):
        yield ahead, 1
        yield behind, -1


def _below(vector: Vector, other: Vector) -> bool:
    return all(a <= b for a, b in zip(vector, other, strict=True))
