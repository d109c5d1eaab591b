"""Calibrations: errors on the reference tables, intervals that hold what they promise, files that say what is wrong in them."""

from __future__ import annotations

from dataclasses import MISSING, fields, replace
from functools import cache
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from perfkit.core.errors import InputError
from perfkit.core.plan_columns import Coded
from perfkit.predict.calibration import (
    Calibration,
    bundled,
    calibrate,
    calibration,
    coverage,
    cross_validate,
    interval,
    read_measured,
)
from perfkit.predict.calibration.fit import fit
from perfkit.predict.cost.efficiency import Efficiency
from perfkit.predict.cost.labels import Label

TABLE = Path(__file__).resolve().parents[2] / "data" / "reference" / "step_time.csv"


@cache
def table() -> pd.DataFrame:
    return pd.read_csv(TABLE)


def rows(source: str):
    return read_measured(table()[table()["source"] == source].reset_index(drop=True))


def error(ratios) -> float:
    return float(np.mean(np.abs(ratios - 1.0)))


@pytest.mark.parametrize(
    ("source", "count", "bound"),
    [
        ("vtrain-multi", 54, 0.10),
        ("vtrain-single", 706, 0.085),
        ("bigscience", 60, 0.11),
        ("bigscience-v100", 51, 0.19),
        ("mosaicml", 121, 0.056),
        ("mindformers", 42, 0.10),
        # Its configuration asks for deterministic kernels (deterministic-mode, NVTE_ALLOW_NONDETERMINISTIC_ALGO 0, NCCL_ALGO Ring)
        # and no fused accumulation: the rates of the fastest kernels for Hopper, which hold to 5 % for 46 other rows, are not its.
        # Rates of the kernels before (0.36 and 0.25 of the peak in attention) and a pass over the gradients would leave 8 %.
        ("megatron-tests", 1, 0.19),
    ],
)
def test_zero_shot_error_of_a_source_stays_as_published(source, count, bound):
    measured = rows(source)
    assert len(measured.seconds) == count
    assert error(measured.ratios(calibration("default"))) <= bound


@pytest.mark.parametrize(
    ("source", "bound"),
    [
        ("vtrain-multi", 0.064),
        ("vtrain-single", 0.043),
        ("bigscience", 0.065),
        ("bigscience-v100", 0.10),
        ("mosaicml", 0.055),
        ("mindformers", 0.115),
    ],
)
def test_calibrated_error_on_rows_left_out_stays_as_published(source, bound):
    assert cross_validate(rows(source)).error <= bound


@pytest.mark.parametrize("name", [name for name in bundled() if name != "default"])
def test_a_bundled_calibration_says_where_it_comes_from_and_beats_the_default_on_its_source(name):
    known, measured = calibration(name), rows(name)
    assert known.points == len(measured.seconds)
    assert name in known.origin
    assert known.interval[0] < 1 < known.interval[1]
    assert error(measured.ratios(known)) <= error(measured.ratios(calibration("default")))


@pytest.mark.parametrize("source", ["bigscience", "vtrain-multi", "mindformers"])
def test_the_interval_holds_about_80_percent_of_groups_left_out(source):
    measured = rows(source)
    tested = cross_validate(measured, by_group=True)
    assert 0.75 <= coverage(tested.ratios, measured.groups) <= 0.90


def test_a_fit_finds_the_factor_that_was_put_into_the_times():
    measured = rows("mosaicml")
    slow = calibration("default").with_values({"common.compute": 1.3})
    made = replace(measured, seconds=measured.predict(slow.efficiency(measured.labels)))
    assert calibrate(made, parameters=("compute",)).value("common.compute") == pytest.approx(1.3, rel=0.02)


def test_a_fit_changes_no_parameter_that_its_rows_do_not_speak_about():
    measured = rows("mosaicml")  # no tensor parallelism, flash attention
    start = calibration("default")
    fitted = fit(measured, start)
    for name in ("small_groups", "node_wait", "group_rounding", "score_bytes"):
        assert fitted.value(f"common.{name}") == start.value(f"common.{name}")
    assert fitted.value("common.compute") != start.value("common.compute")


def test_few_rows_change_one_parameter():
    few = rows("vtrain-single").take(np.arange(12))
    start = calibration("default")
    fitted = fit(replace(few, seconds=1.4 * few.seconds), start)
    changed = [name for name in fitted.common if fitted.value(f"common.{name}") != start.value(f"common.{name}")]
    assert changed == ["compute"]


def test_an_interval_is_that_of_the_residuals():
    ratios = 1.0 / np.linspace(0.9, 1.1, 401)
    low, high = interval(ratios, np.arange(401))
    assert (low, high) == (pytest.approx(0.92, abs=0.002), pytest.approx(1.08, abs=0.002))


