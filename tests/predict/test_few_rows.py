"""A few steps of one's own: how far they move a prediction, how sure it is after them, and what they say nothing about."""

from __future__ import annotations

import json
import math
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from perfkit.core import catalog
from perfkit.core.errors import InputError
from perfkit.core.resources import data_folder
from perfkit.face.cli import main
from perfkit.predict.calibration import Measured, calibration, read_measured
from perfkit.predict.calibration.few_rows import updated
from perfkit.predict.calibration.own import calibrate_with
from perfkit.predict.estimate import estimate_table

KNOWN = calibration("default")
MOSAIC = pd.read_csv(data_folder() / "reference" / "step_time.csv").query("source == 'mosaicml' and accelerator == 'A100-40GB-SXM'")
A100 = catalog.hardware_named("A100-40GB-SXM")


def rows(*factors: float) -> Measured:
    """So many plans, measured so many times longer than predicted."""
    found = read_measured(MOSAIC.head(len(factors)))
    return replace(found, seconds=found.predict(KNOWN.efficiency(found.labels)) * np.array(factors))


def moved(*factors: float) -> float:
    own, first = updated(rows(*factors), KNOWN), rows(1.0)
    return float(first.ratios(own)[0])


def test_one_step_moves_all_others_part_of_the_way_and_more_of_them_further():
    """Deviations 0.07 between places and 0.09 between runs: n runs count 0.6 n in 0.6 n + 1."""
    for count in (1, 3, 5):
        trust = count * KNOWN.spread["source"] ** 2 / (count * KNOWN.spread["source"] ** 2 + KNOWN.spread["row"] ** 2)
        assert moved(*[1.5] * count) == pytest.approx(1.5**trust, rel=0.01)
    assert moved(1.0) == pytest.approx(1.0)


def test_an_odd_step_among_five_decides_nothing():
    assert moved(1.2, 1.2, 9.0, 1.2, 1.2) == pytest.approx(moved(*[1.2] * 5))


def test_the_interval_narrows_with_every_step_and_stays_as_wide_as_runs_differ():
    widths = [KNOWN.interval, *(updated(rows(*[1.0] * count), KNOWN).interval for count in (1, 3, 5, 9))]
    halves = [math.log(high / low) / 2 for low, high in widths]
    assert halves == sorted(halves, reverse=True)
    assert halves[-1] > 1.2816 * KNOWN.spread["row"]


def test_a_device_that_nobody_measured_believes_its_first_step_more():
    odd = rows(1.5)
    labels = replace(odd.labels, values=tuple(label._replace(accelerator="Unheard-X1") for label in odd.labels.values))
    odd = replace(odd, labels=labels)
    odd = replace(odd, seconds=1.5 * odd.predict(KNOWN.efficiency(odd.labels)))
    own = updated(odd, KNOWN)
    assert 1.5 * odd.ratios(own)[0] > moved(1.5)
    assert "device" not in own.doubt
    assert own.doubt["experts"] == KNOWN.doubt["experts"]


def test_a_prediction_with_steps_of_ones_own_says_so_on_the_command_line(tmp_path, capsys):
    table, plan = tmp_path / "runs" / "may.csv", tmp_path / "plan.csv"
    table.parent.mkdir()
    slow = MOSAIC.head(3).assign(tokens_per_s_per_device=float("nan"))
    slow["step_time_s"] = 1.3 * estimate_table(slow)["step_time_s"].to_numpy()
    slow.to_csv(table, index=False)
    MOSAIC.tail(1).to_csv(plan, index=False)

    def seconds(*more: str) -> dict[str, float]:
        assert main(["estimate", str(plan), "--json", *more]) == 0
        return json.loads(capsys.readouterr().out)

    before, after = seconds(), seconds("--calibrate-with", str(table.parent), "--device", A100.name)
    trust = 3 * KNOWN.spread["source"] ** 2 / (3 * KNOWN.spread["source"] ** 2 + KNOWN.spread["row"] ** 2)
    assert after["step_time_s"] / before["step_time_s"] == pytest.approx(1.3**trust, rel=0.01)
    assert seconds("--calibrate-with", str(table), "--device", A100.name)["step_time_s"] == after["step_time_s"]
    width = [one["step_time_high_s"] / one["step_time_low_s"] for one in (before, after)]
    assert width[1] < width[0]


def test_steps_of_another_device_and_no_device_at_all_are_refused(tmp_path, capsys):
    with pytest.raises(InputError) as told:
        calibrate_with({"runs.csv": MOSAIC.head(2).to_csv(index=False)}, catalog.hardware_named("H100-80GB-SXM"))
    assert told.value.problems == ("accelerator = A100-40GB-SXM is not H100-80GB-SXM, the device to calibrate",)
    table = tmp_path / "runs.csv"
    MOSAIC.head(2).to_csv(table, index=False)
    assert main(["estimate", str(table), "--calibrate-with", str(table)]) == 2
    assert "on which device were they measured" in capsys.readouterr().err
    assert main(["estimate", str(table), "--calibrate-with", str(tmp_path / "none"), "--device", A100.name]) == 2
