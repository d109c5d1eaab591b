"""Memory: static memory, activations, headroom (E14 to E21)."""

from __future__ import annotations

from dataclasses import replace

from perfkit.core import catalog
from perfkit.core.params import count_params
from perfkit.core.spec.parallel import ParallelPlan
from perfkit.predict.estimate import estimate
from perfkit.predict.memory.activations import layer_tensors
from perfkit.predict.memory.guide import guide_activations, guide_static
from perfkit.predict.memory.in_flight import in_flight_of
from perfkit.predict.memory.settings import preset
from perfkit.teach.models import gpt_layer, named, plan_of
from perfkit.teach.worked import Draw, Group, Worked

MIB, GIB = 2**20, 2**30
HBM_MB = 62_432
SEQ = 4096
WHOLE_ON = "A100-80GB-SXM"
"""A device whose usual stack keeps weights whole beside a sharded optimizer."""


def guide_rule(draw: Draw) -> Worked:
    """E14: the guide's 10N/t + 2N."""
    billion, shards = draw["params_billion"], draw["opt_shard"]
    count = billion * 1e9
    right = guide_static(count, shards=shards, accumulation=True) / 1e9
    wrong = {
        "no_grad_buffer": guide_static(count, shards=shards) / 1e9,
        "sharded_grad": guide_static(count, accumulation=True) / shards / 1e9,
        "no_shard": guide_static(count, accumulation=True) / 1e9,
    }
    return Worked({"params_billion": billion, "opt_shard": shards}, right, wrong)


def exact_static(draw: Draw) -> Worked:
    """E15: weights and gradients whole, optimizer state sharded, as the estimate has it for the stack of Megatron."""
    model, shards = named(draw["model"]), draw["d"]
    parallel = ParallelPlan(data_parallel_size=shards, optimizer_shard_size=shards)
    plan = replace(plan_of(model, s=SEQ, b=1, parallel=parallel), hardware=catalog.hardware_named(WHOLE_ON))
    memory = estimate(plan).memory
    assert memory is not None
    parameters, gradients, optimizer = (float(memory.amount(f"static/{part}")) for part in ("parameters", "gradients", "optimizer"))
    total = parameters + gradients + optimizer
    count = float(count_params(model).total)
    wrong = {
        "guide_10n": guide_static(count, shards=shards, accumulation=True) / GIB,
        "gb_decimal": total / 1e9,
        "all_sharded": (parameters + gradients) / shards / GIB + optimizer / GIB,
    }
    return Worked({"model": draw["model"], "opt_shard": shards, "tp": 1, "pp": 1}, total / GIB, wrong)


def layer_activations(draw: Draw) -> Worked:
    """E16: what a GPT layer keeps, nothing parallel."""
    s, b, h, heads = draw["s"], draw["b"], draw["h"], draw["heads"]
    plan = plan_of(gpt_layer(h=h, heads=heads), s=s, b=b, dropout=True)
    right = guide_activations(plan, "tensor and sequence") / MIB
    without = guide_activations(plan, "tensor and sequence, selective") / MIB
    return Worked({"s": s, "b": b, "h": h, "heads": heads}, right, {"no_scores": without, "elements_x2": 2 * right})


def split_activations(draw: Draw) -> Worked:
    """E17: the same, split over tensor and sequence, scores recomputed."""
    s, b, h, t = draw["s"], draw["b"], draw["h"], draw["t"]

    def mib(size: int, *, sequence: bool) -> float:
        parallel = ParallelPlan(tensor_parallel_size=size, sequence_parallel=sequence)
        plan = plan_of(gpt_layer(h=h, heads=h // 128), s=s, b=b, parallel=parallel, dropout=True)
        return guide_activations(plan, "tensor and sequence, selective" if sequence else "tensor, selective") / MIB

    wrong = {"no_sp": mib(t, sequence=False), "no_tp": mib(1, sequence=True)}
    return Worked({"s": s, "b": b, "h": h, "tp": t, "sp": True, "selective": True}, mib(t, sequence=True), wrong)


def in_flight(draw: Draw) -> Worked:
    """E18: micro-batches in flight times the layers of a stage."""
    layers, pp, micro, mib, stage = (draw[name] for name in ("layers", "pp", "micro", "mib", "stage"))
    live = max(sum(vector) for vector in in_flight_of("1f1b", pp, 1, micro, stage))
    one = layers / pp * mib / 1024
    shown = {"layers": layers, "pp": pp, "micro_batch_num": micro, "mib_per_layer": mib, "stage": stage}
    return Worked(shown, live * one, {"one_micro": one, "all_micro": micro * one, "gpipe_all_layers": live * one * pp})


def headroom(draw: Draw) -> Worked:
    """E19: what the job may use, less its peak."""
    used, peak = draw["used"], draw["peak"]
    return Worked({"mindspore_used_mb": used, "actual_peak_mb": peak, "hbm_mb": HBM_MB}, used - peak, {"from_hbm": HBM_MB - peak})


def fragmentation(draw: Draw) -> Worked:
    """E20: fragments as a share of the real peak."""
    without, real = draw["no_frag"], draw["with_frag"]
    lost = 100 * (real - without)
    return Worked({"no_frag_mb": without, "with_frag_mb": real}, lost / real, {"over_no_frag": lost / without})


def recomputed_cast(draw: Draw) -> Worked:
    """E21: wide copies of the inputs of the norms, over all layers; MindSpore keeps them in fp32."""
    model, b = named(draw["model"]), draw["b"]
    tensors = layer_tensors(plan_of(model, s=SEQ, b=b), preset("mindspore"), experts=False)
    casts = [tensor for tensor in tensors if tensor.widened]
    wide = sum(tensor.bytes for tensor in casts) * model.num_layers / MIB
    right = wide / 2  # The other half would be kept in 16 bit.
    shown = {"model": draw["model"], "s": SEQ, "b": b, "norms_per_layer": len(casts)}
    return Worked(shown, right, {"one_norm": right / len(casts), "fp32_size": wide})


GROUP = Group(
    title="Memory",
    order=2,
    formulas={
        "E14": guide_rule,
        "E15": exact_static,
        "E16": layer_activations,
        "E17": split_activations,
        "E18": in_flight,
        "E19": headroom,
        "E20": fragmentation,
        "E21": recomputed_cast,
    },
)
