"""Robust statistics against hand-made numbers, and one warm-up cut for every reader of a run."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from perfkit.core import robust

MS = 1_000_000


def test_a_sigma_is_that_of_a_normal_distribution_and_ignores_what_is_odd():
    values = np.random.default_rng(7).normal(40, 3, 20_001)
    assert robust.sigma(values) == pytest.approx(3, rel=0.02)
    assert robust.sigma([*values, *[1e9] * 500]) == pytest.approx(3, rel=0.06)


def test_distances_by_hand():
    assert robust.mad([1, 2, 4, 8, 100]) == 3  # from 4: 3, 2, 0, 4, 96
    assert robust.mad([1, 2, 4, 8, 100], middle=0) == 4
    assert robust.sigma([1, 2, 4, 8, 100]) == pytest.approx(4.4478)
    assert robust.mad([]) == robust.mad([7.0]) == 0


def test_the_median_of_times_is_exact_beyond_what_a_float_holds():
    epoch_ns = 1_767_225_600_000_000_001
    assert robust.median_ns([epoch_ns + 2, epoch_ns, epoch_ns + 1]) == epoch_ns + 1
    assert robust.median_ns([epoch_ns, epoch_ns + 3]) == epoch_ns + 1


@pytest.mark.parametrize(
    ("durations_ms", "cut"),
    [
        ([95_000, 1_000, 1_020, 980], 1),
        ([95_000, 4_000, 1_000, 1_020, 980, 1_010], 2),
        ([1_000, 1_000, 1_000, 1_000], 0),
        ([1_490, 1_000, 1_000, 1_000], 0),
        ([1_510, 1_000, 1_000, 1_000], 1),
        ([157_149, 8_266], 1),
        ([95_000], 0),
        ([], 0),
        ([500, 1_000, 1_000, 1_000], 0),
        ([1_000, 95_000, 1_000, 1_000], 0),
        ([2_000, 1_000, 500, 1_500], 0),  # median 1 000, MAD 500: five standard deviations are 3 706
        ([5_000, 1_000, 500, 1_500], 1),
        ([9_000, 9_000, 9_000, 1_000, 1_000, 1_000], 3),
    ],
)
def test_warm_up_is_what_the_second_half_does_not_explain(durations_ms, cut):
    assert robust.warm_up_steps([duration * MS for duration in durations_ms]) == cut


@settings(deadline=None)
@given(st.lists(st.integers(0, 10**15), max_size=30), st.integers(1, 1000))
def test_warm_up_leaves_half_of_the_steps_in_any_unit_of_time(durations_ns, factor):
    cut = robust.warm_up_steps(durations_ns)
    assert 0 <= cut <= len(durations_ns) // 2
    assert robust.warm_up_steps([duration * factor for duration in durations_ns]) == cut


def test_of_several_ranks_the_median_one_says_whether_a_step_is_warm_up():
    rows = [{"rank": rank, "step": step, "duration_ns": 100} for rank in range(3) for step in (1, 2, 3, 4)]
    steps = pd.DataFrame(rows)
    steps.loc[(steps["step"] == 1) & (steps["rank"] == 0), "duration_ns"] = 900
    assert robust.warm_up(steps) == ()
    steps.loc[(steps["step"] == 1) & (steps["rank"] == 1), "duration_ns"] = 900
    assert robust.warm_up(steps) == (1,)


def test_outliers_are_beyond_three_standard_deviations_and_the_least_that_counts():
    values = [100, 102, 98, 101, 99, 100, 140, 60]
    assert robust.outliers(values, least=0).tolist() == [False] * 6 + [True, True]
    assert robust.outliers(values, least=39).tolist() == [False] * 6 + [True, True]
    assert robust.outliers(values, least=40).tolist() == [False] * 8
    # From the median 100 the distances are 0, 2, 2, 1, 1, 0: a MAD of 1, so three standard deviations are 4.45.
    assert robust.outliers([100, 102, 98, 101, 99, 100, 104], least=0).tolist() == [False] * 7
    assert robust.outliers([100, 102, 98, 101, 99, 100, 105], least=0).tolist() == [False] * 6 + [True]
    assert not robust.outliers([1, 1, 9], least=0).any()
    assert robust.outliers([1, 1, 1, 9], least=0).tolist() == [False, False, False, True]


def test_a_change_is_real_beyond_three_standard_errors_and_the_noise_ratio():
    # 3 x 1.4826 x 1 / sqrt(9) = 1.4826
    assert robust.is_real_change(100, 101.49, num_samples=9, median_abs_devs=(1, None))
    assert not robust.is_real_change(100, 101.48, num_samples=9, median_abs_devs=(1, None))
    assert robust.is_real_change(100, 98.51, num_samples=9, median_abs_devs=(None, 1))
    assert robust.is_real_change(100, 101.1, num_samples=9, median_abs_devs=())
    assert not robust.is_real_change(100, 101.0, num_samples=9, median_abs_devs=(0.0,))
    assert not robust.is_real_change(-100, -100.9, num_samples=9, median_abs_devs=(0.0,))
    assert not robust.is_real_change(100, 110, num_samples=1, median_abs_devs=(1, 4))
    assert robust.is_real_change(100, 110, num_samples=0, median_abs_devs=(2,))
    assert not robust.is_real_change(100, 104, num_samples=9, median_abs_devs=(0.1,), noise_ratio=0.05)


@pytest.mark.parametrize(("numbers", "cut"), [((15, 16, 17, 18), ()), ((10, 20, 30, 40), (10,)), ((4, 5, 6, 7), (4,))])
def test_a_recording_that_begins_late_has_no_warm_up_unless_its_first_row_stands_for_the_first_steps(numbers, cut):
    rows = pd.DataFrame({"rank": 0, "step": numbers, "duration_ns": (900, 100, 100, 100)})
    assert robust.warm_up(rows) == cut
