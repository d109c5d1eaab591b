"""A device that waits for launches again and again."""

import pytest

from perfkit.diagnose.rules.host_bound import RULE
from tests.diagnose.made import Training, judged, won_ns


def test_a_rank_with_idle_times_before_every_kernel_is_named():
    run = Training(gap_us={3: 40.0}).run()
    (found,) = judged(RULE, run).findings
    assert found.subject["ranks"] == (3,)
    assert found.cost_ns == pytest.approx(won_ns(run), rel=0.15)


def test_all_ranks_are_named_if_all_wait():
    run = Training(gap_us=dict.fromkeys(range(4), 40.0)).run()
    (found,) = judged(RULE, run).findings
    assert found.subject["ranks"] == (0, 1, 2, 3)
