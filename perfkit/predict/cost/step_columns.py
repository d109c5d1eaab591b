"""Step time of many plans at once: the time of a layer, of a stage, of the pipeline, and what is left exposed around them.

step = (m - 1) * slowest stage + slowest stage + rest of the stages / v + sends + exposed gradients + optimizer + host.
The parts are those of the slowest stage; everything that it waits for the others is `bubble`.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from perfkit.core.plan_columns import Floats
from perfkit.predict.cost.collectives import Network
from perfkit.predict.cost.cost_columns import CostColumns
from perfkit.predict.cost.efficiency import Amount, Efficiency
from perfkit.predict.cost.exchange_columns import (
    context_s,
    expert_s,
    exposed_s,
    gradients_s,
    network_of_plans,
    pipeline_s,
    stage_parameters,
    tensor_s,
)
from perfkit.predict.cost.layer_columns import Pass, accumulation_s, compute_factor, embedding_s, head_pass, layer_passes
from perfkit.predict.cost.operators import Device, off_grain

SHARP = 1e-3
"""Rounding at and below which the maximum of host and device time is taken to be exact."""

COLLECTIVES = 2.0
"""Tensor-parallel collectives of a layer in one pass."""

SOFTMAX_GRAIN = 4.0
"""Matrices of scores that a block of Megatron's fused softmax takes (`scaled_upper_triang_masked_softmax`, 1024 and 2048 keys)."""


@dataclass(frozen=True, slots=True)
class Layer:
    """Seconds of one layer and micro batch: passes, additions to the gradients, exposed collectives, waiting for the host."""

    forward: Pass
    backward: Pass
    again: Pass
    accumulate: Floats
    tensor: Floats
    context: Floats
    expert: Floats
    idle: Floats

    @property
    def total(self) -> Floats:
        """Seconds of the layer."""
        device = self.forward.total + self.backward.total + self.again.total + self.accumulate
        return device + self.tensor + self.context + self.expert + self.idle


@dataclass(frozen=True, slots=True)
class Stage:
    """The slowest stage: its layers, what of the head and the embedding (0 or 1) is on it, and the seconds of the other stages."""

    layers: Floats
    head: Floats
    embedding: Floats
    others: Floats


@dataclass(frozen=True, slots=True)
class Work:
    """What a micro batch costs on one device: its layers, head and embedding, and what the device and the network sustain."""

    device: Device
    network: Network
    tokens: Floats
    layer: Layer
    head: Pass
    embedding: Floats


def micro_batch_work(plans: CostColumns, eff: Efficiency) -> Work:
    """The mean layer, the head and the embedding for one micro batch of every plan."""
    device, network = plan_device(plans, eff), network_of_plans(plans, eff)
    tokens = plans.micro_batch * plans.seq_length / (plans.context * plans.pieces)
    forward, backward = layer_passes(plans, eff, device, tokens)
    again = _repeated(plans, device, tokens, forward)
    exchanged = (tensor_s(plans, eff, network, tokens), context_s(plans, network, tokens), expert_s(plans, network, tokens))
    ahead, back = launch_waits_s(plans, eff, forward, backward, sum(exchanged, start=np.zeros(len(plans))))
    idle = np.asarray(ahead * (1 + plans.recompute_full) + back)
    layer = Layer(forward, backward, again, accumulation_s(plans, device), *exchanged, idle)
    return Work(device, network, tokens, layer, head_pass(plans, eff, device, tokens), embedding_s(plans, device, tokens))


def step_parts(plans: CostColumns, eff: Efficiency) -> dict[str, Floats]:
    """Seconds of a step by path, an array each; their sum is the step time."""
    m = plans.micro_batches * plans.interleave * plans.pieces
    work = micro_batch_work(plans, eff)
    device, network, layer, head, embedding = work.device, work.network, work.layer, work.head, work.embedding
    stage = _slowest(plans, layer, head.total, embedding)
    window = plans.pieces * stage.layers * (layer.backward.total + layer.again.total)
    optimizer_bytes = stage_parameters(plans, stage.layers) * eff.optimizer_bytes * plans.optimizer_ratio
    once, always = gradients_s(plans, eff, network, stage.layers, window)
    sends = pipeline_s(plans, eff, network, work.tokens, m)
    # While the pipeline fills and drains, the slowest stage waits for sends of others: that is bubble, as it is measured.
    filling = sends * (plans.pipeline - 1) / (m * plans.virtual + plans.pipeline - 1)
    parts = {
        **_computing(layer, head, embedding, stage, m),
        "computing/optimizer": optimizer_bytes / plans.optimizer_shards / device.bytes_per_s,
        "communication/exposed/tp": m * stage.layers * layer.tensor,
        "communication/exposed/cp": m * stage.layers * layer.context,
        "communication/exposed/ep": m * stage.layers * layer.expert,
        "communication/exposed/pp": sends - filling,
        "communication/exposed/dp": once + always * m / plans.pieces,
        "communication/exposed/swap": m * stage.layers * swap_s(plans, eff, work.tokens, layer),
        "bubble": stage.others / plans.virtual + filling,
        "free": m * stage.layers * layer.idle + eff.step_host_s * eff.host,
    }
    # All stages wait for slow nodes, so the waiting for stages becomes as much longer as all else.
    straggling = straggler_share(plans, eff)
    parts["free"] = parts["free"] + straggling * (sum(parts.values()) - parts["bubble"])
    parts["bubble"] = parts["bubble"] * (1 + straggling)
    return parts


