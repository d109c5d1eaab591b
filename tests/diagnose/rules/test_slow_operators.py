"""Operators that became slow, by a baseline or among their own kind."""

import pytest

from perfkit.diagnose.rules.slow_operators import RULE
from tests.diagnose.made import Training, healthy, judged, won_ns


def test_an_operator_slower_than_in_the_baseline_is_named_on_all_ranks():
    run = Training(slow={"MatMul": 1.3}).run()
    (found,) = judged(RULE, run, healthy()).findings
    assert found.subject["operators"] == ("MatMul",)
    assert found.evidence["largest_ratio_to_baseline"] == pytest.approx(1.3, rel=0.02)
    assert found.cost_ns == pytest.approx(won_ns(run), rel=0.15)


def test_an_equal_baseline_shows_nothing_and_a_faster_run_neither():
    assert judged(RULE, healthy(), healthy()).findings == ()
    assert judged(RULE, healthy(), Training(slow={"MatMul": 1.3}).run()).findings == ()
