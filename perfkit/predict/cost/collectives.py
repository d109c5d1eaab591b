"""Time of collectives by alpha-beta: latency of the whole operation, and bytes over what the slowest link gives the group.

Ring volumes: all-reduce 2(q-1)/q of the payload, all-gather and reduce-scatter half of that. Ranks are placed with tensor
parallel innermost, then context, data and pipeline, so that a group of `size` ranks that are `stride` apart stays in a node as far
as it fits. Groups that leave a node together share its network: each gets the node's rate divided by the groups that a node holds.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from perfkit.core.numbers import Number, any_of, maximum, minimum, where


@dataclass(frozen=True, slots=True)
class Network:
    """What links sustain, a row a plan: bytes/s of a device inside a node, bytes/s of a node, latencies in s, devices a node."""

    intra_bytes_per_s: Number
    node_bytes_per_s: Number
    intra_latency_s: Number
    inter_latency_s: Number
    devices_per_node: Number
    mesh: Number
    pair: Number
    quad: Number


def bandwidth_bytes_per_s(size: Number, stride: Number, network: Network) -> Number:
    """Bytes/s that one rank of the group moves around its ring: the link's, or its share of the node's network.

    In a full mesh a device reaches the other ranks of a small group by its links to them only; behind a switch or in a hybrid mesh
    a small group uses its links less well than a whole node (`pair`, `quad`), whatever the node's size: four devices of a node of
    four use all of theirs.
    """
    inside = inside_node(size, stride, network)
    small = where(inside <= 2, network.pair, where(inside <= 4, network.quad, 1.0))
    small = where(inside >= network.devices_per_node, 1.0, small)
    if any_of(network.mesh):
        peers = minimum((inside - 1) / maximum(network.devices_per_node - 1, 1), 1.0)
        small = where(network.mesh, where(inside > 1, peers, 1.0), small)
    link = network.intra_bytes_per_s * small
    shared = network.node_bytes_per_s / minimum(stride, network.devices_per_node)
    return where(size > inside, where(inside > 1, minimum(link, shared), shared), link)


def inside_node(size: Number, stride: Number, network: Network) -> Number:
    """Ranks of a group that are in one node."""
    return minimum(maximum(np.floor(network.devices_per_node / stride), 1.0), size)


def latency_s(size: Number, stride: Number, network: Network) -> Number:
    """Latency of a collective: to start it, for the devices of a node, which grows with the hops, and for the nodes."""
    inside = inside_node(size, stride, network)
    hops = where(inside > 1, 2.0 + np.log2(inside), 0.0)
    return network.intra_latency_s * hops + network.inter_latency_s * np.log2(maximum(size / inside, 1.0))


def all_reduce_s(payload_bytes: Number, size: Number, stride: Number, network: Network) -> Number:
    """Seconds of a ring all-reduce of `payload_bytes` over `size` ranks; 0 for one rank."""
    return 2.0 * gather_s(payload_bytes, size, stride, network) - where(size > 1, latency_s(size, stride, network), 0.0)


def gather_s(payload_bytes: Number, size: Number, stride: Number, network: Network) -> Number:
    """Seconds of an all-gather, a reduce-scatter or an all-to-all with `payload_bytes` of the whole; 0 for one rank."""
    moved = (size - 1.0) / size * payload_bytes / bandwidth_bytes_per_s(size, stride, network)
    return where(size > 1, moved + latency_s(size, stride, network), 0.0)


def all_to_all_s(payload_bytes: Number, size: Number, stride: Number, network: Network) -> Number:
    """Seconds in which every rank of a group sends each other one its part of `payload_bytes`; 0 for one rank.

    Unlike around a ring, what leaves a node leaves from every rank at once, through that rank's share of the node's network.
    """
    inside = inside_node(size, stride, network)
    within = (inside - 1.0) / size * payload_bytes / bandwidth_bytes_per_s(inside, stride, network)
    outside = (size - inside) / size * payload_bytes / (network.node_bytes_per_s / network.devices_per_node)
    return where(size > 1, maximum(within, outside) + latency_s(size, stride, network), 0.0)


def send_s(payload_bytes: Number, stride: Number, network: Network) -> Number:
    """Seconds to send `payload_bytes` to the rank `stride` away, while every rank of the node does the same."""
    leaves = stride >= network.devices_per_node
    rate = where(leaves, network.node_bytes_per_s / network.devices_per_node, network.intra_bytes_per_s)
    return payload_bytes / rate + where(leaves, network.inter_latency_s, network.intra_latency_s)
