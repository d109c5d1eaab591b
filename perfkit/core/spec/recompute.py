"""Which activations are dropped after the forward pass and computed again in the backward pass."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from perfkit.core.errors import InputError

Counts = tuple[tuple[int, ...], ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class RecomputePlan:
    """Layers to recompute, as counts with one tuple a virtual chunk and one entry a pipeline stage.

    `full_layers` counts layers recomputed from their input; `operators` maps an operator pattern (as written in the config) to
    counts that include the full layers; `communication` likewise for all-gathers. An empty tuple means none; the attribute
    `all_layers` means every layer is recomputed in full. `swapped_layers` counts layers whose activations wait on the host; they
    come after the layers recomputed in full.
    """

    all_layers: bool = False
    full_layers: Counts = ()
    operators: Mapping[str, Counts] = field(default_factory=dict)
    communication: Counts = ()
    attention_core: bool = False
    swapped_layers: Counts = ()

    def __post_init__(self) -> None:
        problems = [
            f"{name} = {counts} has a negative count"
            for name, counts in self.named_counts.items()
            if any(count < 0 for row in counts for count in row)
        ]
        if problems:
            raise InputError("RecomputePlan", problems)
        object.__setattr__(self, "operators", MappingProxyType(dict(self.operators)))

    def __hash__(self) -> int:
        named = (self.full_layers, self.communication, self.swapped_layers, *self.operators.items())
        return hash((self.all_layers, self.attention_core, named))

    def num_full_layers(self, num_layers: int) -> int:
        """How many of the model's layers are recomputed in full, at most `num_layers`."""
        if self.all_layers:
            return num_layers
        return min(num_layers, sum(sum(row) for row in self.full_layers))

    def problems(self, layers: Counts) -> list[str]:
        """What counts contradict of layers by chunk and stage: other stages than there are, or more layers than one has."""
        found, shape = [], [len(row) for row in layers]
        for name, counts in self.named_counts.items():
            if not counts:
                continue
            if [len(row) for row in counts] != shape:
                found.append(
                    f"recompute.{name} = {_short(counts)} must have {len(shape)} rows (chunks) of {shape[0]} counts (stages)"
                )
                continue
            near = tuple(tuple(map(min, *rows)) for rows in zip(counts, layers, strict=True))
            if near != counts:
                found.append(f"recompute.{name} = {_short(counts)} is more than the layers there; nearest is {_short(near)}")
        return found

    @property
    def named_counts(self) -> dict[str, Counts]:
        """Every list of counts by its field, or by the pattern of its operators."""
        named = {"full_layers": self.full_layers, "communication": self.communication, "swapped_layers": self.swapped_layers}
        return named | dict(self.operators)

    @property
    def all_counts(self) -> tuple[Counts, ...]:
        """Every list of counts: of whole layers, of what is gathered or waits on the host, and of operators."""
        return tuple(self.named_counts.values())


def _short(counts: Counts) -> str:
    rows = [list(row) for row in counts]
    return str(rows[0] if len(rows) == 1 else rows)
