"""Plan: all specs together, and what must hold between them."""

from __future__ import annotations

from dataclasses import dataclass, field, fields, is_dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from perfkit.core.errors import InputError
from perfkit.core.shown import Shown
from perfkit.core.spec.checks import nearest_divisors, nearest_multiples
from perfkit.core.spec.hardware import HardwareSpec
from perfkit.core.spec.memory_limit import MemoryLimit
from perfkit.core.spec.model import ModelSpec
from perfkit.core.spec.optimizer import OptimizerSpec
from perfkit.core.spec.parallel import ParallelPlan
from perfkit.core.spec.recompute import Counts, RecomputePlan
from perfkit.core.spec.software import CONTEXT_BYTES, SoftwareSpec, usual_framework
from perfkit.core.spec.workload import Workload

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True, kw_only=True, slots=True)
class Plan(Shown):
    """Everything that decides a run before it starts.

    `hardware` is None where a config does not name a device. `document` is the file that the plan was read from
    (`perfkit.config.dialects.Document`), or None. Raises InputError that lists every contradiction between the parts.
    """

    model: ModelSpec
    workload: Workload
    parallel: ParallelPlan = ParallelPlan()
    recompute: RecomputePlan = RecomputePlan()
    optimizer: OptimizerSpec = OptimizerSpec()
    hardware: HardwareSpec | None = None
    memory_limit: MemoryLimit | None = None
    software: SoftwareSpec = SoftwareSpec()
    document: Any = field(default=None, repr=False)

    def __post_init__(self) -> None:
        problems = [*self._batch_problems(), *self._split_problems(), *self._sequence_problems(), *self._expert_problems()]
        problems += [*self._recompute_problems(), *self._limit_problems()]
        if problems:
            raise InputError("Plan", problems)

    def to_frame(self) -> pd.DataFrame:
        """What the plan states: `part`, `field` and `value` of every field that is not as it is where nothing is said."""
        import pandas as pd  # noqa: PLC0415  plans are made where no frame is needed

        rows = []
        for part in fields(self):
            inside = getattr(self, part.name)
            for one in fields(inside) if is_dataclass(inside) and part.name != "document" else ():
                value = getattr(inside, one.name)
                if value != one.default:
                    rows.append((part.name, one.name, value))
        return pd.DataFrame(rows, columns=["part", "field", "value"])

    def _batch_problems(self) -> list[str]:
        work, parallel = self.workload, self.parallel
        per_micro_batch = work.micro_batch_size * parallel.data_parallel_size * parallel.micro_batch_interleave_size
        if work.global_batch_size % per_micro_batch == 0:
            return []
        exact = work.global_batch_size / per_micro_batch
        return [
            f"global_batch_size = {work.global_batch_size} is not divisible by micro_batch_size {work.micro_batch_size} x "
            f"data_parallel_size {parallel.data_parallel_size} x micro_batch_interleave_size "
            f"{parallel.micro_batch_interleave_size}: {exact:.6g} micro batches; nearest is "
            f"{nearest_multiples(work.global_batch_size, per_micro_batch)}"
        ]

    def _split_problems(self) -> list[str]:
        model, parallel, problems = self.model, self.parallel, []
        stages = parallel.pipeline_parallel_size * parallel.virtual_pipeline_parallel_size
        if parallel.layers_per_stage is not None:
            placed = sum(sum(row) for row in parallel.layers_per_stage)
            if placed != model.num_layers:
                problems.append(f"layers_per_stage places {placed} layers, the model has {model.num_layers}")
        elif stages > model.num_layers:
            problems.append(
                f"{stages} pipeline chunks for {model.num_layers} layers leave chunks empty; stages x chunks can be "
                f"{model.num_layers} at most"
            )
        if model.num_attention_heads % parallel.tensor_parallel_size:
            problems.append(
                f"num_attention_heads = {model.num_attention_heads} is not divisible by "
                f"tensor_parallel_size = {parallel.tensor_parallel_size}; nearest is "
                f"{nearest_divisors(parallel.tensor_parallel_size, model.num_attention_heads)}"
            )
        shards, replicas = parallel.optimizer_shard_size, parallel.data_parallel_size * parallel.context_parallel_size
        if replicas % shards:
            problems.append(
                f"optimizer_shard_size = {shards} does not divide data_parallel_size x context_parallel_size = {replicas}; "
                f"nearest is {nearest_divisors(shards, replicas)}"
            )
        return problems

    def _sequence_problems(self) -> list[str]:
        model, parallel, length, problems = self.model, self.parallel, self.workload.seq_length, []
        context, tensor = parallel.context_parallel_size, parallel.tensor_parallel_size
        cuts = {"context_parallel_size": context, "sequence_chunks": parallel.sequence_chunks}
        if parallel.sequence_parallel:
            cuts["tensor_parallel_size"] = tensor
        for name, size in cuts.items():
            if length % size:
                problems.append(
                    f"seq_length = {length} is not divisible by {name} = {size}; nearest is {nearest_divisors(size, length)}"
                )
        kind = parallel.context_parallel_algorithm
        heads = {"ring": 1, "ulysses": context, "hybrid": parallel.ulysses_size or 1}[kind]
        if heads > 1 and model.num_key_value_heads % (tensor * heads):
            near = nearest_divisors(heads, max(1, model.num_key_value_heads // tensor))
            problems.append(
                f"num_key_value_heads = {model.num_key_value_heads} is not divisible by tensor_parallel_size {tensor} x {heads} "
                f"ranks that exchange heads; nearest is {near} ranks"
            )
        return problems

    def _expert_problems(self) -> list[str]:
        model, parallel = self.model, self.parallel
        if not model.num_experts:
            size = parallel.expert_parallel_size
            return [f"expert_parallel_size = {size}, but the model has no experts; nearest is 1"] if size > 1 else []
        size, problems = parallel.expert_parallel_size, []
        if model.num_experts % size:
            near = nearest_divisors(size, model.num_experts)
            problems.append(
                f"num_experts = {model.num_experts} is not divisible by expert_parallel_size = {size}; nearest is {near}"
            )
        devices, names = parallel.data_parallel_size * parallel.context_parallel_size, "data_parallel_size x context_parallel_size"
        if inner := parallel.expert_tensor_parallel_size:
            devices *= parallel.tensor_parallel_size
            names += f" x tensor_parallel_size / expert_tensor_parallel_size = {devices} / {inner}"
        else:
            inner, names = 1, f"{names} = {devices}"
        if devices % (size * inner):
            near = nearest_divisors(size, max(1, devices // inner))
            problems.append(f"expert_parallel_size = {size} does not divide {names}; nearest is {near}")
        return problems

    def _recompute_problems(self) -> list[str]:
        parallel = self.parallel
        places = parallel.pipeline_parallel_size * parallel.virtual_pipeline_parallel_size
        # Too few layers for the stages are told with the split.
        known = parallel.layers_per_stage is not None or places <= self.model.num_layers
        return self.recompute.problems(self.stage_layers) if known else []

    def _limit_problems(self) -> list[str]:
        if self.memory_limit is None or self.hardware is None:
            return []
        problem = self.memory_limit.problem(self.hardware.name, self.hardware.memory_bytes)
        return [problem] if problem else []

    @property
    def usable_memory(self) -> MemoryLimit | None:
        """The limit that counts (`usable_limit`)."""
        return usable_limit(self.memory_limit, self.hardware, self.program)

    def write(self, target: str | Path | None = None, *, dialect: str = "") -> Any:
        """This plan as configuration text in a dialect, saved to `target` if that is given (`perfkit.write_config`).

        Without `dialect` it is that of the file that the plan was read from: what differs is changed in its text, all else stays.
        """
        writer = getattr(self.document, "write", None)
        if writer is None:
            raise InputError("Plan", ["this plan was not read from a file; write it with perfkit.write_config(plan, ...)"])
        return writer(self, target, dialect=dialect)

    @property
    def stage_layers(self) -> tuple[tuple[int, ...], ...]:
        """Layers of every chunk (row) and stage (column); an uneven split gives the first chunks one layer more."""
        if self.parallel.layers_per_stage is not None:
            return self.parallel.layers_per_stage
        return even_layers(
            self.model.num_layers, self.parallel.pipeline_parallel_size, self.parallel.virtual_pipeline_parallel_size
        )

    @property
    def program(self) -> str:
        """The framework: the one that the plan names, else the usual one of its device and of how it splits the work."""
        parallel = self.parallel
        split = parallel.tensor_parallel_size > 1 or parallel.pipeline_parallel_size > 1
        only_shared = not split and parallel.optimizer_shard_size > 1 and parallel.optimizer_shard_level >= 2
        name = self.hardware.name if self.hardware else ""
        return self.software.framework or usual_framework(name, only_shared=only_shared)

    @property
    def num_devices(self) -> int:
        """Devices of the whole job."""
        return self.parallel.num_devices

    @property
    def num_micro_batches(self) -> int:
        """Micro batches of a step and replica."""
        parallel = self.parallel
        return self.workload.global_batch_size // (
            self.workload.micro_batch_size * parallel.data_parallel_size * parallel.micro_batch_interleave_size
        )

    @property
    def tokens_per_step(self) -> int:
        """Tokens that one step processes on all devices."""
        return self.workload.global_batch_size * self.workload.seq_length


def usable_limit(limit: MemoryLimit | None, device: HardwareSpec | None, program: str) -> MemoryLimit | None:
    """The limit that counts, in bytes: the one that is stated, else the whole device; None where neither is known.

    A pool can have no more than its program leaves of the device.
    """
    if device is None:
        return None if limit is None or limit.limit_bytes is None else limit
    if limit is not None:
        return limit.on(device.name, device.memory_bytes, CONTEXT_BYTES[program])
    return MemoryLimit(limit_bytes=device.memory_bytes, part="device", source=f"the device, {device.name}")


def even_layers(layers: int, stages: int, chunks: int) -> Counts:
    """Layers of every chunk (row) and stage (column) of an even split; what is left over goes to the first chunks."""
    each, extra = divmod(layers, stages * chunks)
    sizes = [each + (index < extra) for index in range(stages * chunks)]
    return tuple(tuple(sizes[start : start + stages]) for start in range(0, len(sizes), stages))


def uneven(layers: Counts | None) -> Counts | None:
    """The layers of every chunk and stage if they differ, which is what a plan states; None for as many in each."""
    return layers if len({count for row in layers or () for count in row}) > 1 else None


def slotted_layers(layers: int, stages: int, chunks: int) -> Counts:
    """The split of Megatron and DeepSpeed that counts embedding and head: the first and the last place have one layer less."""
    each = (layers + 2) // (stages * chunks)
    rows = [[each] * stages for _ in range(chunks)]
    rows[0][0] -= 1
    rows[-1][-1] -= 1
    return tuple(map(tuple, rows))
