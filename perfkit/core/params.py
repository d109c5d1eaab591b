"""Parameters: how many numbers a model has, in which part, and which of them are trained.

Letters: h hidden, f ffn hidden, v vocabulary, L layers, a heads, k key-value heads, d head size, g matrices of a feed-forward
(3 gated, 2 otherwise), E experts, q and r the low ranks of multi-head latent attention, n streams of residuals. Biases are counted
with the matrix that they belong to, norms apart. Tables that are padded (vocabulary) are counted as the model states them.
"""

from __future__ import annotations

from fractions import Fraction

from perfkit.core.breakdown import Breakdown
from perfkit.core.source import Source
from perfkit.core.spec.model import ModelSpec
from perfkit.core.spec.trained import TrainedLayers

SOURCE = Source("computed", "perfkit.core.params.count_params", "sum of all weight shapes of a pre-norm decoder")
TRAINED_SOURCE = Source(
    "computed", "perfkit.core.params.trained_params", "of a model with adapters or trained layers these alone; else all weights"
)
ACTIVE_SOURCE = Source("computed", "perfkit.core.params.active_params", "weights that one token uses; inactive experts left out")


def count_params(model: ModelSpec) -> Breakdown:
    """Count the parameters of the whole model, before any split over devices.

    Returns a breakdown in "parameters" with the leaves `embedding/tokens`, `embedding/positions`, `embedding/norm`,
    `layers/attention`, `layers/ffn`, `layers/experts`, `layers/shared_experts`, `layers/router`, `layers/norm`, `layers/streams`,
    `layers/adapters`, `head/norm`, `head/projection`, `head/further_tokens` (what layers that predict further tokens have besides)
    and `head/streams` (both: what mixes and joins several residuals); a leaf that the model does not have is left out (a tied head
    has no projection of its own).
    """
    return _count(model, model.num_experts, SOURCE)


def active_params(model: ModelSpec) -> Breakdown:
    """Count the parameters that one token uses: of the routed experts only the chosen ones. Same leaves as `count_params`."""
    return _count(model, model.num_experts_per_token, ACTIVE_SOURCE)


def trained_params(model: ModelSpec) -> Breakdown:
    """Count the parameters that training changes: all of `count_params`, or the adapters or trained layers alone."""
    counted = count_params(model)
    if model.adapters:
        return Breakdown("parameters", {"layers/adapters": counted.parts["layers/adapters"]}, TRAINED_SOURCE)
    if model.trained_layers is None:
        return counted
    shares = _trained_shares(model, model.trained_layers)
    parts = {path: round(amount * shares[path]) for path, amount in counted.parts.items()}
    return Breakdown("parameters", {path: amount for path, amount in parts.items() if amount}, TRAINED_SOURCE)


def _trained_shares(model: ModelSpec, trained: TrainedLayers) -> dict[str, Fraction]:
    """Share of every part's parameters that are trained."""
    mixed = expert_layers(model)
    leading, behind = trained.dense(model.num_layers, model.num_layers - mixed)["trained"]
    whole, inner, norms = Fraction(trained.count, model.num_layers), _inner_norms(model), 2 * _norm(model)
    feed_forward, attention = trained.trains("feed_forward"), trained.trains("attention")
    of_experts = dict.fromkeys(("experts", "shared_experts", "router"), Fraction(behind * feed_forward, max(1, mixed)))
    of_layers = {
        "attention": whole * attention,
        "ffn": Fraction(leading * feed_forward, max(1, model.num_layers - mixed)),
        "norm": whole * Fraction(norms * trained.trains("norms") + inner * attention, norms + inner),
        **of_experts,
    }
    outside = {f"embedding/{part}": Fraction(trained.trains("embedding")) for part in ("tokens", "positions", "norm")}
    outside |= {"head/norm": Fraction(trained.trains("final_norm")), "head/projection": Fraction(trained.trains("head"))}
    return outside | {f"layers/{part}": share for part, share in of_layers.items()}


def expert_layers(model: ModelSpec) -> int:
    """How many of the layers have experts."""
    return model.num_layers - model.num_dense_layers if model.num_experts else 0


def shared_width(model: ModelSpec) -> int:
    """Ffn hidden size of all shared experts of a layer together."""
    return model.num_shared_experts * (model.shared_expert_ffn_hidden_size or model.expert_ffn_hidden_size)


def attention_weights(model: ModelSpec) -> dict[str, float]:
    """Elements of the matrices of a mean attention, without biases: `qkv` (all that makes queries, keys, values) and `output`.

    Latent attention (arXiv 2405.04434, section 2.1): hq + qa(n + r') + h(r + r') + ra(n + w) and awh, with n, r', w the
    no-position, rotary and value head sizes; without compressed queries the first two terms are ha(n + r'). Where keys are the
    values (`CompressedAttention`): hq + qad + hd, and ado + goh of the output's g groups of rank o. `qkv` has what compresses too.
    """
    weights = _plain_weights(model)
    if packed := model.compressed:
        rank = model.query_lora_rank or model.hidden_size
        weights["qkv"] += packed.compressing(model.num_layers, model.hidden_size, rank, model.head_size)
    return weights


