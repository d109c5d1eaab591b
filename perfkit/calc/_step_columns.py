"""Step time of many plans at once: the time of a layer, of a stage, of the pipeline, and what is left exposed around them.

step = (m - 1) * slowest stage + sum over stages / v + exposed pipeline sends + exposed gradients + optimizer + host.
The parts are those of the slowest stage; everything that it waits for the others is `bubble`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from perfkit.calc._collectives import Network, all_reduce_s, gather_s, send_s
from perfkit.calc._efficiency import Efficiency
from perfkit.calc._operators import Device, product_s, weight_product_s
from perfkit.calc._plan_columns import Floats, PlanColumns

BACKWARD_ELEMENTWISE = 1.5  # reads the incoming gradient as well: three accesses for two
LOGIT_BYTES = 20.0  # a logit in 16 bits, its fp32 copy written and read twice, its gradient written and read


@dataclass(frozen=True, slots=True)
class Pass:
    """Device seconds of one pass through one layer or the head, by kind of work."""

    matmul: Floats
    attention: Floats
    elementwise: Floats

    @property
    def total(self) -> Floats:
        """Seconds of the pass."""
        return self.matmul + self.attention + self.elementwise


def step_parts(plans: PlanColumns, eff: Efficiency) -> dict[str, Floats]:
    """Seconds of a step by path, an array each; their sum is the step time."""
    device, network = _device(plans, eff), _network(plans, eff)
    tokens = plans.micro_batch * plans.seq_length / plans.context
    forward, backward = _layer(plans, eff, device, tokens)
    repeated = plans.recompute_full
    again = Pass(
        matmul=forward.matmul * (repeated + (1 - repeated) * plans.recompute_extra),
        attention=forward.attention * (repeated + (1 - repeated) * plans.recompute_core),
        elementwise=forward.elementwise * repeated,
    )
    tensor = _tensor_s(plans, eff, network, tokens)
    context = _context_s(plans, network, tokens)
    expert = _expert_s(plans, network, tokens)
    device_s = forward.total + backward.total + again.total
    launch = eff.layer_host_s * eff.host
    collective = (tensor + context + expert) / (4 + 2 * repeated)
    idle = (
        np.maximum(0.0, launch - forward.total - 2 * collective)
        + repeated * np.maximum(0.0, launch - forward.total - 2 * collective)
        + np.maximum(0.0, launch * eff.backward_host - backward.total - 2 * collective)
    )
    accumulate = _accumulation_s(plans, device)
    device_s = device_s + accumulate
    layer = device_s + idle + tensor + context + expert
    head = _head(plans, device, tokens)
    embedding = _embedding_s(plans, device, tokens)
    first = plans.layers_first * layer + embedding
    last = plans.layers_last * layer + head.total + np.where(plans.pipeline == 1, embedding, 0.0)
    middle = plans.layers_middle * layer
    slowest = np.maximum(np.maximum(first * (plans.pipeline > 1), last), middle)
    total = plans.layers * layer + head.total + embedding
    m = plans.micro_batches * plans.interleave
    on_last, on_first = (slowest == last), (slowest == first) & (slowest != last)
    layers = np.where(on_last, plans.layers_last, np.where(on_first, plans.layers_first, plans.layers_middle))
    work = m * layers
    at_head = m * on_last
    at_embedding = m * (on_first | (on_last & (plans.pipeline == 1)))
    sends = _pipeline_s(plans, eff, network, tokens, m)
    optimizer = _optimizer_s(plans, eff, device)
    gradients, gather = _gradients_s(plans, eff, network, work / np.maximum(m, 1), layers * (backward.total + again.total))
    parts = {
        "computing/forward/matmul": work * forward.matmul + at_head * head.matmul / 3,
        "computing/forward/attention": work * forward.attention,
        "computing/forward/elementwise": work * forward.elementwise + at_head * head.elementwise / 3 + at_embedding * embedding / 3,
        "computing/backward/matmul": work * backward.matmul + at_head * head.matmul * 2 / 3,
        "computing/backward/attention": work * backward.attention,
        "computing/backward/elementwise": work * backward.elementwise
        + (at_head * head.elementwise + at_embedding * embedding) * 2 / 3,
        "computing/backward/accumulate": work * accumulate,
        "computing/recompute": work * again.total,
        "computing/optimizer": optimizer,
        "communication/exposed/tp": work * tensor,
        "communication/exposed/cp": work * context,
        "communication/exposed/ep": work * expert,
        "communication/exposed/pp": sends,
        "communication/exposed/dp": gradients + gather * m,
        "bubble": np.maximum(total - slowest, 0.0) / plans.virtual,
        "free": work * idle + eff.step_host_s * eff.host,
    }
    nodes = np.maximum(plans.devices / plans.devices_per_node, 1.0)
    parts["free"] = parts["free"] + eff.straggler * np.log2(nodes) * sum(parts.values())
    return parts


def _device(plans: PlanColumns, eff: Efficiency) -> Device:
    rows = np.ones(len(plans))
    compute = _compute(plans, eff)
    return Device(
        flops_per_s=plans.peak_flops_per_s * eff.matmul / compute,
        bytes_per_s=plans.memory_bytes_per_s * eff.memory / compute,
        units=plans.compute_units,
        half_depth=rows * eff.half_depth,
        misaligned=rows * eff.misaligned,
    )


def _compute(plans: PlanColumns, eff: Efficiency) -> Floats:
    """Factor on the time of operators; every minor release of the software has saved `release_gain` of it."""
    return eff.compute * np.exp(eff.release_gain * plans.releases_before)


def _network(plans: PlanColumns, eff: Efficiency) -> Network:
    rows = np.ones(len(plans))
    return Network(
        intra_bytes_per_s=plans.intra_bytes_per_s * eff.intra_share / eff.communication,
        node_bytes_per_s=plans.node_bytes_per_s * eff.inter_share / eff.communication,
        intra_latency_s=rows * eff.intra_latency_s,
        inter_latency_s=rows * eff.inter_latency_s,
        devices_per_node=plans.devices_per_node,
        mesh=plans.mesh,
        pair=rows * eff.pair,
        quad=rows * eff.quad,
    )


def _layer(plans: PlanColumns, eff: Efficiency, device: Device, tokens: Floats) -> tuple[Pass, Pass]:
    """Forward and backward pass of the mean layer for one micro batch."""
    t, h = plans.tensor, plans.hidden
    qkv, out = plans.qkv_weights / h / t, plans.output_weights / h / t
    mixed = np.where(plans.experts > 0, (plans.layers - plans.dense_layers) / plans.layers, 0.0)
    products = [(tokens, qkv, h, 1.0), (tokens, h, out, 1.0)]
    forward, backward = _products(products, device)
    up = np.where(plans.ffn_matrices == 3, 2.0, 1.0)
    for width, copies, rows, share in _feed_forwards(plans, tokens, mixed):
        f, b = _products([(rows, up * width / t, h, copies), (rows, h, width / t, copies)], device)
        forward, backward = forward + share * f, backward + share * b
    attention = _attention(plans, eff, device, tokens)
    elementwise = _elementwise_s(plans, eff, device, tokens, mixed)
    return Pass(forward, attention[0], elementwise), Pass(backward, attention[1], BACKWARD_ELEMENTWISE * elementwise)


def _feed_forwards(plans: PlanColumns, tokens: Floats, mixed: Floats) -> list[tuple[Floats, Floats, Floats, Floats]]:
    """Width, copies, rows and share of the layers of every feed-forward block: dense, routed experts, shared experts."""
    ones = np.ones(len(plans))
    blocks = [(np.maximum(plans.ffn, 1.0), ones, tokens, 1.0 - mixed)]
    if mixed.any():
        local = np.maximum(plans.experts / plans.expert_parallel, 1.0)
        rows = tokens * plans.experts_per_token / local
        blocks.append((np.maximum(plans.expert_ffn, 1.0), local, rows, mixed))
        blocks.append((np.maximum(plans.shared_ffn, 1.0), ones, tokens, np.where(plans.shared_ffn > 0, mixed, 0.0)))
    return blocks


def _products(products: Sequence[tuple[Floats, Floats, Floats, Floats | float]], device: Device) -> tuple[Floats, Floats]:
    """Seconds of the products forward, and of those for their inputs' and weights' gradients."""
    forward = backward = np.zeros(())
    for rows, columns, depth, copies in products:
        once, twice = weight_product_s(rows, columns, depth, device, copies)
        forward, backward = forward + once, backward + twice
    return forward, backward


def _attention(plans: PlanColumns, eff: Efficiency, device: Device, tokens: Floats) -> tuple[Floats, Floats]:
    """Seconds of scores, softmax and values, forward and backward: fused (causal half only) or as separate operators."""
    heads = plans.heads / plans.tensor
    length = plans.seq_length
    sizes = plans.head_size + plans.value_size
    peak = plans.peak_flops_per_s / np.where(plans.eight_bit, 2.0, 1.0) / _compute(plans, eff)
    flops = tokens * heads * length * sizes  # causal: half of 2 * 2
    # the other implementation: full squares in batches of products, and passes over the scores
    batch = plans.micro_batch * heads
    rows = length / plans.context
    score = product_s(rows, length, plans.head_size, device, batch)
    value = product_s(rows, plans.value_size, length, device, batch)
    passes = tokens * heads * length * eff.score_bytes / device.bytes_per_s
    forward = np.where(plans.flash, flops / (peak * eff.flash_forward), score + value + passes)
    backward = np.where(plans.flash, 2.5 * flops / (peak * eff.flash_backward), 2 * (score + value) + 1.5 * passes)
    return forward, backward


def _elementwise_s(plans: PlanColumns, eff: Efficiency, device: Device, tokens: Floats, mixed: Floats) -> Floats:
    """Forward seconds of norms, residuals, dropout, rotary positions and activation functions: bytes over bandwidth."""
    t = plans.tensor
    shared = np.where(plans.sequence_parallel, t, 1.0)
    width = plans.ffn * (1 - mixed) + (plans.expert_ffn * plans.experts_per_token + plans.shared_ffn) * mixed
    elements = 10 * plans.hidden / shared + 2 * (plans.heads + 2 * plans.kv_heads) * plans.head_size / t
    elements = elements + plans.ffn_matrices * width / t
    return tokens * elements * plans.element_bytes * eff.elementwise / device.bytes_per_s


def _head(plans: PlanColumns, device: Device, tokens: Floats) -> Pass:
    """Forward and backward seconds of the output projection and the loss."""
    columns = padded_vocab(plans) / plans.tensor
    forward, backward = _products([(tokens, columns, plans.hidden, 1.0)], device)
    return Pass(forward + backward, np.zeros(len(plans)), tokens * columns * LOGIT_BYTES / device.bytes_per_s)


def _embedding_s(plans: PlanColumns, device: Device, tokens: Floats) -> Floats:
    return tokens * plans.hidden * plans.element_bytes * 6 / device.bytes_per_s


def padded_vocab(plans: PlanColumns) -> Floats:
    """Rows of the embedding, padded so that every tensor-parallel rank has a multiple of 128."""
    grain = 128 * plans.tensor
    return np.ceil(plans.vocab / grain) * grain


def _tensor_s(plans: PlanColumns, eff: Efficiency, network: Network, tokens: Floats) -> Floats:
    """Exposed tensor-parallel collectives of a layer and micro batch: two all-reduces forward, two backward, repeats."""
    payload = tokens * plans.hidden * plans.element_bytes
    once = all_reduce_s(payload, plans.tensor, np.ones(len(plans)), network)
    return np.asarray(once * (4 + 2 * plans.recompute_full) * (1 - np.asarray(eff.tensor_hidden)))


def _context_s(plans: PlanColumns, network: Network, tokens: Floats) -> Floats:
    payload = 2 * tokens * plans.context * plans.kv_heads * plans.head_size / plans.tensor * plans.element_bytes
    return gather_s(payload, plans.context, plans.tensor, network) * (3 + plans.recompute_full)


def _expert_s(plans: PlanColumns, network: Network, tokens: Floats) -> Floats:
    payload = plans.experts_per_token * tokens * plans.hidden * plans.element_bytes
    share = np.where(plans.experts > 0, (plans.layers - plans.dense_layers) / plans.layers, 0.0)
    return share * gather_s(payload, plans.expert_parallel, plans.tensor, network) * (4 + 2 * plans.recompute_full)


def _pipeline_s(plans: PlanColumns, eff: Efficiency, network: Network, tokens: Floats, m: Floats) -> Floats:
    """Exposed sends between stages: there and back once a micro batch, and along the pipeline once."""
    payload = tokens * plans.hidden * plans.element_bytes / plans.tensor  # scattered over the tensor-parallel ranks
    stride = plans.devices / plans.pipeline
    hops = 2 * (m * plans.virtual + plans.pipeline - 1)
    return np.where(plans.pipeline > 1, hops * (send_s(payload, stride, network) + eff.send_host_s * eff.host), 0.0)


def layer_parameters(plans: PlanColumns) -> Floats:
    """Parameters of the mean layer on one device."""
    mixed = np.where(plans.experts > 0, (plans.layers - plans.dense_layers) / plans.layers, 0.0)
    dense = plans.ffn * (1 - mixed) + plans.shared_ffn * mixed
    experts = plans.experts / plans.expert_parallel * plans.expert_ffn * mixed
    weights = plans.qkv_weights + plans.output_weights + plans.ffn_matrices * plans.hidden * (dense + experts)
    return np.asarray(weights / plans.tensor)


def _accumulation_s(plans: PlanColumns, device: Device) -> Floats:
    """Seconds to add the gradients of a layer and micro batch to those of the earlier ones: read both, write the sum."""
    moved = plans.element_bytes + 2 * plans.gradient_bytes
    return np.where((plans.micro_batches > 1) & (plans.zero < 3), layer_parameters(plans) * moved / device.bytes_per_s, 0.0)


def stage_parameters(plans: PlanColumns, layers: Floats) -> Floats:
    """Parameters on one device of a stage with `layers` layers and one table of the vocabulary."""
    tables = np.where((plans.pipeline == 1) & ~plans.tied, 2.0, 1.0) * padded_vocab(plans) * plans.hidden / plans.tensor
    return layers * layer_parameters(plans) + tables


def _optimizer_s(plans: PlanColumns, eff: Efficiency, device: Device) -> Floats:
    parameters = stage_parameters(plans, plans.layers_middle)
    return parameters * eff.optimizer_bytes / plans.optimizer_shards / device.bytes_per_s


def _gradients_s(plans: PlanColumns, eff: Efficiency, network: Network, layers: Floats, window: Floats) -> tuple[Floats, Floats]:
    """Exposed data-parallel collectives: seconds once a step, and once a micro batch (sharded parameters only)."""
    group, stride = plans.data * plans.context, plans.tensor
    parameters = stage_parameters(plans, layers)
    gathered = gather_s(parameters * plans.element_bytes, group, stride, network)
    reduced = gather_s(parameters * plans.gradient_bytes, group, stride, network)
    update = np.where(plans.zero > 0, gathered, gather_s(parameters * plans.gradient_bytes, group, stride, network))
    once = _exposed(reduced + update, window * eff.gradients_hidden, eff)
    always = _exposed(2 * gathered + reduced, 1.5 * window * eff.gradients_hidden, eff)
    return np.where(plans.zero >= 3, 0.0, once), np.where(plans.zero >= 3, always, 0.0)


def _exposed(seconds: Floats, window: Floats, eff: Efficiency) -> Floats:
    """What is left of a collective beside computing of `window` seconds, with what it costs that computing."""
    return np.maximum(seconds - window, 0.0) + eff.contention * np.minimum(seconds, window)
