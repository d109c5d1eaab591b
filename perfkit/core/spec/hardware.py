"""What one device and its links can do."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Literal, get_args

from perfkit.core.errors import InputError
from perfkit.core.source import Source
from perfkit.core.spec.checks import counts, one_of, positive, quantity_problem

LinkKind = Literal["", "switch", "mesh", "torus", "infiniband", "roce", "ethernet", "omni-path"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Link:
    """A connection of one device: payload `bytes_per_s` in one direction.

    `kind` decides what a group gets of it: in a "mesh" every pair of devices has its own share of the links, else all of them go
    where they are needed. `topology` describes it to people and decides nothing.
    """

    name: str
    bytes_per_s: float
    topology: str = ""
    kind: LinkKind = ""

    def __post_init__(self) -> None:
        if problems := one_of(self, "kind", get_args(LinkKind)):
            raise InputError(f"Link {self.name}", problems)


@dataclass(frozen=True, kw_only=True, slots=True)
class HardwareSpec:
    """One device: dense peaks by dtype in FLOP/s, memory, and its links inside a node (`intra_node`) and between (`inter_node`).

    `link_domain_size` devices are joined by the links of `intra_node`, more than a node where a switch joins nodes (0: a node).
    `matrix_units` is how many units work on the tiles of a product (0: not known). `sources` says for each field where the number
    comes from.
    """

    name: str
    peak_flops_per_s: Mapping[str, float]
    memory_bytes: int
    memory_bytes_per_s: float
    links: Mapping[str, Link] = field(default_factory=dict)
    devices_per_node: int = 8
    link_domain_size: int = 0
    matrix_units: int = 0
    sources: Mapping[str, Source] = field(default_factory=dict)

    def __post_init__(self) -> None:
        problems = counts(self, ("memory_bytes", "devices_per_node")) + positive(self, ("memory_bytes_per_s",))
        problems += counts(self, ("link_domain_size", "matrix_units"), low=0)
        if not self.peak_flops_per_s:
            problems.append("peak_flops_per_s names no dtype")
        named = {f"peak_flops_per_s[{dtype}]": peak for dtype, peak in self.peak_flops_per_s.items()}
        named |= {f"links[{name}].bytes_per_s": link.bytes_per_s for name, link in self.links.items()}
        problems += [problem for name, value in named.items() if (problem := quantity_problem(name, value))]
        if problems:
            raise InputError(f"HardwareSpec {self.name}".rstrip(), problems)
        for name in ("peak_flops_per_s", "links", "sources"):
            object.__setattr__(self, name, MappingProxyType(dict(getattr(self, name))))

    def __hash__(self) -> int:
        return hash((self.name, self.memory_bytes, self.devices_per_node))

    @property
    def linked_devices(self) -> int:
        """Devices that the links of `intra_node` join."""
        return max(self.link_domain_size, self.devices_per_node)

    @property
    def is_mesh(self) -> bool:
        """Whether the devices of a node are joined by links from each to each, without a switch."""
        return "intra_node" in self.links and self.links["intra_node"].kind == "mesh"

    def peak(self, dtype: str) -> float:
        """Dense peak of `dtype` in FLOP/s; raises InputError that names the dtypes known."""
        if dtype not in self.peak_flops_per_s:
            known = ", ".join(self.peak_flops_per_s)
            raise InputError(f"HardwareSpec {self.name}", [f"no peak for dtype {dtype!r}; known are {known}"])
        return self.peak_flops_per_s[dtype]