def _plain_weights(model: ModelSpec) -> dict[str, float]:
    h, a, k, d = model.hidden_size, model.num_attention_heads, model.num_key_value_heads, model.head_size
    if model.compressed and (o := model.compressed.output_lora_rank):
        query = h * model.query_lora_rank + model.query_lora_rank * a * d
        return {"qkv": query + h * d, "output": a * d * o + model.compressed.output_groups * o * h}
    if not model.kv_lora_rank:
        return {"qkv": h * d * (a + 2 * k), "output": a * d * h}
    q, r = model.query_lora_rank, model.kv_lora_rank
    key = model.nope_head_size + model.rope_head_size
    query = h * q + q * a * key if q else h * a * key
    keys_and_values = h * (r + model.rope_head_size) + r * a * (model.nope_head_size + model.value_head_size)
    return {"qkv": query + keys_and_values, "output": a * model.value_head_size * h}


def ffn_weights(model: ModelSpec, width: int) -> int:
    """Elements of the matrices of one feed-forward block of `width`, without biases."""
    return (3 if model.gated_ffn else 2) * model.hidden_size * width


def further_weights(model: ModelSpec) -> int:
    """Parameters that a layer which predicts further tokens has besides: its projection and three norms (arXiv 2412.19437, 2.2).

    They are the norms of both inputs and the one ahead of the shared head.
    """
    return 2 * model.hidden_size * model.hidden_size + 3 * _norm(model)


def _count(model: ModelSpec, num_routed: int, source: Source) -> Breakdown:
    h, v, L = model.hidden_size, model.vocab_size, model.num_layers
    mixed = expert_layers(model)
    parts = {
        "embedding/tokens": v * h,
        "embedding/positions": model.max_position_embeddings * h,
        "embedding/norm": _norm(model) if model.embedding_norm else 0,
        "layers/attention": round(L * sum(attention_weights(model).values())) + L * _attention_biases(model),
        "layers/ffn": (L - mixed) * _ffn(model, model.ffn_hidden_size),
        "layers/experts": mixed * num_routed * _ffn(model, model.expert_ffn_hidden_size),
        "layers/shared_experts": mixed * _ffn(model, shared_width(model)) if shared_width(model) else 0,
        "layers/router": mixed * _router(model),
        "layers/norm": L * (2 * _norm(model) + _inner_norms(model)) + _compressing_norms(model),
        "layers/streams": L * stream_weights(model),
        "layers/adapters": round(L * model.adapters.weights(model)) if model.adapters else 0,
        "head/norm": _norm(model),
        "head/projection": 0 if model.tied_embeddings else h * v,
        "head/further_tokens": model.num_mtp_layers * further_weights(model),
        "head/streams": (1 + model.num_mtp_layers) * stream_head(model),
    }
    return Breakdown("parameters", {path: amount for path, amount in parts.items() if amount}, source)


def stream_weights(model: ModelSpec) -> int:
    """Parameters of a layer's two blocks that mix n streams: a matrix of all to 2n + n^2 weights, as many biases, three gains."""
    n = model.residual_streams
    return 2 * ((n * model.hidden_size + 1) * (2 * n + n * n) + 3) if n > 1 else 0


def stream_head(model: ModelSpec) -> int:
    """Parameters that join n streams ahead of the head, and once more for every layer that predicts further tokens."""
    n = model.residual_streams
    return n * model.hidden_size * n + n + 1 if n > 1 else 0


def _compressing_norms(model: ModelSpec) -> int:
    """Positions and norms of compressors and indexers, and the sink of every head where keys are the values."""
    packed = model.compressed
    if packed is None:
        return 0
    return packed.small(model.head_size) + (model.num_layers * model.num_attention_heads if packed.output_lora_rank else 0)


def _norm(model: ModelSpec) -> int:
    return model.hidden_size * (2 if model.norm == "layernorm" else 1)


def _inner_norms(model: ModelSpec) -> int:
    """Norms inside attention: of queries and keys by head, and of the compressed queries and keys of latent attention."""
    by_head = 2 * model.head_size if model.query_key_norm else 0
    if model.compressed and model.compressed.output_lora_rank:
        return model.query_lora_rank + model.head_size
    return by_head + (model.query_lora_rank + model.kv_lora_rank if model.kv_lora_rank else 0)


def _attention_biases(model: ModelSpec) -> int:
    if model.bias == "none":
        return 0
    qkv = model.head_size * (model.num_attention_heads + 2 * model.num_key_value_heads)
    return qkv if model.bias == "qkv" else qkv + model.hidden_size


def _ffn(model: ModelSpec, width: int) -> int:
    biases = (2 if model.gated_ffn else 1) * width + model.hidden_size if model.bias == "all" else 0
    return ffn_weights(model, width) + biases


def _router(model: ModelSpec) -> int:
    bias = model.num_experts if model.router_bias else 0
    return model.hidden_size * (model.num_experts + (1 if model.shared_expert_gate else 0)) + bias
