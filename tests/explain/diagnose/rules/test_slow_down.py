"""Runs that slow down while they go on, or begin anew."""

from __future__ import annotations

import pytest

from perfkit.explain.diagnose import diagnose
from perfkit.explain.diagnose.rules import slow_down
from tests.explain.diagnose.made import log


def test_a_run_that_slows_down_is_told_and_one_that_scatters_is_not():
    slow = diagnose(log([100 + at / 5 for at in range(100)]), only=[slow_down.RULE])
    (finding,) = slow.findings
    assert finding.evidence["last_over_first_part"] == pytest.approx(117.9 / 101.9, rel=0.01)
    assert diagnose(log([100 + at % 7 for at in range(100)]), only=[slow_down.RULE]).findings == ()


def test_steps_that_were_run_again_are_told_as_a_restart():
    steps = [*range(1, 31), *range(21, 41)]
    (finding,) = diagnose(log([100] * 50, steps=steps), only=[slow_down.RULE]).findings
    assert finding.evidence["repeated_steps"] == 10
    assert "line 40 with step 21" in finding.title


def test_a_step_that_is_printed_twice_is_no_restart():
    twice = [step for step in range(1, 31) for _ in range(2)]
    assert diagnose(log([100] * 60, steps=twice), only=[slow_down.RULE]).findings == ()


def test_times_of_nothing_are_no_growth():
    assert diagnose(log([0] * 40), only=[slow_down.RULE]).failed == ()
