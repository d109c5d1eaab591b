"""How the work is split over devices."""

from __future__ import annotations

from dataclasses import dataclass

from perfkit.errors import InputError
from perfkit.spec._checks import counts

SIZES = (
    "data_parallel_size",
    "tensor_parallel_size",
    "pipeline_parallel_size",
    "virtual_pipeline_parallel_size",
    "context_parallel_size",
    "expert_parallel_size",
    "optimizer_shard_size",
    "micro_batch_interleave_size",
)


@dataclass(frozen=True, kw_only=True, slots=True)
class ParallelPlan:
    """Sizes of the parallel groups.

    `optimizer_shard_size` is the number of devices that share one copy of the optimizer state (1: not sharded).
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

    def __post_init__(self) -> None:
        problems = counts(self, SIZES)
        if self.layers_per_stage is not None:
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
