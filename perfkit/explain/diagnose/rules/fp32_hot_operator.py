"""Matrix products or attention run in float32, where 16 bits would be at least twice as fast.

What is measured: matrix products, convolutions and attention whose first input is float32, as a share of the step. On devices with
TF32 such kernels may run in that; 16 bits have twice its rate as well, and half the bytes. The cost is half of their time.

What to do: mixed precision (bf16, or fp16 with loss scaling) if accuracy allows, checked by comparing losses; find what casts the
inputs up where a few operators only are in float32. In PyTorch on NVIDIA devices from A100 on, where no kernel says that it runs in
TF32 already: `torch.set_float32_matmul_precision("high")`, whose default is "highest"; convolutions have a switch of their own,
`torch.backends.cudnn.allow_tf32` (https://docs.pytorch.org/docs/stable/generated/torch.set_float32_matmul_precision.html).
"""

from __future__ import annotations

import re

from perfkit.core.errors import NotMeasuredError
from perfkit.core.texts import say
from perfkit.explain.diagnose import device, kernels, shapes, work
from perfkit.explain.diagnose.advice import Action, fitting, speakers
from perfkit.explain.diagnose.case import Case
from perfkit.explain.diagnose.collecting import SHAPES_BY
from perfkit.explain.diagnose.rule import Finding, Rule, Threshold, Verdict

HOT_OPERATOR_SHARE = Threshold("hot-operator-share", 0.01, "share of the step", "chosen: 1 % of the step in float32")

SINGLE = re.compile(r"^(?:dt_)?(?:float|float32|fp32)$", re.IGNORECASE)
RUNS_IN_TF32 = re.compile("tf32", re.IGNORECASE)
WON = 0.5
"""The least that 16 bits win of a product: half as many bytes move, and matrix units are no slower for them."""
TF32_DEVICES = re.compile(r"^(?:A100|A800|H\d|GH\d|B\d|GB\d|L40|RTX[45])")
TF32_ACTION: Action = {
    "torch": 'let products of float32 run in TF32: torch.set_float32_matmul_precision("high") before the first step, and for '
    "convolutions torch.backends.cudnn.allow_tf32 = True; compare losses afterwards"
}
HF32_ACTION: Action = {
    "torch_npu": "let products of float32 run in HF32: torch.npu.matmul.allow_hf32 = True; compare losses afterwards"
}
ACTIONS: tuple[Action, ...] = (
    {
        "mindspore": "compute products and attention in bf16 (compute_dtype: bfloat16), and compare losses afterwards (page 22)",
        "megatron": "compute products and attention in bf16 (--bf16), and compare losses afterwards (page 22)",
        "torch": "compute products and attention in bf16 (torch.autocast with dtype=torch.bfloat16), and compare losses afterwards "
        "(page 22)",
    },
    "look for casts to float32 before the named operators",
)


def check(case: Case) -> Verdict:
    """The time of products in float32."""
    rows = shapes.typical_costs(case)
    rows = rows[rows["operator"].astype(str).str.contains(shapes.PRODUCTS).to_numpy(dtype=bool)]
    first = rows["input_dtypes"].astype("object").fillna("").astype(str).str.strip("; ").str.split(";").str[0].str.strip()
    known = rows[(first != "").to_numpy(dtype=bool)]
    if known.empty:
        raise NotMeasuredError("types of the inputs of products", how_to_collect=SHAPES_BY)
    hot = known[first.loc[known.index].str.match(SINGLE).to_numpy(dtype=bool)]
    by_rank = hot.groupby("rank")["per_step_ns"].sum()
    share = float(by_rank.max()) / (case.step_ns or 1) if len(by_rank) else 0.0
    evidence = {"float32_products_share": share, "products_with_type": float(known["count"].sum())}
    if share < case.limit(HOT_OPERATOR_SHARE):
        return Verdict((), evidence)
    totals = hot.groupby(hot["operator"].astype(str))["per_step_ns"].sum().sort_values(ascending=False)
    names = tuple(str(name) for name in totals.index[:5])
    finding = Finding(
        rule=RULE.name,
        title=say("Products run in float32: {names}", names=", ".join(names[:3])),
        subject={"operators": names},
        evidence=evidence,
        actions=_actions(case),
        cost_ns=work.less_busy_ns(case, shapes.less_by_rank(case, hot, WON * hot["per_step_ns"])),
        next=("12_operators", "22_accuracy_alignment"),
        part="computing",
    )
    return Verdict((finding,), evidence)


def _actions(case: Case) -> tuple[str, ...]:
    faster = [TF32_ACTION] if _may_run_in_tf32(case) else [HF32_ACTION] if "torch_npu" in speakers(case) else []
    return fitting(case, (*faster, *ACTIONS))


def _may_run_in_tf32(case: Case) -> bool:
    """Whether the device has TF32 and the framework a switch for it, and no kernel shows that it is on."""
    devices = device.candidates(case)
    has_it = bool(devices) and all(TF32_DEVICES.match(one.name) for one in devices)
    return case.run.format == "kineto" and has_it and kernels.matching(case, RUNS_IN_TF32, "name").empty


RULE = Rule("fp32-hot-operator", "Products in float32", frozenset({"steps", "kernels"}), SHAPES_BY, (HOT_OPERATOR_SHARE,), check)
