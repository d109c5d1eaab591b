"""Memory activations: what one layer keeps of one micro batch until its backward pass, tensor by tensor.

A tensor names the operator that makes it, so that recomputing the operator frees it; the names are those of the Llama layers of
MindFormers (`perfkit.core.recomputed`). For a GPT layer in 16 bit with dropout the sum is the sbh(34 + 5as/h) of arXiv 2205.05198,
table 2, and its splits over tensor and sequence parallel devices.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from perfkit.core.numbers import Number, maximum, minimum, where
from perfkit.core.recomputed import repeated
from perfkit.core.spec.adapters import OF_FEED_FORWARD
from perfkit.core.spec.plan import Plan
from perfkit.predict.memory.settings import MemorySettings
from perfkit.predict.memory.sizes import Kind, Sizes, of_plan

PROJECTED = ("attention.flash_attention.flash_attention", "attention.merger_head_transpose", "attention.batch_matmul")
ROTARY = "attention.apply_rotary_emb"
TARGETS_OF = {
    "attention": ("query", "key", "value", "qkv"),
    "projection": ("output",),
    "ffn": ("gate", "up", "gate_up"),
    "second of ffn": ("down",),
}
"""Matrices that take one input, by the products whose input that is."""
OF_FFN = ("ffn", "second of ffn")


@dataclass(frozen=True, slots=True)
class Saved:
    """A tensor kept for the backward pass: the part of the layer, what it is, bytes a device.

    `makers` are the names of the operator that makes it; the first tensor of a layer is its input and has none. `core` marks the
    attention core, which selective recomputation repeats. `gathered` bytes of it came from other devices and can be gathered
    again; half of a `widened` tensor exists only because a value was cast up.
    """

    part: str
    name: str
    bytes: Number
    makers: tuple[str, ...] = ()
    core: bool = False
    gathered: Number = 0.0
    widened: bool = False


@dataclass(frozen=True, slots=True)
class MicroBatch:
    """One micro batch, or a piece of its sequence, on one device: tokens x sequences, and bytes of h values of every token.

    `hidden` counts all tokens, `split` those that a device has where sequence parallelism divides them, `stream` of these all
    streams of residuals: a layer's input.
    """

    tokens: Number
    hidden: Number
    split: Number
    stream: Number


def micro_batch(kind: Kind, sizes: Sizes) -> MicroBatch:
    """What a device sees of a micro batch."""
    whole = sizes.seq_length * sizes.micro_batch_size * sizes.micro_batch_interleave_size
    tokens = whole / (sizes.context_parallel_size * sizes.sequence_chunks)
    hidden = tokens * sizes.hidden_size * kind.element_bytes
    split = hidden / sizes.sequence_split
    return MicroBatch(tokens, hidden, split, split * maximum(sizes.residual_streams, 1.0) if kind.residual_streams else split)


def tensors_of(kind: Kind, sizes: Sizes, batch: MicroBatch, *, experts: bool) -> tuple[Saved, ...]:
    """All tensors that a layer without recomputation keeps of one micro batch, on one device, in the order of the forward pass."""
    value = sizes.value_head_size if kind.kv_lora_rank else sizes.head_size
    width = batch.tokens * sizes.num_attention_heads * value * kind.element_bytes / sizes.tensor_parallel_size
    # Flash attention needs its output itself, whatever of it the projection keeps.
    own, copies = _inputs_kept(kind, "projection")
    outputs = own + copies + (1.0 if kind.flash and own < 1 else 0.0)
    mask = [Saved("attention", "dropout mask", batch.split / kind.element_bytes, ("attention.dropout",))]
    inner = _experts if experts else _dense
    project = _shared if kind.compressed and kind.compressed.output_lora_rank else _latent if kind.kv_lora_rank else _projections
    return (
        *_streams("attention", kind, batch, makers=()),
        _norm_input("attention_norm", kind, batch, makers=("mix",) if kind.residual_streams else ()),
        _norm_output("attention", "attention_norm", kind, batch),
        *project(kind, sizes, batch),
        *_selected(kind, sizes, batch),
        *_core(kind, sizes, batch),
        Saved("attention", "input of the projection", outputs * width, PROJECTED),
        *_adapters("attention", kind, batch),
        *(mask if kind.dropout else ()),
        *_streams("ffn", kind, batch, makers=("add",)),
        _norm_input("ffn_norm", kind, batch, makers=("add",)),
        *inner(kind, sizes, batch),
        *_adapters("ffn", kind, batch),
        *([Saved("ffn", "dropout mask", batch.split / kind.element_bytes, ("feed_forward.dropout",))] if kind.dropout else ()),
    )


def layer_tensors(plan: Plan, settings: MemorySettings, *, experts: bool) -> tuple[Saved, ...]:
    """As `tensors_of`, of one plan."""
    kind, sizes = of_plan(plan, settings)
    return tensors_of(kind, sizes, micro_batch(kind, sizes), experts=experts)


def layer_input(plan: Plan) -> float:
    """Bytes of a layer's input: all that a layer recomputed in full keeps."""
    return float(micro_batch(*of_plan(plan, MemorySettings())).stream)


