"""Operators that became slow, by a baseline or among their own kind."""

import pytest

from perfkit.diagnose import diagnose
from perfkit.diagnose.rules.slow_operators import RULE
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


def test_an_operator_slower_than_in_the_baseline_is_named_on_all_ranks():
    run = Training(slow={"MatMul": 1.3}).run()
    (found,) = judged(run, HEALTHY).findings
    assert found.subject["operators"] == ("MatMul",)
    assert found.evidence["largest_ratio_to_baseline"] == pytest.approx(1.3, rel=0.02)
    assert found.cost_ns == pytest.approx(seconds_won(run), rel=0.15)


def test_an_equal_baseline_shows_nothing_and_a_faster_run_neither():
    assert judged(HEALTHY, HEALTHY).findings == ()
    assert judged(HEALTHY, Training(slow={"MatMul": 1.3}).run()).findings == ()
