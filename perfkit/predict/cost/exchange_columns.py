"""Time of the collectives of a layer, the pipeline and the gradients, as far as computing does not hide them, a row a plan."""

from __future__ import annotations

import numpy as np

from perfkit.core.plan_columns import Floats
from perfkit.predict.cost.collectives import Network, all_reduce_s, gather_s, send_s
from perfkit.predict.cost.cost_columns import CostColumns
from perfkit.predict.cost.efficiency import Efficiency
from perfkit.predict.cost.layer_columns import layer_parameters, padded_vocab


def tensor_s(plans: CostColumns, eff: Efficiency, network: Network, tokens: Floats) -> Floats:
    """Exposed tensor-parallel collectives of a layer and micro batch: two all-reduces forward, two backward, repeats."""
    payload, stride = tokens * plans.hidden * plans.element_bytes, np.ones(len(plans))
    seconds = all_reduce_s(payload, plans.tensor, stride, network) * (4 + 2 * plans.recompute_full)
    if plans.recompute_gathers.any():
        gathers = np.where(plans.sequence_parallel, 2 * plans.recompute_gathers, 0.0)
        seconds = seconds + gathers * gather_s(payload, plans.tensor, stride, network)
    hidden = np.where(plans.interleave > 1, eff.interleave_hidden, eff.tensor_hidden)
    return np.asarray(seconds * (1 - hidden))


def context_s(plans: CostColumns, network: Network, tokens: Floats) -> Floats:
    """Exposed exchanges of keys and values of a layer and micro batch: forward, and twice as much backward."""
    if (plans.context <= 1).all():
        return np.zeros(len(plans))
    heads = np.minimum(plans.context, plans.head_exchange)
    ring = plans.context / heads
    # Queries, keys, values and outputs, to the rank of their heads and back (arXiv 2309.14509).
    exchanged = 2 * tokens * (plans.heads + plans.kv_heads) * plans.head_size / plans.tensor * plans.element_bytes
    # Keys and values of the whole group, of the heads that this rank has then (arXiv 2310.01889); twice as much backward.
    passed = 2 * tokens * plans.context * plans.kv_heads * plans.head_size / (plans.tensor * heads) * plans.element_bytes
    swaps = gather_s(exchanged, heads, plans.tensor, network) * (2 + plans.recompute_full)
    return swaps + gather_s(passed, ring, plans.tensor * heads, network) * (3 + plans.recompute_full)


def expert_s(plans: CostColumns, network: Network, tokens: Floats) -> Floats:
    """Exposed exchanges of tokens between experts of a layer and micro batch: to them and back, forward and backward."""
    if (plans.expert_parallel <= 1).all():
        return np.zeros(len(plans))
    payload = plans.experts_per_token * plans.expert_load * tokens * plans.hidden * plans.element_bytes
    share = np.where(plans.experts > 0, (plans.layers - plans.dense_layers) / plans.layers, 0.0)
    return share * gather_s(payload, plans.expert_parallel, plans.tensor, network) * (4 + 2 * plans.recompute_full)


def pipeline_s(plans: CostColumns, eff: Efficiency, network: Network, tokens: Floats, m: Floats) -> Floats:
    """Exposed sends between stages: there and back once a micro batch, and along the pipeline once."""
    payload = tokens * plans.hidden * plans.element_bytes / plans.tensor  # scattered over the tensor-parallel ranks
    stride = plans.devices / plans.pipeline
    hops = 2 * (m * plans.virtual + plans.pipeline - 1)
    return np.where(plans.pipeline > 1, hops * (send_s(payload, stride, network) + eff.send_host_s * eff.host), 0.0)


def stage_parameters(plans: CostColumns, layers: Floats) -> Floats:
    """Parameters on one device of a stage with `layers` layers and one table of the vocabulary."""
    tables = np.where((plans.pipeline == 1) & ~plans.tied, 2.0, 1.0) * padded_vocab(plans) * plans.hidden / plans.tensor
    return layers * layer_parameters(plans) + tables


def gradients_s(plans: CostColumns, eff: Efficiency, network: Network, layers: Floats, window: Floats) -> tuple[Floats, Floats]:
    """Exposed data-parallel collectives: seconds once a step, and once a micro batch (sharded parameters only)."""
    group, stride = plans.data * plans.context, plans.tensor
    parameters = stage_parameters(plans, layers)
    gathered = gather_s(parameters * plans.element_bytes, group, stride, network)
    reduced = gather_s(parameters * plans.gradient_bytes, group, stride, network)
    update = np.where(plans.zero > 0, gathered, reduced)
    once = exposed_s(reduced + update, window * eff.gradients_hidden, eff)
    always = exposed_s(2 * gathered + reduced, 1.5 * window * eff.gradients_hidden, eff)
    return np.where(plans.zero >= 3, 0.0, once), np.where(plans.zero >= 3, always, 0.0)


def exposed_s(seconds: Floats, window: Floats, eff: Efficiency) -> Floats:
    """What is left of a collective beside computing of `window` seconds, with what it costs that computing."""
    return np.maximum(seconds - window, 0.0) + eff.contention * np.minimum(seconds, window)


def network_of_plans(plans: CostColumns, eff: Efficiency) -> Network:
    """Links of every plan, as the collectives take them."""
    rows = np.ones(len(plans))
    return Network(
        intra_bytes_per_s=plans.intra_bytes_per_s * eff.intra_share / eff.communication,
        node_bytes_per_s=plans.node_bytes_per_s * eff.inter_share / eff.communication,
        intra_latency_s=rows * eff.intra_latency_s,
        inter_latency_s=rows * eff.inter_latency_s,
        devices_per_node=plans.devices_per_node,
        mesh=plans.mesh,
        pair=rows * eff.pair * eff.small_groups,
        quad=rows * eff.quad * eff.small_groups,
    )
