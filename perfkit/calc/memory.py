"""Memory: the peak of one device by pipeline stage, what it is made of, and when in the step it happens.

Three moments are compared on every stage: the loss (last stage: all activations and the logits), the backward pass of a layer
(activations, recomputed tensors, gradients of activations) and the optimizer step (its buffers, no activations). The peak is the
largest; its leaves sum to it. `static` stays from step to step, `dynamic` comes and goes, `reserved` is what the allocator and the
driver hold beyond the tensors. Activations are those of arXiv 2205.05198 in flight by the exact order of the schedule.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from itertools import pairwise

from perfkit.breakdown import Breakdown
from perfkit.calc import _memory_activations as activations
from perfkit.calc._calculator import Calculator
from perfkit.calc._memory_layout import Vector, expert_layers_in, in_flight, stage_layers
from perfkit.calc._memory_settings import MemorySettings, settings_for
from perfkit.calc._memory_static import BYTES, StaticBytes, padded_vocab, stage_parameters, static_bytes
from perfkit.source import Source
from perfkit.spec.model import ModelSpec
from perfkit.spec.optimizer import OptimizerSpec
from perfkit.spec.parallel import ParallelPlan
from perfkit.spec.plan import Plan
from perfkit.spec.recompute import Counts, RecomputePlan
from perfkit.spec.workload import Workload

SOURCE = Source("computed", "perfkit.calc.memory.peak_memory", "tensors of the largest moment of a step, by stage")

Parts = Mapping[str, float]


@dataclass(frozen=True, slots=True)
class MemoryEstimate:
    """The peak in bytes of the fullest stage (`peak`) and of every stage (`stages`), and the moment when it happens, in words."""

    stages: tuple[Breakdown, ...]
    moments: tuple[str, ...]
    settings: MemorySettings

    @property
    def fullest_stage(self) -> int:
        """The stage (0-based) that needs most."""
        totals = [stage.total for stage in self.stages]
        return totals.index(max(totals))

    @property
    def peak(self) -> Breakdown:
        """The peak of the fullest stage."""
        return self.stages[self.fullest_stage]

    @property
    def moment(self) -> str:
        """When the fullest stage reaches its peak."""
        return self.moments[self.fullest_stage]

    def fits(self, limit_bytes: float) -> bool:
        """Whether every stage stays within `limit_bytes`."""
        return self.peak.total <= limit_bytes


def peak_memory(plan: Plan, *, schedule: str = "1f1b", settings: MemorySettings | None = None) -> MemoryEstimate:
    """The memory that a device of every stage needs at its peak, in bytes.

    `schedule` is gpipe, 1f1b (interleaved if the plan has virtual stages), zbh1, vpp, vpp_lm or dualpipe. `settings` are those of
    the framework that the plan's file was written for unless given. Raises InputError for a schedule that does not fit.
    """
    settings = settings or settings_for(plan)
    parallel = plan.parallel
    vectors = in_flight(
        schedule,
        parallel.pipeline_parallel_size,
        parallel.virtual_pipeline_parallel_size,
        plan.num_micro_batches,
        parallel.sequence_chunks,
    )
    found = [_stage(plan, settings, schedule, stage, vectors[stage]) for stage in range(parallel.pipeline_parallel_size)]
    return MemoryEstimate(tuple(parts for parts, _ in found), tuple(moment for _, moment in found), settings)


def peak_breakdown(
    model: ModelSpec, workload: Workload, parallel: ParallelPlan, recompute: RecomputePlan, optimizer: OptimizerSpec
) -> Breakdown:
    """The peak of the fullest stage for parts of a plan, in bytes."""
    plan = Plan(model=model, workload=workload, parallel=parallel, recompute=recompute, optimizer=optimizer)
    return peak_memory(plan).peak


def chunk_activations(plan: Plan, settings: MemorySettings, chunk: int, stage: int) -> dict[str, float]:
    """Bytes by part that the layers of one chunk of a stage keep of one micro batch, with recomputation and swapping."""
    layers, recompute = stage_layers(plan), plan.recompute
    count, mixed = layers[chunk][stage], expert_layers_in(plan.model, layers)[chunk][stage]
    full = count if recompute.all_layers else min(count, _at(recompute.full_layers, chunk, stage))
    swapped = min(count - full, _at(recompute.swapped_layers, chunk, stage))
    # Two layers on their way to or from the host stay on the device.
    gone = max(0, swapped - 2)
    total: dict[str, float] = {"recomputed_layers": full * activations.layer_input(plan)} if full else {}
    tensors = {kind: activations.layer_tensors(plan, settings, experts=kind) for kind in (False, True) if kind is False or mixed}
    steps = sorted({full + gone, count, *(_within(_at(counts, chunk, stage), full + gone, count) for counts in _lists(recompute))})
    for start, end in pairwise(steps):
        kept = partial(
            activations.kept_bytes,
            patterns=tuple(pattern for pattern, counts in recompute.operators.items() if _at(counts, chunk, stage) > start),
            attention_core=recompute.attention_core,
            gather_again=_at(recompute.communication, chunk, stage) > start,
        )
        # Experts come after the dense layers of a chunk.
        for kind, number in ((True, max(0, end - max(start, count - mixed))), (False, max(0, min(end, count - mixed) - start))):
            if number:
                for part, amount in kept(tensors[kind]).items():
                    total[part] = total.get(part, 0.0) + number * amount
    return total


def _stage(plan: Plan, settings: MemorySettings, schedule: str, stage: int, vectors: tuple[Vector, ...]) -> tuple[Breakdown, str]:
    parallel, static = plan.parallel, static_bytes(plan, settings, stage)
    places = [(chunk, stage) for chunk in range(parallel.virtual_pipeline_parallel_size)]
    if schedule == "dualpipe":  # Every device holds two stages, one for each direction.
        mirrored = parallel.pipeline_parallel_size - 1 - stage
        static = _sum(static, static_bytes(plan, settings, mirrored))
        places.append((0, mirrored))
    held = _held(plan, settings, stage, [chunk_activations(plan, settings, *place) for place in places], vectors)
    moments = {
        **at_loss(plan, settings, stage, held),
        **in_backward(plan, settings, stage, held),
        **_optimizer_step(plan, settings, stage),
    }
    moment = max(moments, key=lambda name: sum(moments[name].values()))
    parts = {
        "static/parameters": static.parameters,
        "static/gradients": static.gradients,
        "static/optimizer": static.optimizer,
        **moments[moment],
        "dynamic/gathered_parameters": static.gathered,
        **communication_buffers(plan, settings, stage),
        "reserved/workspace": workspace_bytes(plan, settings),
    }
    inside = sum(parts.values())
    parts |= {"reserved/fragmentation": settings.fragmentation * inside, "reserved/context": settings.context_bytes}
    return Breakdown("bytes", {path: round(amount) for path, amount in parts.items() if round(amount)}, SOURCE), moment


def _held(
    plan: Plan, settings: MemorySettings, stage: int, chunks: list[dict[str, float]], vectors: tuple[Vector, ...]
) -> dict[str, float]:
    """Activations by part when most micro batches wait, of the layers and outside of them."""
    live = max(vectors, key=lambda vector: sum(n * sum(parts.values()) for n, parts in zip(vector, chunks, strict=True)))
    held = outside_layers(plan, settings, stage, live)
    for number, parts in zip(live, chunks, strict=True):
        for part, amount in parts.items():
            held[part] = held.get(part, 0.0) + number * amount
    return held


def _sum(one: StaticBytes, other: StaticBytes) -> StaticBytes:
    return StaticBytes(
        one.parameters + other.parameters,
        one.gradients + other.gradients,
        one.optimizer + other.optimizer,
        one.gathered + other.gathered,
    )


def outside_layers(plan: Plan, settings: MemorySettings, stage: int, live: Vector) -> dict[str, float]:
    """Activations outside of the layers by part: of the embedding, of the head's input, and the batch itself."""
    whole, split = activations.hidden_bytes(plan)
    tokens, parallel, work = activations.micro_batch_tokens(plan), plan.parallel, plan.workload
    element = whole / (tokens * plan.model.hidden_size)
    last = stage == parallel.pipeline_parallel_size - 1
    found: dict[str, float] = {}
    if stage == 0:
        found["embedding"] = live[0] * (split / element if work.dropout else 0.0)
    if last:
        gathered = whole if settings.keeps_gathered_inputs else split
        # The final norm's input, and its output: the head's input.
        found["head"] = (2 * split if settings.keeps_norm_in_fp32 and element == 2 else split) + gathered
    if stage == 0 or last:
        mask = tokens * work.seq_length if settings.masks_in_batch else 0.0
        found["batch"] = tokens * (8 + 8 + 8 + 4) + mask  # Token ids, labels and positions in 64 bit, a loss mask in 32 bit.
    return found


