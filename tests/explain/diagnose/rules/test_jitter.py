"""Equal kernels that take different times."""

import dataclasses

import pytest

from perfkit.explain.diagnose.rules.jitter import RULE
from tests.explain.diagnose.made import Training, judged


def test_noise_of_ten_percent_is_named_without_a_culprit():
    (found,) = judged(RULE, Training(noise=0.1).run()).findings
    assert found.subject["ranks"] == ()
    assert found.evidence["spread_of_equal_kernels_ratio"] == pytest.approx(0.1, rel=0.3)
    assert found.severity == ("high" if found.share_of_step >= 0.05 else "medium" if found.share_of_step >= 0.01 else "low")


@pytest.mark.parametrize("steps", [3, 4, 5, 8])
def test_noise_of_five_percent_is_healthy_however_few_steps(steps: int):
    result = judged(RULE, Training(noise=0.05, steps=steps).run())
    assert result.findings == ()
    assert result.healthy[0].evidence["spread_of_equal_kernels_ratio"] == pytest.approx(0.05, rel=0.15)


def test_two_steps_are_too_few():
    assert judged(RULE, Training(steps=2).run()).not_measured


def test_where_the_short_steps_have_no_length_their_ratio_is_not_told():
    run = Training(noise=0.1).run()
    steps = run.frame("steps")
    empty = steps["step"] < steps["step"].max()
    run = dataclasses.replace(run, tables={**run.tables, "steps": steps.assign(duration_ns=steps["duration_ns"].mask(empty, 0))})
    (found,) = judged(RULE, run).findings
    assert "step_p90_over_p10" not in found.evidence
    assert found.evidence["spread_of_equal_kernels_ratio"] == pytest.approx(0.1, rel=0.3)
