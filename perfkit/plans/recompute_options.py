"""What recomputing each operator of a layer frees and costs: the trade that selective recomputation is about.

Bytes are those of the memory model: a tensor goes when the operator that makes it is repeated. Seconds are those of the step model:
a product repeats its forward pass, attention its kernel, and everything else reads its inputs and writes its output once more.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from perfkit.calc import _memory_activations as activations
from perfkit.calc._collectives import gather_s
from perfkit.calc._efficiency import Efficiency
from perfkit.calc._memory_settings import MemorySettings, settings_for
from perfkit.calc._operators import weight_product_s
from perfkit.calc._plan_rows import plan_columns
from perfkit.calc._recomputed import matches
from perfkit.calc._step_columns import Work, micro_batch_work
from perfkit.spec.plan import Plan
from perfkit.spec.recompute import RecomputePlan

NORM, VIEW = ("norm", "rcast", "cast"), ("reshape", "transpose", "merger_head_transpose", "tile_kv")
MULTIPLIED = ("mul", "add")


@dataclass(frozen=True, kw_only=True, slots=True)
class Option:
    """One operator by its path: bytes a layer keeps less of one micro batch when it is repeated, and the seconds that takes."""

    path: str
    saved_bytes: float
    seconds: float

    @property
    def bytes_per_s(self) -> float:
        """Bytes freed for every second; infinite where the repeat is only a view."""
        return self.saved_bytes / self.seconds if self.seconds else float("inf")


def operator_options(
    plan: Plan, paths: Sequence[str], efficiency: Efficiency, settings: MemorySettings | None = None
) -> list[Option]:
    """Every path that frees memory when it alone is repeated, most bytes a second first. The plan must name a device."""
    settings = settings or settings_for(plan)
    experts = plan.model.num_experts > 0
    tensors = activations.layer_tensors(plan, settings, experts=experts)
    whole = sum(activations.kept_bytes(tensors).values())
    found = []
    for path in paths:
        saved = whole - sum(activations.kept_bytes(tensors, [path.replace(".", r"\.")]).values())
        if saved > 0:
            found.append(Option(path=path, saved_bytes=saved, seconds=again_s(plan, efficiency, [path.replace(".", r"\.")])))
    # A cell and the only operator in it are one choice: the path that comes first stays.
    alike = [option for option in found if not any(option.path.startswith(f"{other.path}.") for other in found)]
    return sorted(alike, key=lambda option: (-option.bytes_per_s, -option.saved_bytes, option.path))


def independent(plan: Plan, options: Sequence[Option], settings: MemorySettings | None = None) -> list[Option]:
    """The options that free tensors of their own, each with what it frees beyond those before it."""
    found: list[Option] = []
    patterns: list[str] = []
    before = 0.0
    for option in options:
        together = saved_bytes(plan, [*patterns, option.path.replace(".", r"\.")], settings)
        if together > before:
            found.append(replace(option, saved_bytes=together - before))
            patterns.append(option.path.replace(".", r"\."))
            before = together
    return found


def saved_bytes(
    plan: Plan, patterns: Sequence[str], settings: MemorySettings | None = None, *, communication: bool = False
) -> float:
    """Bytes that a layer keeps less of one micro batch with these patterns together."""
    tensors = activations.layer_tensors(plan, settings or settings_for(plan), experts=plan.model.num_experts > 0)
    kept = activations.kept_bytes(tensors, patterns, gather_again=communication)
    return sum(activations.kept_bytes(tensors).values()) - sum(kept.values())


def full_option(plan: Plan, efficiency: Efficiency, settings: MemorySettings | None = None) -> Option:
    """Repeating the whole layer: all but its input is freed, for one more forward pass."""
    tensors = activations.layer_tensors(plan, settings or settings_for(plan), experts=plan.model.num_experts > 0)
    columns = plan_columns([replace(plan, recompute=one) for one in (RecomputePlan(), RecomputePlan(all_layers=True))])
    none, full = micro_batch_work(columns, efficiency).layer.total
    return Option(
        path="full layer",
        saved_bytes=sum(activations.kept_bytes(tensors).values()) - activations.layer_input(plan),
        seconds=float(full - none),
    )


def again_s(plan: Plan, efficiency: Efficiency, patterns: Sequence[str], *, communication: bool = False) -> float:
    """Seconds that a layer takes longer in the backward pass of one micro batch when it repeats what the patterns name.

    With `communication` also the two all-gathers of sequence parallelism. The plan must name a device.
    """
    work = micro_batch_work(plan_columns([replace(plan, recompute=RecomputePlan())]), efficiency)
    seconds = sum(_products_s(plan, work, patterns))
    if _named(patterns, ("attention.flash_attention", "attention.batch_matmul", "attention.batch_matmul_q_k", "attention.softmax")):
        seconds += float(work.layer.forward.attention[0])
    return seconds + _light_s(plan, work, patterns, communication=communication)


def light_again_s(plan: Plan, efficiency: Efficiency, patterns: Sequence[str], *, communication: bool = False) -> float:
    """The part of `again_s` that the step model leaves out: operators without products, and all-gathers."""
    work = micro_batch_work(plan_columns([replace(plan, recompute=RecomputePlan())]), efficiency)
    return _light_s(plan, work, patterns, communication=communication)


def _light_s(plan: Plan, work: Work, patterns: Sequence[str], *, communication: bool) -> float:
    seconds = 0.0
    for tensor in activations.layer_tensors(plan, settings_for(plan), experts=plan.model.num_experts > 0):
        makers = [maker for maker in tensor.makers if not tensor.core and _named(patterns, (maker,))]
        if makers:
            seconds += max(map(_traffic, makers)) * tensor.bytes / float(np.ravel(work.device.bytes_per_s)[0])
    tensor_size = plan.parallel.tensor_parallel_size
    if communication and plan.parallel.sequence_parallel and tensor_size > 1:
        whole, _ = activations.hidden_bytes(plan)
        seconds += 2 * float(gather_s(np.full(1, whole), np.full(1, float(tensor_size)), np.ones(1), work.network)[0])
    return seconds


def _products_s(plan: Plan, work: Work, patterns: Sequence[str]) -> list[float]:
    """Seconds of the products that the patterns name."""
    model, t = plan.model, plan.parallel.tensor_parallel_size
    tokens, device = work.tokens, work.device
    h, head = model.hidden_size, model.head_size
    width = model.expert_ffn_hidden_size * model.num_experts_per_token if model.num_experts else model.ffn_hidden_size
    groups = model.num_key_value_heads * head / t
    products = {
        "attention.wq.matmul": (model.num_attention_heads * head / t, h),
        "attention.wk.matmul": (groups, h),
        "attention.wv.matmul": (groups, h),
        "attention.wo.matmul": (h, model.num_attention_heads * head / t),
        "feed_forward.w1.matmul": (width / t, h),
        "feed_forward.w2.matmul": (h, width / t),
        **({"feed_forward.w3.matmul": (width / t, h)} if model.gated_ffn else {}),
    }
    return [
        float(np.ravel(weight_product_s(tokens, np.full(1, columns), np.full(1, depth), device, np.ones(1))[0])[0])
        for path, (columns, depth) in products.items()
        if _named(patterns, (path,))
    ]


def _named(patterns: Sequence[str], paths: Sequence[str]) -> bool:
    return any(matches(pattern, path) for pattern in patterns for path in paths)


def _traffic(maker: str) -> float:
    """Reads and writes of an operator for every byte that it makes; products have theirs in their own time."""
    last = maker.rpartition(".")[2]
    if last in VIEW or last == "matmul":
        return 0.0
    return 3.0 if last in MULTIPLIED else 2.0
