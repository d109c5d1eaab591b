"""Forward operators that run twice."""

import pytest

from perfkit.diagnose import diagnose
from perfkit.diagnose.rules.recompute_cost import RULE
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


def test_full_recomputation_is_named_with_what_it_costs():
    run = Training(recompute=True).run()
    (found,) = judged(run).findings
    assert found.evidence["layers_recomputed_ratio"] == pytest.approx(1.0)
    assert found.cost_ns == pytest.approx(seconds_won(run), rel=0.15)
