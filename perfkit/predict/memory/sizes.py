"""Sizes: plans in the form that the memory formulas read, one row a plan or a stage of it.

Plans of one `Kind` share all words and flags, so that a formula branches on them once for many plans; what is left are numbers.
A number is an array with one value a row, or a plain float that all rows share (`perfkit.core.numbers`): a single plan is a table
of one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, fields
from functools import reduce
from operator import attrgetter
from typing import Any

import numpy as np
import numpy.typing as npt

from perfkit.core.numbers import Number
from perfkit.core.plan_columns import FIELDS, Coded, Codes, PlanColumns, distinct
from perfkit.core.spec.adapters import Adapters
from perfkit.core.spec.compressed import CompressedAttention
from perfkit.core.spec.optimizer import STATE_BYTES
from perfkit.core.spec.plan import Plan
from perfkit.core.spec.trained import LayerPart, TrainedLayers
from perfkit.core.spec.workload import FEW_BITS
from perfkit.predict.memory.settings import MemorySettings


@dataclass(frozen=True, slots=True)
class Kind:
    """What plans have in common that are computed together; the names are those of a plan's fields.

    `element_bytes` is that of an activation (beside 8-bit products it stays in 16 bit), `eight_bit` says whether weights have 8-bit
    copies. The last flags say which numbers are above 0: latent attention, compressed queries, experts, shared experts, streams.
    `in_frozen_layer` is set for what a layer keeps of which nothing is trained.
    """

    gated_ffn: bool
    dropout: bool
    flash: bool
    element_bytes: int
    eight_bit: bool
    kv_lora_rank: bool
    query_lora_rank: bool
    num_experts: bool
    num_shared_experts: bool
    residual_streams: bool
    settings: MemorySettings
    compressed: CompressedAttention | None = None
    adapters: Adapters | None = None
    trained: TrainedLayers | None = None
    in_frozen_layer: bool = False

    def trains(self, part: LayerPart) -> bool:
        """Whether the weights of this part of a layer are trained, where it has no adapters."""
        return self.trained is None or (self.trained.trains(part) and not self.in_frozen_layer)


@dataclass(frozen=True, slots=True)
class Sizes:
    """The numbers of plans of one kind; the names are those of a plan's fields, flags count 0 or 1.

    Words as numbers: `norm_values` a channel, 1 where there are biases of the query, key and value projections, of the output
    projection, of feed-forward blocks, where keys and values go around a ring, where heads are exchanged; bytes of a gradient, of a
    stored weight (0: as activations) and of a master copy.
    """

    hidden_size: Number
    num_attention_heads: Number
    num_key_value_heads: Number
    head_size: Number
    ffn_hidden_size: Number
    vocab_size: Number
    tied_embeddings: Number
    max_position_embeddings: Number
    embedding_norm: Number
    query_key_norm: Number
    num_mtp_layers: Number
    num_experts: Number
    num_experts_per_token: Number
    expert_ffn_hidden_size: Number
    num_shared_experts: Number
    shared_expert_ffn_hidden_size: Number
    shared_expert_gate: Number
    router_bias: Number
    expert_capacity_factor: Number
    query_lora_rank: Number
    kv_lora_rank: Number
    nope_head_size: Number
    rope_head_size: Number
    value_head_size: Number
    residual_streams: Number
    num_layers: Number
    seq_length: Number
    micro_batch_size: Number
    global_batch_size: Number
    data_parallel_size: Number
    tensor_parallel_size: Number
    pipeline_parallel_size: Number
    virtual_pipeline_parallel_size: Number
    context_parallel_size: Number
    expert_parallel_size: Number
    sequence_parallel: Number
    optimizer_shard_size: Number
    optimizer_shard_level: Number
    micro_batch_interleave_size: Number
    sequence_chunks: Number
    expert_tensor_parallel_size: Number
    state_bytes_per_parameter: Number
    master_weights: Number
    matrix_state_bytes_per_parameter: Number
    gradient_accumulation_bytes_per_parameter: Number
    norm_values: Number
    qkv_bias: Number
    output_bias: Number
    ffn_bias: Number
    ring: Number
    exchange: Number
    gradient_bytes: Number
    parameter_bytes: Number
    master_bytes: Number

    def take(self, rows: Codes) -> Sizes:
        """The numbers at `rows`; what all share stays."""
        values = (getattr(self, name) for name in (*NUMBERS, *WORDS))
        return Sizes(*(value[rows] if isinstance(value, np.ndarray) else value for value in values))

    @property
    def sequence_split(self) -> Number:
        """Devices that norms, dropout and the residual stream are divided over: the tensor group with sequence parallelism."""
        return 1 + self.sequence_parallel * (self.tensor_parallel_size - 1)

    @property
    def expert_split(self) -> Number:
        """Devices that the matrices of one expert are divided over."""
        own = self.expert_tensor_parallel_size
        return own + (own == 0) * self.tensor_parallel_size

    @property
    def shared_width(self) -> Number:
        """Width of all shared experts of a layer together."""
        own = self.shared_expert_ffn_hidden_size
        return self.num_shared_experts * (own + (own == 0) * self.expert_ffn_hidden_size)

    @property
    def num_micro_batches(self) -> Number:
        """Micro batches of a step and replica."""
        return self.global_batch_size // (self.micro_batch_size * self.data_parallel_size * self.micro_batch_interleave_size)

    @property
    def level(self) -> Number:
        """What devices share: 0 nothing, 1 to 3 as ZeRO counts."""
        return self.optimizer_shard_level * (self.optimizer_shard_size > 1)


WORDS: Mapping[str, tuple[str, Callable[[str], float]]] = {
    "norm_values": ("norm", lambda norm: 2 if norm == "layernorm" else 1),
    "qkv_bias": ("bias", lambda bias: bias != "none"),
    "output_bias": ("bias", lambda bias: bias in ("attention", "all")),
    "ffn_bias": ("bias", lambda bias: bias == "all"),
    "ring": ("context_parallel_algorithm", lambda algorithm: algorithm != "ulysses"),
    "exchange": ("context_parallel_algorithm", lambda algorithm: algorithm != "ring"),
    "gradient_bytes": ("gradient_dtype", STATE_BYTES.__getitem__),
    "parameter_bytes": ("parameter_dtype", lambda dtype: STATE_BYTES.get(dtype, 0)),
    "master_bytes": ("master_dtype", STATE_BYTES.__getitem__),
}
"""Numbers that follow from a word: its column, and how."""

KIND: Mapping[str, tuple[str, Callable[[Any], Any]]] = {
    "gated_ffn": ("gated_ffn", bool),
    "dropout": ("dropout", bool),
    "flash": ("attention_kernel", lambda kernel: kernel == "flash"),
    "element_bytes": ("dtype", lambda dtype: 4 if dtype == "float32" else 2),
    "eight_bit": ("dtype", lambda dtype: dtype in FEW_BITS),
    "kv_lora_rank": ("kv_lora_rank", bool),
    "query_lora_rank": ("query_lora_rank", bool),
    "num_experts": ("num_experts", bool),
    "num_shared_experts": ("num_shared_experts", bool),
    "residual_streams": ("residual_streams", bool),
}
"""What a kind says, from which column, and how."""

NUMBERS = tuple(item.name for item in fields(Sizes))[: -len(WORDS)]
_numbers_of = attrgetter(*(FIELDS[name].path for name in NUMBERS))
_words_of = attrgetter(*(FIELDS[column].path for column, _ in WORDS.values()))
_kind_of = attrgetter(*(FIELDS[column].path for column, _ in KIND.values()))


def of_plan(plan: Plan, settings: MemorySettings) -> tuple[Kind, Sizes]:
    """One plan: its kind, and its numbers as plain floats."""
    said = {name: of(value) for (name, (_, of)), value in zip(KIND.items(), _kind_of(plan), strict=True)}
    words = (float(of(word)) for (_, of), word in zip(WORDS.values(), _words_of(plan), strict=True))
    kind = Kind(
        **said, settings=settings, compressed=plan.model.compressed, adapters=plan.model.adapters, trained=plan.model.trained_layers
    )
    return kind, Sizes(*map(float, _numbers_of(plan)), *words)


def by_kind(plans: PlanColumns, settings: Coded[MemorySettings]) -> Iterator[tuple[Kind, Codes, Sizes]]:
    """Plans of every kind: the kind, the rows of the table, and their numbers."""
    said = {name: _said(getattr(plans, column), of) for name, (column, of) in KIND.items()}
    frozen = (plans.adapters, plans.trained_layers)
    codes = joint_codes([*said.values(), settings.codes, plans.compressed.codes, *(column.codes for column in frozen)])
    words = [getattr(plans, column).numbers(of) for column, of in WORDS.values()]
    for code, first in zip(*np.unique(codes, return_index=True), strict=True):
        rows = np.flatnonzero(codes == code)
        kind = Kind(
            **{name: column[first].item() for name, column in said.items()},
            settings=settings[first],
            compressed=plans.compressed[first],
            adapters=plans.adapters[first],
            trained=plans.trained_layers[first],
        )
        numbers = [getattr(plans, name)[rows].astype(np.float64) for name in NUMBERS]
        yield kind, rows, Sizes(*numbers, *(column[rows] for column in words))


def _said(column: Coded[Any] | npt.NDArray[Any], of: Callable[[Any], Any]) -> npt.NDArray[Any]:
    return np.array([of(value) for value in column.values])[column.codes] if isinstance(column, Coded) else column > 0


def joint_codes(columns: list[npt.NDArray[Any]]) -> Codes:
    """One code for every different combination of the values of several columns."""
    return reduce(_joint, map(_places, columns))


def _places(column: npt.NDArray[Any]) -> Codes:
    return column.astype(np.intp) if column.dtype == np.bool_ else np.unique(column, return_inverse=True)[1]


def _joint(one: Codes, other: Codes) -> Codes:
    if not other.any():
        return one
    size = int(other.max()) + 1
    return distinct(one * size + other, (int(one.max()) + 1) * size)[1]