def kept_bytes(
    tensors: Iterable[Saved], patterns: Iterable[str] = (), *, attention_core: bool = False, gather_again: bool = False
) -> dict[str, Number]:
    """Bytes by part that are left when the operators that match `patterns` are repeated in the backward pass.

    Repeating the cast of a norm keeps its 16-bit input instead of the wide copy. Repeating only the cast back to 16 bit keeps the
    wide output instead: memory grows.
    """
    chosen = tuple(patterns)
    left: dict[str, Number] = {}
    for tensor in tensors:
        kept = tensor.bytes
        if (tensor.core and attention_core) or (chosen and repeated(tensor.makers, chosen)):
            kept = kept * (0.5 if tensor.widened else 2.0 if _only_cast_back(tensor.makers, chosen) else 0.0)
        elif gather_again:
            kept = kept - tensor.gathered
        left[tensor.part] = left.get(tensor.part, 0.0) + kept
    return left


def backward_gradients(kind: Kind, sizes: Sizes, batch: MicroBatch, *, experts: bool) -> Number:
    """Gradients that are live at once in the backward pass of one layer: of its output, and of its largest block inside."""
    width = sizes.expert_ffn_hidden_size * sizes.num_experts_per_token if experts else sizes.ffn_hidden_size
    largest = batch.tokens * width * kind.element_bytes / sizes.tensor_parallel_size * (3 if kind.gated_ffn else 2)
    if not kind.flash:
        largest = maximum(largest, 2 * scores(sizes, batch) * kind.element_bytes)
    return 2 * batch.stream + largest


def outside_layers(kind: Kind, batch: MicroBatch, sizes: Sizes) -> dict[str, Number]:
    """Activations of one micro batch outside of the layers.

    `embedding` is its dropout mask (first stage), `head` the final norm's input and its output, which is the head's input (last
    stage; for every layer that predicts further tokens also its two inputs, normed and joined), `batch` the batch itself (both):
    token ids, labels and positions in 64 bit, a loss mask in 32 bit.
    """
    wide = kind.settings.keeps_norm_in_fp32 and kind.element_bytes == 2
    inputs = batch.hidden if kind.settings.keeps_gathered_inputs else batch.split
    masks = batch.tokens * sizes.seq_length if kind.settings.masks_in_batch else 0.0
    head = (2 * batch.split if wide else batch.split) + inputs
    joined = 2 * (2 * batch.split if wide else batch.split) + 2 * inputs
    return {
        "embedding": batch.split / kind.element_bytes if kind.dropout else 0.0,
        "head": head + sizes.num_mtp_layers * (head + joined),
        "batch": batch.tokens * (8 + 8 + 8 + 4) + masks,
    }


def scores(sizes: Sizes, batch: MicroBatch) -> Number:
    """Elements of the matrix of attention scores on one device: a x s x s/c."""
    return batch.tokens * sizes.seq_length * sizes.num_attention_heads / sizes.tensor_parallel_size


def _norm_input(norm: str, kind: Kind, batch: MicroBatch, makers: tuple[str, ...]) -> Saved:
    """The input of a norm; where norms run in 32 bit that is the copy that was cast up, else the residual stream itself."""
    if kind.settings.keeps_norm_in_fp32 and kind.element_bytes == 2:
        return Saved("norm", f"input of {norm}", 2 * batch.split, (f"{norm}.cast",), widened=True)
    return Saved("norm", f"input of {norm}", batch.split, makers)


def _norm_output(part: str, norm: str, kind: Kind, batch: MicroBatch) -> Saved:
    """The output of a norm, which is the input of products; with sequence parallelism it was gathered from the tensor group."""
    makers = (f"{norm}.rcast", f"{norm}.norm") if kind.settings.keeps_norm_in_fp32 else (f"{norm}.norm",)
    held = batch.hidden if kind.settings.keeps_gathered_inputs else batch.split
    own, copies = _inputs_kept(kind, part)
    return Saved(part, f"input of the {part} products", (own + copies) * held, makers, gathered=own * (held - batch.split))