def straggler_share(plans: CostColumns, eff: Efficiency) -> Floats:
    """Share of a step that it takes longer because it waits for the slowest of many nodes."""
    nodes = np.maximum(plans.devices / plans.devices_per_node, 1.0)
    return np.asarray(eff.straggler * np.log2(nodes))


def swap_s(plans: CostColumns, eff: Efficiency, tokens: Floats, layer: Layer) -> Floats:
    """Exposed seconds of a layer's activations on their way to the host beside its forward pass, and back beside its backward."""
    if not plans.swapped.any():
        return np.zeros(len(plans))
    way = tokens * plans.swapped / (plans.host_bytes_per_s * eff.host_link_share)
    return exposed_s(way, layer.forward.total, eff) + exposed_s(way, layer.backward.total + layer.again.total, eff)


def _repeated(plans: CostColumns, device: Device, tokens: Floats, forward: Pass) -> Pass:
    """What the backward pass computes again of the mean layer."""
    full = plans.recompute_full
    shared = np.where(plans.sequence_parallel, plans.tensor, 1.0)
    light = tokens * (plans.light_split / plans.tensor + plans.light_whole / shared) / device.bytes_per_s
    return Pass(
        matmul=forward.matmul * (full + (1 - full) * plans.recompute_extra),
        attention=forward.attention * (full + (1 - full) * plans.recompute_core),
        elementwise=forward.elementwise * full + light,
    )


def launch_waits_s(plans: CostColumns, eff: Efficiency, forward: Pass, backward: Pass, exchanged: Floats) -> tuple[Floats, Floats]:
    """Seconds that the device waits for the host in a layer, forward and backward: a pass takes at least as long as its launch."""
    softmax = ~plans.flash & off_grain(plans.micro_batch * plans.heads / plans.tensor, SOFTMAX_GRAIN)
    calls = np.where(plans.tensor > 1, COLLECTIVES * eff.collective_host_s, 0.0) * eff.host
    launch = (eff.layer_host_s + np.where(softmax, eff.softmax_host_s, 0.0)) * eff.host + calls
    behind = eff.layer_host_s * eff.host * eff.backward_host + calls
    of_pass = 2 * exchanged / (4 + 2 * plans.recompute_full)
    soft = np.maximum(np.where(plans.tensor > 1, eff.group_rounding, eff.host_rounding), SHARP)
    wait = np.where((plans.tensor > 1) & (plans.tensor >= plans.devices_per_node), eff.node_wait, 1.0)
    ahead = wait * _waited_s(launch, forward.total + of_pass, soft)
    back = wait * _waited_s(behind, backward.total + of_pass, soft)
    return ahead, back


def _waited_s(launch: Amount, device: Floats, soft: Floats) -> Floats:
    """Seconds by which a pass outlasts its work on the device: the soft maximum of both, which varying kernels round off."""
    longer, shorter = np.maximum(launch, device), np.minimum(launch, device)
    return longer * (1.0 + (shorter / longer) ** (1.0 / soft)) ** soft - device


def _slowest(plans: CostColumns, work: Layer, head: Floats, embedding: Floats) -> Stage:
    """The stage that takes longest with the embedding on the first stage and the head on the last."""
    alone, layer = plans.pipeline == 1, work.total
    mean = layer - (1 - plans.recompute_mean) * work.again.total
    last = plans.layers_last * layer + head + np.where(alone, embedding, 0.0)
    first = np.where(alone, 0.0, plans.layers_first * layer + embedding)
    middle = plans.layers_middle * layer
    slowest = np.maximum(np.maximum(first, last), middle)
    on_last = slowest == last
    on_first = (slowest == first) & ~on_last
    return Stage(
        layers=np.where(on_last, plans.layers_last, np.where(on_first, plans.layers_first, plans.layers_middle)),
        head=on_last.astype(np.float64),
        embedding=(on_first | (on_last & alone)).astype(np.float64),
        others=np.where(alone, 0.0, np.maximum(plans.layers * mean + head + embedding - slowest, 0.0)),
    )


def _computing(layer: Layer, head: Pass, embedding: Floats, stage: Stage, m: Floats) -> dict[str, Floats]:
    """Parts of the slowest stage that compute; a third of the head and the embedding is forward."""
    work, ends = m * stage.layers, m * (stage.head * head.elementwise + stage.embedding * embedding)
    products = m * stage.head * head.matmul
    return {
        "computing/forward/matmul": work * layer.forward.matmul + products / 3,
        "computing/forward/attention": work * layer.forward.attention,
        "computing/forward/elementwise": work * layer.forward.elementwise + ends / 3,
        "computing/backward/matmul": work * layer.backward.matmul + products * 2 / 3,
        "computing/backward/attention": work * layer.backward.attention,
        "computing/backward/elementwise": work * layer.backward.elementwise + ends * 2 / 3,
        "computing/backward/accumulate": work * layer.accumulate,
        "computing/recompute": work * layer.again.total,
    }


def plan_device(plans: CostColumns, eff: Efficiency) -> Device:
    """What one device sustains under the efficiencies."""
    rows = np.ones(len(plans))
    compute = compute_factor(plans, eff)
    return Device(
        flops_per_s=plans.peak_flops_per_s * eff.matmul / compute,
        bytes_per_s=plans.memory_bytes_per_s * eff.memory / compute,
        units=plans.compute_units,
        half_depth=rows * eff.half_depth,
        misaligned=rows * eff.misaligned,
    )
