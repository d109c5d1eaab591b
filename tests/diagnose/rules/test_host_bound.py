"""A device that waits for launches again and again."""

from dataclasses import replace

import pytest

from perfkit.diagnose.rules.host_bound import RULE
from perfkit.simulate import simulate
from tests.diagnose.made import Training, judged, won_ns
from tests.simulate.plans import plan_of


def test_a_rank_with_idle_times_before_every_kernel_is_named():
    run = Training(gap_us={3: 40.0}).run()
    (found,) = judged(RULE, run).findings
    assert found.subject["ranks"] == (3,)
    assert found.cost_ns == pytest.approx(won_ns(run), rel=0.15)


def test_all_ranks_are_named_if_all_wait():
    run = Training(gap_us=dict.fromkeys(range(4), 40.0)).run()
    (found,) = judged(RULE, run).findings
    assert found.subject["ranks"] == (0, 1, 2, 3)


def test_launches_that_the_plan_waits_for_are_as_planned_and_more_is_not():
    plan = plan_of("llama2-7b", 8, tp=8)
    plan = replace(plan, model=replace(plan.model, num_layers=4))
    result = judged(RULE, simulate(plan, steps=3))
    assert result.findings == ()
    assert result.healthy[0].evidence["planned_idle_ns"] > 0
    assert judged(RULE, simulate(plan, ["host_bound:all:3"], steps=3)).findings
