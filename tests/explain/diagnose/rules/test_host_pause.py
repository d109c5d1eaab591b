"""A host that stops now and then is named; one that waits for it is not."""

import pytest

from perfkit.explain.diagnose.rules.host_pause import RULE
from tests.explain.diagnose.made import Training, judged, won_ns


def test_a_rank_that_stands_still_in_two_steps_is_named():
    run = Training(stop_us={1: lambda step: 9000.0 * (step % 3 == 0)}).run()
    (found,) = judged(RULE, run).findings
    assert found.subject == {"ranks": (1,), "steps": (3, 6)}
    assert found.cost_ns == pytest.approx(won_ns(run), rel=0.15)


def test_waiting_at_the_start_of_a_step_is_no_pause():
    assert judged(RULE, Training(lead_us={1: 9000.0}).run()).findings == ()
