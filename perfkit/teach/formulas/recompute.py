"""Recompute: what recomputation costs and frees, and how little of it is enough (E22 to E25)."""

from __future__ import annotations

from perfkit.core.recomputed import SILU_MUL
from perfkit.core.spec.recompute import RecomputePlan
from perfkit.predict.cost.flops import forward_flops, recompute_flops, training_flops
from perfkit.predict.memory.guide import freed_bytes
from perfkit.teach.models import layer_flops, named, plan_of
from perfkit.teach.worked import Draw, Group, Worked

MIB = 2**20
SEQ = 4096
IN_FLIGHT = 2
FLASH = r"attention\.flash_attention\.flash_attention"
FINE_LIST = (
    r"attention\.wo\.matmul",
    r"feed_forward\.w1\.matmul",
    r"feed_forward\.w2\.matmul",
    r"feed_forward\.w3\.matmul",
    FLASH,
)
"""The products in round 2 of the Llama2-13B case: all but those of wq, wk and wv."""


def extra_work(draw: Draw) -> Worked:
    """E22: FLOPs done again, in percent of a step."""
    model, n = named(draw["model"]), draw["n"]
    again = recompute_flops(model, SEQ, RecomputePlan(full_layers=((n,),)))
    right = 100 * float(again.total) / float(training_flops(model, SEQ).total)
    share = 100 * n / model.num_layers
    shown = {"model": draw["model"], "s": SEQ, "recompute_layers": n}
    return Worked(shown, right, {"layers_over_total": share, "third_no_head": share / 3})


def silu_mul(draw: Draw) -> Worked:
    """E23: bytes of a layer that Silu and Mul no longer keep."""
    model, b = named(draw["model"]), draw["b"]
    right = freed_bytes(plan_of(model, s=SEQ, b=b), SILU_MUL) / MIB
    narrow = right * model.hidden_size / model.ffn_hidden_size
    shown = {"model": draw["model"], "s": SEQ, "b": b, "tp": 1}
    return Worked(shown, right, {"one_tensor": right / 2, "used_h": narrow})


def fine_list(draw: Draw) -> Worked:
    """E24: the share of a layer's forward that the fine list does again."""
    model, s = named(draw["model"]), draw["s"]
    layer = layer_flops(model, s) * model.num_layers

    def share(patterns: tuple[str, ...]) -> float:
        plan = RecomputePlan(operators=dict.fromkeys(patterns, ((model.num_layers,),)))
        return 100 * float(recompute_flops(model, s, plan).total) / layer

    everything = 100 * float(forward_flops(model, s, head=False).total) / layer
    without = tuple(pattern for pattern in FINE_LIST if pattern != FLASH)
    return Worked({"model": draw["model"], "s": s}, share(FINE_LIST), {"no_fa": share(without), "all": everything})


def fewest_layers(draw: Draw) -> Worked:
    """E25: the smallest number of recomputed layers with which stage 0 fits."""
    layers, full, none = draw["layers"], draw["full_mib"], draw["none_mib"]
    free_mib = (draw["limit_gib"] - draw["static_gib"]) * 1024

    def fewest(live: int) -> int:
        fits = (n for n in range(layers) if live * (n * full + (layers - n) * none) <= free_mib)
        return next(fits, layers)

    right = fewest(IN_FLIGHT)
    shown = {name: draw[name] for name in ("limit_gib", "static_gib", "full_mib", "none_mib")}
    wrong = {"kept_instead": layers - right, "one_micro": fewest(1)}
    return Worked({**shown, "stage_layers": layers, "in_flight": IN_FLIGHT}, right, wrong)


GROUP = Group(
    title="Recompute",
    order=3,
    formulas={"E22": extra_work, "E23": silu_mul, "E24": fine_list, "E25": fewest_layers},
)
