"""FLOPs by rank: of the plan, of the shapes of kernels, as a profiler states them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from perfkit.core.resources import data_folder
from perfkit.explain.rank_flops import flops_by_rank, flops_told, stage_flops
from perfkit.record.load import load
from tests.predict.simulate.plans import plan_of


def test_flops_of_a_longer_stage_stand_over_the_mean():
    plan = plan_of("gpt-7.5b", 32, micro=2, pp=4)
    uneven = replace(plan, parallel=replace(plan.parallel, layers_per_stage=((10, 10, 10, 6),)))
    by_stage = stage_flops(uneven)
    assert by_stage[0] == by_stage[1] == by_stage[2]
    assert sum(by_stage) == pytest.approx(sum(stage_flops(plan)))
    layer = by_stage[0] / 10
    assert by_stage[3] > 6 * layer  # the head


def test_flops_are_told_where_kernels_have_shapes_and_said_to_be_missing_elsewhere():
    shapes = flops_by_rank(load(data_folder() / "traces" / "torch_npu_2rank"))
    assert "from the shapes of its kernels" in flops_told(shapes)
    assert "not measured" in flops_told(flops_by_rank(load(data_folder() / "traces" / "cluster_16card")))


def test_flops_that_the_profiler_states_show_the_stage_with_more_work():
    # 107.1 GFLOP on the ranks of stage 0 and 329.6 on those of stage 1, whose mean is 218.4.
    folder = Path(__file__).parents[1] / "data" / "traces" / "mindinsight" / "cluster_propose"
    flops = flops_by_rank(load(folder))
    assert flops["basis"].unique().tolist() == ["profiler"]
    assert flops["flops"].tolist() == pytest.approx([107_146.763e6, 107_145.034e6, 329_608.369e6, 329_612.4e6])
    assert flops["over_mean"].tolist() == pytest.approx([0.4906, 0.4906, 1.5093, 1.5094], abs=1e-3)
    assert flops_told(flops).startswith("Rank 3 has most to do: 330 GFLOP a step, 1.509 x the mean")
