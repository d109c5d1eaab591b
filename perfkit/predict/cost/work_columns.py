"""Work columns: what one micro batch costs on one device, by layer, head and embedding, a row a plan.

A plan has layers of one kind, or dense ones ahead of those with experts. What a layer computes again depends on where it stands
(`stage_layers`) and is priced here.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from perfkit.core.numbers import Number, alike, any_of, maximum, minimum, where
from perfkit.predict.cost.collectives import Network
from perfkit.predict.cost.cost_columns import CostColumns
from perfkit.predict.cost.efficiency import Amount, Efficiency
from perfkit.predict.cost.exchange_columns import Exchange, context_s, expert_s, gathered_again_s, network_of_plans, tensor_s
from perfkit.predict.cost.layer_columns import Pass, accumulation_s, compute_factor, embedding_s, head_pass, layer_passes, spared_s
from perfkit.predict.cost.operators import ATTAINABLE, Device, off_grain, sustained

SHARP = 1e-3
"""Rounding at and below which the maximum of host and device time is taken to be exact."""

COLLECTIVES = 2.0
"""Tensor-parallel collectives of a layer in one pass."""

SOFTMAX_GRAIN = 4.0
"""Matrices of scores that a block of Megatron's fused softmax takes (`scaled_upper_triang_masked_softmax`, 1024 and 2048 keys)."""


@dataclass(frozen=True, slots=True)
class Layer:
    """Seconds of one layer and micro batch: passes, additions to the gradients, exposed collectives, waits for the host.

    `gathers` are those of a layer that gathers again what sequence parallelism splits; `spared` is the part of the forward products
    that computing all of it again leaves out; `split_s` and `whole_s` are seconds for a byte a token that a repeated element-wise
    operator moves.
    """

    forward: Pass
    backward: Pass
    accumulate: Number
    tensor: Exchange
    context: Exchange
    expert: Exchange
    gathers: Number
    ahead: Number
    behind: Number
    spared: Number
    split_s: Number
    whole_s: Number

    @property
    def forward_s(self) -> Number:
        """Seconds of the forward pass."""
        return self.forward.total + self.tensor.forward + self.context.forward + self.expert.forward + self.ahead

    @property
    def device_backward_s(self) -> Number:
        """Seconds of the backward pass without what it computes again, adds to gradients, or waits for the host."""
        return self.backward.total + self.tensor.backward + self.context.backward + self.expert.backward

    @property
    def backward_s(self) -> Number:
        """Seconds of the backward pass of a layer that computes nothing again."""
        return self.device_backward_s + self.accumulate + self.behind

    @property
    def again_s(self) -> Number:
        """Seconds for one of each of the amounts of `AMOUNTS` but the first, shape (amounts, plans)."""
        full = self.forward.total - self.spared + self.tensor.again + self.context.again + self.expert.again + self.ahead
        rest = (self.forward.attention, self.forward.matmul, self.gathers, self.split_s, self.whole_s)
        return np.array([full, *rest, alike(0.0, full)])


@dataclass(frozen=True, slots=True)
class Work:
    """What a micro batch costs on one device: its layers, head and embedding, and what the device and the network sustain.

    `layers` has the layer of every kind, in the order of `CostColumns.kinds`; `head_share` and `embedding_share` are those of the
    forward pass in head and embedding: one of three products, of a frozen head one of two, of a frozen embedding all.
    """

    device: Device
    network: Network
    tokens: Number
    layers: tuple[Layer, ...]
    head: Pass
    embedding: Number
    head_share: Number
    embedding_share: Number


