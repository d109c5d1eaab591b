"""Operator rates: the shipped numbers are what the measured tables say, and no prediction is faster than what anybody measured."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from perfkit.core import catalog
from perfkit.core.errors import InputError
from perfkit.core.plan_columns import PlanColumns
from perfkit.core.spec.model import ModelSpec
from perfkit.core.spec.plan import Plan
from perfkit.core.spec.workload import Workload
from perfkit.predict.calibration import calibration
from perfkit.predict.calibration.operator_rates import fit_products
from perfkit.predict.cost.cost_columns import cost_columns
from perfkit.predict.cost.labels import Label, labels_of
from perfkit.predict.cost.step_columns import step_parts

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


def attention_errors(device, pass_, **changed):
    """Mean error on the measured attention of a device, whose middle one is taken to be met, by shares of the peak."""
    rows = RATES[(RATES["accelerator"] == device) & (RATES["op"] == f"sdp_{pass_[:1]}wd")]
    spec, ratios = catalog.hardware_named(device), []
    for text, share in zip(rows["shape"], rows["share_of_peak"], strict=True):
        size = {name: int(value) for name, value in re.findall(r"(\w+)=(\d+)", text)}
        heads, length, width = size["head_num"], size["seq_len"], size["qk_head_dim"]
        if width != size["v_head_dim"]:
            continue
        model = ModelSpec(
            num_layers=1, hidden_size=heads * width, num_attention_heads=heads, num_key_value_heads=size["kv_head_num"],
            head_size=width, ffn_hidden_size=1024, vocab_size=1024,
        )  # fmt: skip
        plan = Plan(model=model, workload=Workload(seq_length=length, micro_batch_size=1, global_batch_size=1), hardware=spec)
        columns = PlanColumns.of([plan])
        eff = calibration("default").with_values(changed).efficiency(labels_of(columns))
        name = {"f": "forward", "b": "backward"}[pass_[:1]]
        seconds = step_parts(cost_columns(columns), eff)[f"computing/{name}/attention"][0]
        work = 2 * length**2 * heads * width * (1 if name == "forward" else 2.5)
        ratios.append(work / seconds / spec.peak("bfloat16") / (share / 2))
    ratios = np.array(ratios) / np.median(ratios)
    return float(np.mean(np.abs(ratios - 1)))


@pytest.mark.parametrize(("device", "most"), [("A100-80GB-PCIe", 0.06), ("B200-180GB-SXM", 0.15)])
def test_the_last_rows_of_a_unit_are_what_few_heads_cost(device, most):
    alone = attention_errors(device, "f", **{"common.flash_rows": 0.0, "accelerator.B200.flash_rows": 0.0})
    assert attention_errors(device, "f") < min(most, alone / 2)
    assert attention_errors(device, "b") < 0.2


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
    with pytest.raises(InputError, match="no rates of matmul on Ascend-910B2"):
        fit_products(RATES, catalog.hardware_named("Ascend-910B2"))
