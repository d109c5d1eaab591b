"""Operator rates: the shipped numbers are what the measured tables say, and no prediction is faster than what anybody measured."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from perfkit.core import catalog
from perfkit.core.errors import InputError
from perfkit.predict.calibration import calibration
from perfkit.predict.calibration.operator_rates import fit_products
from perfkit.predict.cost.labels import Label

REFERENCE = Path(__file__).resolve().parents[2] / "data" / "reference"
RATES = pd.read_csv(REFERENCE / "operator_rates.csv")
CEILINGS = pd.read_csv(REFERENCE / "matmul_ceilings.csv")
B200 = catalog.hardware_named("B200-180GB-SXM")


def test_the_shipped_efficiencies_of_products_are_those_of_the_measured_table():
    found, known = fit_products(RATES, B200), calibration("default")
    in_a_step = 0.95  # of the rate that a product has alone (data/calibration/default.toml)
    assert in_a_step * found["matmul"] == pytest.approx(known.value("accelerator.B200.matmul"), rel=0.03)
    assert found["half_depth"] == known.value("accelerator.B200.half_depth")
    assert found["group_rows"] == pytest.approx(known.value("common.group_rows"), rel=0.15)
    assert found["error"] < 0.11


def test_the_formula_describes_the_products_of_another_device_as_well():
    a100 = catalog.hardware_named("A100-80GB-PCIe")
    found = fit_products(RATES, a100)
    assert found["error"] < 0.05
    assert 0.7 < found["matmul"] < 0.85


@pytest.mark.parametrize("row", CEILINGS.to_dict("records"), ids=lambda row: f"{row['accelerator']}-{row['dtype']}")
def test_no_product_is_predicted_faster_than_the_highest_rate_that_was_found(row):
    device = catalog.hardware().get(row["accelerator"])
    if device is None:
        pytest.skip("not in the catalogue")
    dtype = {"bf16": "bfloat16", "fp8": "float8", "int8": "int8"}[row["dtype"]]
    for stack in ("megatron", "deepspeed", "fsdp", "mindspore"):
        known = calibration("default")
        share = known.value(known.path(Label(device.name, stack, dtype), "matmul"))
        assert share * device.peak(dtype) <= row["max_achievable_matmul_tflops"] * 1e12


def test_rates_above_the_peak_and_shapes_without_sizes_are_one_error():
    wrong = RATES[RATES["op"] == "matmul"].head(3).copy()
    wrong["share_of_peak"] = [1.2, 0.5, np.nan]
    wrong["shape"] = [wrong["shape"].iloc[0], "b=1, m=4096", wrong["shape"].iloc[2]]
    with pytest.raises(InputError) as error:
        fit_products(wrong, B200)
    assert len(error.value.problems) == 3
    with pytest.raises(InputError, match="no matmul of Ascend-910B2"):
        fit_products(RATES, catalog.hardware_named("Ascend-910B2"))
