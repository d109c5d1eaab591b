"""A rank that others wait for without a reason on record."""

import pytest

from perfkit.explain.diagnose.rules.late_rank import RULE
from tests.explain.diagnose.made import Training, judged
from tests.explain.ledger.test_late import stalled, without


def test_a_late_rank_without_kernels_is_named_and_costs_what_the_others_wait_for_it():
    (found,) = judged(RULE, without(stalled(), "kernels", 3)).findings
    assert found.subject["ranks"] == (3,)
    # It was made to wait 60 ms for its input in each of the two steps; the first begins with its window.
    assert found.cost_ns == pytest.approx(60e6, rel=0.1)


@pytest.mark.parametrize("torn", range(3))
def test_a_reason_that_is_on_record_is_no_matter_of_this_rule(torn: int):
    assert judged(RULE, stalled()).findings == ()
    assert judged(RULE, without(stalled(), "kernels", torn)).findings == ()


def test_noise_of_five_percent_makes_no_rank_late():
    assert judged(RULE, Training(ranks=8, noise=0.05, steps=6).run()).findings == ()
