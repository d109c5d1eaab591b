"""Messages whose time is mostly latency."""

import pytest

from perfkit.diagnose import diagnose
from perfkit.diagnose.rules.small_messages import RULE
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


def test_many_small_messages_are_named():
    run = Training(pieces=64, transfer_us=640.0, latency_us=25.0).run()
    (found,) = judged(run).findings
    assert found.evidence["small_messages_a_rank_and_step"] == pytest.approx(256)
    assert found.cost_ns > 0


def test_large_messages_are_healthy_however_many():
    assert judged(Training(layers=24, pieces=2).run()).findings == ()
