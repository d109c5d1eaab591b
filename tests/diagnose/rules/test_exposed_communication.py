"""Communication that could be hidden, and is not."""

from dataclasses import replace

import pytest

from perfkit.diagnose import diagnose
from perfkit.diagnose.rules.exposed_communication import RULE
from perfkit.simulate import simulate
from perfkit.trace._format import Sink
from tests.diagnose.made import Training, run_of
from tests.simulate.plans import plan_of

HEALTHY = Training().run()


def judged(run, baseline=None):
    return diagnose(run, baseline, only=[RULE])


def seconds_won(changed, healthy=HEALTHY):
    """What a step really wins without the fault, in ns."""
    return changed.steps()["duration_ns"].mean() - healthy.steps()["duration_ns"].mean()


def test_a_healthy_run_is_healthy_with_its_numbers():
    result = judged(HEALTHY)
    assert result.findings == ()
    assert [entry.rule for entry in result.healthy] == [RULE.name]
    assert result.healthy[0].evidence


def test_without_its_tables_nothing_is_measured():
    result = judged(run_of(Sink()))
    assert result.findings == result.healthy == ()
    assert result.not_measured[0].how_to_collect


def test_gradients_sent_after_the_backward_pass_are_named_with_what_they_cost():
    run = Training(late=True).run()
    (found,) = judged(run).findings
    assert found.evidence["hidden_ratio"] == pytest.approx(0.0, abs=0.01)
    assert found.cost_ns == pytest.approx(seconds_won(run), rel=0.15)


def test_waiting_for_a_slow_rank_is_not_exposed_communication():
    assert judged(Training(factors={1: 1.5}).run()).findings == ()


def test_communication_that_the_plan_leaves_exposed_is_as_planned_and_more_is_not():
    plan = plan_of("gpt-7.5b", 8, dp=2)
    plan = replace(plan, model=replace(plan.model, num_layers=2))
    run = simulate(plan, steps=2)
    result = judged(run)
    assert result.findings == ()
    assert result.healthy[0].evidence["planned_exposed_ns"] > 0
    (found,) = judged(replace(run, plan=None)).findings
    assert found.evidence["exposed_share"] > 0.02
