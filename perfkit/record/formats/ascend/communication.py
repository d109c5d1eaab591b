"""Communication as Ascend tools write it in JSON: operations with their times and sizes, and links between ranks.

Both `communication.json` of a rank and `cluster_communication.json` hold the same two blocks an operation: "Communication Time
Info" (ms, start in us; Elapse = Transit + Wait + Idle) and "Communication Bandwidth Info" (MB of 10^6 bytes a transport; SDMA
repeats HCCS + PCIE + SIO, so it is not added to them). Some versions write zero sizes and zero transit times: unknown, not 0.
An operation is `name@group`: the same on all ranks that took part.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from functools import lru_cache
from typing import Any, TypeGuard

import msgspec

from perfkit.core.units import NS_PER_MS, NS_PER_US, decimal_to_ns, whole
from perfkit.record.format import Sink
from perfkit.record.listing import File
from perfkit.record.store import NULLS

TOTAL = "Total Op Info"
BYTES_PER_MB = 10**6
MAX_RANKS = 1_000_000
_OBJECT = (dict, Mapping)
"""What a JSON object may be; the first is by far the quicker to ask."""
_TRAILING_NUMBER = re.compile(r"(\d{1,18})\s*$")
_LINK = re.compile(r"^(\d{1,6})-(\d{1,6})$")


@dataclass(frozen=True, slots=True)
class Operation:
    """One communication operation of one rank; times in ns, `size_bytes` as recorded, null where not stated."""

    rank: int
    step: int
    name: str
    group: str | None
    start_ns: int | None
    duration_ns: int
    transit_ns: int | None
    wait_ns: int | None
    size_bytes: int | None


class Link(msgspec.Struct, frozen=True, gc=False):
    """What one rank sent over one link in one operation, or in the total of its kind; ids as recorded."""

    rank: int
    step: int
    operation: str
    source: int
    target: int
    transport: str | None
    size_bytes: int | None
    transit_ns: int | None

    @property
    def group(self) -> str | None:
        """The hash of its process group, if its name has one."""
        return group_of(self.operation)


@dataclass
class Losses:
    """What could not be understood, by kind."""

    counts: dict[str, int] = field(default_factory=dict)

    def add(self, what: str) -> None:
        """Count one more."""
        self.counts[what] = self.counts.get(what, 0) + 1


def is_rank(value: object) -> TypeGuard[int]:
    """Whether a value of a file can be a global rank; a damaged file may hold any number there."""
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < MAX_RANKS


def are_ranks(values: list[Any]) -> bool:
    """`is_rank` of all values, without a call each: every one of a thousand ranks names a group of a thousand."""
    return not values or (set(map(type, values)) == {int} and min(values) >= 0 and max(values) < MAX_RANKS)


@lru_cache(maxsize=4096)
def step_number(text: str) -> int:
    """The step of a key such as "step50"; 0 for "step", which a recording without steps has."""
    found = _TRAILING_NUMBER.search(text)
    return int(found[1]) if found else 0


@lru_cache(maxsize=65536)
def group_of(key: str) -> str | None:
    """The group hash of a key such as "hcom_allReduce__586_0_1@17522688603477080586"."""
    return key.partition("@")[2] or None


def entries(value: Any, losses: Losses) -> Iterator[tuple[str, Any]]:
    """The items of a JSON object; anything else is counted as lost."""
    if isinstance(value, _OBJECT):
        yield from value.items()
    else:
        losses.add("entry that is no JSON object")


def operation(rank: int, step: int, key: str, info: Any, losses: Losses) -> Operation | None:
    """One operation from its two blocks; None, and counted, if it has no duration."""
    times = info.get("Communication Time Info") if isinstance(info, _OBJECT) else None
    duration_ns = _scaled(times.get("Elapse Time(ms)"), NS_PER_MS) if isinstance(times, _OBJECT) else None
    if duration_ns is None or not isinstance(times, _OBJECT) or duration_ns < 0:
        losses.add("operation without a duration")
        return None
    transit_ns, wait_ns = (_amount(times, f"{name} Time(ms)", NS_PER_MS, losses) for name in ("Transit", "Wait"))
    size_bytes = _size_bytes(info.get("Communication Bandwidth Info"), losses)
    if not transit_ns and not size_bytes:
        transit_ns = size_bytes = None
        wait_ns = wait_ns or None
    return Operation(
        rank=rank,
        step=step,
        name=key.partition("@")[0],
        group=group_of(key),
        start_ns=_amount(times, "Start Timestamp(us)", NS_PER_US, losses),
        duration_ns=duration_ns,
        transit_ns=transit_ns,
        wait_ns=wait_ns,
        size_bytes=size_bytes,
    )


def link(step: int, name: str, key: str, info: Any, losses: Losses, *, rank: int | None = None) -> Link | None:
    """One link from a "source-target" key, told by its source or by `rank`; None, and counted, if it is none."""
    ends = ends_of(key)
    if ends is None or not isinstance(info, _OBJECT):
        losses.add("link whose key is not 'source-target'")
        return None
    size_bytes = _amount(info, "Transit Size(MB)", BYTES_PER_MB, losses)
    transit_ns = _amount(info, "Transit Time(ms)", NS_PER_MS, losses)
    if not size_bytes and not transit_ns:
        size_bytes = transit_ns = None
    transport = info.get("Transport Type")
    return Link(
        rank=ends[0] if rank is None else rank,
        step=step,
        operation=name,
        source=ends[0],
        target=ends[1],
        transport=transport if isinstance(transport, str) and transport else None,
        size_bytes=size_bytes,
        transit_ns=transit_ns,
    )


@lru_cache(maxsize=65536)
def ends_of(key: str) -> tuple[int, int] | None:
    """The source and the target of a link by its key, such as "0-1"; None if it is of another form."""
    found = _LINK.match(key)
    return None if found is None else (int(found[1]), int(found[2]))


def add_links(sink: Sink, links: Sequence[Link], source: File | None = None) -> None:
    """Add links, whose ends are global ranks, to the table of that name."""
    if links:
        sink.add(
            "links",
            source=source,
            rank=[item.rank for item in links],
            step=[item.step for item in links],
            operation=[item.operation for item in links],
            source_rank=[item.source for item in links],
            target_rank=[item.target for item in links],
            transport=[item.transport for item in links],
            bytes=[item.size_bytes for item in links],
            transit_ns=[item.transit_ns for item in links],
        )


def _size_bytes(bandwidth: Any, losses: Losses) -> int | None:
    if not isinstance(bandwidth, _OBJECT):
        return None
    sizes = {
        name: size
        for name in ("RDMA", "HCCS", "PCIE", "SIO", "SDMA")
        if isinstance(block := bandwidth.get(name), _OBJECT)
        and (size := _amount(block, "Transit Size(MB)", BYTES_PER_MB, losses)) is not None
    }
    if not sizes:
        return None
    inside_node = sum(sizes.get(name, 0) for name in ("HCCS", "PCIE", "SIO"))
    return sizes.get("RDMA", 0) + max(inside_node, sizes.get("SDMA", 0))


def _amount(values: Mapping[str, Any], name: str, per_unit: int, losses: Losses) -> int | None:
    """One of the numbers as a whole number of the small unit; null where it is not stated, or, counted, cannot be read."""
    value = values.get(name)
    scaled = _scaled(value, per_unit)
    if scaled is None and value is not None and not (isinstance(value, str) and value.strip() in NULLS):
        losses.add(f"{name}: not a number")
    elif scaled is not None and scaled < 0:
        losses.add(f"{name}: negative")
        return None
    return scaled


def _scaled(value: Any, per_unit: int) -> int | None:
    """A whole number of the small unit, exact; null for what is no finite number or does not fit 64 bits."""
    try:
        if isinstance(value, Decimal):
            scaled = whole(value, per_unit) if value else 0  # most sizes are: of the kinds of links only some are used
        elif isinstance(value, int) and not isinstance(value, bool):
            scaled = value * per_unit
        elif isinstance(value, (float, str)):
            scaled = decimal_to_ns(str(value), per_unit)
        else:
            return None
    except (ValueError, ArithmeticError):
        return None
    return scaled if abs(scaled) < 2**63 else None
