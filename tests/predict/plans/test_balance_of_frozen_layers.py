"""Of a pipeline with frozen layers the balanced split is the fastest of all, by the estimate."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations

import numpy as np
import pytest

from perfkit.core import catalog
from perfkit.core.spec import TrainedLayers
from perfkit.core.texts import told
from perfkit.predict.estimate import efficiency_of, estimate, estimates
from perfkit.predict.plans.balance.from_plan import balanced, problem_of_plan
from perfkit.predict.plans.balance.measured_layers import LayerTime, with_layer_times
from tests.predict.test_trained_layers import of, plan_of

BALANCED = {
    "last 2 of 8": ("last 2", 8, {"pipeline_parallel_size": 4}),
    "last 3 of 12, recomputed": ("last 3, head", 12, {"pipeline_parallel_size": 4, "again": True}),
    "chunks": ("last 3", 9, {"pipeline_parallel_size": 2, "virtual_pipeline_parallel_size": 2}),
    "down to the embedding": ("last 3, input_gradients", 10, {"pipeline_parallel_size": 4}),
    "no layer": ("last 0, head", 9, {"pipeline_parallel_size": 4}),
    "first": ("first 3", 10, {"pipeline_parallel_size": 4}),
}


@pytest.mark.parametrize("name", BALANCED)
def test_no_split_of_frozen_layers_is_faster_than_the_balanced_one(name):
    """Every split of the layers, by the estimate; frozen layers in the first place have no backward pass, elsewhere they do."""
    text, layers, sizes = BALANCED[name]
    plan = plan_of(replace(catalog.model("llama2-7b"), num_layers=layers, trained_layers=TrainedLayers.of(text)), **sizes)
    found = balanced(problem_of_plan(plan, efficiency_of(plan)), time_limit_s=10)
    places = plan.parallel.pipeline_parallel_size * plan.parallel.virtual_pipeline_parallel_size
    splits = [np.diff((0, *borders, layers)) for borders in combinations(range(1, layers), places - 1)]
    rows = [split.reshape(-1, plan.parallel.pipeline_parallel_size).tolist() for split in splits]
    others = [replace(plan, parallel=replace(plan.parallel, layers_per_stage=tuple(map(tuple, row)))) for row in rows]
    fastest = min(one.step_time_s for one in estimates(others) if one.fits)
    assert found.status == "optimal"
    assert found.makespan_ns <= fastest * 1e9 * (1 + 1e-6)
    assert found.bound_ns == found.makespan_ns


def test_a_balanced_plan_of_the_last_layers_is_the_fastest_known_one():
    plan = plan_of(of("llama2-7b", "last 8"), data_parallel_size=2, pipeline_parallel_size=4)
    found = balanced(problem_of_plan(plan, efficiency_of(plan)), time_limit_s=10)
    known = estimate(replace(plan, parallel=replace(plan.parallel, layers_per_stage=((16, 7, 5, 4),))))
    assert (known.fits, found.status) == (True, "optimal")
    assert found.makespan_ns / 1e9 == pytest.approx(known.step_time_s, rel=1e-6)


def test_measured_layers_without_a_backward_pass_do_not_shorten_that_of_others():
    """Of 32 layers on 4 stages the first 8 have none; the frozen ones behind them take 3 ms, the trained ones 5."""
    plan = plan_of(of("llama2-7b", "last 8"), pipeline_parallel_size=4)
    backward_ns = {number: 0.0 if number < 8 else 3e6 if number < 24 else 5e6 for number in range(32)}
    found = problem_of_plan(plan, efficiency_of(plan))
    measured = with_layer_times(found, {number: LayerTime(2e6, back) for number, back in backward_ns.items()})
    assert [part.kinds["none"].bwd_ns for part in measured.problem.body] == [3_000_000, 5_000_000]
    assert [part.forward_first for part in measured.problem.body] == [True, False]
    assert [told(part.name, "zh") for part in measured.problem.body] == ["冻结层", "层"]
