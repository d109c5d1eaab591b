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


@pytest.mark.parametrize(("latency_us", "named"), [(42.0, False), (43.0, True)])
def test_a_message_waits_mostly_from_three_tenths_of_its_time_on(latency_us, named):
    # 64 pieces move for 100 us each: 42 of 142 us are 29.6 % of the time, 43 of 143 us 30.1 %.
    found = judged(RULE, Training(pieces=64, transfer_us=6400.0, latency_us=latency_us).run())
    (told,) = (*found.findings, *found.healthy)
    assert bool(found.findings) == named
    assert told.evidence["small_messages_a_rank_and_step"] == (256 if named else 0)
