"""Forward operators that run twice."""

from dataclasses import replace

import pytest

from perfkit.diagnose import diagnose
from perfkit.diagnose.rules.recompute_cost import RULE
from perfkit.simulate import simulate
from perfkit.spec.recompute import RecomputePlan
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


def test_full_recomputation_is_named_with_what_it_costs():
    run = Training(recompute=True).run()
    (found,) = judged(run).findings
    assert found.evidence["layers_recomputed_ratio"] == pytest.approx(1.0)
    assert found.cost_ns == pytest.approx(seconds_won(run), rel=0.15)


def test_what_the_plan_computes_again_is_as_planned_and_what_it_does_not_is_named():
    plan = plan_of("gpt-7.5b", 8, dp=2, recompute=True)
    plan = replace(plan, model=replace(plan.model, num_layers=2))
    result = judged(simulate(plan, steps=2))
    assert result.findings == ()
    assert result.healthy[0].evidence["planned_recomputed_ratio"] == 1
    unplanned = replace(plan, recompute=RecomputePlan())
    assert judged(simulate(unplanned, ["full_recompute"], steps=2)).findings
