"""Static memory: parameters, gradients and optimizer state of one device, exact to the parameter.

Every matrix is split over the tensor group and its bias where the split keeps it apart (rows); norms, the other biases and the
router are whole on every device. Tied weights exist on the first and on the last stage. Letters: h hidden, d head size, a heads,
k key-value heads, t tensor, e expert parallel size, o devices that share one optimizer state (arXiv 1910.02054, section 3).
"""

from __future__ import annotations

from dataclasses import dataclass

from perfkit.core.params import attention_weights, ffn_weights, shared_width
from perfkit.core.spec.model import ModelSpec
from perfkit.core.spec.parallel import ParallelPlan
from perfkit.core.spec.plan import Plan
from perfkit.predict.memory.layout import expert_layers_in, stage_layers
from perfkit.predict.memory.settings import MemorySettings

BYTES = {"float32": 4, "bfloat16": 2, "float16": 2, "float8": 2}
"""Of a stored parameter; with float8 the parameter stays in 16 bit beside its 8-bit copies (`float8_copy_bytes`)."""


@dataclass(frozen=True, slots=True)
class StageParameters:
    """Parameters of one device by how an optimizer treats them.

    `matrices` are those of the layers without `experts`, `embedding` the tables of embedding and head, `others` norms, biases,
    routers and positions; `largest_layer` is the largest layer's share of all.
    """

    matrices: float
    experts: float
    embedding: float
    others: float
    largest_layer: float

    @property
    def total(self) -> float:
        """All parameters of the device."""
        return self.matrices + self.experts + self.embedding + self.others


@dataclass(frozen=True, slots=True)
class StaticBytes:
    """Bytes of one device. `gathered` are weights that are stored in parts and live whole at the peak."""

    parameters: float
    gradients: float
    optimizer: float
    gathered: float


def stage_parameters(plan: Plan, settings: MemorySettings, stage: int) -> StageParameters:
    """The parameters of a device of `stage` (0-based)."""
    model, parallel, layers = plan.model, plan.parallel, stage_layers(plan)
    mixed = expert_layers_in(model, layers)
    num_layers, num_mixed = sum(row[stage] for row in layers), sum(row[stage] for row in mixed)
    last = parallel.pipeline_parallel_size - 1
    attention, dense = (
        _attention_matrices(model, parallel),
        ffn_weights(model, model.ffn_hidden_size) / parallel.tensor_parallel_size,
    )
    shared = ffn_weights(model, shared_width(model)) / parallel.tensor_parallel_size if num_mixed else 0.0
    experts, small = _expert_weights(model, parallel), _small_weights(model, parallel)
    matrices = num_layers * attention + (num_layers - num_mixed) * dense + num_mixed * shared
    others = num_layers * small[0] + (num_layers - num_mixed) * small[1] + num_mixed * small[2]
    embedding = 0.0
    table = padded_vocab(plan, settings) * model.hidden_size / parallel.tensor_parallel_size
    if stage == 0:
        embedding += table
        others += model.max_position_embeddings * model.hidden_size + (_norm(model) if model.embedding_norm else 0)
    if stage == last:
        others += _norm(model)
        # One device holds a tied table once; two stages hold a copy each.
        embedding += 0 if model.tied_embeddings and stage == 0 else table
    heaviest = attention + max(dense if num_layers > num_mixed else 0.0, (shared + experts) if num_mixed else 0.0)
    return StageParameters(matrices, num_mixed * experts, embedding, others, heaviest)


def static_bytes(plan: Plan, settings: MemorySettings, stage: int) -> StaticBytes:
    """What a device of `stage` holds from step to step."""
    held, parallel, optimizer = stage_parameters(plan, settings, stage), plan.parallel, plan.optimizer
    shards, expert_shards = parallel.optimizer_shard_size, _expert_shards(parallel)
    level = parallel.optimizer_shard_level if max(shards, expert_shards) > 1 else 0
    dense, total = held.total - held.experts, held.total
    shared = dense / shards + held.experts / expert_shards
    width = BYTES[plan.workload.dtype]
    master = 4 if optimizer.master_weights and width == 2 else 0
    matrix_state = optimizer.matrix_state_bytes_per_parameter
    matrix_state = optimizer.state_bytes_per_parameter if matrix_state < 0 else matrix_state
    state = (
        shared * master
        + (held.matrices / shards + held.experts / expert_shards) * matrix_state
        + (held.embedding + held.others) / shards * optimizer.state_bytes_per_parameter
    )
    stored = level == 3 or (settings.shares_weights and level > 0)
    copies = settings.float8_copy_bytes * (held.matrices + held.experts) if plan.workload.dtype == "float8" else 0.0
    parameters = (shared if stored else total) * width + copies * (shared / total if stored else 1.0)
    gathered = 0.0
    if stored and settings.shares_weights and level < 3:
        gathered = (total - shared) * 2
    elif stored:
        gathered = min(total, 2 * held.largest_layer) * 2  # The layer in work, and the next one on its way.
    return StaticBytes(parameters, _gradients(plan, settings, total, shared, level), state, gathered)


