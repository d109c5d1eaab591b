"""A rank that others wait for without a reason on record."""

from dataclasses import replace

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


def test_a_rank_whose_device_idles_for_longer_is_a_matter_of_the_rules_about_idle_times():
    # Without the host side nothing says why rank 3 idles 60 ms, but that it does is on record.
    run = stalled()
    silent = replace(run, tables={name: rows for name, rows in run.tables.items() if name not in ("host", "launches")})
    assert judged(RULE, silent).findings == ()
