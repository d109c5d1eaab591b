"""How long a communication operator takes on given hardware, alone and at full bandwidth.

Ring algorithms over the link that the group uses: with n ranks and B bytes, an AllReduce moves 2 (n - 1) / n B over every link,
AllGather, ReduceScatter and AlltoAll (n - 1) / n of the whole, a message B. Source: Patarasuk and Yuan 2009, "Bandwidth optimal
all-reduce algorithms for clusters of workstations", section 2. Latency and contention are left out, so it is a lower bound.
"""

from __future__ import annotations

from perfkit.core.spec.hardware import HardwareSpec
from perfkit.explain.graph.communications import Communication


def predicted_s(entry: Communication, hardware: HardwareSpec) -> float | None:
    """Seconds of one call; None if the size, the group or the link is unknown."""
    size, moved = entry.group_size, entry.message_bytes
    link = hardware.links.get("intra_node" if _in_one_node(entry, hardware) else "inter_node")
    if size is None or size < 1 or moved is None or link is None:
        return None
    if entry.cause in ("pipeline_send", "pipeline_receive") or entry.op == "Broadcast":
        return moved / link.bytes_per_s
    share = (size - 1) / size
    return (2 * share if entry.op == "AllReduce" else share) * moved / link.bytes_per_s


def _in_one_node(entry: Communication, hardware: HardwareSpec) -> bool:
    """Whether all ranks of the group share a node; ranks of a node are numbered one after the other."""
    if entry.ranks:
        return len({rank // hardware.devices_per_node for rank in entry.ranks}) == 1
    return (entry.group_size or 0) <= hardware.devices_per_node
