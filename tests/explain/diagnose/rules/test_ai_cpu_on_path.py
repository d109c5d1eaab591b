"""Operators on the AI CPU hold up the AI cores."""

import pytest

from perfkit.explain.diagnose.rules.ai_cpu_on_path import RULE
from tests.explain.diagnose.made import Training, healthy, judged, won_ns


def test_ai_cpu_operators_are_named_with_what_they_cost():
    run = Training(extra=(("IndexPutV2", "AI_CPU", 300.0),)).run()
    (found,) = judged(RULE, run).findings
    assert found.subject["operators"] == ("IndexPutV2",)
    assert found.cost_ns == pytest.approx(won_ns(run), rel=0.15)


def test_a_profile_without_units_cannot_tell():
    tables = dict(healthy().tables)
    tables["kernels"] = tables["kernels"].assign(core=None)
    from dataclasses import replace

    assert judged(RULE, replace(healthy(), tables=tables)).not_measured[0].missing == ("the unit that ran each kernel",)
