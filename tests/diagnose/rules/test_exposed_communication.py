"""Communication that could be hidden, and is not."""

import pytest

from perfkit.diagnose import diagnose
from perfkit.diagnose.rules.exposed_communication import RULE
from perfkit.trace._format import Sink
from tests.diagnose.made import Training, run_of

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
