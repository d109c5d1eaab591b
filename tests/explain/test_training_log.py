"""Warm-up, statistics and the divisor of samples/s/p, on rows of the table `log`."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from perfkit.core import robust
from perfkit.core.errors import InputError
from perfkit.core.units import NS_PER_MS
from perfkit.explain.training_log import detect_divisor, step_statistics
from perfkit.record.load import load

SAMPLE = Path(__file__).parents[2] / "data/traces/logs/llama2_13b_8card_worker_0.log"
CANDIDATES = {"num_devices": 16, "data_parallel_size": 8}


def log_of(*durations_ms: int, rank: int = 0) -> pd.DataFrame:
    count = len(durations_ms)
    return pd.DataFrame(
        {
            "rank": [rank] * count,
            "step": range(1, count + 1),
            "line": range(1, count + 1),
            "duration_ns": [duration * NS_PER_MS for duration in durations_ms],
            "samples_per_s_per_device": [np.nan] * count,
            "tokens_per_s_per_device": [np.nan] * count,
            "flops_per_s_per_device": [np.nan] * count,
        }
    )


def test_the_sample_log_has_one_warmup_step_and_a_median_of_1755_ms():
    log = load(SAMPLE).frame("log")
    assert log["duration_ns"].tolist() == [103_328_000_000, 1_752_000_000, 1_754_000_000, 1_756_000_000, 1_758_000_000]
    assert robust.warm_up(log) == (1,)
    statistics = step_statistics(log, 1)
    assert (statistics.num_steps, statistics.num_warmup) == (4, 1)
    assert statistics.median_ns == 1_755_000_000
    assert statistics.first_ns == 103_328_000_000
    assert statistics.first_to_median == pytest.approx(58.88, abs=0.01)
    assert statistics.outlier_steps == ()
    assert statistics.flops_per_s_per_device == pytest.approx(170.421e12)
    assert statistics.samples_per_s_per_device is None


def test_without_warmup_the_median_of_the_sample_log_is_1756_ms():
    assert step_statistics(load(SAMPLE).frame("log"), 0).median_ns == 1_756_000_000


def test_statistics_are_exact_and_ordered():
    statistics = step_statistics(log_of(900, 100, 101, 102, 103, 104), 1)
    assert (statistics.median_ns, statistics.mad_ns) == (102_000_000, 1_000_000)
    assert statistics.p10_ns == 100_400_000
    assert statistics.p90_ns == 103_600_000


def test_an_outlier_is_further_than_three_scaled_mad():
    assert step_statistics(log_of(100, 102, 98, 101, 99, 100, 140), 0).outlier_steps == (7,)
    assert step_statistics(log_of(100, 102, 98, 101, 99, 100, 104), 0).outlier_steps == ()


def test_one_ms_more_in_an_even_log_is_no_outlier_because_logs_print_whole_ms():
    assert step_statistics(log_of(100, 100, 100, 100, 101), 0).outlier_steps == ()
    assert step_statistics(log_of(100, 100, 100, 100, 102), 0).outlier_steps == (5,)


def test_of_several_ranks_the_slowest_counts_in_each_step():
    both = pd.concat([log_of(100, 110, 100), log_of(105, 100, 103, rank=1)], ignore_index=True)
    statistics = step_statistics(both, 0)
    assert (statistics.num_steps, statistics.median_ns, statistics.first_ns) == (3, 105_000_000, 105_000_000)


@pytest.mark.parametrize("warmup", [3, -1])
def test_a_warmup_that_leaves_no_step_is_refused_with_the_numbers(warmup):
    with pytest.raises(InputError, match=rf"warmup = {warmup} must leave a step; the log has 3"):
        step_statistics(log_of(1, 2, 3), warmup)


def test_a_log_of_zero_ms_steps_has_no_ratio():
    assert step_statistics(log_of(0, 0), 0).first_to_median is None


@pytest.mark.parametrize(("logged", "name"), [(0.5215, "num_devices"), (1.0430, "data_parallel_size")])
def test_the_divisor_of_the_published_13b_run_is_found(logged, name):
    found = detect_divisor(logged, global_batch_size=1024, duration_ns=122_726_600_000, candidates=CANDIDATES)
    assert found is not None
    assert (found.name, found.size) == (name, CANDIDATES[name])
    assert abs(found.relative_error) < 1e-3


def test_a_number_that_no_divisor_explains_gives_none():
    assert detect_divisor(0.7, global_batch_size=1024, duration_ns=122_726_600_000, candidates=CANDIDATES) is None
    assert detect_divisor(0.7, global_batch_size=1024, duration_ns=122_726_600_000, candidates={}) is None


@settings(deadline=None)
@given(st.integers(1, 10_000), st.integers(1, 10**13), st.integers(1, 4096))
def test_the_divisor_that_made_the_number_is_recovered(batch, duration_ns, devices):
    logged = batch / (duration_ns / 1e9) / devices
    candidates = {"data_parallel_size": 2 * devices, "num_devices": devices}
    found = detect_divisor(logged, global_batch_size=batch, duration_ns=duration_ns, candidates=candidates)
    assert found is not None
    assert found.name == "num_devices"


def test_impossible_inputs_of_the_divisor_are_all_named():
    with pytest.raises(InputError) as error:
        detect_divisor(1.0, global_batch_size=0, duration_ns=-5, candidates={"num_devices": 0})
    assert error.value.problems == (
        "global_batch_size = 0 must be positive",
        "duration_ns = -5 must be positive",
        "num_devices = 0 must be positive",
    )
