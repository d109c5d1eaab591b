"""The replay wins what the step would win: no more than what the kernels and the other messages leave."""

import numpy as np
import pandas as pd
import pytest

from perfkit.explain.diagnose._replay import replay_of

MS = 1_000_000


def members(rows):
    """Rows of (rank, operation, instance, group, start ms, end ms)."""
    table = pd.DataFrame(rows, columns=["rank", "operation", "instance", "group", "start", "end"])
    start = (table["start"] * MS).astype("int64")
    return table.assign(step=1, start_ns=start, duration_ns=(table["end"] * MS).astype("int64") - start).drop(
        columns=["start", "end"]
    )


def kernels(spans):
    rows = [(rank, 1, round(start * MS), round((end - start) * MS)) for rank in (0, 1) for start, end in spans]
    return pd.DataFrame(rows, columns=["rank", "step", "start_ns", "duration_ns"])


def nothing():
    return pd.DataFrame({name: pd.Series(dtype="int64") for name in ("rank", "start_ns", "duration_ns", "fraction")})


def test_of_two_gradients_only_the_one_that_is_not_hidden_can_be_won():
    # Computing lasts 0 to 10 ms. The first gradient (2 to 6) ends behind it; the second is ready at 10 and takes 4 ms.
    rows = [(rank, "all_reduce", 0, "data", 2, 6) for rank in (0, 1)] + [(rank, "all_reduce", 1, "data", 10, 14) for rank in (0, 1)]
    replay = replay_of(members(rows), kernels([(0, 10)]))
    assert replay.won_ns(nothing(), {0: 3 * MS}) == pytest.approx(0)
    assert replay.won_ns(nothing(), {1: 3 * MS}) == pytest.approx(3 * MS)
    assert replay.won_ns(nothing(), {0: 3 * MS, 1: 3 * MS}) == pytest.approx(3 * MS)


def test_a_gradient_that_waits_in_its_queue_starts_earlier_but_not_before_it_is_ready():
    # The second gradient is ready at 8 ms, when the first one still moves: it starts at 12.
    rows = [(rank, "all_reduce", 0, "data", 2, 12) for rank in (0, 1)] + [
        (rank, "all_reduce", 1, "data", 12, 15) for rank in (0, 1)
    ]
    replay = replay_of(members(rows), kernels([(0, 8)]))
    assert replay.won_ns(nothing(), {0: 3 * MS}) == pytest.approx(3 * MS)
    assert replay.won_ns(nothing(), {0: 9 * MS}) == pytest.approx(4 * MS), "its kernels end at 8 ms"


def test_a_faster_rank_wins_up_to_the_next_slowest():
    # Rank 0 computes 10 ms, rank 1 for 7: both meet at 10.
    rows = [(0, "all_reduce", 0, "world", 10, 11), (1, "all_reduce", 0, "world", 7, 11)]
    computing = pd.DataFrame({"rank": [0, 1], "step": [1, 1], "start_ns": [0, 0], "duration_ns": [10 * MS, 7 * MS]})
    replay = replay_of(members(rows), computing)
    for fraction, won in ((0.2, 2 * MS), (0.5, 3 * MS)):
        assert replay.won_ns(computing[:1].assign(fraction=fraction)) == pytest.approx(won)


def test_without_any_change_the_recorded_times_come_out():
    random = np.random.default_rng(0)
    rows, at = [], 0.0
    for instance in range(20):
        starts = at + random.uniform(1, 3, 2)
        at = float(starts.max() + random.uniform(0.5, 2))
        rows += [(rank, "all_reduce", instance, str(instance % 3), starts[rank], at) for rank in (0, 1)]
    assert replay_of(members(rows), kernels([(0, 1)])).won_ns(nothing()) == pytest.approx(0)


def test_a_faster_send_lets_the_next_one_start_when_it_is_ready():
    # Rank 0 computes two micro batches (0 to 4, 4 to 5); the second send is ready at 5 ms and waits for the first until 8.
    rows = [(0, "send", 0, "pair", 4, 8), (1, "receive", 0, "pair", 0, 8)]
    rows += [(0, "send", 1, "pair", 8, 12), (1, "receive", 1, "pair", 8, 12)]
    computing = pd.DataFrame({"rank": [0, 0], "step": [1, 1], "start_ns": [0, 4 * MS], "duration_ns": [4 * MS, MS]})
    replay = replay_of(members(rows), computing)
    assert replay.won_ns(nothing(), {0: 3 * MS}) == pytest.approx(3 * MS)
    assert replay.won_ns(nothing(), {0: 3 * MS, 1: 3 * MS}) == pytest.approx(6 * MS)


def test_a_gradient_in_its_queue_is_ready_where_the_program_has_it_though_one_member_has_gone_on():
    # Both gradients follow the first and second kernel. Rank 0 is a kernel and an operation further when the second one starts.
    rows = [(rank, "all_reduce", 0, "data", 2, 7) for rank in (0, 1)] + [(rank, "all_reduce", 1, "data", 7, 13) for rank in (0, 1)]
    rows += [(0, "all_gather", 2, "a", 2, 3), (0, "all_gather", 3, "a", 5, 6), (0, "all_gather", 4, "a", 6.5, 6.9)]
    rows += [(1, "all_gather", 5, "b", 2, 3), (1, "all_gather", 6, "b", 6.8, 7.3)]
    spans = [(0, 0, 2), (0, 3, 5), (0, 6, 6.5), (0, 6.9, 12), (1, 0, 2), (1, 3, 6.8), (1, 7.3, 12), (1, 12, 12.5)]
    computing = pd.DataFrame(
        [(rank, 1, round(start * MS), round((end - start) * MS)) for rank, start, end in spans],
        columns=["rank", "step", "start_ns", "duration_ns"],
    )
    replay = replay_of(members(rows), computing)
    assert replay.won_ns(nothing()) == pytest.approx(0)
    assert replay.won_ns(nothing(), {0: 4 * MS}) == pytest.approx(0.2 * MS), "rank 1 is ready at 6.8 ms"
    late = computing[(computing["rank"] == 1) & (computing["start_ns"] == 3 * MS)].assign(fraction=1.8 / 3.8)
    assert replay.won_ns(late, {0: 4 * MS}) == pytest.approx(2 * MS), "both are ready at 5 ms"


def test_gradients_of_a_queue_that_never_emptied_have_come_evenly():
    # Computing lasts 0 to 12 ms in kernels of 1 ms. Four gradients take 6 ms each, from 3 ms on, and are ready every 3 ms.
    rows = [(rank, "all_reduce", number, "data", 3 + 6 * number, 9 + 6 * number) for rank in (0, 1) for number in range(4)]
    replay = replay_of(members(rows), kernels([(start, start + 1) for start in range(12)]))
    faster = dict.fromkeys(range(4), 5 * MS)
    assert replay.won_ns(nothing(), faster) == pytest.approx((27 - 13) * MS), "the last one is ready at 12 ms, and takes 1"
    assert replay.won_ns(nothing(), dict.fromkeys(range(4), 3 * MS)) == pytest.approx((27 - 15) * MS)
