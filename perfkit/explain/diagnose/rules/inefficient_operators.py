"""Large matrix products or attention reach little of what the device can do.

What is measured: operations by recorded shapes over time and over the roof of the device (roofline), for products and attention in
16 bits of at least 1 GFLOP each. Those below 30 % of the roof are named where they take 5 % of computing. Where the profiler's name
fits several devices the lowest peak counts. The cost is what they would win at 30 %.

What to do: sizes that are multiples of 16 (or of 128), no transposed or private formats at the inputs, larger micro batches; then
hardware counters of the named operators.
"""

from __future__ import annotations

import re

import numpy as np
import pandas as pd

from perfkit.core.errors import NotMeasuredError
from perfkit.core.texts import say
from perfkit.explain.diagnose import device as _device
from perfkit.explain.diagnose import shapes as _shapes
from perfkit.explain.diagnose import use, who, work
from perfkit.explain.diagnose.case import Case
from perfkit.explain.diagnose.collecting import SHAPES_BY
from perfkit.explain.diagnose.rule import Finding, Rule, Threshold, Verdict
from perfkit.explain.roofline import roofline

EFFICIENCY_LOW = Threshold(
    name="efficiency-low",
    value=0.3,
    unit="share of the peak of the device",
    origin="chosen: less than 30 % of the peak for a large product; good ones reach 50 to 80 %",
)
EFFICIENCY_FLOPS = Threshold("efficiency-flops", 1e9, "FLOP", "chosen: 1 GFLOP; at 300 TFLOP/s it is 3 us, as long as a launch")
INEFFICIENT_SHARE = Threshold("inefficient-share", 0.05, "share of computing", "chosen: operator types from 5 % of computing on")

MOST_INPUTS = 3
HALF_NAMES = re.compile(r"^(?:dt_)?(?:bfloat16|bf16|float16|fp16|half|c10::half|c10::bfloat16)$", re.IGNORECASE)
ACTIONS = (
    "make sizes multiples of 16, better of 128: hidden size, heads, vocabulary, tokens of a micro batch",
    "look for transposes and format conversions at the inputs",
    "collect hardware counters of the named operators only (aic_metrics PipeUtilization)",
)


def check(case: Case) -> Verdict:
    """Products far below the roof of the device."""
    devices, known = _device.candidates(case), use.peaks(case)
    if known is None:
        raise NotMeasuredError("the peak of the device", how_to_collect=SHAPES_BY)
    rows = _shapes.typical_costs(case)
    rows = rows[rows["kind"].isin(("matmul", "attention")).to_numpy() & rows["flops"].notna().to_numpy()]
    first = rows["input_dtypes"].astype(str).str.split(";").str[0].str.strip()
    rows = rows[first.str.match(HALF_NAMES).to_numpy(dtype=bool)]
    rows = rows[(rows["flops"] / rows["count"] >= case.limit(EFFICIENCY_FLOPS)).to_numpy(dtype=bool)]
    if rows.empty:
        raise NotMeasuredError("shapes of large products in 16 bits", how_to_collect=SHAPES_BY)
    peak, _ = known
    memory = min(device.memory_bytes_per_s for device in devices)
    rows = roofline(rows, peak_flops_per_s=peak, memory_bytes_per_s=memory)
    low = rows[(rows["efficiency_ratio"] < case.limit(EFFICIENCY_LOW)).to_numpy(dtype=bool)]
    share = _share_of_computing(case, low)
    mean = float(np.average(rows["efficiency_ratio"].to_numpy(dtype=float), weights=rows["per_step_ns"].to_numpy(dtype=float)))
    evidence = {"mean_efficiency_ratio": mean, "inefficient_share_of_computing": share, "peak_flops_per_s": peak}
    if share < case.limit(INEFFICIENT_SHARE):
        return Verdict((), evidence)
    totals = low.groupby(low["operator"].astype(str))["per_step_ns"].sum().sort_values(ascending=False)
    less = low["per_step_ns"] * (1.0 - low["efficiency_ratio"].astype("float64") / case.limit(EFFICIENCY_LOW))
    worst = low.iloc[int(less.to_numpy().argmax())]
    evidence |= {"reached_ratio": float(worst["efficiency_ratio"]), "limit_ratio": case.limit(EFFICIENCY_LOW)}
    others = who.count(len(low) - 1, "other")
    more = say(", {others} less than {limit_ratio}", others=others, **evidence) if len(low) > 1 else ""
    finding = Finding(
        rule=RULE.name,
        title=say(
            "{operator} of {sizes} reaches {reached_ratio} of the device{more}",
            operator=str(worst["operator"]),
            sizes=_sizes(str(worst["input_shapes"])),
            more=more,
            **evidence,
        ),
        subject={"operators": tuple(str(name) for name in totals.index[:5])},
        evidence={**evidence, "lowest_efficiency_ratio": float(low["efficiency_ratio"].min())},
        actions=ACTIONS,
        cost_ns=work.less_busy_ns(case, _shapes.less_by_rank(case, low, less)),
        next=("12_operators",),
        part="computing",
    )
    return Verdict((finding,), evidence)


def _sizes(shapes: str) -> str:
    """Input shapes as one writes them: "32768,2048;2048,8192;;" is 32768x2048, 2048x8192."""
    return ", ".join("x".join(shape.split(",")) for shape in shapes.replace('"', "").split(";")[:MOST_INPUTS] if shape.strip())


def _share_of_computing(case: Case, rows: pd.DataFrame) -> float:
    """The largest share of its rank's computing that `rows` take."""
    if rows.empty:
        return 0.0
    computing = case.operator_sums.groupby("rank")["total_ns"].sum()
    return float((rows.groupby("rank")["per_step_ns"].sum() / computing).max())


RULE = Rule(
    name="inefficient-operators",
    title="Products far below the roof of the device",
    needs=frozenset({"steps", "kernels"}),
    how_to_collect=SHAPES_BY,
    thresholds=(EFFICIENCY_LOW, EFFICIENCY_FLOPS, INEFFICIENT_SHARE),
    check=check,
)
