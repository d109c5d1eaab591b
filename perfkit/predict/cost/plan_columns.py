"""Plan columns: many plans as arrays of one length, the form in which predictions are computed.

Every array is float64 (counts too: products of sizes exceed 2**53 nowhere) or bool, one element a plan. A share is 0 to 1. The
hardware of every plan is gathered into the same rows, so that a formula reads like the one for a single plan.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Flags = npt.NDArray[np.bool_]

FLAGS = frozenset({"tied", "sequence_parallel", "flash", "eight_bit", "mesh"})


@dataclass(frozen=True, kw_only=True, slots=True)
class PlanColumns:
    """Plans by column; names are those of the specs, shortened where the unit is clear.

    `optimizer_ratio` is what the optimizer moves through memory over what Adam does, `expert_load` the tokens that the experts of a
    rank compute over the mean. `layers_first`, `layers_middle` and `layers_last` are the layers of the first, the fullest other and
    the last pipeline stage. `recompute_full` is the share of layers repeated in full, `recompute_core` the share of the rest that
    repeats scores and values, `recompute_extra` the share of the rest's other products that are repeated, `recompute_gathers` the
    share of layers that gather again what sequence parallelism splits, all of the stage that repeats most; `recompute_mean` is what
    all stages repeat over that. `light_split` and `light_whole` are the bytes a token and layer that repeated element-wise
    operators move, those that tensor parallelism divides and those that it divides only with sequence parallelism; `swapped` bytes
    a token and layer go to the host and come back over a link of `host_bytes_per_s`. `releases_before` counts the minor releases of
    the software before the one that calibrations refer to. `pieces` of the sequence of a micro batch go through the pipeline one
    after the other. `head_exchange` is the most ranks of a context group that exchange heads (1: keys and values go around a ring).
    """

    layers: Floats
    layers_first: Floats
    layers_middle: Floats
    layers_last: Floats
    hidden: Floats
    heads: Floats
    kv_heads: Floats
    head_size: Floats
    value_size: Floats
    qkv_weights: Floats
    output_weights: Floats
    ffn: Floats
    ffn_matrices: Floats
    vocab: Floats
    tied: Flags
    experts: Floats
    experts_per_token: Floats
    expert_ffn: Floats
    shared_ffn: Floats
    dense_layers: Floats
    data: Floats
    tensor: Floats
    pipeline: Floats
    virtual: Floats
    context: Floats
    head_exchange: Floats
    pieces: Floats
    expert_parallel: Floats
    sequence_parallel: Flags
    zero: Floats
    optimizer_shards: Floats
    optimizer_ratio: Floats
    expert_load: Floats
    interleave: Floats
    recompute_full: Floats
    recompute_core: Floats
    recompute_extra: Floats
    recompute_gathers: Floats
    recompute_mean: Floats
    light_split: Floats
    light_whole: Floats
    swapped: Floats
    micro_batch: Floats
    global_batch: Floats
    seq_length: Floats
    element_bytes: Floats
    gradient_bytes: Floats
    flash: Flags
    eight_bit: Flags
    mesh: Flags
    peak_flops_per_s: Floats
    memory_bytes_per_s: Floats
    intra_bytes_per_s: Floats
    node_bytes_per_s: Floats
    host_bytes_per_s: Floats
    devices_per_node: Floats
    compute_units: Floats
    releases_before: Floats

    def __len__(self) -> int:
        return len(self.layers)

    @property
    def devices(self) -> Floats:
        """Devices of the job."""
        return self.data * self.tensor * self.pipeline * self.context

    @property
    def micro_batches(self) -> Floats:
        """Micro batches of a step and replica, rounded up: some engines split an uneven last one."""
        return np.ceil(self.global_batch / (self.micro_batch * self.data * self.interleave) - 1e-9)

    def take(self, rows: npt.NDArray[np.intp] | slice) -> PlanColumns:
        """The plans at `rows`."""
        return PlanColumns(**{item.name: getattr(self, item.name)[rows] for item in fields(self)})

    def chunks(self, size: int) -> Iterator[PlanColumns]:
        """The plans in pieces of at most `size`, small enough for the arrays of a formula to stay in the processor's cache."""
        for start in range(0, len(self), size):
            yield self.take(slice(start, start + size))
