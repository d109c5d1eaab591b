"""How the work is split over devices."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

from perfkit.core.errors import InputError
from perfkit.core.spec.checks import MAX_LAYERS, counts, nearest_divisors, one_of

ContextAlgorithm = Literal["ring", "ulysses", "hybrid"]

SIZES = (
    "data_parallel_size",
    "tensor_parallel_size",
    "pipeline_parallel_size",
    "virtual_pipeline_parallel_size",
    "context_parallel_size",
    "expert_parallel_size",
    "optimizer_shard_size",
    "micro_batch_interleave_size",
    "sequence_chunks",
)
OPTIONAL_SIZES = ("expert_tensor_parallel_size", "ulysses_size")


@dataclass(frozen=True, kw_only=True, slots=True)
class ParallelPlan:
    """Sizes of the parallel groups.

    `optimizer_shard_size` is the number of devices that share one copy of the optimizer state (1: not sharded);
    `optimizer_shard_level` says what they share: 1 the optimizer state, 2 the gradients too, 3 the parameters too (ZeRO 1 to 3).
    `context_parallel_algorithm` passes keys and values around ("ring"), exchanges heads ("ulysses"), or does the latter in groups
    of `ulysses_size` ("hybrid"). `sequence_chunks` cuts a micro batch into pieces of the sequence that enter the pipeline one
    after the other. `expert_tensor_parallel_size` is 0 where experts are split like the other weights.
    `layers_per_stage` has one tuple a virtual chunk with the layers of every pipeline stage; None means an even split.
    `micro_batch_interleave_size` is the number of copies a micro batch is cut into to hide communication (multi-copy).
    """

    data_parallel_size: int = 1
    tensor_parallel_size: int = 1
    pipeline_parallel_size: int = 1
    virtual_pipeline_parallel_size: int = 1
    context_parallel_size: int = 1
    expert_parallel_size: int = 1
    sequence_parallel: bool = False
    optimizer_shard_size: int = 1
    micro_batch_interleave_size: int = 1
    layers_per_stage: tuple[tuple[int, ...], ...] | None = None
    optimizer_shard_level: int = 1
    context_parallel_algorithm: ContextAlgorithm = "ring"
    ulysses_size: int = 0
    sequence_chunks: int = 1
    expert_tensor_parallel_size: int = 0

    def __post_init__(self) -> None:
        problems = counts(self, SIZES) + counts(self, OPTIONAL_SIZES, low=0)
        if self.optimizer_shard_level not in (1, 2, 3):
            problems.append(f"optimizer_shard_level = {self.optimizer_shard_level!r} must be 1, 2 or 3")
        problems += one_of(self, "context_parallel_algorithm", get_args(ContextAlgorithm))
        if not problems and self.ulysses_size and self.context_parallel_size % self.ulysses_size:
            problems.append(
                f"ulysses_size = {self.ulysses_size} does not divide context_parallel_size = {self.context_parallel_size}; "
                f"nearest is {nearest_divisors(self.ulysses_size, self.context_parallel_size)}"
            )
        places = 0 if problems else self.pipeline_parallel_size * self.virtual_pipeline_parallel_size
        if places > MAX_LAYERS:
            problems.append(f"pipeline_parallel_size x virtual_pipeline_parallel_size = {places} must be at most {MAX_LAYERS}")
        elif self.layers_per_stage is not None:
            chunks, stages = self.virtual_pipeline_parallel_size, self.pipeline_parallel_size
            shape = [len(row) for row in self.layers_per_stage]
            if shape != [stages] * chunks:
                problems.append(
                    f"layers_per_stage has rows of {shape} entries; virtual_pipeline_parallel_size = {chunks} and "
                    f"pipeline_parallel_size = {stages} need {chunks} rows of {stages}"
                )
            if any(layers < 0 for row in self.layers_per_stage for layers in row):
                problems.append(f"layers_per_stage = {self.layers_per_stage} has a negative number of layers")
        if problems:
            raise InputError("ParallelPlan", problems)

    @property
    def num_devices(self) -> int:
        """Devices of the whole job; experts share the devices of the data and tensor groups."""
        return self.data_parallel_size * self.tensor_parallel_size * self.pipeline_parallel_size * self.context_parallel_size