def at_loss(plan: Plan, settings: MemorySettings, stage: int, held: Parts) -> dict[str, dict[str, float]]:
    """The moment of the loss: what is `held`, and the logits; nothing on a stage without the head."""
    if stage != plan.parallel.pipeline_parallel_size - 1:
        return {}
    tokens = activations.micro_batch_tokens(plan)
    elements = tokens * padded_vocab(plan, settings) / plan.parallel.tensor_parallel_size
    return {"at the loss of a micro batch": {**_dynamic(held), "dynamic/logits": elements * settings.logits_bytes_per_element}}


def in_backward(plan: Plan, settings: MemorySettings, stage: int, held: Parts) -> dict[str, dict[str, float]]:
    """The backward pass of the first layer that comes back: its own tensors are made again if it is recomputed."""
    layers = stage_layers(plan)
    chunk = len(layers) - 1
    if not layers[chunk][stage]:
        return {"while micro batches wait": _dynamic(held)}
    mixed = expert_layers_in(plan.model, layers)[chunk][stage] > 0
    recompute = plan.recompute
    parts = _dynamic(held)
    workspace = activations.backward_workspace(plan, settings, experts=mixed)
    again = 0.0
    if recompute.all_layers or recompute.attention_core or recompute.operators or any(map(any, recompute.full_layers)):
        tensors = activations.layer_tensors(plan, settings, experts=mixed)
        whole = sum(tensor.bytes for tensor in tensors)
        full = recompute.all_layers or _at(recompute.full_layers, chunk, stage) > 0
        patterns = tuple(pattern for pattern, counts in recompute.operators.items() if _at(counts, chunk, stage) > 0)
        kept = activations.kept_bytes(tensors, patterns, attention_core=recompute.attention_core)
        again = whole - (activations.layer_input(plan) if full else sum(kept.values()))
    return {
        "in the backward pass of a layer": {
            **parts,
            "dynamic/recomputed_tensors": max(0.0, again),
            "dynamic/activation_gradients": workspace,
        }
    }


def _optimizer_step(plan: Plan, settings: MemorySettings, stage: int) -> dict[str, dict[str, float]]:
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


def _dynamic(held: Parts) -> dict[str, float]:
    return {f"dynamic/activations/{part}": amount for part, amount in held.items()}


def _lists(recompute: RecomputePlan) -> list[Counts]:
    return [*recompute.operators.values(), recompute.communication]


def _within(value: int, low: int, high: int) -> int:
    return min(max(value, low), high)


def _at(counts: Counts, chunk: int, stage: int) -> int:
    return counts[chunk][stage] if chunk < len(counts) and stage < len(counts[chunk]) else 0


CALCULATOR = Calculator(
    name="memory",
    question="How much memory does a device need, and for what?",
    unit="bytes",
    inputs=("model", "workload", "parallel", "recompute", "optimizer"),
    run=peak_breakdown,
)