def test_a_calibration_survives_writing_and_reading(tmp_path):
    path = tmp_path / "mine.toml"
    calibration("default").with_values({"common.matmul": 0.7, "stack.fsdp.elementwise": 2.0}).write(path)
    again = calibration(str(path))
    assert (again.value("common.matmul"), again.value("stack.fsdp.elementwise")) == (0.7, 2.0)


def test_all_that_is_wrong_in_a_file_is_told(tmp_path):
    path = tmp_path / "bad.toml"
    path.write_text('interval = [1]\n[common]\nmatmull = 0.8\nmemory = "fast"\n', encoding="utf-8")
    with pytest.raises(InputError) as caught:
        calibration(str(path))
    assert len(caught.value.problems) == 3


def test_an_unknown_calibration_names_the_bundled_ones():
    with pytest.raises(InputError, match="default"):
        calibration("none-such")


def test_a_table_without_measured_rows_is_refused():
    with pytest.raises(InputError, match="no row"):
        read_measured(table().assign(step_time_s=np.nan, tokens_per_s_per_device=np.nan))


def test_the_default_states_every_efficiency_and_no_code_does():
    names = {item.name for item in fields(Efficiency)}
    assert set(calibration("default").common) == names
    assert all(item.default is MISSING for item in fields(Efficiency))


def test_what_a_calibration_leaves_open_is_the_defaults():
    device = Coded.same(Label("RTX4090-24GB", "deepspeed"), 1)
    assert Calibration(name="empty").efficiency(device) == Efficiency(**calibration("default").common)


def test_what_is_not_known_makes_the_interval_wider_on_both_sides():
    known = calibration("default")

    def width(device: str, experts: bool, network: str = "", nodes: bool = False) -> float:
        label = Label(device, "megatron", "bfloat16", network)
        low, high = known.bounds(Coded.same(label, 1), np.array([experts]), np.array([nodes]))
        assert low[0] < 1 < high[0]
        return float(high[0] / low[0])

    measured, mixed, unknown = width("H100-80GB-SXM", False), width("H100-80GB-SXM", True), width("RTX4090-24GB", False)
    assert measured == pytest.approx(known.interval[1] / known.interval[0])
    assert measured < min(mixed, unknown) <= max(mixed, unknown) < width("RTX4090-24GB", True)
    assert width("V100-32GB-SXM", False, "omni-path", True) > width("V100-32GB-SXM", False, "omni-path") == measured
    assert width("V100-32GB-SXM", False, "infiniband", True) == measured


def test_what_the_rows_do_not_contain_stays_as_doubtful_as_before():
    dense, doubt = calibrate(rows("bigscience").take(np.arange(20))), calibration("default").doubt
    assert dense.doubt == {kind: amount for kind, amount in doubt.items() if kind != "network"}  # its runs went over Omni-Path
    assert calibrate(rows("mosaicml").take(np.arange(20))).doubt == doubt
    unknown = Coded.same(Label("RTX4090-24GB", "megatron", "bfloat16"), 1)
    low, high = dense.bounds(unknown, np.array([True]), np.array([False]))
    assert high[0] / low[0] > dense.interval[1] / dense.interval[0]


@pytest.mark.parametrize("name", bundled())
def test_no_device_is_known_by_a_few_letters_of_its_name(name):
    known = calibration(name)
    strangers = ("HPU-custom", "Huawei-X", "GPU-1", "GB-custom", "GHz", "T", "Hopper2", "B100", "MI", "VPU", "L")
    assert not known.knows(Coded.of(Label(one, "megatron", "bfloat16") for one in strangers)).any()


def test_a_doubt_that_is_none_is_told_with_those_there_are(tmp_path):
    file = tmp_path / "odd.toml"
    file.write_text("[doubt]\nmoon = 0.1\nexperts = -1\n")
    with pytest.raises(InputError) as error:
        calibration(str(file))
    assert len(error.value.problems) == 2
    assert "known are experts, device, network" in str(error.value)


def test_the_interval_of_the_default_holds_four_fifths_of_rows_and_of_devices():
    frame = pd.concat([table(), pd.read_csv(TABLE.parent / "step_time_new.csv")], ignore_index=True)
    measured, known = read_measured(frame), calibration("default")
    low, high = known.bounds(measured.labels, measured.plans.experts > 0, measured.plans.nodes > 1)
    ratios = 1.0 / measured.ratios(known)
    inside = pd.Series((ratios >= low) & (ratios <= high))
    assert 0.75 <= inside.mean() <= 0.88
    assert 0.75 <= inside.groupby(frame["accelerator"].to_numpy()[measured.rows]).mean().mean() <= 0.88
