"""Steps that wait for data are told from ranks that wait for one another."""

import pytest

from perfkit.diagnose import diagnose
from perfkit.diagnose.rules.data_feed import RULE
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


def test_one_rank_that_waits_for_data_is_named_and_its_peers_are_not():
    run = Training(lead_us={2: 2000.0}).run()
    (found,) = judged(run).findings
    assert found.subject["ranks"] == (2,)
    assert found.cost_ns == pytest.approx(seconds_won(run), rel=0.15)


def test_an_input_that_is_slow_every_third_step_counts_with_its_mean():
    run = Training(lead_us={rank: lambda step: 6000.0 * (step % 3 == 0) for rank in range(4)}).run()
    (found,) = judged(run).findings
    assert found.subject["ranks"] == (0, 1, 2, 3)
    assert found.cost_ns == pytest.approx(seconds_won(run), rel=0.15)
