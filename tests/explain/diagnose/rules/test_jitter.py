"""Equal kernels that take different times."""

import pytest

from perfkit.explain.diagnose.rules.jitter import RULE
from tests.explain.diagnose.made import Training, judged


def test_noise_of_ten_percent_is_named_without_a_culprit():
    (found,) = judged(RULE, Training(noise=0.1).run()).findings
    assert found.subject["ranks"] == ()
    assert found.evidence["spread_of_equal_kernels_ratio"] == pytest.approx(0.1, rel=0.3)
    assert found.severity == "low"


def test_noise_of_three_percent_is_healthy():
    assert judged(RULE, Training(noise=0.03).run()).findings == ()


def test_two_steps_are_too_few():
    assert judged(RULE, Training(steps=2).run()).not_measured
