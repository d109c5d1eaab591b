"""Micro batches in flight against the live ones after every operation of the exact schedules."""

from __future__ import annotations

import itertools

import pytest

from perfkit.core.errors import InputError
from perfkit.predict.memory.in_flight import in_flight
from perfkit.predict.plans.schedule.order import SPLIT, lanes, shape_problems


def largest(lane, schedule, chunks):
    """The vectors of live micro batches by chunk that no other one exceeds."""
    live, seen = [0] * (2 if schedule == "dualpipe" else chunks), set()
    for op in itertools.chain.from_iterable(lane):
        if op.kind == "F":
            live[op.chunk] += 1
            seen.add(tuple(live))
        elif op.kind == ("W" if schedule in SPLIT else "B"):
            live[op.chunk] -= 1
    below = {one for one in seen for other in seen if one != other and all(a <= b for a, b in zip(one, other, strict=True))}
    return tuple(sorted(seen - below))


@pytest.mark.parametrize("schedule", ["gpipe", "1f1b", "zbh1", "vpp", "vpp_lm", "dualpipe"])
def test_they_are_those_of_the_order_of_operations(schedule):
    shapes = itertools.product((1, 2, 3, 4, 6), (2, 3) if schedule.startswith("vpp") else (1,), (1, 2, 3, 5, 8, 9, 12, 16, 17, 24))
    found = [shape for shape in shapes if not shape_problems(schedule, *shape)]
    assert len(found) >= 10
    for stages, chunks, micro_batches in found:
        exact = tuple(largest(lane, schedule, chunks) for lane in lanes(schedule, stages, chunks, micro_batches))
        assert in_flight(schedule, stages, chunks, micro_batches) == exact


def test_more_rounds_of_a_pipeline_change_nothing_but_the_remainder():
    for stages, chunks, rest in itertools.product((2, 4, 5), (2, 3), (0, 1)):
        few, many = 4 * stages + rest, 9 * stages + rest
        assert in_flight("vpp", stages, chunks, few) == in_flight("vpp", stages, chunks, many)


@pytest.mark.parametrize(("schedule", "chunks"), [("gpipe", 2), ("zbh1", 2), ("dualpipe", 3), ("none", 1)])
def test_a_schedule_that_does_not_fit_is_refused(schedule, chunks):
    with pytest.raises(InputError, match=schedule):
        in_flight(schedule, 4, chunks, 8)
