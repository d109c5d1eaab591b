"""Throughput and utilization against the guides' published cases and their errata."""

from __future__ import annotations

import math

import pytest

from perfkit.core import catalog
from perfkit.core.errors import InputError
from perfkit.core.spec.recompute import RecomputePlan
from perfkit.core.spec.workload import Workload
from perfkit.predict.cost.flops import recompute_flops, training_flops
from perfkit.predict.cost.utilization import (
    evaluate_cases,
    guide_selective_hfu,
    hfu,
    judge_utilization,
    mfu,
    published_cases,
    samples_per_s,
    samples_per_s_per_device,
    solve_global_batch,
    tokens_per_s_per_device,
)

PEAK = 376e12
M7, M13, M70 = (catalog.model(name) for name in ("llama2-7b", "llama2-13b", "llama2-70b"))
WORK = Workload(seq_length=4096, micro_batch_size=1, global_batch_size=8)


def test_tokens_per_second_divide_by_all_devices():
    assert tokens_per_s_per_device(1024, 4096, 122.7266, 16) == pytest.approx(2136.0, abs=0.05)
    assert samples_per_s_per_device(1024, 122.7266, 16) == pytest.approx(0.52148, abs=5e-6)


def test_samples_per_second_of_the_whole_job():
    assert samples_per_s(4 * 2 * 32, 11.5) == pytest.approx(22.261, abs=5e-4)


@pytest.mark.parametrize("unknown", ["global_batch_size", "data_parallel_size", "micro_batch_size", "num_micro_batches"])
def test_any_one_unknown_of_the_global_batch_is_solved(unknown):
    values = {"global_batch_size": 256, "data_parallel_size": 4, "micro_batch_size": 2, "num_micro_batches": 32}
    assert solve_global_batch(**(values | {unknown: None})) == values


def test_a_batch_that_does_not_divide_says_what_it_would_need():
    with pytest.raises(InputError, match=r"250 is not divisible by 8: 31\.25 micro batches"):
        solve_global_batch(global_batch_size=250, data_parallel_size=4, micro_batch_size=2)


def test_all_problems_of_a_batch_are_listed():
    with pytest.raises(InputError) as error:
        solve_global_batch(data_parallel_size=0, micro_batch_size=-1)
    assert len(error.value.problems) == 3


@pytest.mark.parametrize(
    ("model", "speed", "attention", "head", "percent"),
    [
        (M7, 4695, "full", True, 57.545),
        (M7, 4695, "full", False, 56.563),
        (M13, 2562, "full", True, 59.400),
        (M13, 2562, "causal", True, 55.97),
        (M13, 2562, "causal", False, 55.301),
    ],
)
def test_mfu_in_every_convention(model, speed, attention, head, percent):
    value = mfu(training_flops(model, 4096, attention, head=head), speed, PEAK)
    assert 100 * value == pytest.approx(percent, abs=0.005)


def test_model_flops_per_second_of_7b():
    assert training_flops(M7, 4096).total * 4695 / 1e12 == pytest.approx(216.37, abs=0.005)


@pytest.mark.parametrize(
    ("recompute", "percent"), [(RecomputePlan(full_layers=((32,),)), 76.40), (RecomputePlan(attention_core=True), 60.23)]
)
def test_hfu_counts_the_work_done_again(recompute, percent):
    value = hfu(training_flops(M7, 4096), recompute_flops(M7, 4096, recompute), 4695, PEAK)
    assert 100 * value == pytest.approx(percent, abs=0.005)


def test_without_recomputation_hfu_is_mfu():
    work = training_flops(M7, 4096)
    assert hfu(work, recompute_flops(M7, 4096), 4695, PEAK) == mfu(work, 4695, PEAK)


def test_the_printed_pair_of_the_guide_needs_the_doubled_attention_term():
    value = guide_selective_hfu(M7, 4096, 4695, PEAK)
    assert 100 * value == pytest.approx(65.59, abs=0.005)
    assert value / mfu(training_flops(M7, 4096), 4695, PEAK) == pytest.approx(1.1398, abs=5e-5)


@pytest.mark.parametrize(
    ("value", "judgement"),
    [
        (2.33, "impossible"),
        (1.0001, "impossible"),
        (1.0, "suspicious"),
        (0.76, "suspicious"),
        (0.75, "plausible"),
        (0.0, "plausible"),
    ],
)
def test_utilization_is_judged(value, judgement):
    assert judge_utilization(value) == judgement


@pytest.mark.parametrize("value", [-0.1, math.nan])
def test_a_negative_or_missing_utilization_is_refused(value):
    with pytest.raises(InputError):
        judge_utilization(value)


def test_every_published_mfu_is_met_within_one_percent():
    cases = published_cases().dropna(subset=["mfu", "published_mfu"])
    assert set(cases["case"]) == {"llama2-7b", "llama2-13b-base", "llama2-13b-round-5"}
    assert cases["deviation"].abs().max() < 0.01


def test_the_published_hfu_is_met_within_one_percent():
    case = published_cases().dropna(subset=["hfu"]).iloc[0]
    assert case["hfu"] == pytest.approx(case["published_hfu"], rel=0.01)


def test_impossible_published_rows_are_flagged():
    cases = published_cases().set_index("case")
    assert list(cases.index[cases["judgement"] == "impossible"]) == ["llama2-70b", "qwen2-72b"]
    assert cases.loc["llama2-70b", "mfu_full"] == pytest.approx(2.33, abs=0.005)


def test_the_speed_that_a_printed_utilization_needs():
    cases = published_cases().set_index("case")
    assert cases.loc["llama2-70b-47", "implied_tokens_per_s_per_device"] == pytest.approx(398, abs=0.5)


def test_the_case_without_a_sequence_length_is_solved_for_it():
    case = published_cases().set_index("case").loc["pangu-38b-v3"]
    assert case["solved_seq_length"] == pytest.approx(4267, abs=1)
    stated = {row["case"]: row for row in catalog.published_rows()}["pangu-38b-v3"]
    with_4096 = evaluate_cases([{**stated, "seq_length": "4096"}], {}).iloc[0]
    assert with_4096["tokens_per_s_per_device"] == pytest.approx(712.3, abs=0.1)
    assert with_4096["mfu"] == pytest.approx(0.432, abs=5e-4)
    sizes = {name: int(stated[name]) for name in ("n_devices", "dp", "tp", "pp", "vpp", "micro_batch", "global_batch")}
    assert sizes["n_devices"] == sizes["dp"] * sizes["tp"] * sizes["pp"]
    assert sizes["global_batch"] // (sizes["micro_batch"] * sizes["dp"]) == 32
    assert (sizes["pp"] - 1) / (sizes["vpp"] * 32) == pytest.approx(0.0234, abs=1e-4)


def test_every_published_row_names_its_source():
    assert published_cases()["source"].str.len().min() > 10


@pytest.mark.parametrize("time_s", [0, -1, math.nan, math.inf])
def test_a_step_time_that_is_no_time_is_refused(time_s):
    with pytest.raises(InputError, match="step_time_s"):
        samples_per_s(8, time_s)
