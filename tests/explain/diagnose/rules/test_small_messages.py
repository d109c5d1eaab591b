"""Messages whose time is mostly latency."""

import pytest

from perfkit.explain.diagnose.rules.small_messages import RULE
from tests.explain.diagnose.made import Training, judged, won_ns


def test_many_small_messages_are_named():
    run = Training(pieces=64, transfer_us=640.0, latency_us=25.0).run()
    (found,) = judged(RULE, run).findings
    assert found.evidence["small_messages_a_rank_and_step"] == pytest.approx(256)
    whole = Training(pieces=1, transfer_us=640.0, latency_us=25.0).run()
    assert found.cost_ns == pytest.approx(won_ns(run, whole), rel=0.15)


def test_large_messages_are_healthy_however_many():
    assert judged(RULE, Training(layers=24, pieces=2).run()).findings == ()
