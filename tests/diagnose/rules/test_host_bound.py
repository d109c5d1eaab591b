"""A device that waits for launches again and again."""

import pytest

from perfkit.diagnose import diagnose
from perfkit.diagnose.rules.host_bound import RULE
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


def test_a_rank_with_idle_times_before_every_kernel_is_named():
    run = Training(gap_us={3: 40.0}).run()
    (found,) = judged(run).findings
    assert found.subject["ranks"] == (3,)
    assert found.cost_ns == pytest.approx(seconds_won(run), rel=0.15)


def test_all_ranks_are_named_if_all_wait():
    run = Training(gap_us=dict.fromkeys(range(4), 40.0)).run()
    (found,) = judged(run).findings
    assert found.subject["ranks"] == (0, 1, 2, 3)
