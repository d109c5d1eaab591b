"""Memory shared: what the stages of one plan have in common, computed once a kind of stage or chunk instead of once a stage."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from functools import cache, partial
from itertools import pairwise

from perfkit.core.spec.plan import Plan
from perfkit.core.spec.recompute import Counts
from perfkit.predict.memory import activations
from perfkit.predict.memory.layout import expert_layers_in, stage_layers
from perfkit.predict.memory.settings import MemorySettings
from perfkit.predict.memory.static import BYTES, StaticBytes, stage_parameters, static_bytes

Parts = Mapping[str, float]


class Shared:
    """A plan with what its stages have in common: what depends on the kind of a stage or chunk is computed once a kind."""

    def __init__(self, plan: Plan, settings: MemorySettings) -> None:
        self.plan, self.settings = plan, settings
        self.layers = stage_layers(plan)
        self.mixed = expert_layers_in(plan.model, self.layers)
        self.tensors = cache(lambda experts: activations.layer_tensors(plan, settings, experts=experts))
        self.workspace = workspace_bytes(plan, settings)
        self._chunks: dict[tuple[int, ...], dict[str, float]] = {}
        self._backward: dict[tuple[Hashable, ...], tuple[float, float]] = {}
        self._static: dict[tuple[Hashable, ...], tuple[StaticBytes, Parts, Mapping[str, Parts]]] = {}

    def chunk(self, chunk: int, stage: int) -> dict[str, float]:
        """Bytes by part that the layers of a chunk keep of one micro batch."""
        recompute = self.plan.recompute
        counts = (recompute.full_layers, recompute.swapped_layers, recompute.communication, *recompute.operators.values())
        kind = (self.layers[chunk][stage], self.mixed[chunk][stage], *(_at(count, chunk, stage) for count in counts))
        if kind not in self._chunks:
            self._chunks[kind] = _chunk(self, kind[0], kind[1], kind[2:])
        return self._chunks[kind]

    def backward(self, stage: int) -> tuple[float, float]:
        """Bytes that the first layer that comes back makes again, and of its gradients."""
        plan, chunk = self.plan, len(self.layers) - 1
        full = plan.recompute.all_layers or _at(plan.recompute.full_layers, chunk, stage) > 0
        patterns = tuple(pattern for pattern, counts in plan.recompute.operators.items() if _at(counts, chunk, stage) > 0)
        kind = (self.mixed[chunk][stage] > 0, full, patterns)
        if kind not in self._backward:
            self._backward[kind] = _backward(self, *kind)
        return self._backward[kind]

    def static(self, stage: int) -> tuple[StaticBytes, Parts, Mapping[str, Parts]]:
        """What a stage holds from step to step, its buffers of collectives, and its optimizer step."""
        plan, settings = self.plan, self.settings
        ends = (stage == 0, stage == plan.parallel.pipeline_parallel_size - 1)
        kind = (*ends, sum(row[stage] for row in self.layers), sum(row[stage] for row in self.mixed))
        if kind not in self._static:
            buffers, step = communication_buffers(plan, settings, stage), optimizer_step(plan, settings, stage)
            self._static[kind] = static_bytes(plan, settings, stage), buffers, step
        return self._static[kind]


def _chunk(shared: Shared, count: int, mixed: int, counts: tuple[int, ...]) -> dict[str, float]:
    """Bytes by part of `count` layers of which `mixed` have experts; `counts` are those of the recompute plan."""
    recompute = shared.plan.recompute
    full, swapped, gathered, *repeated = counts
    full = count if recompute.all_layers else min(count, full)
    # Two layers on their way to or from the host stay on the device.
    gone = max(0, min(count - full, swapped) - 2)
    total: dict[str, float] = {"recomputed_layers": full * activations.layer_input(shared.plan)} if full else {}
    steps = sorted({full + gone, count, *(_within(number, full + gone, count) for number in (*repeated, gathered))})
    for start, end in pairwise(steps):
        kept = partial(
            activations.kept_bytes,
            patterns=tuple(pattern for pattern, number in zip(recompute.operators, repeated, strict=True) if number > start),
            attention_core=recompute.attention_core,
            gather_again=gathered > start,
        )
        # Experts come after the dense layers of a chunk.
        for kind, number in ((True, max(0, end - max(start, count - mixed))), (False, max(0, min(end, count - mixed) - start))):
            if number:
                for part, amount in kept(shared.tensors(kind)).items():
                    total[part] = total.get(part, 0.0) + number * amount
    return total


def _backward(shared: Shared, mixed: bool, full: bool, patterns: tuple[str, ...]) -> tuple[float, float]:
    plan, recompute, again = shared.plan, shared.plan.recompute, 0.0
    workspace = activations.backward_workspace(plan, shared.settings, experts=mixed)
    if recompute.all_layers or recompute.attention_core or recompute.operators or any(map(any, recompute.full_layers)):
        tensors = shared.tensors(mixed)
        kept = activations.kept_bytes(tensors, patterns, attention_core=recompute.attention_core)
        left = activations.layer_input(plan) if full else sum(kept.values())
        again = max(0.0, sum(tensor.bytes for tensor in tensors) - left)
    return again, workspace


def optimizer_step(plan: Plan, settings: MemorySettings, stage: int) -> dict[str, dict[str, float]]:
    """Bytes of the optimizer step by moment and part."""
    if not settings.bucket_elements:
        return {"in the optimizer step": {}}
    held = stage_parameters(plan, settings, stage).total
    # DeepSpeed lines up the gradients of its part in one tensor and casts that to 32 bit.
    copies = (BYTES[plan.optimizer.gradient_dtype] + 4) * held / plan.parallel.optimizer_shard_size
    return {"in the optimizer step": {"dynamic/gradient_copies": copies}}


def workspace_bytes(plan: Plan, settings: MemorySettings) -> float:
    """Fixed buffers of the framework's allocator."""
    fixed = settings.workspace_bytes + (settings.expert_workspace_bytes if plan.model.num_experts else 0)
    return fixed + activations.score_buffer(plan, settings)


