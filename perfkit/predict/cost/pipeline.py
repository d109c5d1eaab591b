"""Pipeline: the length of a pipeline schedule for stages that take different times, for many plans at once.

1F1B (arXiv 2104.04473) is a graph of operations in which every path but those that fill and drain has one operation a slot. A
path that leaves a stage and comes back to it takes as many slots as it would on that stage, so the longest path fills the pipeline,
works on one stage, and drains it:

    length = max over stages s of enter(s) + (m - 2 - ahead(s)) (forward(s) + backward(s)) + leave(s)

`enter(s)` is the end of the first backward of s: forwards alone, which are a flow line of equal jobs (sum of the stages plus one
longest stage for every further job), up to a stage r at or above s, and backwards down to s. `leave(s)` is the same from the other
end. A stage that runs all its forwards before its first backward may hold up all micro batches at either end of the schedule. Where
a path leaves the first stage upwards or the last one downwards, it does not wait for the transfer that the stage waits for.

The interleaved schedule has such a form where the groups of micro batches are whole and all chunks take equal times but the first
and the last one (embedding and head): the path through one stage decides. Else its operations are timed one by one; of many groups
of micro batches only the first ones, since a group adds the same time as soon as the pipeline is full.
"""

from __future__ import annotations

import numpy as np

from perfkit.core.plan_columns import Flags, Floats
from perfkit.predict.plans.schedule.compile import compile_schedule
from perfkit.predict.plans.schedule.longest import makespans
from perfkit.predict.plans.schedule.order import shape_problems

FULL_GROUPS = 12
"""Groups of as many micro batches as stages after which a pipeline with chunks is taken to be in its steady state."""
LEAST_GROUPS = 2
MOST_OPERATIONS = 20_000
"""Operations that are timed one by one; of a wider pipeline fewer groups are, and none where two of them are more."""
EQUAL = 1e-9
"""Relative difference of times that are the same but for rounding."""


def pipeline_s(forward: Floats, backward: Floats, micro_batches: Floats, send: Floats) -> Floats:
    """Seconds from the first forward to the last backward, of plans with equal numbers of chunks and stages.

    `forward` and `backward` are those of one micro batch, shape (plans, chunks, stages). Each has the transfer (`send`) that its
    stage waits for: to receive or, where nothing is received, at either end of the pipeline, to send. Such a send is none on the
    way to the next stage, which receives meanwhile.
    """
    if forward.shape[2] == 1:
        return np.asarray(micro_batches * (forward + backward).sum(axis=(1, 2)))
    if forward.shape[1] > 1:
        # The last backward pass of the last stage is that of its first chunk, which receives.
        whole = _interleaved_s(forward, backward, micro_batches) - send
    else:
        whole = _one_forward_one_backward_s(forward[:, 0], backward[:, 0], micro_batches[:, None], send[:, None])
    return np.asarray(np.maximum(whole, micro_batches * (forward + backward).sum(axis=1).max(axis=1)))


def _one_forward_one_backward_s(forward: Floats, backward: Floats, m: Floats, send: Floats) -> Floats:
    stages = np.arange(forward.shape[1])
    ahead, first, final = stages[::-1], stages == 0, stages == len(stages) - 1
    own, last = forward + backward, m - 1
    filled, filling = _line_s(forward, np.minimum(ahead, last))
    drained, draining = _line_s(backward, np.minimum(ahead, last))
    left, returned = send * ~first, send * final
    enter = _turn_s(filled - left - returned, backward) + returned
    leave = np.maximum(_turn_s(drained - returned, forward) - send * first, np.where(first, drained + forward, 0.0))
    steady = enter + leave + (m - 2 - ahead) * own
    below, above = np.cumsum(forward, axis=1) - left, np.cumsum(backward, axis=1) - returned
    alone = np.maximum(enter - backward + above + last * draining, leave - forward + below + last * filling)
    return np.asarray(np.where(m - 2 >= ahead, steady, alone).max(axis=1))


