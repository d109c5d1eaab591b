"""What-if of taking an injected fault away agrees with simulating without it; no change gives what was recorded."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from importlib import import_module
from statistics import fmean

import numpy as np
import pytest

from perfkit.core.errors import InputError
from perfkit.core.spec.recompute import RecomputePlan
from perfkit.explain.what_if import what_if
from perfkit.explain.what_if._changes import parse_changes
from perfkit.explain.what_if._plans import changed_plan
from perfkit.explain.what_if._steps import steps_of
from perfkit.predict.simulate import simulate
from perfkit.predict.simulate.run import prepare
from tests.predict.simulate.plans import TINY, plan_of

LIMIT = 0.03
SMALL = replace(TINY, model=replace(TINY.model, num_layers=2), workload=replace(TINY.workload, global_batch_size=8))


@cache
def simulated(*faults):
    return simulate(SMALL, faults, steps=3)


@cache
def true_ns(*faults):
    return true_ns_of(SMALL, *faults)


def true_ns_of(plan, *faults):
    return fmean(prepare(plan, faults, steps=3).durations_ns())


@pytest.mark.parametrize(
    ("fault", "change"),
    [
        ("slow_rank:5:1.3", "rank:5"),
        ("slow_rank:5:1.5:1:1", "rank:5"),
        ("slow_op:MatMulV3:1.5", "operator:MatMulV3:1.5"),
        ("slow_link:0-2:3", "link:0-2"),
        ("slow_link:0-4:8", "link:0-4"),
        ("data_stall:3:40", "data:3"),
        ("data_stall:all:40", "data"),
        ("data_stall:2:60:2", "data"),
        ("host_bound:2:4", "host:2"),
    ],
)
def test_taking_a_fault_away_gives_the_step_without_it(fault, change):
    found = what_if(simulated(fault), change)
    expected = true_ns()
    limit = 0.07 if (fault, change) == ("data_stall:all:40", "data") else LIMIT  # the usual fetch goes too where all are alike
    assert found.step_ns == pytest.approx(expected, rel=limit)
    assert found.before_ns == pytest.approx(true_ns(fault), rel=1e-6)
    assert found.low <= found.step_ns <= found.high
    assert found.step_ns < found.before_ns


def test_two_faults_are_taken_away_together_and_one_leaves_the_other():
    run = simulated("slow_rank:5:1.3", "slow_link:0-2:3")
    assert what_if(run, ["rank:5", "link:0-2"]).step_ns == pytest.approx(true_ns(), rel=LIMIT)
    assert what_if(run, "rank:5").step_ns == pytest.approx(true_ns("slow_link:0-2:3"), rel=LIMIT)


def test_without_a_change_the_steps_are_the_recorded_ones():
    run = simulated("slow_rank:5:1.3")
    steps = steps_of(run)
    again = steps.timed(steps.graph.nodes["duration_ns"].to_numpy(dtype=np.int64))
    recorded = run.steps().groupby("step")["duration_ns"].max().to_list()
    assert again.durations_ns.tolist() == steps.durations_ns.tolist() == recorded


def test_the_breakdown_and_the_path_add_up():
    found = what_if(simulated("slow_rank:5:1.3"), "rank:5")
    assert sum(found.breakdown.parts.values()) == found.step_ns
    assert sum(found.before.parts.values()) == found.before_ns
    assert set(found.breakdown.parts) <= {"computing", "communication", "bubble", "free"}
    ends = found.path["start_ns"] + found.path["duration_ns"]
    assert (ends[:-1].to_numpy() == found.path["start_ns"][1:].to_numpy()).all()
    assert found.won_ns == found.before_ns - found.step_ns > 0
    assert what_if(simulated("slow_rank:5:1.3"), "rank:5").to_dict() == found.to_dict()


def test_slower_operators_make_the_step_longer():
    run = simulated()
    assert what_if(run, "operator:MatMul*:0.5").step_ns > what_if(run, "operator:MatMul*:1").step_ns == true_ns_rounded(run)


def true_ns_rounded(run):
    return round(float(run.steps().groupby("step")["duration_ns"].max().mean()))


def test_one_more_micro_batch_agrees_with_simulating_it():
    found = what_if(simulated(), "micro-batches:+1")
    batch = SMALL.workload.global_batch_size // 2 * 3
    after = replace(SMALL, workload=replace(SMALL.workload, global_batch_size=batch))
    assert found.step_ns == pytest.approx(true_ns_of(after), rel=LIMIT)
    assert found.low < found.step_ns < found.high


def test_another_split_keeps_the_devices():
    found = what_if(simulated(), "tp:1")
    assert any("data_parallel_size 2 -> 4" in sentence for sentence in found.sentences)
    after = replace(SMALL, parallel=replace(SMALL.parallel, tensor_parallel_size=1, data_parallel_size=4))
    assert found.low <= true_ns_of(after) <= found.high


def test_all_changes_that_do_not_fit_are_refused_together():
    run = replace(simulated(), plan=None)
    with pytest.raises(InputError) as caught:
        what_if(run, ["rank:99", "link:0-7", "operator:NoSuch:2", "recompute:off"])
    assert len(caught.value.problems) == 4


def test_a_plan_that_is_so_already_is_told():
    with pytest.raises(InputError, match="like that already"):
        what_if(simulated(), "recompute:off")


def test_overlap_agrees_with_simulating_hidden_gradients(monkeypatch):
    plan = plan_of("gpt-7.5b", 8, dp=4)
    plan = replace(plan, model=replace(plan.model, num_layers=4))
    found = what_if(simulate(plan, steps=2), "overlap")
    module = import_module("perfkit.predict.simulate.run")
    known = module.efficiency_of
    monkeypatch.setattr(module, "efficiency_of", lambda *args: replace(known(*args), gradients_hidden=1.0))
    expected = true_ns_of(plan)
    assert found.step_ns == pytest.approx(expected, rel=LIMIT)
    assert found.low <= expected <= found.high
    assert found.before_ns > 1.05 * expected


def test_faults_of_inner_stages_of_a_long_pipeline_are_taken_away():
    plan = plan_of("gpt-7.5b", 4, pp=4)
    plan = replace(plan, model=replace(plan.model, num_layers=4))
    for fault, change in (("data_stall:2:60", "data:2"), ("slow_op:MatMulV3:3", "operator:MatMulV3:3")):
        assert what_if(simulate(plan, [fault]), change).step_ns == pytest.approx(true_ns_of(plan), rel=0.005)


@pytest.mark.parametrize("micro_batches", [4, 16])
def test_recomputed_layers_by_stage_change_the_step_as_a_simulation_of_the_new_plan_does(micro_batches):
    plan = plan_of("gpt-7.5b", 4 * micro_batches, micro=2, dp=2, pp=2)
    plan = replace(plan, model=replace(plan.model, num_layers=8), recompute=RecomputePlan(full_layers=((4, 0),)))
    moved = replace(plan, recompute=RecomputePlan(full_layers=((0, 4),)))
    before, after = (simulate(one, steps=2) for one in (plan, moved))
    asked = what_if(before, "recompute:0,4")
    measured = [run.steps().groupby("step")["duration_ns"].max().mean() for run in (before, after)]
    assert asked.step_ns / asked.before_ns == pytest.approx(measured[1] / measured[0], rel=0.01)
    assert abs(measured[1] / measured[0] - 1) > 0.01


def test_recomputed_layers_by_stage_are_as_many_as_there_are():
    run = simulate(plan_of("gpt-7.5b", 8, dp=2, pp=2), steps=1)
    for text in ("recompute:1,2,3", "recompute:99,0"):
        with pytest.raises(InputError, match="the stages have 18, 18 layers"):
            what_if(run, text)


def test_layers_by_stage_change_the_step_as_a_simulation_of_the_new_plan_does():
    plan = plan_of("gpt-7.5b", 16, micro=2, dp=2, pp=2)
    plan = replace(plan, model=replace(plan.model, num_layers=8))
    moved = replace(plan, parallel=replace(plan.parallel, layers_per_stage=((7, 1),)))
    before, after = (simulate(one, steps=2) for one in (plan, moved))
    asked = what_if(before, "layers:7,1")
    measured = [run.steps().groupby("step")["duration_ns"].max().mean() for run in (before, after)]
    assert asked.step_ns / asked.before_ns == pytest.approx(measured[1] / measured[0], rel=0.01)
    assert measured[1] / measured[0] > 1.05


def test_layers_by_stage_are_those_of_the_model_on_the_stages_that_there_are():
    run = simulate(plan_of("gpt-7.5b", 8, dp=2, pp=2), steps=1)
    with pytest.raises(InputError) as error:
        what_if(run, "layers:12,12,11")
    assert "needs 2 numbers, one a stage" in str(error.value)
    assert "places 35 layers, the model has 36" in str(error.value)


def test_layers_of_chunks_are_as_even_as_it_goes_unless_they_are_told_apart():
    plan = plan_of("gpt-7.5b", 8, dp=2, pp=2, vp=2)
    for text, placed in (("layers:20,16", ((10, 8), (10, 8))), ("layers:20,16;0,0", ((20, 16), (0, 0)))):
        after, said = changed_plan(plan, parse_changes(text))
        assert (after.parallel.layers_per_stage, said) == (placed, (text.replace(":", " "),))
