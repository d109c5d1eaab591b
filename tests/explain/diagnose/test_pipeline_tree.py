"""The decision tree of a pipeline, leaf by leaf, on the real recordings of pipelines, and why a leaf is reached by none of them.

There are two: `torch_npu_pp2dp2` (two stages of 14 layers, the head on the last; sends and receives are one call) and
`cluster_16card` (summaries of two stages of eight ranks). Leaves that neither reaches are reached by runs that are made for them.
"""

from __future__ import annotations

import importlib
from functools import cache

import pytest

from perfkit.core.resources import data_folder
from perfkit.explain.diagnose import diagnose
from perfkit.explain.diagnose.case import Case
from perfkit.explain.diagnose.rule import Finding, Healthy, NotMeasured
from perfkit.explain.diagnose.stages import again_ratio, talking_ns
from perfkit.record.load import load
from tests.explain.diagnose.test_real_samples import MORE

RECORDED = {"torch_npu_pp2dp2": MORE / "torch_npu_pp2dp2", "cluster_16card": data_folder() / "traces" / "cluster_16card"}
RULES = "tests.explain.diagnose.rules"


@cache
def verdict(recording: str, rule: str) -> Finding | Healthy | NotMeasured:
    found = diagnose(load(RECORDED[recording]))
    return next(one for one in (*found.findings, *found.healthy, *found.not_measured) if one.rule == rule)


def test_ranks_of_one_stage_are_compared_with_one_another_first():
    """Leaf 1: intervals as in data parallel. Both stages of each have equal ranks."""
    assert verdict("torch_npu_pp2dp2", "slow-rank").evidence["num_ranks"] == 2
    assert verdict("cluster_16card", "slow-rank").evidence["num_ranks"] == 16
    assert all(isinstance(verdict(name, "slow-rank"), Healthy) for name in RECORDED)


def test_the_spread_of_the_stages_is_asked_next():
    """Leaf 2: stage times apart by 5 % and more, or not."""
    apart, alike = (verdict(name, "stage-imbalance") for name in RECORDED)
    assert apart.evidence["stage_1_computing_ns"] > 1.7 * apart.evidence["stage_0_computing_ns"]
    assert isinstance(alike, Healthy)
    assert alike.evidence["largest_computing_over_mean"] < 0.05


def test_layers_are_moved_off_a_stage_with_more_work_minding_the_head():
    """Leaf 2a: as many layers, and the head is on the last stage; the layers to move leave stages of equal time."""
    found = verdict("torch_npu_pp2dp2", "stage-imbalance")
    assert found.evidence["largest_work_over_mean"] == 0
    moved = found.evidence["layers_to_move"]
    assert found.evidence["stage_1_computing_ns"] - moved * found.evidence["layer_ns"] == pytest.approx(
        found.evidence["balanced_stage_ns"], rel=0.01
    )


def test_the_bubble_is_told_by_the_ledger_where_sends_and_receives_are_one_call():
    """Leaf 3: the vendor counts a bubble of 0; two micro batches pass two stages, for which half of the work is due."""
    found = verdict("torch_npu_pp2dp2", "pipeline-bubble")
    assert isinstance(found, Healthy)
    assert (found.evidence["num_micro_batches"], found.evidence["expected_bubble_over_work"]) == (2, 0.5)
    assert 0 < found.evidence["least_bubble_over_work"] < 0.5
    # What the waiting is for: what fills the pipeline, and what the load of the other stage costs.
    waits = verdict("torch_npu_pp2dp2", "stage-imbalance").evidence
    assert waits["waiting_for_filling_ns"] > waits["waiting_for_stage_load_ns"] > waits["waiting_for_late_sends_ns"]


def test_micro_batches_are_counted_where_they_were_recorded_and_are_enough():
    """Leaf 4: a global batch of 4 for 2 replicas with micro batches of 1, as the origin of the recording says."""
    found = verdict("torch_npu_pp2dp2", "micro-less-than-stages")
    assert isinstance(found, Healthy)
    assert found.evidence == {"num_micro_batches": 2, "num_stages": 2}


@pytest.mark.parametrize("rule", ["pipeline-bubble", "micro-less-than-stages"])
def test_nothing_is_told_of_micro_batches_that_nobody_can_count(rule):
    """Leaves 3 and 4: summaries have no receives; what is missing is said."""
    found = verdict("cluster_16card", rule)
    assert isinstance(found, NotMeasured)
    assert found.missing == ("the number of micro batches",)
    assert found.how_to_collect


UNREACHED = {
    "2a, a stage with more layers": ("test_stage_imbalance", "test_the_stage_with_more_layers_is_named"),
    "2c, a stage whose ranks send more among themselves": (
        "test_stage_imbalance",
        "test_a_stage_whose_ranks_send_more_among_themselves_is_named",
    ),
    "2d, a stage that computes more layers again": (
        "test_stage_imbalance",
        "test_a_stage_that_computes_more_of_its_layers_again_is_told_so_and_priced",
    ),
    "2b, a slow rank inside of the stage": ("test_slow_rank", "test_one_slow_rank_of_a_stage_is_named_with_its_excess"),
    "2b, a stage with more work is none": ("test_slow_rank", "test_a_stage_with_more_work_is_no_slow_rank"),
    "3, the bubble that is due": ("test_pipeline_bubble", "test_the_bubble_that_the_schedule_needs_is_healthy_with_its_numbers"),
    "3, a longer one": ("test_pipeline_bubble", "test_waiting_of_all_stages_beyond_the_schedule_costs_what_it_is_too_long"),
    "3, stages that wait for a longer one": (
        "test_pipeline_bubble",
        "test_a_stage_that_waits_for_a_longer_one_is_not_the_schedules_fault",
    ),
    "4, fewer micro batches than stages": (
        "test_micro_less_than_stages",
        "test_fewer_micro_batches_than_stages_cost_what_a_step_of_as_many_takes_less",
    ),
}
"""Leaves to which no recording leads (equal layers, no slow rank, micro batches enough), and the test that reaches them."""


@pytest.mark.parametrize("leaf", UNREACHED)
def test_a_leaf_without_a_recording_is_reached_by_a_run_made_for_it(leaf):
    module, name = UNREACHED[leaf]
    assert callable(getattr(importlib.import_module(f"{RULES}.{module}"), name))
    assert all(isinstance(verdict(one, "slow-rank"), Healthy) for one in RECORDED)


def test_what_the_ranks_of_a_stage_send_among_themselves_is_compared():
    """Leaf 2c: both send 65.4 ms a step without waiting; gradients of the tied embedding, which cross stages, count for none."""
    found = talking_ns(Case(load(RECORDED["torch_npu_pp2dp2"])))
    assert found.tolist() == pytest.approx([65.42e6, 65.40e6], rel=1e-3)
    # Summaries have no operations; nothing is told of what was not recorded.
    assert talking_ns(Case(load(RECORDED["cluster_16card"]))).empty


def test_layers_that_a_stage_computes_again_are_counted():
    """Leaf 2d: neither stage computes a layer again."""
    assert again_ratio(Case(load(RECORDED["torch_npu_pp2dp2"]))).tolist() == [0, 0]
    assert again_ratio(Case(load(RECORDED["cluster_16card"]))).empty
    assert isinstance(verdict("torch_npu_pp2dp2", "recompute-cost"), Healthy)
