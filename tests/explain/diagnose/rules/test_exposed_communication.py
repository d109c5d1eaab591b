"""Communication that could be hidden, and is not."""

from dataclasses import replace

import pytest

from perfkit.explain.diagnose.rules.exposed_communication import RULE
from perfkit.predict.simulate import simulate
from tests.explain.diagnose.made import Training, judged, won_ns
from tests.predict.simulate.plans import plan_of


def test_gradients_sent_after_the_backward_pass_are_named_with_what_they_cost():
    run = Training(late=True).run()
    (found,) = judged(RULE, run).findings
    assert found.evidence["hidden_ratio"] == pytest.approx(0.0, abs=0.01)
    assert found.cost_ns == pytest.approx(won_ns(run), rel=0.15)


def test_waiting_for_a_slow_rank_is_not_exposed_communication():
    assert judged(RULE, Training(factors={1: 1.5}).run()).findings == ()


def test_communication_that_the_plan_leaves_exposed_is_as_planned_and_more_is_not():
    plan = plan_of("gpt-7.5b", 8, dp=2)
    plan = replace(plan, model=replace(plan.model, num_layers=2))
    run = simulate(plan, steps=2)
    result = judged(RULE, run)
    assert result.findings == ()
    assert result.healthy[0].evidence["planned_exposed_ns"] > 0
    (found,) = judged(RULE, replace(run, plan=None)).findings
    assert found.evidence["exposed_share"] > 0.02
