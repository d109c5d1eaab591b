"""Time of collectives by alpha-beta: latency of the whole operation, and bytes over what the slowest link gives the group.

Ring volumes: all-reduce 2(q-1)/q of the payload, all-gather and reduce-scatter half of that. Ranks are placed with tensor
parallel innermost, then context, data and pipeline, so that a group of `size` ranks that are `stride` apart stays in a node as far
as it fits. Groups that leave a node together share its network: each gets the node's rate divided by the groups that a node holds.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from perfkit.core.plan_columns import Flags, Floats


@dataclass(frozen=True, slots=True)
class Network:
    """What links sustain, a row a plan: bytes/s of a device inside a node, bytes/s of a node, latencies in s, devices a node."""

    intra_bytes_per_s: Floats
    node_bytes_per_s: Floats
    intra_latency_s: Floats
    inter_latency_s: Floats
    devices_per_node: Floats
    mesh: Flags
    pair: Floats
    quad: Floats


def bandwidth_bytes_per_s(size: Floats, stride: Floats, network: Network) -> Floats:
    """Bytes/s that one rank of the group moves around its ring: the link's, or its share of the node's network.

    In a full mesh a device reaches the other ranks of a small group by its links to them only; behind a switch or in a hybrid mesh
    a small group uses its links less well than a whole node (`pair`, `quad`), whatever the node's size: four devices of a node of
    four use all of theirs.
    """
    inside = inside_node(size, stride, network)
    small = np.where(inside <= 2, network.pair, np.where(inside <= 4, network.quad, 1.0))
    small = np.where(inside >= network.devices_per_node, 1.0, small)
    if network.mesh.any():
        peers = np.minimum((inside - 1) / np.maximum(network.devices_per_node - 1, 1), 1.0)
        small = np.where(network.mesh, np.where(inside > 1, peers, 1.0), small)
    link = network.intra_bytes_per_s * small
    shared = network.node_bytes_per_s / np.minimum(stride, network.devices_per_node)
    return np.where(size > inside, np.where(inside > 1, np.minimum(link, shared), shared), link)


def inside_node(size: Floats, stride: Floats, network: Network) -> Floats:
    """Ranks of a group that are in one node."""
    return np.minimum(np.maximum(np.floor(network.devices_per_node / stride), 1.0), size)


def latency_s(size: Floats, stride: Floats, network: Network) -> Floats:
    """Latency of a collective: to start it, for the devices of a node, which grows with the hops, and for the nodes."""
    inside = inside_node(size, stride, network)
    hops = np.where(inside > 1, 2.0 + np.log2(inside), 0.0)
    return network.intra_latency_s * hops + network.inter_latency_s * np.log2(np.maximum(size / inside, 1.0))


def all_reduce_s(payload_bytes: Floats, size: Floats, stride: Floats, network: Network) -> Floats:
    """Seconds of a ring all-reduce of `payload_bytes` over `size` ranks; 0 for one rank."""
    return 2.0 * gather_s(payload_bytes, size, stride, network) - np.where(size > 1, latency_s(size, stride, network), 0.0)


def gather_s(payload_bytes: Floats, size: Floats, stride: Floats, network: Network) -> Floats:
    """Seconds of an all-gather, a reduce-scatter or an all-to-all with `payload_bytes` of the whole; 0 for one rank."""
    moved = (size - 1.0) / size * payload_bytes / bandwidth_bytes_per_s(size, stride, network)
    return np.where(size > 1, moved + latency_s(size, stride, network), 0.0)


def all_to_all_s(payload_bytes: Floats, size: Floats, stride: Floats, network: Network) -> Floats:
    """Seconds in which every rank of a group sends each other one its part of `payload_bytes`; 0 for one rank.

    Unlike around a ring, what leaves a node leaves from every rank at once, through that rank's share of the node's network.
    """
    inside = inside_node(size, stride, network)
    within = (inside - 1.0) / size * payload_bytes / bandwidth_bytes_per_s(inside, stride, network)
    outside = (size - inside) / size * payload_bytes / (network.node_bytes_per_s / network.devices_per_node)
    return np.where(size > 1, np.maximum(within, outside) + latency_s(size, stride, network), 0.0)


def send_s(payload_bytes: Floats, stride: Floats, network: Network) -> Floats:
    """Seconds to send `payload_bytes` to the rank `stride` away, while every rank of the node does the same."""
    leaves = stride >= network.devices_per_node
    rate = np.where(leaves, network.node_bytes_per_s / network.devices_per_node, network.intra_bytes_per_s)
    return payload_bytes / rate + np.where(leaves, network.inter_latency_s, network.intra_latency_s)
