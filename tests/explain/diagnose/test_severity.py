"""Severity: fewer than three steps show no lasting cost."""

import pytest

from perfkit.explain.diagnose import diagnose
from perfkit.explain.diagnose.rules import recompute_cost
from tests.explain.diagnose.made import Training


@pytest.mark.parametrize(("steps", "severity"), [(2, "medium"), (3, "high")])
def test_a_large_cost_is_high_from_three_steps_on(steps, severity):
    (found,) = diagnose(Training(recompute=True, steps=steps).run(), only=[recompute_cost.RULE]).findings
    assert found.share_of_step > 0.05
    assert found.severity == severity
