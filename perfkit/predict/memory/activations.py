"""Memory activations: what one layer keeps of one micro batch until its backward pass, tensor by tensor.

A tensor names the operator that makes it, so that recomputing the operator frees it; the names are those of the Llama layers of
MindFormers (`_recomputed`). For a GPT layer in 16 bit with dropout the sum is the sbh(34 + 5as/h) of arXiv 2205.05198, table 2,
and its splits over tensor and sequence parallel devices. Letters: s tokens, b sequences, h hidden, a heads, k key-value heads,
d head size, f ffn hidden, t tensor, c context parallel size, E experts.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from perfkit.core.params import shared_width
from perfkit.core.recomputed import repeated
from perfkit.core.spec.model import ModelSpec
from perfkit.core.spec.plan import Plan
from perfkit.predict.memory.settings import MemorySettings


@dataclass(frozen=True, slots=True)
class Saved:
    """A tensor kept for the backward pass: the part of the layer, what it is, its size in the guides' letters, bytes a device.

    `makers` are the names of the operator that makes it; the first tensor of a layer is its input and has none. `core` marks the
    attention core, which selective recomputation repeats. `gathered` bytes of it came from other devices and can be gathered
    again; `widened` bytes exist only because a value was cast up.
    """

    part: str
    name: str
    formula: str
    bytes: float
    makers: tuple[str, ...] = ()
    core: bool = False
    gathered: float = 0.0
    widened: float = 0.0


@dataclass(frozen=True, slots=True)
class _Sizes:
    """One micro batch on one device: `tokens` x sequences, bytes an element, and the bytes of h values of every token."""

    tokens: float
    element: int
    hidden: float
    split_hidden: float
    tensor: int


def layer_tensors(plan: Plan, settings: MemorySettings, *, experts: bool) -> tuple[Saved, ...]:
    """All tensors that a layer without recomputation keeps of one micro batch, on one device, in the order of the forward pass."""
    sizes = _sizes(plan)
    model, work = plan.model, plan.workload
    attention = _latent(model, sizes) if model.kv_lora_rank else _projections(model, sizes)
    width = model.num_attention_heads * (model.value_head_size or model.head_size)
    rows = [
        *_norm("attention_norm", sizes, settings, layer_input=True),
        _gathered("attention", "attention_norm", sizes, settings),
        *attention,
        *_core(plan, sizes),
        Saved(
            "attention",
            "input of the projection",
            "2sbad" if width != model.hidden_size else "2sbh",
            sizes.tokens * width * sizes.element / sizes.tensor,
            ("attention.flash_attention.flash_attention", "attention.merger_head_transpose", "attention.batch_matmul"),
        ),
    ]
    if work.dropout:
        rows.append(Saved("attention", "dropout mask", "sbh", sizes.split_hidden / sizes.element, ("attention.dropout",)))
    rows += _norm("ffn_norm", sizes, settings, layer_input=False)
    if experts:
        rows += _experts(plan, settings, sizes)
    else:
        rows += [
            _gathered("ffn", "ffn_norm", sizes, settings),
            *_ffn(plan, settings, sizes.tokens * model.ffn_hidden_size / sizes.tensor, "ffn"),
        ]
    if work.dropout:
        rows.append(Saved("ffn", "dropout mask", "sbh", sizes.split_hidden / sizes.element, ("feed_forward.dropout",)))
    return tuple(rows)


def layer_input(plan: Plan) -> float:
    """Bytes of a layer's input: all that a layer recomputed in full keeps."""
    return _sizes(plan).split_hidden


def hidden_bytes(plan: Plan) -> tuple[float, float]:
    """Bytes of the hidden values of a micro batch on a device: whole, and as norms and dropout see them."""
    sizes = _sizes(plan)
    return sizes.hidden, sizes.split_hidden


def micro_batch_tokens(plan: Plan) -> float:
    """Tokens x sequences of a micro batch (or of a piece of its sequence) on one device."""
    return _sizes(plan).tokens


def kept_bytes(
    tensors: Iterable[Saved], patterns: Iterable[str] = (), *, attention_core: bool = False, gather_again: bool = False
) -> dict[str, float]:
    """Bytes by part that are left when the operators that match `patterns` are repeated in the backward pass.

    Repeating the cast of a norm keeps its 16-bit input instead of the wide copy. Repeating only the cast back to 16 bit keeps the
    wide output instead: memory grows.
    """
    chosen = tuple(patterns)
    left: dict[str, float] = {}
    for tensor in tensors:
        kept = tensor.bytes
        if tensor.widened and repeated(tensor.makers, chosen):
            kept -= tensor.widened
        elif not tensor.widened and ((tensor.core and attention_core) or repeated(tensor.makers, chosen)):
            kept = 2 * tensor.bytes if _only_cast_back(tensor.makers, chosen) else 0.0
        elif tensor.gathered and gather_again:
            kept -= tensor.gathered
        left[tensor.part] = left.get(tensor.part, 0.0) + kept
    return left