def _input_share(kind: Kind) -> float:
    """The share of its bytes that the input of a product keeps: half where the 8-bit value that the product takes is kept alone."""
    return 0.5 if kind.eight_bit and kind.settings.keeps_float8_inputs else 1.0


def _inputs_kept(kind: Kind, products: str) -> tuple[float, float]:
    """Inputs that products keep for the gradients of their weights, of the size in 16 bit: the value itself, and copies of it.

    A frozen weight has no gradient, its adapter has. Experts are taken to keep all inputs, and so is attention that is latent or
    compressed, but for those of its first products.
    """
    share = _input_share(kind)
    own = share if kind.settings.keeps_frozen_inputs else 0.0
    if kind.adapters is None or products not in TARGETS_OF:
        trained = products not in TARGETS_OF or kind.trains("feed_forward" if products in OF_FFN else "attention")
        return (share if trained else own), 0.0
    count = sum(target in TARGETS_OF[products] for target in kind.adapters.targets)
    return (own, float(count)) if kind.settings.copies_adapter_inputs else (1.0 if count else own, 0.0)


def _adapters(part: str, kind: Kind, batch: MicroBatch) -> list[Saved]:
    """What the first factors of adapters make, whole on every device; dropout inside of them is not counted."""
    targets = kind.adapters.targets if kind.adapters else ()
    count = sum((target in OF_FEED_FORWARD) == (part == "ffn") for target in targets)
    if kind.adapters is None or not count:
        return []
    return [Saved(part, f"inner values of {part} adapters", count * batch.tokens * kind.adapters.rank * kind.element_bytes)]


def _projections(kind: Kind, sizes: Sizes, batch: MicroBatch) -> list[Saved]:
    unit = batch.tokens * sizes.head_size * kind.element_bytes / sizes.tensor_parallel_size
    # Fewer key-value heads than devices are copied, one to each.
    keys = unit * maximum(sizes.num_key_value_heads, sizes.tensor_parallel_size)
    return [
        Saved("attention", "queries", unit * sizes.num_attention_heads, ("attention.wq.matmul", ROTARY)),
        Saved("attention", "keys", keys, ("attention.wk.matmul", ROTARY)),
        Saved("attention", "values", keys, ("attention.wv.matmul",)),
    ]


def _latent(kind: Kind, sizes: Sizes, batch: MicroBatch) -> list[Saved]:
    """Latent attention keeps the compressed vectors, whole on every device, and the queries, keys and values made of them."""
    values = batch.tokens * kind.element_bytes
    heads = values * sizes.num_attention_heads / sizes.tensor_parallel_size
    key = heads * (sizes.nope_head_size + sizes.rope_head_size)
    compressed = [Saved("attention", "compressed keys and values", values * (2 * sizes.kv_lora_rank + sizes.rope_head_size))]
    if kind.query_lora_rank:
        compressed.append(Saved("attention", "compressed queries", 2 * values * sizes.query_lora_rank))
    return [
        *compressed,
        Saved("attention", "queries", key, ("attention.q_proj.matmul",)),
        Saved("attention", "keys", key, ("attention.kv2l.matmul",)),
        Saved("attention", "values", heads * sizes.value_head_size, ("attention.kv2l.matmul",)),
    ]


def _shared(kind: Kind, sizes: Sizes, batch: MicroBatch) -> list[Saved]:
    """Keys that are the values, of one head whole on every device; the output's groups keep what stands between their products."""
    values, packed = batch.tokens * kind.element_bytes, kind.compressed
    heads = values * sizes.num_attention_heads * sizes.head_size / sizes.tensor_parallel_size
    groups = packed.output_groups * packed.output_lora_rank if packed else 0
    return [
        Saved("attention", "compressed queries", 2 * values * sizes.query_lora_rank),
        Saved("attention", "queries", heads, ("attention.q_proj.matmul",)),
        Saved("attention", "keys", 2 * values * sizes.head_size, ("attention.wk.matmul", ROTARY)),
        Saved("attention", "output by groups", values * groups / sizes.tensor_parallel_size),
    ]


def _selected(kind: Kind, sizes: Sizes, batch: MicroBatch) -> list[Saved]:
    if kind.compressed is None:
        return []
    kept = kind.compressed.kept(sizes.num_layers, sizes.head_size)
    return [Saved("attention", "compressed tokens and their selection", batch.tokens * kind.element_bytes * kept)]


