"""Episodes by hand: which steps stand out of the others, when they come again, and what they cost."""

from __future__ import annotations

import math
from types import SimpleNamespace

import pandas as pd
import pytest

from perfkit.explain.diagnose.episodes import Episode, episode_of, price_ns, together


def by_step(*values: float) -> pd.Series:
    return pd.Series(values, index=range(len(values)))


@pytest.mark.parametrize(
    ("values", "least", "found"),
    [
        ((10, 10, 10, 30), 5, Episode((3,), 10.0, None)),
        ((30, 10, math.nan, 10, 10), 5, Episode((0,), 10.0, None)),
        ((10, 10, 10, 15), 5, Episode((3,), 10.0, None)),  # just as wide as asked
        ((10, 10, 10, 15), 5.5, None),
        ((10, 11, 12, 14), 1, None),  # 2 is no more than these differ among themselves
        ((10, 10, 12, 40, 44), 1, Episode((3, 4), 32 / 3, None)),
        ((10, 20), 1, Episode((1,), 10.0, None)),  # of two, one that takes twice as long
        ((10, 19), 1, None),
        ((1, 9), 5, None),  # twice the least is asked of two
        ((10,), 1, None),
        ((10, 10, 10, 12), 1, Episode((3,), 10.0, None)),
        ((10, 10, 30, 30, 30, 30, 30, 30, 30), 5, None),  # a third of the steps must be usual
        ((7, 7, 7, 7), 0.5, None),
        ((0, 0, 0, 21, 48, 50), 5, Episode((3, 4, 5), 0.0, None)),  # a part of a stop is hidden where a queue was full
        ((0, 0, 0, 10, 48, 50), 5, Episode((4, 5), 2.5, None)),  # less than a quarter of it is no part of it
        ((10, 14, 18, 22, 60), 3, Episode((4,), 16.0, None)),  # nor what differs as the usual steps do
    ],
)
def test_the_steps_beyond_the_widest_gap_are_an_episode_with_those_that_have_a_part_of_it(values, least, found):
    assert episode_of(by_step(*values), least) == found


@pytest.mark.parametrize(
    ("long", "period"),
    [((2, 5, 8), 3), ((0, 3, 6), 3), ((2, 5), None), ((3, 6), None), ((2, 5, 7), None), ((7, 8), None), ((4,), None)],
)
def test_an_episode_is_regular_if_it_comes_at_one_distance_from_begin_to_end(long, period):
    values = by_step(*(30 if step in long else 10 for step in range(9)))
    assert episode_of(values, 5) == Episode(long, 10.0, period)
    assert Episode(long, 10.0, period).evidence(values, 9) == {
        "steps_in_episode": float(len(long)),
        "steps_in_all": 9.0,
        "in_these_steps_ns": 30.0,
        "usual_ns": 10.0,
        **({"period_steps": float(period)} if period else {}),
    }


def case_of(steps: pd.DataFrame, **changes: object) -> SimpleNamespace:
    """What of a case tells what an episode costs."""
    mean_ns = float(steps.groupby("step")["duration_ns"].max().mean())
    settled = tuple(sorted(set(steps["step"])))
    parts = {"steps": steps, "step_ns": mean_ns, "replay": None, "moments": None, "settled_steps": settled}
    return SimpleNamespace(**parts | {"limit": lambda threshold: threshold.value} | changes)


@pytest.mark.parametrize(
    ("own_ns", "replay", "price"),
    [
        (400, None, 400),  # less than most of what the step grew by
        (900, None, 1000),  # most of it: the rest followed
        (2000, None, 1000),
        (900, object(), 900),  # a replay has followed what came of it
        (2000, object(), 1000),
    ],
)
def test_an_episode_costs_at_most_what_its_steps_are_longer(own_ns, replay, price):
    # Of four steps one takes 4,000 ns more than the median of the others on the slowest rank: 1,000 a step.
    rows = [(0, step, {0: 10_000, 1: 10_200, 2: 14_000, 3: 9_900}[step]) for step in range(4)]
    steps = pd.DataFrame([*rows, *((1, step, 5_000) for step in range(4))], columns=["rank", "step", "duration_ns"])
    case = case_of(steps, replay=replay)
    assert price_ns(case, (2,), own_ns) == price
    assert price_ns(case, (3,), own_ns) == 0  # shorter than the others


def test_of_what_was_found_whole_the_rest_is_how_steps_differ():
    steps = pd.DataFrame({"step": range(4), "duration_ns": [100, 100, 140, 100]})
    case = case_of(steps)
    assert price_ns(case, (2,), 8) == 10
    assert price_ns(case, (2,), 8, whole=True) == 8
    assert price_ns(case, (2,), 12, whole=True) == 10
    case.moments = object()  # a step timed anew tells what is lost, though another step be long for another reason
    assert price_ns(case, (2,), 12, whole=True) == 12
    assert price_ns(case, (2,), 8) == 10


def test_the_first_step_of_a_job_is_no_usual_one():
    steps = pd.DataFrame({"step": range(1, 5), "duration_ns": [220, 100, 140, 110]})
    case = case_of(steps, settled_steps=(2, 3, 4))
    assert price_ns(case, (3,), 20) == round((140 - 105) / 4)


def test_a_rank_joins_the_episode_of_more_ranks_if_it_stands_out_in_some_of_its_steps():
    found = together({rank: Episode(steps, 1.0, None) for rank, steps in enumerate([(1, 4), (1, 4), (1,), (4,), (2,)])})
    assert found == [((1, 4), (0, 1, 2, 3)), ((2,), (4,))]


def test_of_two_ranks_with_episodes_in_other_steps_neither_joins():
    assert together({0: Episode((1, 4), 1.0, None), 1: Episode((1,), 1.0, None)}) == [((1,), (1,)), ((1, 4), (0,))]


def test_what_an_episode_costs_is_no_matter_of_another_cause_in_other_steps():
    """Of six steps of 100 ms every second one is 30 ms longer, and two in a row 42 ms; the first is of a job's start."""
    lengths = [100 + 30 * (step % 2 == 0) + 42 * (step in (3, 4)) for step in range(1, 7)]
    case = case_of(pd.DataFrame({"step": range(1, 7), "duration_ns": lengths}), replay=object(), settled_steps=(2, 3, 4, 5, 6))
    assert price_ns(case, (2, 4, 6), 15) == 15
    assert price_ns(case, (3, 4), 14) == 14
    # It is still no more than the steps are longer.
    assert price_ns(case, (2, 4, 6), 60) == round((30 + 72 + 30) / 6)
