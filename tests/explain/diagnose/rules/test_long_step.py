"""Single long steps."""

import pytest

from perfkit.explain.diagnose.rules.long_step import RULE
from perfkit.record.format import Sink
from tests.explain.diagnose.made import MS, judged, lacks, run_of, stays_healthy


def steps(lengths_ms):
    sink = Sink()
    sink.add("steps", rank=0, step=list(range(1, len(lengths_ms) + 1)), duration_ns=[length * MS for length in lengths_ms])
    return run_of(sink)


def test_regular_long_steps_are_named_with_their_distance_and_mean_cost():
    lengths = [100] * 40
    lengths[9] = lengths[19] = lengths[29] = 600
    (found,) = judged(RULE, steps(lengths)).findings
    assert found.subject["steps"] == (10, 20, 30)
    assert "every 10 steps" in found.title
    assert found.cost_ns == pytest.approx(3 * 500 * MS / 40)
    assert found.severity == "low"


def test_steps_that_vary_and_steps_of_two_kinds_are_no_single_long_ones():
    stays_healthy(RULE, steps([100, 130] * 10))
    stays_healthy(RULE, steps([100, 100, 400] * 7))


def test_a_few_steps_show_nothing():
    assert lacks(RULE, steps([100, 100, 900])) == "ten steps"


def test_a_step_is_long_from_the_stated_multiple_of_the_median_on_and_ten_steps_suffice():
    (found,) = judged(RULE, steps([100] * 9 + [300])).findings
    assert found.evidence["longest_over_median"] == 3.0
    assert found.cost_ns == 200 * MS / 10
    assert found.title == "1 of 10 steps take up to 3 x as long as the median"
    assert stays_healthy(RULE, steps([100] * 9 + [299]))["longest_over_median"] == 2.99


def test_up_to_a_tenth_of_the_steps_are_single_ones():
    (found,) = judged(RULE, steps([100] * 18 + [500, 900])).findings
    assert found.evidence["num_long"] == 2
    assert found.evidence["lost_in_all_ns"] == (400 + 800) * MS
    assert stays_healthy(RULE, steps([100] * 17 + [500, 700, 900]))["num_long"] == 3
