"""Communication: the bytes that a device sends in one step, by the group that it sends them to.

Ring algorithms: an all-reduce of S bytes over q ranks sends 2(q-1)/q S, an all-gather, a reduce-scatter and an all-to-all half of
that. Tensor parallel: two all-reduces of the layer's activations forward and two backward (arXiv 1909.08053); sequence parallel
sends the same as pairs of gather and scatter. Recomputation repeats the forward ones. Context: keys and values around the ring
(arXiv 2310.01889), or four exchanges of queries, keys, values and outputs (arXiv 2309.14509). Experts: tokens there and back.
Figures are those of a device of a pipeline stage that is neither first nor last, without padding.
"""

from __future__ import annotations

from perfkit.core.breakdown import Breakdown
from perfkit.core.errors import InputError
from perfkit.core.params import attention_weights, expert_layers, ffn_weights, shared_width
from perfkit.core.source import Source
from perfkit.core.spec.model import ModelSpec
from perfkit.core.spec.parallel import ParallelPlan
from perfkit.core.spec.recompute import RecomputePlan
from perfkit.core.spec.trained import TrainedLayers
from perfkit.core.spec.workload import Workload

SOURCE = Source("computed", "perfkit.predict.cost.communication.bytes_sent", "ring volumes of every collective, by group")
ELEMENT_BYTES = {"bfloat16": 2, "float16": 2, "float32": 4, "float8": 2, "int8": 2, "float4": 2}


def all_reduce_bytes(payload_bytes: float, ranks: int) -> float:
    """Bytes that each of `ranks` sends in a ring all-reduce of `payload_bytes`."""
    return 2 * gather_bytes(payload_bytes, ranks)


def gather_bytes(payload_bytes: float, ranks: int) -> float:
    """Bytes that each of `ranks` sends in an all-gather, reduce-scatter or all-to-all of `payload_bytes` in total."""
    if ranks < 1 or payload_bytes < 0:
        raise InputError("collective", [f"ranks = {ranks} must be positive and payload_bytes = {payload_bytes} not negative"])
    return payload_bytes * (ranks - 1) / ranks


def bytes_sent(model: ModelSpec, workload: Workload, parallel: ParallelPlan, recompute: RecomputePlan | None = None) -> Breakdown:
    """Bytes that a device sends in one step: leaves `tp`, `cp`, `ep`, `pp`, `dp`; a group of one rank is left out."""
    size = ELEMENT_BYTES[workload.dtype]
    layers = model.num_layers / parallel.pipeline_parallel_size
    tokens = workload.micro_batch_size * workload.seq_length / parallel.context_parallel_size
    samples = workload.micro_batch_size * parallel.data_parallel_size
    micro_batches = workload.global_batch_size / samples
    activations = tokens * model.hidden_size * size
    back = 1 - model.trained_layers.skipped(model.num_layers) / model.num_layers if model.trained_layers else 1.0
    full = min(back, (recompute or RecomputePlan()).num_full_layers(model.num_layers) / model.num_layers)
    tp = all_reduce_bytes(activations, parallel.tensor_parallel_size) * (2 + 2 * back + 2 * full)
    cp = _context_bytes(model, parallel, tokens * size) * (1 + 2 * back + full)
    mixed = expert_layers(model) / model.num_layers
    ep = mixed * gather_bytes(activations * model.num_experts_per_token, parallel.expert_parallel_size) * (2 + 2 * back + 2 * full)
    boundary = (
        2 * parallel.virtual_pipeline_parallel_size * max(1, model.residual_streams) * activations / parallel.tensor_parallel_size
    )
    parts = {
        "tp": micro_batches * layers * tp,
        "cp": micro_batches * layers * cp,
        "ep": micro_batches * layers * ep,
        "pp": micro_batches * boundary if parallel.pipeline_parallel_size > 1 else 0.0,
        "dp": _gradient_bytes(model, parallel, size * layers, micro_batches, back),
    }
    return Breakdown("bytes", {group: round(amount) for group, amount in parts.items() if amount}, SOURCE)


def _context_bytes(model: ModelSpec, parallel: ParallelPlan, row_bytes: float) -> float:
    """Bytes of one forward pass of one layer; `row_bytes` are those of one element of every local token."""
    ranks, width = parallel.context_parallel_size, model.head_size / parallel.tensor_parallel_size
    if parallel.context_parallel_algorithm == "ring":
        return (ranks - 1) * 2 * row_bytes * model.num_key_value_heads * width
    return gather_bytes(2 * row_bytes * (model.num_attention_heads + model.num_key_value_heads) * width, ranks)


def _gradient_bytes(model: ModelSpec, parallel: ParallelPlan, unit: float, micro_batches: float, back: float) -> float:
    """Gradients reduced once a step, sharded parameters gathered; level 3 gathers them twice in every micro batch.

    Only what is trained has gradients and is gathered after its update; level 3 gathers frozen weights too. `unit` are bytes of an
    element in every layer of a stage, `back` is the share of layers that have a backward pass.
    """
    ranks = parallel.data_parallel_size * parallel.context_parallel_size
    mixed = expert_layers(model) / model.num_layers

    def gathered(attention: float, dense: float, experts: float) -> float:
        inner = dense * (1 - mixed) * ffn_weights(model, model.ffn_hidden_size)
        inner += experts * mixed * ffn_weights(model, shared_width(model))
        routed = experts * mixed * model.num_experts * ffn_weights(model, model.expert_ffn_hidden_size)
        shared = (attention * sum(attention_weights(model).values()) + inner) * unit / parallel.tensor_parallel_size
        own = routed * unit / parallel.tensor_parallel_size / parallel.expert_parallel_size
        return gather_bytes(shared, ranks) + gather_bytes(own, max(1, ranks // parallel.expert_parallel_size))

    once = gathered(1.0, 1.0, 1.0)
    adapted, trained = 0.0, once
    if model.adapters:
        inputs, outputs = model.adapters.widths(model, parallel.tensor_parallel_size)
        adapted = trained = gather_bytes(model.adapters.rank * (inputs + outputs) * unit, ranks)
    elif model.trained_layers:
        trained = gathered(*_trained_shares(model, model.trained_layers))
    if parallel.optimizer_shard_level >= 3 and parallel.optimizer_shard_size > 1:
        return micro_batches * ((1 + back) * (once + adapted) + trained)
    return 2 * trained


def _trained_shares(model: ModelSpec, trained: TrainedLayers) -> tuple[float, float, float]:
    """Shares of the layers whose attention is trained, and of those without and with experts whose feed-forward block is."""
    layers, mixed = model.num_layers, expert_layers(model)
    leading, behind = trained.dense(layers, layers - mixed)["trained"]
    inner = float(trained.trains("feed_forward"))
    return (
        trained.trains("attention") * trained.count / layers,
        inner * leading / max(1, layers - mixed),
        inner * behind / max(1, mixed),
    )
