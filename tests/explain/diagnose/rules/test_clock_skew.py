"""Clocks that differ cost nothing, and are told."""

import pytest

from perfkit.explain.diagnose import diagnose
from perfkit.explain.diagnose.rules.clock_skew import RULE
from tests.explain.diagnose.made import Training, judged


def test_a_clock_that_is_ahead_is_named_and_makes_no_rank_slow():
    run = Training(skew_us={2: 500.0}).run()
    (found,) = judged(RULE, run).findings
    assert found.subject["ranks"] == (2,)
    assert found.cost_ns is None
    assert found.severity == "low"
    assert found.evidence["largest_offset_ns"] == pytest.approx(500_000, rel=0.01)
    assert [other.rule for other in diagnose(run).findings] == ["clock-skew"]
