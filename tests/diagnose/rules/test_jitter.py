"""Equal kernels that take different times."""

import pytest

from perfkit.diagnose import diagnose
from perfkit.diagnose.rules.jitter import RULE
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


def test_noise_of_ten_percent_is_named_without_a_culprit():
    (found,) = judged(Training(noise=0.1).run()).findings
    assert found.subject["ranks"] == ()
    assert found.evidence["spread_of_equal_kernels_ratio"] == pytest.approx(0.1, rel=0.3)
    assert found.severity == "low"


def test_noise_of_three_percent_is_healthy():
    assert judged(Training(noise=0.03).run()).findings == ()


def test_two_steps_are_too_few():
    assert judged(Training(steps=2).run()).not_measured
