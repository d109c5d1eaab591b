"""Conversions that take a noticeable part of the step."""

import pytest

from perfkit.diagnose import diagnose
from perfkit.diagnose.rules.excess_casts import RULE
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


def test_conversions_are_named_with_what_they_cost():
    run = Training(extra=(("Cast", "AI_VECTOR_CORE", 60.0), ("Cast", "AI_VECTOR_CORE", 60.0))).run()
    (found,) = judged(run).findings
    assert found.subject["operators"] == ("Cast",)
    assert found.evidence["casts_in_a_row_share"] == pytest.approx(0.5)
    assert found.cost_ns == pytest.approx(seconds_won(run), rel=0.15)


def test_an_operator_that_only_sounds_alike_is_none():
    assert judged(Training(extra=(("BroadcastTo", "AI_VECTOR_CORE", 120.0),)).run()).findings == ()
