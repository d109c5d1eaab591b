"""Use: how much of the peak of its device a run uses, by its plan, its log or the shapes of its kernels."""

from __future__ import annotations

from perfkit.core.units import NS_PER_S
from perfkit.explain.diagnose import device as _device
from perfkit.explain.diagnose import shapes
from perfkit.explain.diagnose.case import Case
from perfkit.predict.cost.flops import pass_flops

HALF = ("bfloat16", "float16")
KNOWN_SHARE = 0.8
"""Shapes tell the whole only if they are known for this share of the time of products and attention."""


def peaks(case: Case) -> tuple[float, float] | None:
    """The lowest peak in 16 bits and the highest in any type of the devices that the run may have used, in FLOP/s."""
    devices = _device.candidates(case)
    if not devices:
        return None
    low = min(max((device.peak_flops_per_s.get(dtype, 0.0) for dtype in HALF), default=0.0) for device in devices)
    high = max(max(device.peak_flops_per_s.values()) for device in devices)
    return (low or high), high


def flops_per_s(case: Case) -> tuple[float, str] | None:
    """What a device computes per second, recomputation counted, and where that is from: plan, log or shapes; None if unknown."""
    plan = case.run.plan
    if plan is not None and case.step_ns:
        work = pass_flops(plan.model, plan.workload.seq_length, plan.recompute)
        per_token = sum(part.total for part in work.values())
        return per_token * plan.tokens_per_step / plan.parallel.num_devices * NS_PER_S / case.step_ns, "plan"
    logged = case.run.frame("log")["flops_per_s_per_device"].dropna()
    if len(logged):
        return float(logged.median()), "log"
    if not case.run.has("kernels") or not case.step_ns or case.kernels.empty:
        return None
    rows = shapes.typical_costs(case)
    products = rows[rows["operator"].astype(str).str.contains(shapes.PRODUCTS).to_numpy(dtype=bool)]
    known = products[products["flops"].notna()]
    if known.empty or known["per_step_ns"].sum() < KNOWN_SHARE * products["per_step_ns"].sum():
        return None
    per_step = known["flops"] / known["total_ns"] * known["per_step_ns"]
    return float(per_step.groupby(known["rank"]).sum().max()) * NS_PER_S / case.step_ns, "shapes"