def communication_buffers(plan: Plan, settings: MemorySettings, stage: int) -> dict[str, float]:
    """Buffers of collectives that stay allocated, by what they carry."""
    parallel, model = plan.parallel, plan.model
    whole, split = activations.hidden_bytes(plan)
    found = {"sequence": whole if whole != split else 0.0}
    if parallel.pipeline_parallel_size > 1:
        # What is sent forward, and gradients sent and received; what is received forward is a layer's input. Interleaving posts
        # the next exchange before the last one is used.
        found["pipeline"] = (6 if parallel.virtual_pipeline_parallel_size > 1 else 3) * split
    if parallel.context_parallel_size > 1:
        values = model.num_key_value_heads * model.head_size / model.hidden_size * whole / parallel.tensor_parallel_size
        ring, exchange = parallel.context_parallel_algorithm != "ulysses", parallel.context_parallel_algorithm != "ring"
        # Ring: keys and values, one block in use and one on its way. Exchange: what is sent and what arrives.
        found["context"] = (4 * values if ring else 0.0) + (2 * whole / parallel.tensor_parallel_size if exchange else 0.0)
    if settings.bucket_elements and parallel.data_parallel_size > 1:
        held = stage_parameters(plan, settings, stage).total
        found["buckets"] = 2 * 2 * min(settings.bucket_elements, held)  # One of gradients and one of parameters, in 16 bit.
    return {f"dynamic/communication_buffers/{name}": amount for name, amount in found.items()}


def _within(value: int, low: int, high: int) -> int:
    return min(max(value, low), high)


def _at(counts: Counts, chunk: int, stage: int) -> int:
    return counts[chunk][stage] if chunk < len(counts) and stage < len(counts[chunk]) else 0
