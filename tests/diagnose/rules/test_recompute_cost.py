"""Forward operators that run twice."""

from dataclasses import replace

import pytest

from perfkit.diagnose.rules.recompute_cost import RULE
from perfkit.simulate import simulate
from perfkit.spec.recompute import RecomputePlan
from tests.diagnose.made import Training, judged, won_ns
from tests.simulate.plans import plan_of


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