def micro_batch_work(plans: CostColumns, eff: Efficiency) -> Work:
    """A layer of every kind, the head and the embedding for one micro batch of every plan."""
    device, network = plan_device(plans, eff), network_of_plans(plans, eff)
    tokens = plans.micro_batch * plans.seq_length / (plans.context * plans.pieces)
    layers = tuple(_layer(kind, eff, device, network, tokens) for kind in plans.kinds)
    ends = head_pass(plans, eff, device, tokens), embedding_s(plans, device, tokens)
    third = alike(1 / 3, plans.tensor)
    shares = where(plans.head_trained > 0, third, 1 / 2), where(plans.embedding_trained > 0, third, 1.0)
    return Work(device, network, tokens, layers, *ends, *shares)


def _layer(plans: CostColumns, eff: Efficiency, device: Device, network: Network, tokens: Number) -> Layer:
    forward, backward = layer_passes(plans, eff, device, tokens)
    tensor, context = tensor_s(plans, eff, network, tokens), context_s(plans, network, tokens)
    expert = expert_s(plans, eff, network, tokens)
    ahead = tensor.forward + context.forward + expert.forward
    behind = tensor.backward + context.backward + expert.backward
    waits = launch_waits_s(plans, eff, forward.total + ahead, backward.total + behind)
    moved = tokens / device.bytes_per_s
    layer = Layer(
        forward,
        backward,
        accumulation_s(plans, eff, device),
        tensor,
        context,
        expert,
        gathered_again_s(plans, eff, network, tokens),
        *waits,
        spared=spared_s(plans, eff, device, tokens),
        split_s=moved / plans.tensor,
        whole_s=moved / where(plans.sequence_parallel, plans.tensor, 1.0),
    )
    return layer if any_of(plans.backward) else _forward_only(layer)


def _forward_only(layer: Layer) -> Layer:
    """The layer without its backward pass."""
    none = 0.0 * layer.ahead
    tensor, context, expert = (each._replace(backward=none) for each in (layer.tensor, layer.context, layer.expert))
    ends = {"backward": Pass(none, none, none), "accumulate": none, "behind": none}
    return replace(layer, **ends, tensor=tensor, context=context, expert=expert)


def launch_waits_s(plans: CostColumns, eff: Efficiency, forward_s: Number, backward_s: Number) -> tuple[Number, Number]:
    """Seconds that the device waits for the host in a layer, forward and backward: a pass takes at least as long as its launch."""
    softmax = ~plans.flash & off_grain(plans.micro_batch * plans.heads / plans.tensor, SOFTMAX_GRAIN)
    calls = where(plans.tensor > 1, COLLECTIVES * eff.collective_host_s, 0.0) * eff.host
    layer = eff.layer_host_s + where(plans.experts > 1, eff.expert_host_s, 0.0)
    launch = (layer + where(softmax, eff.softmax_host_s, 0.0)) * eff.host + calls
    behind = layer * eff.host * eff.backward_host + calls
    soft = maximum(where(plans.tensor > 1, eff.group_rounding, eff.host_rounding), SHARP)
    wait = where((plans.tensor > 1) & (plans.tensor >= plans.devices_per_node), eff.node_wait, 1.0)
    return wait * _waited_s(launch, forward_s, soft), wait * _waited_s(behind, backward_s, soft)


def _waited_s(launch: Amount, device: Number, soft: Number) -> Number:
    """Seconds by which a pass outlasts its work on the device: the soft maximum of both, which varying kernels round off."""
    longer, shorter = maximum(launch, device), minimum(launch, device)
    return longer * np.power(1.0 + np.power(shorter / longer, 1.0 / soft), soft) - device


def plan_device(plans: CostColumns, eff: Efficiency) -> Device:
    """What one device sustains under the efficiencies."""
    rows, factor = alike(1.0, plans.tensor), compute_factor(plans, eff)
    return Device(
        flops_per_s=plans.peak_flops_per_s * eff.matmul / factor,
        most_flops_per_s=plans.peak_flops_per_s * maximum(eff.matmul, ATTAINABLE),
        bytes_per_s=plans.memory_bytes_per_s * sustained(eff.memory, factor),
        units=plans.compute_units,
        half_depth=rows * eff.half_depth,
        misaligned=rows * eff.misaligned,
    )
