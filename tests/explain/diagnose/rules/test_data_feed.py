"""Steps that wait for data are told from ranks that wait for one another."""

import pytest

from perfkit.core.resources import data_folder
from perfkit.explain.diagnose.rules.data_feed import RULE
from perfkit.record.load import load
from tests.explain.diagnose.made import Training, judged, lacks, summaries, won_ns


def test_one_rank_that_waits_for_data_is_named_and_its_peers_are_not():
    run = Training(lead_us={2: 2000.0}).run()
    (found,) = judged(RULE, run).findings
    assert found.subject["ranks"] == (2,)
    assert found.cost_ns == pytest.approx(won_ns(run), rel=0.15)


def test_an_input_that_is_slow_every_third_step_counts_with_its_mean():
    run = Training(lead_us={rank: lambda step: 6000.0 * (step % 3 == 0) for rank in range(4)}).run()
    (found,) = judged(RULE, run).findings
    assert found.subject["ranks"] == (0, 1, 2, 3)
    assert found.cost_ns == pytest.approx(won_ns(run), rel=0.15)


def test_a_step_trace_with_queues_tells_which_part_of_the_input_is_slow():
    # 1,716.7 of 2,518.7 ms of twenty steps are intervals; the host queue is always empty.
    (found,) = judged(RULE, load(data_folder() / "traces" / "mindinsight_feed")).findings
    assert found.evidence["largest_interval_ns"] == pytest.approx(85_835_923, rel=1e-6)
    assert found.evidence["host_queue_empty_ratio"] == 1.0
    assert "processing the data is too slow" in found.title


def test_a_summary_without_intervals_is_not_measured():
    assert "when the steps" in lacks(RULE, summaries({0: 100, 1: 100}))
