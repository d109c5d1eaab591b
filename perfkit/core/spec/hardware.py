"""What one device and its links can do."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from perfkit.core.errors import InputError
from perfkit.core.source import Source
from perfkit.core.spec.checks import counts, positive, quantity_problem


@dataclass(frozen=True, kw_only=True, slots=True)
class Link:
    """A connection of one device: payload `bytes_per_s` in one direction."""

    name: str
    bytes_per_s: float
    topology: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class HardwareSpec:
    """One device: dense peaks by dtype in FLOP/s, memory, and its links inside a node (`intra_node`) and between (`inter_node`).

    `sources` says for each field where the number comes from.
    """

    name: str
    peak_flops_per_s: Mapping[str, float]
    memory_bytes: int
    memory_bytes_per_s: float
    links: Mapping[str, Link] = field(default_factory=dict)
    devices_per_node: int = 8
    sources: Mapping[str, Source] = field(default_factory=dict)

    def __post_init__(self) -> None:
        problems = counts(self, ("memory_bytes", "devices_per_node")) + positive(self, ("memory_bytes_per_s",))
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

    def peak(self, dtype: str) -> float:
        """Dense peak of `dtype` in FLOP/s; raises InputError that names the dtypes known."""
        if dtype not in self.peak_flops_per_s:
            known = ", ".join(self.peak_flops_per_s)
            raise InputError(f"HardwareSpec {self.name}", [f"no peak for dtype {dtype!r}; known are {known}"])
        return self.peak_flops_per_s[dtype]
