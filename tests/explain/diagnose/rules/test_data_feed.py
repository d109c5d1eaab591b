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


def late_in(slow, usual_us, more_us, layers=4):
    """All ranks begin `usual_us` late, and so much more in the steps of `slow`; 50 us pass before any first kernel."""
    leads = {rank: lambda step: usual_us - 50 + more_us * (step in slow) for rank in range(4)}
    return Training(noise=0.0, layers=layers, lead_us=leads).run()


@pytest.mark.parametrize(
    ("layers", "more_us", "named"),
    [(4, 900, False), (4, 1100, True), (20, 1150, False), (20, 1450, True)],
    ids=["below 1 ms", "above 1 ms", "above 1 ms, below 4 % of 31 ms", "above 4 % of 31 ms"],
)
def test_a_step_is_named_whose_interval_is_longer_by_a_millisecond_and_four_percent(layers, more_us, named):
    """It is longer in one step of six: that is what the mean step wins, whether the step is named or not."""
    (found,) = judged(RULE, late_in((4,), 950, more_us, layers)).findings
    assert found.subject.get("steps") == ((4,) if named else None)
    assert found.cost_ns == pytest.approx(more_us * 1000 / 6, abs=1)


@pytest.mark.parametrize(
    ("slow", "usual_us", "named", "cost_us"),
    [
        ((2, 3, 5, 6), 2000, None, 2000 + 4000 * 4 / 6),
        ((2, 3, 5, 6), 500, (2, 3, 5, 6), 4000 * 4 / 6),
    ],
    ids=["all steps wait, most longer", "most steps wait"],
)
def test_what_all_steps_wait_for_is_no_matter_of_those_that_wait_longer(slow, usual_us, named, cost_us):
    (found,) = judged(RULE, late_in(slow, usual_us, 4000)).findings
    assert found.subject.get("steps") == named
    assert found.cost_ns == pytest.approx(cost_us * 1000, abs=1)


def test_the_interval_of_ranks_that_are_late_together_is_their_mean():
    leads = {0: lambda step: 6000 * (step == 3), 1: lambda step: 6600 * (step == 3)}
    (found,) = judged(RULE, Training(noise=0.0, lead_us=leads).run()).findings
    assert (found.subject["ranks"], found.subject["steps"]) == ((0, 1), (3,))
    assert found.evidence["in_these_steps_ns"] == pytest.approx(6_350_000)
    assert found.evidence["longest_interval_ns"] == pytest.approx(6_650_000)
    assert found.cost_ns == pytest.approx(6_600_000 / 6, abs=1)


def test_what_all_steps_wait_for_and_what_few_wait_for_beyond_that_are_told_apart_and_cost_their_sum():
    lasting, longer = judged(RULE, late_in((4,), 2000, 4000)).findings
    assert longer.subject == {"ranks": (0, 1, 2, 3), "steps": (4,)}
    assert longer.cost_ns == pytest.approx(4_000_000 / 6, abs=1)
    assert longer.evidence["usual_ns"] == pytest.approx(2_000_000)
    assert lasting.subject == {"ranks": (0, 1, 2, 3)}
    assert lasting.cost_ns == pytest.approx(2_000_000, abs=1)