def backward_workspace(plan: Plan, settings: MemorySettings, *, experts: bool) -> float:
    """Gradients that are live at once in the backward pass of one layer: of its output, and of its largest block inside."""
    sizes, model = _sizes(plan), plan.model
    width = model.expert_ffn_hidden_size * model.num_experts_per_token if experts else model.ffn_hidden_size
    ffn = sizes.tokens * width * sizes.element / sizes.tensor * (3 if model.gated_ffn else 2)
    scores = 0.0
    if plan.workload.attention_kernel == "unfused":
        scores = 2 * _scores(plan, sizes) * sizes.element
    return 2 * sizes.split_hidden + max(ffn, scores)


def score_buffer(plan: Plan, settings: MemorySettings) -> float:
    """Bytes of the buffer of attention scores that outlives the step."""
    if not settings.keeps_score_buffer or plan.workload.attention_kernel == "flash":
        return 0.0
    sizes = _sizes(plan)
    return _scores(plan, sizes) * sizes.element


def _sizes(plan: Plan) -> _Sizes:
    work, parallel = plan.workload, plan.parallel
    element = 4 if work.dtype == "float32" else 2
    tokens = work.seq_length * work.micro_batch_size * parallel.micro_batch_interleave_size
    share = tokens / (parallel.context_parallel_size * parallel.sequence_chunks)
    hidden = share * plan.model.hidden_size * element
    t = parallel.tensor_parallel_size
    return _Sizes(share, element, hidden, hidden / t if parallel.sequence_parallel else hidden, t)


def _norm(name: str, sizes: _Sizes, settings: MemorySettings, *, layer_input: bool) -> list[Saved]:
    """The input of a norm; where norms run in 32 bit that is the copy that was cast up, else the residual stream itself."""
    if settings.keeps_norm_in_fp32 and sizes.element == 2:
        wide = sizes.split_hidden
        return [Saved("norm", f"input of {name}", "4sbh (fp32)", 2 * wide, (f"{name}.cast",), widened=wide)]
    makers = () if layer_input else ("add",)
    return [Saved("norm", f"input of {name}", "2sbh", sizes.split_hidden, makers)]


def _gathered(part: str, norm: str, sizes: _Sizes, settings: MemorySettings) -> Saved:
    """The output of a norm, which is the input of products; with sequence parallelism it was gathered from the tensor group."""
    makers = (f"{norm}.rcast", f"{norm}.norm") if settings.keeps_norm_in_fp32 else (f"{norm}.norm",)
    if sizes.hidden == sizes.split_hidden or not settings.keeps_gathered_inputs:
        return Saved(part, f"input of the {part} products", "2sbh", sizes.split_hidden, makers)
    gathered = sizes.hidden - sizes.split_hidden
    return Saved(part, f"input of the {part} products, gathered", "2sbh", sizes.hidden, makers, gathered=gathered)


def _projections(model: ModelSpec, sizes: _Sizes) -> list[Saved]:
    unit = sizes.tokens * model.head_size * sizes.element / sizes.tensor
    keys = unit * max(model.num_key_value_heads, sizes.tensor)
    rotary = "attention.apply_rotary_emb"
    plain = model.num_attention_heads == model.num_key_value_heads
    formula = "2sbh" if plain else "2sbkd"
    return [
        Saved("attention", "queries", "2sbh", unit * model.num_attention_heads, ("attention.wq.matmul", rotary)),
        Saved("attention", "keys", formula, keys, ("attention.wk.matmul", rotary)),
        Saved("attention", "values", formula, keys, ("attention.wv.matmul",)),
    ]


def _latent(model: ModelSpec, sizes: _Sizes) -> list[Saved]:
    """Latent attention keeps the compressed vectors, whole on every device, and the queries, keys and values made of them."""
    tokens, a = sizes.tokens * sizes.element, model.num_attention_heads / sizes.tensor
    key = model.nope_head_size + model.rope_head_size
    rows = [Saved("attention", "compressed keys and values", "4sbr", tokens * (2 * model.kv_lora_rank + model.rope_head_size))]
    if model.query_lora_rank:
        rows.append(Saved("attention", "compressed queries", "4sbq", 2 * tokens * model.query_lora_rank))
    return [
        *rows,
        Saved("attention", "queries", "2sba(n+r)", tokens * a * key, ("attention.q_proj.matmul",)),
        Saved("attention", "keys", "2sba(n+r)", tokens * a * key, ("attention.kv2l.matmul",)),
        Saved("attention", "values", "2sbaw", tokens * a * model.value_head_size, ("attention.kv2l.matmul",)),
    ]


