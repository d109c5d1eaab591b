"""Forward operators that run twice."""

from dataclasses import replace

import pytest

from perfkit.core.spec.recompute import RecomputePlan
from perfkit.explain.diagnose.rules.recompute_cost import RULE
from perfkit.predict.simulate import simulate
from tests.explain.diagnose.made import Training, judged, won_ns
from tests.predict.simulate.plans import plan_of


def test_full_recomputation_is_named_with_what_it_costs():
    run = Training(recompute=True).run()
    (found,) = judged(RULE, run).findings
    assert found.evidence["layers_recomputed_ratio"] == pytest.approx(1.0)
    assert found.cost_ns == pytest.approx(won_ns(run), rel=0.15)


def test_what_the_plan_computes_again_is_as_planned_and_what_it_does_not_is_named():
    plan = plan_of("gpt-7.5b", 8, dp=2, recompute=True)
    plan = replace(plan, model=replace(plan.model, num_layers=2))
    result = judged(RULE, simulate(plan, steps=2))
    assert result.findings == ()
    assert result.healthy[0].evidence["planned_recomputed_ratio"] == 1
    unplanned = replace(plan, recompute=RecomputePlan())
    assert judged(RULE, simulate(unplanned, ["full_recompute"], steps=2)).findings


def test_layers_of_one_stage_are_a_share_of_all_layers_planned_or_not():
    plan = plan_of("gpt-7.5b", 16, dp=2, pp=2)
    plan = replace(plan, model=replace(plan.model, num_layers=8), recompute=RecomputePlan(full_layers=((3, 0),)))
    run = simulate(plan, steps=2)
    planned = judged(RULE, run)
    assert planned.findings == ()
    assert planned.healthy[0].evidence["planned_recomputed_ratio"] == 3 / 8
    (found,) = judged(RULE, replace(run, plan=None)).findings
    assert found.evidence["layers_recomputed_ratio"] == pytest.approx(3 / 8)
    assert "37.5 % of the layers" in found.title
    # The other stage is the slower one: what is won is that one micro batch passes the first stage earlier.
    faster = simulate(replace(plan, recompute=RecomputePlan()), steps=2)
    assert found.cost_ns == pytest.approx((run.steps()["duration_ns"].mean() - faster.steps()["duration_ns"].mean()), rel=0.1)


def test_a_simulated_run_repeats_the_named_layers_and_no_others():
    plan = plan_of("gpt-7.5b", 16, dp=2, pp=2)
    plan = replace(plan, model=replace(plan.model, num_layers=8))
    for counts, expected in ((((2, 1),), {0, 1, 4}), (((0, 4),), {4, 5, 6, 7})):
        run = simulate(replace(plan, recompute=RecomputePlan(full_layers=counts)), steps=1)
        names = run.frame("kernels")["name"].astype(str)
        again = names[names.str.startswith("recompute/")]
        assert {int(name.split("/")[1].removeprefix("layers.")) for name in again.unique()} == expected


def test_what_stops_before_the_end_of_a_layer_costs_only_what_runs_again():
    run = Training(recompute=True).run()
    rows = run.frame("kernels")
    rows = rows.assign(op=rows["name"].astype(str)).sort_values(["rank", "start_ns"])
    # The activation, the last forward kernel of a layer, does not run again: its place stays idle.
    backward_next = rows["op"].shift(-1) == "FlashAttentionGrad"
    kept = rows[~((rows["op"] == "Swiglu") & backward_next)].drop(columns="op")
    (whole,), (less,) = judged(RULE, run).findings, judged(RULE, replace(run, tables={**run.tables, "kernels": kept})).findings
    assert less.cost_ns == pytest.approx(whole.cost_ns * 460 / 500, rel=0.03)
