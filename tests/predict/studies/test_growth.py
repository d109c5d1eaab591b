"""Growth: figures are those of the predicted plans, linearity is against the smallest that works."""

from __future__ import annotations

from dataclasses import replace

import pytest

from perfkit.config.presets import published_plan
from perfkit.predict.changes import changed_plan
from perfkit.predict.estimate import estimate
from perfkit.predict.studies.growth import DEVICES, growth, growth_told


def test_it_goes_from_8_to_16384_devices(plan):
    frame = growth(plan)
    assert list(frame["num_devices"]) == list(DEVICES)
    assert (DEVICES[0], DEVICES[-1]) == (8, 16_384)
    assert frame["linearity"].iloc[0] == 1
    assert (frame["linearity"].diff().dropna() < 0).all()


def test_a_row_is_the_prediction_of_that_plan(plan):
    row = growth(plan, [16]).iloc[0]
    assert row["step_time_s"] == estimate(plan).step_time_s
    assert row["tokens_per_s"] == pytest.approx(plan.tokens_per_step / row["step_time_s"])


def test_a_batch_that_stays_scales_worse_than_one_that_grows(plan):
    weak, strong = growth(plan, [8, 256]), growth(plan, [8, 256], batch="stays")
    assert set(strong["global_batch_size"]) == {1024}
    assert list(weak["num_micro_batches"]) == [128, 128]
    assert strong["linearity"].iloc[1] < weak["linearity"].iloc[1]


def test_numbers_that_do_not_work_say_why_and_the_next_one_is_the_base(plan):
    wide = replace(plan, parallel=replace(plan.parallel, pipeline_parallel_size=4, data_parallel_size=4, optimizer_shard_size=4))
    frame = growth(wide, [2, 16, 32])
    assert "no multiple of the 4" in frame["note"].iloc[0]
    assert frame["linearity"].iloc[1] == 1


def test_whole_sharding_follows_the_replicas(plan):
    frame = growth(plan, [16, 32])
    assert frame["peak_memory_bytes"].iloc[1] < frame["peak_memory_bytes"].iloc[0]


def test_growth_is_told_in_a_sentence():
    plan = changed_plan(published_plan("llama2-13b"), device="Ascend-910B2", recompute="all layers")
    assert "From 8 to 16\u2009384 devices" in growth_told(growth(plan, memory=False))
    stays = changed_plan(plan, global_batch_size=1024)
    assert "falls below 80 %" in growth_told(growth(stays, batch="stays", memory=False))
    assert growth_told(growth(plan, [3], memory=False)).startswith("No number of devices works: ")
