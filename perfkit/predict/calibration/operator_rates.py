"""Operator rates: measured products of a device turned into the few numbers by which the formula of a product describes them.

A table has the columns of `data/reference/operator_rates.csv`: `accelerator`, `op` ("matmul" or "group_matmul"), `shape` ("b=1,
m=4096, k=8192, n=10240, ..." or "ng=32, M=1024, N=4096, K=7168, ..."), `share_of_peak`. The formula interpolates between the
shapes: tiles, waves and a short inner dimension. On products of B200 and A100 it is as far off as their nearest measured ones are.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from itertools import product
from typing import Any

import numpy as np
import pandas as pd

from perfkit.core.errors import InputError
from perfkit.core.plan_columns import Floats
from perfkit.core.spec.hardware import HardwareSpec
from perfkit.predict.calibration.file import calibration
from perfkit.predict.cost.cost_columns import TYPICAL_UNITS
from perfkit.predict.cost.operators import Device, group_start_s, product_s

COLUMNS = ("accelerator", "op", "shape", "share_of_peak")
SIZES = {"matmul": ("m", "k", "n", "b"), "group_matmul": ("M", "K", "N", "ng")}
CEILINGS = np.arange(0.20, 1.005, 0.01)
HALF_DEPTHS = (0.0, 64.0, 128.0, 256.0, 512.0, 1024.0)
GROUP_ROWS = np.arange(0.0, 1000.0, 10.0)


def fit_products(table: pd.DataFrame, device: HardwareSpec) -> dict[str, float]:
    """`matmul`, `half_depth` and, where there are grouped products, `group_rows` of a device; `error` is what they leave.

    The mean absolute relative error of the rates is least. Raises InputError with all rows that cannot be, and without a row of the
    device.
    """
    plain = _rows(table, device, "matmul")
    tried = [(_error(_shares(plain, device, *pair), plain), *pair) for pair in product(CEILINGS.tolist(), HALF_DEPTHS)]
    left, matmul, half_depth = min(tried)
    found = {"matmul": matmul, "half_depth": half_depth, "error": left}
    if (table["op"] == "group_matmul").any() and (table["accelerator"] == device.name).any():
        grouped = _rows(table, device, "group_matmul")
        ahead = grouped[~grouped["shape"].str.contains("grad_w")]
        tried_rows = [(_error(_shares(ahead, device, matmul, half_depth, fill), ahead), fill) for fill in GROUP_ROWS.tolist()]
        found["group_rows"] = min(tried_rows)[1]
    return found


def _rows(table: pd.DataFrame, device: HardwareSpec, op: str) -> pd.DataFrame:
    if missing := [name for name in COLUMNS if name not in table]:
        raise InputError("operator rates", [f"column {name!r} is missing" for name in missing])
    own = table[(table["accelerator"] == device.name) & (table["op"] == op)]
    sizes = [_sizes(text, SIZES[op]) for text in own["shape"]]
    problems = [
        f"row {row}, shape = {text!r} states no {', '.join(name for name in SIZES[op] if name not in found)}"
        for row, text, found in zip(own.index, own["shape"], sizes, strict=True)
        if len(found) < len(SIZES[op])
    ]
    problems += [
        f"row {row}, share_of_peak = {share:g} must be above 0 and at most 1: no device computes faster than its peak"
        for row, share in own["share_of_peak"].items()
        if not 0 < share <= 1
    ]
    if problems or own.empty:
        raise InputError("operator rates", problems or [f"no rates of {op} on {device.name}"])
    values = np.array([list(one.values()) for one in sizes], dtype=np.float64)
    return own.assign(**dict(zip(("rows", "depth", "columns", "copies"), values.T, strict=True)))


def _sizes(text: str, names: tuple[str, ...]) -> Mapping[str, int]:
    stated = dict(re.findall(r"(\w+)=(\d+)", text))
    return {name: int(stated[name]) for name in names if name in stated}


def _shares(rows: pd.DataFrame, device: HardwareSpec, matmul: float, half_depth: float, group_rows: float = 0.0) -> Floats:
    """Shares of the peak that the formula gives, with the default's share of the memory bandwidth."""
    ones, peak = np.ones(len(rows)), device.peak("bfloat16")
    memory = device.memory_bytes_per_s * calibration("default").value("common.memory")
    sustained = Device(
        flops_per_s=ones * peak * matmul,
        most_flops_per_s=ones * peak,
        bytes_per_s=ones * memory,
        units=ones * (device.matrix_units or TYPICAL_UNITS),
        half_depth=ones * half_depth,
        misaligned=ones,
    )
    m, k, n, copies = (rows[name].to_numpy() for name in ("rows", "depth", "columns", "copies"))
    seconds = product_s(m, n, k, sustained, copies) + group_start_s(n, k, sustained, copies, group_rows)
    return np.asarray(2 * m * k * n * copies / seconds / peak)


def _error(shares: Floats, rows: pd.DataFrame) -> float:
    measured: Any = rows["share_of_peak"].to_numpy()
    return float(np.mean(np.abs(shares / measured - 1.0)))
