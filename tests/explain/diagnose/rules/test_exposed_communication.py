"""Communication that could be hidden, and is not."""

from dataclasses import replace

import pytest

from perfkit.explain.diagnose.rules.exposed_communication import FIND_THE_LATE, RULE
from perfkit.predict.simulate import simulate
from tests.explain.diagnose.made import Training, judged, stays_healthy, won_ns
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


def test_messages_after_the_backward_pass_are_counted_by_hand():
    """Four messages of 300 us and 20 us to start: all exposed, and all but the last could have left earlier."""
    (found,) = judged(RULE, Training(noise=0.0, late=True).run()).findings
    assert found.evidence["exposed_ns"] == found.evidence["hideable_communication_ns"] == pytest.approx(4 * 320_000, rel=1e-3)
    assert found.evidence["sent_after_computing_ns"] == pytest.approx(3 * 320_000, rel=1e-3)
    assert found.cost_ns == pytest.approx(3 * 320_000, rel=1e-3)
    assert found.evidence["exposed_share"] == pytest.approx(4 * 320 / (50 + 4 * (500 + 970) + 200 + 4 * 320), rel=1e-3)


@pytest.mark.parametrize(("transfer_us", "won_us"), [(300.0, 7 / 8 * 320), (3000.0, 2 / 3 * 1670)])
def test_a_message_that_is_alone_wins_seven_pieces_of_eight_or_the_backward_pass(transfer_us, won_us):
    """One layer computes 500 + 970 us and 200 us of update, two thirds of which are taken for the backward pass."""
    (found,) = judged(RULE, Training(noise=0.0, layers=1, late=True, transfer_us=transfer_us).run()).findings
    assert found.cost_ns == pytest.approx(won_us * 1000, rel=2e-3)
    assert found.evidence["sent_after_computing_ns"] == 0


def test_transfers_in_which_data_hardly_move_are_told_from_those_that_move():
    run = Training(noise=0.0, late=True, latency_us=400.0).run()
    (found,) = judged(RULE, run).findings
    assert found.evidence["moving_ns"] == pytest.approx(4 * 300_000)
    assert found.actions[0] == FIND_THE_LATE
    (found,) = judged(RULE, Training(noise=0.0, late=True, latency_us=200.0).run()).findings
    assert "moving_ns" not in found.evidence


def test_of_messages_in_which_nothing_moves_nothing_is_left_to_hide():
    assert stays_healthy(RULE, Training(noise=0.0, transfer_us=0.0, latency_us=0.0).run()) == {
        "hideable_communication_ns": 0,
        "exposed_ns": 0,
        "hidden_ratio": 1,
        "exposed_share": 0,
    }
