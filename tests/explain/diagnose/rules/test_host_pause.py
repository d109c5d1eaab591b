"""A host that stops now and then is named; one that waits for it is not."""

from dataclasses import replace

import pytest

from perfkit.explain.diagnose import diagnose
from perfkit.explain.diagnose.rules.host_pause import RULE
from perfkit.predict.simulate import simulate
from tests.explain.diagnose.made import Training, judged, stays_healthy, won_ns
from tests.predict.simulate.plans import plan_of


def test_a_rank_that_stands_still_in_two_steps_is_named():
    run = Training(stop_us={1: lambda step: 9000.0 * (step % 3 == 0)}).run()
    (found,) = judged(RULE, run).findings
    assert found.subject == {"ranks": (1,), "steps": (3, 6)}
    assert found.cost_ns == pytest.approx(won_ns(run), rel=0.15)


def test_waiting_at_the_start_of_a_step_is_no_pause():
    assert judged(RULE, Training(lead_us={1: 9000.0}).run()).findings == ()


@pytest.mark.parametrize(("layers", "limit_share", "limit_ms"), [(6, 0.04, None), (48, None, 2.0), (400, 0.015, None)])
def test_a_pause_is_measured_by_the_step_and_in_a_step_of_usual_length_by_two_milliseconds(layers, limit_share, limit_ms):
    run = Training(layers=layers).run()
    step_ns = run.steps().groupby("step")["duration_ns"].max().mean()
    expected_ns = limit_ms * 1e6 if limit_share is None else limit_share * step_ns
    assert stays_healthy(RULE, run)["limit_ns"] == pytest.approx(expected_ns, rel=1e-3)


def test_pauses_that_take_turns_cost_the_step_what_they_delay_it_though_no_rank_stands_still_for_all_of_it():
    plan = plan_of("gpt-7.5b", 8, micro=2, dp=4, tp=1, pp=1)
    plan = replace(plan, model=replace(plan.model, num_layers=2))
    usual, paused = (diagnose(simulate(plan, faults, seed=3, steps=8)) for faults in ([], ["gc_pause:all:60:4"]))
    (found,) = paused.findings
    assert found.rule == RULE.name
    assert found.cost_ns == pytest.approx(paused.step_ns - usual.step_ns, rel=0.05)
