"""A device that waits for launches again and again."""

from dataclasses import replace

import pytest

from perfkit.explain.diagnose import launching
from perfkit.explain.diagnose.case import Case
from perfkit.explain.diagnose.rules.host_bound import RULE
from perfkit.predict.simulate import simulate
from tests.explain.diagnose.made import Training, added, judged, won_ns
from tests.predict.simulate.plans import plan_of


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


def test_ranks_that_wait_for_others_are_named_by_their_own_launches():
    # Each kernel of 20 us is launched 50 us after the one before. Rank 1 idles; rank 0 is kept so long in an operation with others
    # that its launches are ahead, and idles only by itself.
    launched = [50_000 * number for number in range(40)]
    early = [{"rank": 1, "start_ns": at + 5_000, "duration_ns": 20_000, "launch_ns": at} for at in launched]
    late = [{"rank": 0, "start_ns": 2_000_000 + 20_000 * number, "duration_ns": 20_000, "launch_ns": at}
            for number, at in enumerate(launched)]  # fmt: skip
    held = [{"rank": 0, "start_ns": 50_000, "duration_ns": 1_950_000, "launch_ns": 45_000, "kind": "communication"}]
    common = {"step": 1, "name": "mul", "kind": "computing", "launch_duration_ns": 5_000}
    run = added(Training(ranks=2, steps=1).run(), launches=[{**common, **row} for row in (*early, *late, *held)])
    case = Case(run)
    assert launching.own_idle_ns(case, 1) == pytest.approx(39 * 30_000, rel=0.05)


def test_a_host_with_a_full_queue_is_not_blamed_for_the_slow_one_beside_it():
    plan = plan_of("llama2-7b", 4, tp=2)
    plan = replace(plan, model=replace(plan.model, num_layers=8))
    (found,) = judged(RULE, simulate(plan, ["host_bound:1:8"], steps=3)).findings
    assert found.subject["ranks"] == (1,)