def _streams(block: str, kind: Kind, batch: MicroBatch, makers: tuple[str, ...]) -> list[Saved]:
    """Streams that a block mixes, and its output, by which their weights have gradients; what they sum to is the norm's input."""
    if not kind.residual_streams:
        return []
    return [
        Saved("norm", f"streams ahead of {block}", batch.stream, makers),
        Saved("norm", f"output of {block}", batch.split, ("mix",)),
    ]


def _core(kind: Kind, sizes: Sizes, batch: MicroBatch) -> list[Saved]:
    if kind.flash:
        statistics = 4 * batch.tokens * sizes.num_attention_heads / sizes.tensor_parallel_size
        return [Saved("attention", "row statistics", statistics, ("attention.flash_attention.flash_attention",), core=True)]
    count, dropout = scores(sizes, batch), ("attention.attention_dropout",)
    softmax = Saved("attention", "softmax", count * kind.element_bytes, ("attention.softmax",), core=True)
    if not kind.dropout:
        return [softmax]
    return [
        softmax,
        Saved("attention", "softmax dropout mask", count, dropout, core=True),
        Saved("attention", "softmax after dropout", count * kind.element_bytes, dropout, core=True),
    ]


def _dense(kind: Kind, sizes: Sizes, batch: MicroBatch) -> list[Saved]:
    values = batch.tokens * sizes.ffn_hidden_size / sizes.tensor_parallel_size
    return [_norm_output("ffn", "ffn_norm", kind, batch), *_ffn("ffn", kind, values)]


def _ffn(part: str, kind: Kind, values: Number) -> list[Saved]:
    """Tensors inside of a feed-forward block of which a device computes `values` elements (tokens x width)."""
    unit, inputs = values * kind.element_bytes, sum(_inputs_kept(kind, f"second of {part}"))
    if not kind.gated_ffn:
        return [
            Saved(part, "input of the activation", unit, ("feed_forward.w1.matmul", "mlp.dense_h_to_4h.matmul")),
            Saved(part, "input of the second product", inputs * unit, ("feed_forward.w1.activation", "mlp.activation")),
        ]
    activated = [Saved(part, "activated gate", unit, ("feed_forward.w1.activation.silu",))]
    return [
        Saved(part, "gate", unit, ("feed_forward.w1.matmul", "feed_forward.w_gate_hidden.matmul")),
        Saved(part, "hidden", unit, ("feed_forward.w3.matmul", "feed_forward.w_gate_hidden.matmul")),
        *(activated if kind.settings.keeps_activation_output else ()),
        Saved(part, "input of the second product", inputs * unit, ("feed_forward.mul",)),
    ]


def _experts(kind: Kind, sizes: Sizes, batch: MicroBatch) -> list[Saved]:
    """Routed tokens replace the layer's own: copies sent to the experts, the experts' inner values, and what they return."""
    routed = _routed(kind, sizes, batch)
    copies = routed * sizes.hidden_size * kind.element_bytes
    own = batch.split / (sizes.hidden_size * kind.element_bytes)
    rows = [
        _norm_output("experts", "ffn_norm", kind, batch),
        Saved("experts", "router probabilities", 8 * own * sizes.num_experts, ("feed_forward.router",)),
        Saved("experts", "tokens at their experts", _input_share(kind) * copies, ("feed_forward.dispatch",)),
        *_ffn("experts", kind, routed * sizes.expert_ffn_hidden_size / sizes.expert_split),
        Saved("experts", "outputs before they are weighted", copies, ("feed_forward.experts",)),
    ]
    if not kind.num_shared_experts:
        return rows
    shared = _ffn("experts", kind, batch.tokens * sizes.shared_width / sizes.tensor_parallel_size)
    return [*rows, *(replace(row, name=f"{row.name}, shared") for row in shared)]


def _routed(kind: Kind, sizes: Sizes, batch: MicroBatch) -> Number:
    """Tokens that the experts of a device compute, each as often as it was routed there."""
    load, room = kind.settings.expert_imbalance, sizes.expert_capacity_factor
    held = where(room > 0, minimum(load, room) if load > 1 else room, load)
    # With sequence parallelism a device sends only its own tokens, and gathers those of the experts' tensor group.
    gathered = sizes.expert_split / sizes.tensor_parallel_size
    share = 1 + sizes.sequence_parallel * (gathered - 1)
    return batch.tokens * share * sizes.num_experts_per_token * held


def _only_cast_back(makers: tuple[str, ...], patterns: tuple[str, ...]) -> bool:
    """Whether the cast of a norm's output is repeated and the norm before it is not."""
    return bool(makers) and makers[0].endswith(".rcast") and not repeated(makers[1:], patterns)
