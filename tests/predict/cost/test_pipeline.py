"""The length of a pipeline schedule: equal to the simulation of its operations, whatever its stages take."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from perfkit.predict.cost.pipeline import FULL_GROUPS, pipeline_s
from perfkit.predict.plans.schedule.schedule import ScheduleCase, simulate_schedule
from tests.predict.cost.pipeline_by_hand import period_s

TIMES = st.integers(0, 1000)


def exact_ns(forward: np.ndarray, backward: np.ndarray, micro_batches: int) -> int:
    """The makespan of the operations, one by one; times have shape (chunks, stages)."""
    chunks, stages = forward.shape
    case = ScheduleCase(
        schedule="vpp" if chunks > 1 else "1f1b",
        num_stages=stages,
        num_chunks=chunks,
        num_microbatches=micro_batches,
        fwd_ns=tuple(map(tuple, forward.tolist())),
        bwd_ns=tuple(map(tuple, backward.tolist())),
    )
    return simulate_schedule(case).makespan_ns


def length(forward: np.ndarray, backward: np.ndarray, micro_batches: int) -> float:
    return with_sends(forward, backward, micro_batches, 0.0)


def with_sends(forward: np.ndarray, backward: np.ndarray, micro_batches: int, send: float) -> float:
    passes = (forward[None].astype(float) + send, backward[None].astype(float) + send)
    return float(pipeline_s(*passes, np.array([float(micro_batches)]), np.array([float(send)]))[0])


@given(st.data())
def test_1f1b_of_any_stages_is_as_long_as_its_operations(data):
    stages, micro_batches = data.draw(st.integers(1, 9)), data.draw(st.integers(1, 24))
    forward, backward = (np.array([data.draw(st.lists(TIMES, min_size=stages, max_size=stages))]) for _ in range(2))
    assert length(forward, backward, micro_batches) == exact_ns(forward, backward, micro_batches)


@given(st.data())
def test_1f1b_with_transfers_is_as_long_as_its_operations(data):
    stages, micro_batches, send = data.draw(st.integers(2, 7)), data.draw(st.integers(1, 16)), data.draw(st.integers(0, 300))
    forward, backward = (np.array(data.draw(st.lists(TIMES, min_size=stages, max_size=stages))) for _ in range(2))
    nothing = [0.0] * stages
    exact = period_s((forward, backward), send, micro_batches, (nothing, nothing))
    assert with_sends(forward[None], backward[None], micro_batches, send) == exact


@given(st.data())
def test_interleaved_chunks_that_differ_only_at_the_ends_are_as_long_as_their_operations(data):
    stages, chunks = data.draw(st.integers(2, 6)), data.draw(st.integers(2, 4))
    micro_batches = data.draw(st.integers(stages, 12 * stages))
    between, first, last = data.draw(st.integers(1, 1000)), data.draw(st.integers(0, 50)), data.draw(st.integers(50, 500))
    forward = np.full((chunks, stages), between)
    forward[0, 0] += first
    forward[-1, -1] += last
    assert length(forward, 2 * forward, micro_batches) == exact_ns(forward, 2 * forward, micro_batches)


@given(st.data())
def test_interleaved_chunks_of_any_times_are_as_long_as_their_operations_before_the_steady_state(data):
    stages, chunks = data.draw(st.integers(2, 5)), data.draw(st.integers(2, 4))
    micro_batches = data.draw(st.integers(stages, (FULL_GROUPS + 1) * stages - 1))
    times = st.lists(TIMES, min_size=stages * chunks, max_size=stages * chunks)
    forward, backward = (np.array(data.draw(times)).reshape(chunks, stages) for _ in range(2))
    assert length(forward, backward, micro_batches) == exact_ns(forward, backward, micro_batches)
    assert length(forward / 1e9, backward / 1e9, micro_batches) == pytest.approx(exact_ns(forward, backward, micro_batches) / 1e9)


def test_of_many_groups_of_micro_batches_the_first_ones_tell_the_rest():
    rng = np.random.default_rng(0)
    for stages, chunks, micro_batches in ((2, 2, 64), (4, 2, 129), (4, 4, 160), (8, 2, 256)):
        forward = rng.integers(2, 5, (chunks, stages)) * 1000
        backward = 2 * forward + rng.integers(0, 3, (chunks, stages)) * 1000
        assert length(forward, backward, micro_batches) == pytest.approx(exact_ns(forward, backward, micro_batches), rel=0.005)


@pytest.mark.parametrize(("stages", "chunks", "micro_batches"), [(4, 1, 8), (4, 2, 8), (8, 5, 32), (1, 3, 7), (1, 1, 5), (6, 1, 2)])
def test_equal_stages_take_all_micro_batches_and_one_pass_through_the_others(stages, chunks, micro_batches):
    forward = np.full((chunks, stages), 10)
    own = 30 * chunks
    assert length(forward, 2 * forward, micro_batches) == micro_batches * own + (stages - 1) * own / chunks


def test_by_hand_two_stages_and_two_micro_batches():
    """F0 F1 | F1.. : stage 0 runs F0 F1 B0 B1, stage 1 F0 B0 F1 B1; the path is F0(1) F0(4) B0(2) F1(4) B1(2) B1(3)."""
    assert length(np.array([[1, 4]]), np.array([[3, 2]]), 2) == 1 + 4 + 2 + 4 + 2 + 3


def test_fewer_micro_batches_than_stages_pass_through_all_chunks_one_behind_the_other():
    forward = np.full((2, 4), 10)
    assert length(forward, 2 * forward, 3) == 8 * 30 + 2 * 30


def test_a_wide_pipeline_is_bounded_by_the_path_through_one_stage():
    forward = np.full((8, 64), 10)
    forward[0, 3] = 11
    assert length(forward, forward, 640) >= 640 * 161
