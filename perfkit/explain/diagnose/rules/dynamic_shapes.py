"""Shapes change from step to step, so that operators are compiled and buffers laid out again and again.

What is measured: kernels with an operator and input shapes that most steps of their rank do not have, as a share of computing, on
up to two ranks where only the host side states shapes. A
training step of fixed sequence length repeats every shape in every step. What the change costs beside the kernels themselves
(compilation, new buffers) is seen as idle time, and is not added here.

What to do: pad or pack sequences to one length or to a few, drop the last incomplete batch, keep the number of tokens an expert
below a fixed capacity.
"""

from __future__ import annotations

import pandas as pd

from perfkit.core.errors import NotMeasuredError
from perfkit.core.texts import say
from perfkit.explain.diagnose import host, kernels
from perfkit.explain.diagnose.advice import Action, fitting
from perfkit.explain.diagnose.case import Case
from perfkit.explain.diagnose.collecting import SHAPES_BY
from perfkit.explain.diagnose.rule import Finding, Rule, Threshold, Verdict

SHAPES_SHARE = Threshold(
    "shapes-share", 0.05, "share of computing", "chosen: static graphs repeat every shape in every step; bundled ones have 0"
)

MIN_STEPS = 3
"""A shape is rare that fewer than half of the steps have, and in two steps none can be."""
ACTIONS: tuple[Action, ...] = (
    "pad or pack sequences to one length, or to a few buckets",
    {
        "mindspore": "drop the last incomplete batch (drop_remainder=True), and give experts a capacity_factor",
        "megatron": "give experts a fixed capacity: --moe-expert-capacity-factor with --moe-pad-expert-input-to-capacity",
        "torch": "drop the last incomplete batch (drop_last=True of the DataLoader), and give experts a fixed capacity",
    },
    {
        "torch_npu": "take compiled operators for any shape: torch.npu.set_compile_mode(jit_compile=False)",
        "torch": "compile once for all shapes: torch.compile(dynamic=True)",
    },
)


def check(case: Case) -> Verdict:
    """Kernels whose shapes most steps do not have."""
    columns = ["rank", "step", "op", "name", "input_shapes", "duration_ns", "start_ns"]
    rows = case.computing[columns]
    if rows["input_shapes"].isna().all():
        rows = host.with_shapes(case, rows, host.busiest(case))
    rows = rows.dropna(subset=["input_shapes"])
    rows = rows[rows["input_shapes"].astype(str).str.contains(r"\d", regex=True).to_numpy(dtype=bool)]
    steps = rows.groupby("rank")["step"].nunique()
    if rows.empty or steps.max() < MIN_STEPS:
        raise NotMeasuredError(say("input shapes of kernels in {count} steps", count=MIN_STEPS), how_to_collect=SHAPES_BY)
    rows = rows[rows["rank"].map(steps).to_numpy() >= MIN_STEPS]
    keys: list[pd.Series] = [rows["rank"], rows["op"].astype(str), rows["input_shapes"].astype(str)]
    in_steps = rows.groupby(keys)["step"].transform("nunique")
    rare = rows[(2 * in_steps < rows["rank"].map(steps)).to_numpy(dtype=bool)]
    share = float(rare["duration_ns"].sum() / rows["duration_ns"].sum())
    shapes = rows.groupby(rows["op"].astype(str))["input_shapes"].nunique()
    evidence = {"changing_shapes_share_of_computing": share, "most_shapes_of_an_operator": float(shapes.max())}
    if share < case.limit(SHAPES_SHARE):
        return Verdict((), evidence)
    finding = Finding(
        rule=RULE.name,
        title=say(
            "Kernels with shapes that change from step to step take {changing_shapes_share_of_computing} of computing", **evidence
        ),
        subject={"operators": kernels.largest(rare)},
        evidence={**evidence, "changing_operators": float(rare["op"].astype(str).nunique())},
        actions=fitting(case, ACTIONS),
        severity="medium",
        next=("12_operators", "memory-fragmentation"),
        part="computing",
    )
    return Verdict((finding,), evidence)


RULE = Rule(
    name="dynamic-shapes",
    title="Shapes that change from step to step",
    needs=frozenset({"steps", "kernels"}),
    how_to_collect=SHAPES_BY,
    thresholds=(SHAPES_SHARE,),
    check=check,
    explains=frozenset({"jitter"}),
)