def padded_vocab(plan: Plan, settings: MemorySettings) -> int:
    """The vocabulary as the framework stores it."""
    unit = settings.vocab_multiple * plan.parallel.tensor_parallel_size
    return -(-plan.model.vocab_size // unit) * unit if unit > 1 else plan.model.vocab_size


def _gradients(plan: Plan, settings: MemorySettings, total: float, shared: float, level: int) -> float:
    optimizer, parallel = plan.optimizer, plan.parallel
    width = BYTES[optimizer.gradient_dtype]
    once = plan.num_micro_batches == 1 and parallel.pipeline_parallel_size == 1
    held = shared if level >= 2 or (once and not settings.keeps_transient_gradients) else total
    return held * width + total * optimizer.gradient_accumulation_bytes_per_parameter


def _attention_matrices(model: ModelSpec, parallel: ParallelPlan) -> float:
    t = parallel.tensor_parallel_size
    if model.kv_lora_rank:  # The compressing matrices are whole on every device of the tensor group.
        h, a = model.hidden_size, model.num_attention_heads
        q, r = model.query_lora_rank, model.kv_lora_rank
        whole = h * q + h * (r + model.rope_head_size)
        key = model.nope_head_size + model.rope_head_size
        split = (q or h) * a * key + r * a * (model.nope_head_size + model.value_head_size) + a * model.value_head_size * h
        return whole + split / t
    weights = attention_weights(model)
    # Fewer key-value heads than devices are copied, one to each.
    copies = max(model.num_key_value_heads, t) / model.num_key_value_heads
    keys = 2 * model.hidden_size * model.num_key_value_heads * model.head_size
    return (sum(weights.values()) + (copies - 1) * keys) / t


def _expert_weights(model: ModelSpec, parallel: ParallelPlan) -> float:
    """Routed experts of one layer on one device, biases included."""
    if not model.num_experts:
        return 0.0
    split = parallel.expert_tensor_parallel_size or parallel.tensor_parallel_size
    here = model.num_experts / parallel.expert_parallel_size
    width, bias = model.expert_ffn_hidden_size, 0.0
    if model.bias == "all":
        bias = (2 if model.gated_ffn else 1) * width / split + model.hidden_size
    return here * (ffn_weights(model, width) / split + bias)


def _small_weights(model: ModelSpec, parallel: ParallelPlan) -> tuple[float, float, float]:
    """Biases, norms and router of one layer on one device: of any layer, more of a dense one, more of one with experts."""
    t, h = parallel.tensor_parallel_size, model.hidden_size
    norms = 2 * _norm(model) + (2 * model.head_size if model.query_key_norm else 0)
    norms += (model.query_lora_rank + model.kv_lora_rank) if model.kv_lora_rank else 0
    qkv = model.head_size * (model.num_attention_heads + 2 * model.num_key_value_heads) / t
    bias = {"none": 0.0, "qkv": qkv, "attention": qkv + h, "all": qkv + h}[model.bias]
    dense = (2 if model.gated_ffn else 1) * model.ffn_hidden_size / t + h if model.bias == "all" else 0.0
    shared = (2 if model.gated_ffn else 1) * shared_width(model) / t + h if model.bias == "all" and shared_width(model) else 0.0
    router = h * (model.num_experts + (1 if model.shared_expert_gate else 0))
    return norms + bias, dense, shared + router + (model.num_experts if model.router_bias else 0)


def _norm(model: ModelSpec) -> int:
    return model.hidden_size * (2 if model.norm == "layernorm" else 1)


def _expert_shards(parallel: ParallelPlan) -> float:
    """Devices that hold the same experts and share their optimizer state."""
    inner = parallel.expert_tensor_parallel_size or parallel.tensor_parallel_size
    copies = parallel.optimizer_shard_size * parallel.tensor_parallel_size / (parallel.expert_parallel_size * inner)
    return max(1.0, copies) if parallel.optimizer_shard_size > 1 else 1.0
