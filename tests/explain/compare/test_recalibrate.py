"""One run as a calibration: the prediction meets it, and says how it changed."""

from __future__ import annotations

import pytest

from perfkit.config.dialects import read_config
from perfkit.core.errors import InputError
from perfkit.core.resources import data_folder
from perfkit.explain.compare.recalibrate import recalibrate
from tests.explain.compare.test_compare import measured_as_planned

PLAN = data_folder() / "configs" / "llama2_13b.toml"


@pytest.mark.parametrize(("path", "parameter"), [("computing", "compute"), ("free", "compute")])
def test_the_prediction_meets_the_run_by_the_part_that_was_off(path, parameter):
    plan = read_config(PLAN)
    found = recalibrate(measured_as_planned(plan, {path: 8_000_000_000}), plan)
    assert found.parameter == parameter
    assert found.after.step_time_s == pytest.approx(found.measured_s, rel=0.02)
    assert abs(found.after.step_time_s - found.measured_s) < abs(found.before.step_time_s - found.measured_s)
    assert "The prediction changes from" in found.sentence


def test_a_parameter_without_influence_is_refused():
    plan = read_config(PLAN)
    with pytest.raises(InputError, match="do not change the prediction"):
        recalibrate(measured_as_planned(plan, {"free": 8_000_000_000}), plan, parameter="unpadded")


def test_a_run_as_planned_changes_nothing():
    plan = read_config(PLAN)
    found = recalibrate(measured_as_planned(plan, {}), plan)
    assert found.new_value == pytest.approx(found.old_value, rel=1e-3)
