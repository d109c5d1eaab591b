"""Static memory: parameters, gradients and optimizer state of one device, exact to the parameter.

Every matrix is split over the tensor group and its bias where the split keeps it apart (rows); norms, the other biases and the
router are whole on every device. Tied weights exist on the first and on the last stage. What devices share follows arXiv
1910.02054, section 3. Frozen weights have neither gradients nor states, so that nobody shares the latter of them.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from perfkit.core.numbers import Number, maximum, minimum, where
from perfkit.core.spec.trained import TrainedLayers
from perfkit.predict.memory.sizes import Kind, Sizes


class Part(NamedTuple):
    """Layers that a device holds: 1 where with the embedding, 1 where with the head, how many, and how many have experts.

    Of models whose layers are partly frozen also how many of them are trained, and how many of these have experts.
    """

    first: Number
    last: Number
    layers: Number
    mixed: Number
    trained: Number = 0
    trained_mixed: Number = 0


@dataclass(frozen=True, slots=True)
class StageParameters:
    """Parameters of one device by how an optimizer treats them.

    `matrices` are those of the layers without `experts`, `embedding` the tables of embedding and head, `others` norms, biases,
    routers and positions, `adapters` those beside frozen weights, which are matrices too; `largest_layer` is the largest layer's
    share of all, and `largest_adapters` what of that are adapters.
    """

    matrices: Number
    experts: Number
    embedding: Number
    others: Number
    largest_layer: Number
    adapters: Number = 0.0
    largest_adapters: Number = 0.0

    @property
    def total(self) -> Number:
        """All parameters of the device."""
        return self.matrices + self.experts + self.embedding + self.others + self.adapters


@dataclass(frozen=True, slots=True)
class StaticBytes:
    """Bytes of one device. `gathered` are weights that are stored in parts and live whole at the peak."""

    parameters: Number
    gradients: Number
    optimizer: Number
    gathered: Number

    @property
    def total(self) -> Number:
        """All of it."""
        return self.parameters + self.gradients + self.optimizer + self.gathered


def stage_parameters(kind: Kind, sizes: Sizes, stage: Part) -> StageParameters:
    """The parameters of a device of every stage."""
    t, h, mixed = sizes.tensor_parallel_size, sizes.hidden_size, stage.mixed
    dense = stage.layers - mixed
    attention, ffn = _attention_matrices(kind, sizes), _ffn_weights(kind, h, sizes.ffn_hidden_size) / t
    shared, experts = _ffn_weights(kind, h, sizes.shared_width) / t, _expert_weights(kind, sizes)
    every, of_dense, of_mixed = _small_weights(kind, sizes)
    adapters = kind.adapters.rank * sum(kind.adapters.widths(sizes, t)) if kind.adapters else 0.0
    table = padded_vocab(kind, sizes) * h / t
    positions = sizes.max_position_embeddings * h + sizes.embedding_norm * sizes.norm_values * h
    further = stage.last * sizes.num_mtp_layers
    # One device holds a tied table once; two stages hold a copy each. Layers that predict further tokens look these up again.
    again = (further > 0) * (1.0 - stage.first) * (1.0 - sizes.tied_embeddings)
    tables = stage.first + stage.last * (1.0 - stage.first * sizes.tied_embeddings) + again
    inner = maximum((dense > 0) * ffn, (mixed > 0) * (shared + experts))
    return StageParameters(
        matrices=stage.layers * attention + dense * ffn + mixed * shared + further * 2 * h * h / t,
        experts=mixed * experts,
        embedding=tables * table,
        others=stage.layers * every
        + dense * of_dense
        + mixed * of_mixed
        + stage.first * positions
        + (stage.last + 3 * further) * sizes.norm_values * h
        + (stage.last + further) * sizes.residual_streams**2 * h,
        largest_layer=(stage.layers > 0) * (attention + inner + adapters),
        adapters=stage.layers * adapters,
        largest_adapters=(stage.layers > 0) * adapters,
    )


def trained_of(kind: Kind, sizes: Sizes, stage: Part, held: StageParameters) -> StageParameters:
    """What of the parameters of a stage has gradients and states: all, the adapters alone, or those of some layers."""
    if kind.trained:
        return _of_trained_layers(kind, sizes, stage, kind.trained)
    if kind.adapters is None:
        return held
    return replace(held, matrices=0.0, experts=0.0, embedding=0.0, others=0.0, largest_layer=held.largest_adapters)


def _of_trained_layers(kind: Kind, sizes: Sizes, stage: Part, trained: TrainedLayers) -> StageParameters:
    t, h, layers, mixed = sizes.tensor_parallel_size, sizes.hidden_size, stage.trained, stage.trained_mixed
    of_attention, inner = float(trained.trains("attention")), float(trained.trains("feed_forward"))
    attention, ffn = of_attention * _attention_matrices(kind, sizes), inner * _ffn_weights(kind, h, sizes.ffn_hidden_size) / t
    shared, experts = inner * _ffn_weights(kind, h, sizes.shared_width) / t, inner * _expert_weights(kind, sizes)
    every, of_dense, of_mixed = _small_weights(kind, sizes)
    norms = 2 * sizes.norm_values * h
    small = of_attention * (every - norms) + trained.trains("norms") * norms
    embedding, head = float(trained.trains("embedding")), float(trained.trains("head"))
    # One device holds a tied table once, of which both are trained or neither.
    tables = embedding * stage.first + head * stage.last * (1.0 - stage.first * sizes.tied_embeddings)
    positions = sizes.max_position_embeddings * h + sizes.embedding_norm * sizes.norm_values * h
    largest = maximum((layers - mixed > 0) * ffn, (mixed > 0) * (shared + experts))
    return StageParameters(
        matrices=layers * attention + (layers - mixed) * ffn + mixed * shared,
        experts=mixed * experts,
        embedding=tables * padded_vocab(kind, sizes) * h / t,
        others=layers * small
        + inner * ((layers - mixed) * of_dense + mixed * of_mixed)
        + embedding * stage.first * positions
        + trained.trains("final_norm") * stage.last * sizes.norm_values * h,
        largest_layer=(layers > 0) * (attention + largest),
    )


def static_bytes(kind: Kind, sizes: Sizes, stage: Part, held: StageParameters) -> StaticBytes:
    """What devices of a stage that have these parameters hold from step to step."""
    shards, level = sizes.optimizer_shard_size, _level(kind, sizes)
    width = sizes.parameter_bytes + (sizes.parameter_bytes == 0) * kind.element_bytes
    trained = trained_of(kind, sizes, stage, held)
    # MindSpore shares out what its optimizer updates alone (frontend/parallel: only trainable parameters need parallel optimizer).
    parted = trained if kind.settings.shares_weights else held
    total, shared, updated = parted.total, _share(sizes, parted), _share(sizes, trained)
    experts = trained.experts / _expert_shards(sizes)
    state, own = sizes.state_bytes_per_parameter, sizes.matrix_state_bytes_per_parameter
    # Weights that are stored in 32 bit are their own master copy.
    master = sizes.master_weights * (width < 4) * sizes.master_bytes
    optimizer = (
        updated * master
        + ((trained.matrices + trained.adapters) / shards + experts) * (own + (own < 0) * (state - own))
        + (trained.embedding + trained.others) / shards * state
    )
    stored = (level > 0) if kind.settings.shares_weights else (level == 3)
    kept = 1.0 + stored * (shared / maximum(total, 1.0) - 1.0)  # A stage without layers has none to store.
    # At level 3 the layer in work and the next one on its way are whole, below that all weights.
    root = parted.embedding if kind.settings.gathers_with_root else 0.0
    whole = where(level < 3, total - shared, minimum(total, root + 2 * parted.largest_layer))
    return StaticBytes(
        parameters=_weight_bytes(kind, width, parted) * kept
        + (_weight_bytes(kind, width, held) - _weight_bytes(kind, width, parted)),
        gradients=_gradients(kind, sizes, trained.total, updated),
        optimizer=optimizer,
        gathered=stored * whole * kind.element_bytes,
    )


def _share(sizes: Sizes, held: StageParameters) -> Number:
    """Parameters of one of the devices that share these."""
    return (held.total - held.experts) / sizes.optimizer_shard_size + held.experts / _expert_shards(sizes)


def _weight_bytes(kind: Kind, width: Number, held: StageParameters) -> Number:
    """Weights of `width` bytes each, and what is kept beside those of layers for 8-bit products."""
    copies = kind.settings.float8_copy_bytes * (held.matrices + held.experts) if kind.eight_bit else 0.0
    return held.total * width + copies


def padded_vocab(kind: Kind, sizes: Sizes) -> Number:
    """The vocabulary as the framework stores it."""
    unit = maximum(kind.settings.vocab_multiple * sizes.tensor_parallel_size, 1)
    padded: Number = np.ceil(sizes.vocab_size / unit) * unit
    return padded


def _level(kind: Kind, sizes: Sizes) -> Number:
    """What devices share between the passes of a step, as ZeRO counts: FSDP with a pipeline only the optimizer state."""
    if not kind.settings.gathers_with_root:
        return sizes.level
    return where(sizes.pipeline_parallel_size > 1, minimum(sizes.level, 1), sizes.level)


def _gradients(kind: Kind, sizes: Sizes, total: Number, shared: Number) -> Number:
    once = (sizes.num_micro_batches == 1) & (sizes.pipeline_parallel_size == 1)
    parts = (_level(kind, sizes) >= 2) | (once if not kind.settings.keeps_transient_gradients else False)
    held = where(parts, shared, total) * sizes.gradient_bytes
    gradients: Number = held + total * sizes.gradient_accumulation_bytes_per_parameter
    return gradients


def _attention_matrices(kind: Kind, sizes: Sizes) -> Number:
    """Elements of the attention matrices of one layer on one device."""
    h, a, t, d = sizes.hidden_size, sizes.num_attention_heads, sizes.tensor_parallel_size, sizes.head_size
    more = 0.0
    if packed := kind.compressed:  # What selects and compresses is whole on every device, as are keys that are the values.
        q = sizes.query_lora_rank
        more = packed.compressing(sizes.num_layers, h, q + (q == 0) * h, d)
        if o := packed.output_lora_rank:
            return more + h * (q + d) + (q * a * d + a * d * o + packed.output_groups * o * h) / t
    if kind.kv_lora_rank:  # The compressing matrices are whole on every device of the tensor group (arXiv 2405.04434, 2.1).
        q, r, rope = sizes.query_lora_rank, sizes.kv_lora_rank, sizes.rope_head_size
        queries = (q + (q == 0) * h) * a * (sizes.nope_head_size + rope)
        split = queries + r * a * (sizes.nope_head_size + sizes.value_head_size) + a * sizes.value_head_size * h
        return h * q + h * (r + rope) + split / t + more
    # Fewer key-value heads than devices are copied, one to each.
    return (2 * h * a * d + 2 * h * d * maximum(sizes.num_key_value_heads, t)) / t


def _ffn_weights(kind: Kind, hidden: Number, width: Number) -> Number:
    return (3 if kind.gated_ffn else 2) * hidden * width


def _expert_weights(kind: Kind, sizes: Sizes) -> Number:
    """Routed experts of one layer on one device, biases included."""
    if not kind.num_experts:
        return 0.0
    width, split = sizes.expert_ffn_hidden_size, sizes.expert_split
    bias = _ffn_biases(kind, sizes, width / split)
    weights = _ffn_weights(kind, sizes.hidden_size, width) / split + bias
    return sizes.num_experts / sizes.expert_parallel_size * weights


def _small_weights(kind: Kind, sizes: Sizes) -> tuple[Number, Number, Number]:
    """Biases, norms and router of one layer on one device: of any layer, more of a dense one, more of one with experts."""
    t, h = sizes.tensor_parallel_size, sizes.hidden_size
    norms = 2 * sizes.norm_values * h + 2 * sizes.query_key_norm * sizes.head_size
    inner = sizes.query_lora_rank + sizes.kv_lora_rank if kind.kv_lora_rank else 0.0
    qkv = sizes.qkv_bias * sizes.head_size * (sizes.num_attention_heads + 2 * sizes.num_key_value_heads) / t
    dense = _ffn_biases(kind, sizes, sizes.ffn_hidden_size / t)
    shared = _ffn_biases(kind, sizes, sizes.shared_width / t) if kind.num_shared_experts else 0.0
    router = h * (sizes.num_experts + sizes.shared_expert_gate) + sizes.router_bias * sizes.num_experts
    if packed := kind.compressed:
        own = sizes.query_lora_rank + sizes.head_size + sizes.num_attention_heads if packed.output_lora_rank else 0.0
        inner = inner + own + packed.small(sizes.head_size) / sizes.num_layers
    n = sizes.residual_streams
    streams = (n > 0) * 2 * ((n * h + 1) * (2 * n + n * n) + 3)
    return norms + inner + streams + qkv + sizes.output_bias * h, dense, shared + router


def _ffn_biases(kind: Kind, sizes: Sizes, width: Number) -> Number:
    """Biases of a feed-forward block, of which a device has the share `width` of those inside."""
    return sizes.ffn_bias * ((2 if kind.gated_ffn else 1) * width + sizes.hidden_size)


def _expert_shards(sizes: Sizes) -> Number:
    """Devices that hold the same experts and share their optimizer state."""
    copies = sizes.optimizer_shard_size * sizes.tensor_parallel_size / (sizes.expert_parallel_size * sizes.expert_split)
    shared: Number = maximum(1.0, copies * (sizes.optimizer_shard_size > 1))
    return shared