def _scores(plan: Plan, sizes: _Sizes) -> float:
    """Elements of the matrix of attention scores on one device: a x s x s/c."""
    keys = plan.workload.seq_length
    return sizes.tokens * keys * plan.model.num_attention_heads / sizes.tensor


def _core(plan: Plan, sizes: _Sizes) -> list[Saved]:
    scores, heads = _scores(plan, sizes), plan.model.num_attention_heads
    if plan.workload.attention_kernel == "flash":
        flash = ("attention.flash_attention.flash_attention",)
        return [Saved("attention", "row statistics", "4abs", 4 * sizes.tokens * heads / sizes.tensor, flash, core=True)]
    softmax = Saved("attention", "softmax", "2abs²", scores * sizes.element, ("attention.softmax",), core=True)
    if not plan.workload.dropout:
        return [softmax]
    dropout = ("attention.attention_dropout",)
    return [
        softmax,
        Saved("attention", "softmax dropout mask", "abs²", scores, dropout, core=True),
        Saved("attention", "softmax after dropout", "2abs²", scores * sizes.element, dropout, core=True),
    ]


def _ffn(plan: Plan, settings: MemorySettings, values: float, part: str) -> list[Saved]:
    """Tensors inside of a feed-forward block of which a device computes `values` elements (tokens x width)."""
    unit = values * _sizes(plan).element
    if not plan.model.gated_ffn:
        formula = "8sbh" if plan.model.ffn_hidden_size == 4 * plan.model.hidden_size else "2sbf"
        return [
            Saved(part, "input of the activation", formula, unit, ("feed_forward.w1.matmul", "mlp.dense_h_to_4h.matmul")),
            Saved(part, "input of the second product", formula, unit, ("feed_forward.w1.activation", "mlp.activation")),
        ]
    rows = [
        Saved(part, "gate", "2sbf", unit, ("feed_forward.w1.matmul", "feed_forward.w_gate_hidden.matmul")),
        Saved(part, "hidden", "2sbf", unit, ("feed_forward.w3.matmul", "feed_forward.w_gate_hidden.matmul")),
    ]
    if settings.keeps_activation_output:
        rows.append(Saved(part, "activated gate", "2sbf", unit, ("feed_forward.w1.activation.silu",)))
    return [*rows, Saved(part, "input of the second product", "2sbf", unit, ("feed_forward.mul",))]


def _experts(plan: Plan, settings: MemorySettings, sizes: _Sizes) -> list[Saved]:
    """Routed tokens replace the layer's own: copies sent to the experts, the experts' inner values, and what they return."""
    model, parallel = plan.model, plan.parallel
    split = parallel.expert_tensor_parallel_size or parallel.tensor_parallel_size
    # With sequence parallelism a device sends only its own tokens, and gathers those of the experts' tensor group.
    share = split / sizes.tensor if parallel.sequence_parallel else 1.0
    load = settings.expert_imbalance
    if model.expert_capacity_factor:
        load = min(load, model.expert_capacity_factor) if settings.expert_imbalance > 1 else model.expert_capacity_factor
    routed = sizes.tokens * share * model.num_experts_per_token * load
    copies = routed * model.hidden_size * sizes.element
    own = sizes.split_hidden / (model.hidden_size * sizes.element)
    own_values = sizes.tokens * shared_width(model) / sizes.tensor
    rows = [
        _gathered("experts", "ffn_norm", sizes, settings),
        Saved("experts", "router probabilities", "8sbE", 8 * own * model.num_experts, ("feed_forward.router",)),
        Saved("experts", "tokens at their experts", "2sbh x routed", copies, ("feed_forward.dispatch",)),
        *_ffn(plan, settings, routed * model.expert_ffn_hidden_size / split, "experts"),
        Saved("experts", "outputs before they are weighted", "2sbh x routed", copies, ("feed_forward.experts",)),
    ]
    shared = [replace(row, name=f"{row.name}, shared") for row in _ffn(plan, settings, own_values, "experts")]
    return [*rows, *shared] if own_values else rows


def _only_cast_back(makers: tuple[str, ...], patterns: tuple[str, ...]) -> bool:
    """Whether the cast of a norm's output is repeated and the norm before it is not."""
    return makers[0].endswith(".rcast") and not repeated(makers[1:], patterns)
