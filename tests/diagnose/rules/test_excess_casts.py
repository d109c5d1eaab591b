"""Conversions that take a noticeable part of the step."""

import pytest

from perfkit.diagnose.rules.excess_casts import RULE
from tests.diagnose.made import Training, judged, won_ns


def test_conversions_are_named_with_what_they_cost():
    run = Training(extra=(("Cast", "AI_VECTOR_CORE", 60.0), ("Cast", "AI_VECTOR_CORE", 60.0))).run()
    (found,) = judged(RULE, run).findings
    assert found.subject["operators"] == ("Cast",)
    assert found.evidence["casts_in_a_row_share"] == pytest.approx(0.5)
    assert found.cost_ns == pytest.approx(won_ns(run), rel=0.15)


def test_an_operator_that_only_sounds_alike_is_none():
    assert judged(RULE, Training(extra=(("BroadcastTo", "AI_VECTOR_CORE", 120.0),)).run()).findings == ()
