"""Clocks that differ cost nothing, and are told."""

import pytest

from perfkit.diagnose import diagnose
from perfkit.diagnose.rules.clock_skew import RULE
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


def test_a_clock_that_is_ahead_is_named_and_makes_no_rank_slow():
    run = Training(skew_us={2: 500.0}).run()
    (found,) = judged(run).findings
    assert found.subject["ranks"] == (2,)
    assert found.cost_ns is None
    assert found.severity == "low"
    assert found.evidence["largest_offset_ns"] == pytest.approx(500_000, rel=0.01)
    assert [other.rule for other in diagnose(run).findings] == ["clock-skew"]
