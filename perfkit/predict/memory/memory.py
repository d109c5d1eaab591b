"""Memory: the peak of one device by pipeline stage, what it is made of, and when in the step it happens.

Three moments are compared on every stage: the loss (last stage: all activations and the logits), the backward pass of a layer
(activations, recomputed tensors, gradients of activations) and the optimizer step (its buffers, no activations). The peak is the
largest; its leaves sum to it. `static` stays from step to step, `dynamic` comes and goes, `reserved` is what the allocator and the
driver hold beyond the tensors. Activations are those of arXiv 2205.05198 in flight by the exact order of the schedule.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from perfkit.core.breakdown import Breakdown
from perfkit.core.source import Source
from perfkit.core.spec.plan import Plan
from perfkit.predict.memory import activations
from perfkit.predict.memory.layout import Vector, in_flight
from perfkit.predict.memory.settings import MemorySettings, settings_for
from perfkit.predict.memory.shared import Shared
from perfkit.predict.memory.static import StaticBytes, padded_vocab

SOURCE = Source("computed", "perfkit.predict.memory.memory.peak_memory", "tensors of the largest moment of a step, by stage")

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
    shared = Shared(plan, settings)
    found = [_stage(shared, schedule, stage, vectors[stage]) for stage in range(parallel.pipeline_parallel_size)]
    return MemoryEstimate(tuple(parts for parts, _ in found), tuple(moment for _, moment in found), settings)


def chunk_activations(plan: Plan, settings: MemorySettings, chunk: int, stage: int) -> dict[str, float]:
    """Bytes by part that the layers of one chunk of a stage keep of one micro batch, with recomputation and swapping."""
    return Shared(plan, settings).chunk(chunk, stage)


def _stage(shared: Shared, schedule: str, stage: int, vectors: tuple[Vector, ...]) -> tuple[Breakdown, str]:
    plan, settings, parallel = shared.plan, shared.settings, shared.plan.parallel
    static, buffers, optimizer_step = shared.static(stage)
    places = [(chunk, stage) for chunk in range(parallel.virtual_pipeline_parallel_size)]
    if schedule == "dualpipe":  # Every device holds two stages, one for each direction.
        mirrored = parallel.pipeline_parallel_size - 1 - stage
        static = _sum(static, shared.static(mirrored)[0])
        places.append((0, mirrored))
    held = _held(plan, settings, stage, [shared.chunk(*place) for place in places], vectors)
    moments = {**at_loss(plan, settings, stage, held), **_in_backward(shared, stage, held), **optimizer_step}
    moment = max(moments, key=lambda name: sum(moments[name].values()))
    parts = {
        "static/parameters": static.parameters,
        "static/gradients": static.gradients,
        "static/optimizer": static.optimizer,
        **moments[moment],
        "dynamic/gathered_parameters": static.gathered,
        **buffers,
        "reserved/workspace": shared.workspace,
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
    return _in_backward(Shared(plan, settings), stage, held)


def _in_backward(shared: Shared, stage: int, held: Parts) -> dict[str, dict[str, float]]:
    if not shared.layers[-1][stage]:
        return {"while micro batches wait": _dynamic(held)}
    again, workspace = shared.backward(stage)
    own = {"dynamic/recomputed_tensors": again, "dynamic/activation_gradients": workspace}
    return {"in the backward pass of a layer": {**_dynamic(held), **own}}


def _dynamic(held: Parts) -> dict[str, float]:
    return {f"dynamic/activations/{part}": amount for part, amount in held.items()}