def _line_s(stage_s: Floats, jobs: Floats) -> tuple[Floats, Floats]:
    """End of `jobs` + 1 equal jobs behind one another on every stage of a line, and the longest stage up to there."""
    longest = np.maximum.accumulate(stage_s, axis=1)
    return np.cumsum(stage_s, axis=1) + jobs * longest, longest


def _turn_s(reached: Floats, back: Floats) -> Floats:
    """The latest way up to some stage at or above each one and `back` down to it, with its own time back."""
    down = np.cumsum(back, axis=1)
    latest = np.maximum.accumulate((reached + down)[:, ::-1], axis=1)[:, ::-1]
    return np.asarray(latest - down + back)


def _interleaved_s(forward: Floats, backward: Floats, micro_batches: Floats) -> Floats:
    stages, found = forward.shape[2], _through_one_stage_s(forward, backward, micro_batches)
    most = min(FULL_GROUPS, MOST_OPERATIONS // (2 * forward.shape[1] * stages**2))
    if most < LEAST_GROUPS:
        return found
    unequal = ~_ends_differ_only(forward, backward) | (micro_batches % stages != 0)
    left = np.maximum(np.floor(micro_batches / stages) - most, 0.0)
    timed = (micro_batches - left * stages).astype(np.int64)
    for m in np.unique(timed[unequal]).tolist():
        rows = unequal & (timed == m)
        if shape_problems("vpp", stages, forward.shape[1], m):
            continue
        times = np.stack([forward[rows], backward[rows]], axis=1)
        whole = _timed_s(times, m)
        if left[rows].any():
            whole = whole + left[rows] * (whole - _timed_s(times, m - stages))
        found[rows] = np.maximum(found[rows], whole)
    return found


def _ends_differ_only(forward: Floats, backward: Floats) -> Flags:
    """Whether all chunks take equal times but the first and the last one, and the last one takes at least as long as the first."""
    found = np.ones(len(forward), dtype=np.bool_)
    for times in (forward.reshape(len(forward), -1), backward.reshape(len(backward), -1)):
        between = times[:, 1:-1]
        equal = np.isclose(between, between[:, :1], rtol=EQUAL, atol=0.0).all(axis=1)
        found &= equal & (times[:, -1] >= times[:, 0]) & (times[:, 0] >= between[:, 0] * (1 - EQUAL))
    return found


def _timed_s(times: Floats, m: int) -> Floats:
    """The interleaved schedule of `m` micro batches; times have shape (plans, 2, chunks, stages)."""
    plans, _, chunks, stages = times.shape
    dag = compile_schedule("vpp", stages, chunks, m)
    table = np.zeros((dag.num_rows, plans))
    table[: 2 * chunks * stages] = times.reshape(plans, -1).T
    return makespans(dag, table)


def _through_one_stage_s(forward: Floats, backward: Floats, m: Floats) -> Floats:
    """What fills a stage with the first group, all of its work, and what drains it of the last group, for the slowest stage.

    With fewer micro batches than stages, for which there is no such schedule, they pass through all chunks one after another.
    """
    stages, own = forward.shape[2], (forward + backward).sum(axis=1)
    groups = np.maximum(np.floor(m / stages), 1.0)
    last = stages - 1 + np.where(groups == 1, m % stages, 0.0)
    fill = _ahead_s(forward[:, 0], (stages - 1 + m % stages)[:, None])
    drain = _ahead_s(backward[:, 0], last[:, None])
    through = (fill + drain + m[:, None] * own).max(axis=1)
    passing = own.sum(axis=1) + (m - 1) * (forward.max(axis=(1, 2)) + backward.max(axis=(1, 2)))
    return np.asarray(np.where(m < stages, passing, through))


def _ahead_s(stage_s: Floats, jobs: Floats) -> Floats:
    """How long a stage waits in all for `jobs` + 1 equal jobs that pass through the stages before it."""
    longest = np.maximum.accumulate(stage_s, axis=1)
    return np.asarray(np.cumsum(stage_s, axis=1) - stage_s + jobs * (longest - stage_s))
