"""Waiting: what the layers of every pipeline stage keep while micro batches wait for their backward pass, as counts of layers.

A layer that keeps something has a `Load`: what of it is repeated in the backward pass, and whether it has experts. A stage keeps so
many times the bytes of every load, and so many layer inputs of layers recomputed in full: that depends on how layers lie, on the
recompute plan and on the schedule alone, not on any size. Counts are those of micro batches times layers.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from typing import NamedTuple

from perfkit.core.numbers import Number
from perfkit.core.spec.plan import Plan
from perfkit.core.spec.recompute import Counts, RecomputePlan
from perfkit.core.spec.trained import Span, TrainedLayers
from perfkit.predict.memory.activations import Saved, kept_bytes
from perfkit.predict.memory.in_flight import in_flight_of
from perfkit.predict.memory.static import Part

OFFLOADING = 2
"""Layers of a chunk that stay on the device while they are on their way to or from the host."""


Sort = tuple[bool, bool]
"""Whether a layer has experts, and whether all of it is frozen."""


class Load(NamedTuple):
    """What a layer repeats: operators, its attention core, its gathers; whether it has experts, and whether all of it is frozen."""

    patterns: tuple[str, ...] = ()
    attention_core: bool = False
    gather_again: bool = False
    experts: bool = False
    frozen: bool = False

    @property
    def sort(self) -> Sort:
        """What decides which tensors the layer has."""
        return self.experts, self.frozen

    def kept(self, tensors: Iterable[Saved]) -> dict[str, Number]:
        """Bytes by part of a layer's tensors that it keeps."""
        return kept_bytes(tensors, self.patterns, attention_core=self.attention_core, gather_again=self.gather_again)


class Layout(NamedTuple):
    """How layers lie: of every chunk (row) and stage (column), how many dense ones lead, what of them is repeated and trained."""

    layers: Counts
    num_dense_layers: int
    recompute: RecomputePlan
    trained: TrainedLayers | None = None

    def span(self, chunk: int, stage: int) -> Span:
        """Which layers of a position are trained, and which have no backward pass."""
        return self.trained.spans(self.layers)[chunk][stage] if self.trained else Span(0, 0, self.layers[chunk][stage])


def layout_of(plan: Plan) -> Layout:
    """The layout of a plan; without experts all of its layers are dense."""
    model = plan.model
    dense = model.num_dense_layers if model.num_experts else model.num_layers
    return Layout(plan.stage_layers, dense, plan.recompute, model.trained_layers)


@dataclass(frozen=True, slots=True)
class Kept:
    """What the layers of one chunk keep of one micro batch: `full` layer inputs, and layers by their load."""

    full: int
    loads: Mapping[Load, int]


class Combination(NamedTuple):
    """Activations that wait at one time: micro batches of the first chunk, full layer inputs, and layers by load."""

    live: int
    full: int
    loads: dict[Load, int]


@dataclass(frozen=True, slots=True)
class Stage:
    """One pipeline stage: the layers that it holds (two parts where both directions pass), what can wait at most, what comes back.

    `waiting` are the combinations that no other one exceeds. `backward` says of the layer whose backward pass comes first what it
    keeps, and whether it is recomputed in full; None if its chunk has no layer.
    """

    parts: tuple[Part, ...]
    waiting: tuple[Combination, ...]
    backward: tuple[Load, bool] | None


def waiting_of(layout: Layout, schedule: str, micro_batches: int, pieces: int, *, all_stages: bool = True) -> tuple[Stage, ...]:
    """The stages of a layout: all, or those that can need most. Raises InputError for a schedule that does not fit.

    Of stages between first and last whose layers are alike the earlier one needs no less: more micro batches wait there.
    """
    parts = parts_of(layout)
    last, found, seen = len(parts) - 1, [], list[object]()
    held: tuple[Part, ...]
    for index, own in enumerate(parts):
        held, kept = (own,), [kept_by(layout, chunk, index) for chunk in range(len(layout.layers))]
        if schedule == "dualpipe":  # Every device holds two stages, one for each direction.
            held, kept = (own, parts[last - index]), [*kept, kept_by(layout, 0, last - index)]
        backward = _backward(layout, index)
        alike = (held, kept, backward)
        if all_stages or schedule == "dualpipe" or alike not in seen:
            vectors = in_flight_of(schedule, last + 1, len(layout.layers), micro_batches, index, sequence_chunks=pieces)
            found.append(Stage(held, _largest(_times(vector, kept) for vector in vectors), backward))
            seen.append(alike)
    return tuple(found)


def parts_of(layout: Layout) -> tuple[Part, ...]:
    """The layers of every stage."""
    mixed, last = expert_layers_in(layout.layers, layout.num_dense_layers), len(layout.layers[0]) - 1
    held = tuple(
        Part(int(stage == 0), int(stage == last), sum(row[stage] for row in layout.layers), sum(row[stage] for row in mixed))
        for stage in range(last + 1)
    )
    return tuple(_with_trained(layout, part, mixed, stage) for stage, part in enumerate(held)) if layout.trained else held


def _with_trained(layout: Layout, part: Part, mixed: Counts, stage: int) -> Part:
    """The layers of a stage with those that are trained."""
    trained = of_mixed = 0
    for chunk, row in enumerate(layout.layers):
        _, start, end = layout.span(chunk, stage)
        trained += end - start
        of_mixed += max(0, end - max(start, row[stage] - mixed[chunk][stage]))
    return part._replace(trained=trained, trained_mixed=of_mixed)


def kept_by(layout: Layout, chunk: int, stage: int) -> Kept:
    """What the layers of one chunk of a stage keep: those recomputed in full come first, then those whose activations are swapped.

    Counts of operators and gathers include the full layers. Experts come after the dense layers of a chunk. Layers without a
    backward pass, which are the first ones, keep nothing.
    """
    span = layout.span(chunk, stage)
    count, recompute = layout.layers[chunk][stage], layout.recompute
    dense = count - expert_layers_in(layout.layers, layout.num_dense_layers)[chunk][stage]
    full = count if recompute.all_layers else min(count, _at(recompute.full_layers, chunk, stage))
    start = full + max(0, min(count - full, _at(recompute.swapped_layers, chunk, stage)) - OFFLOADING)
    repeated = tuple((pattern, _at(counts, chunk, stage)) for pattern, counts in recompute.operators.items())
    gathered = _at(recompute.communication, chunk, stage)
    trained = (span.start, span.end) if layout.trained else None
    loads = _loads((max(start, span.skipped), dense, count), repeated, gathered, recompute.attention_core, trained)
    return Kept(max(0, full - span.skipped), loads)


@lru_cache(maxsize=4096)
def _loads(
    cuts: tuple[int, int, int],
    repeated: tuple[tuple[str, int], ...],
    gathered: int,
    attention_core: bool,
    trained: tuple[int, int] | None,
) -> Mapping[Load, int]:
    """Layers by load of a chunk: the first that keeps more than its input, the first with experts, and the end are its `cuts`.

    Of layers some of which are frozen all of those are that are not within `trained`.
    """
    start, dense, count = cuts
    loads: dict[Load, int] = {}
    steps = {min(max(cut, start), count) for cut in (*cuts, gathered, *(trained or ()), *(number for _, number in repeated))}
    for begin, end in pairwise(sorted(steps)):
        patterns = tuple(pattern for pattern, number in repeated if number > begin)
        frozen = trained is not None and not trained[0] <= begin < trained[1]
        load = Load(patterns, attention_core, gathered > begin, begin >= dense, frozen)
        loads[load] = loads.get(load, 0) + end - begin
    return loads


@lru_cache(maxsize=4096)
def expert_layers_in(layers: Counts, num_dense_layers: int) -> Counts:
    """How many of the layers of every chunk and stage have experts: all after the leading dense ones."""
    done, rows = 0, []
    for row in layers:
        mixed = []
        for count in row:
            mixed.append(max(0, done + count - max(done, num_dense_layers)))
            done += count
        rows.append(tuple(mixed))
    return tuple(rows)


def _times(vector: Sequence[int], chunks: Sequence[Kept]) -> Combination:
    """So many micro batches of every chunk together."""
    total: dict[Load, int] = {}
    for live, chunk in zip(vector, chunks, strict=True):
        for load, count in chunk.loads.items():
            total[load] = total.get(load, 0) + live * count
    return Combination(vector[0], sum(live * chunk.full for live, chunk in zip(vector, chunks, strict=True)), total)


def _largest(found: Iterable[Combination]) -> tuple[Combination, ...]:
    """The combinations that no other one exceeds; of equal ones the first."""
    kept: list[Combination] = []
    for one in found:
        if not any(_within(one, other) for other in kept):
            kept = [*(other for other in kept if not _within(other, one)), one]
    return tuple(kept)


def _within(one: Combination, other: Combination) -> bool:
    """Whether no count of a combination is above that of another one."""
    return one.full <= other.full and all(count <= other.loads.get(load, 0) for load, count in one.loads.items())


def _backward(layout: Layout, stage: int) -> tuple[Load, bool] | None:
    """What the first layer of the last chunk that has a backward pass keeps when that begins; trained if any of the chunk is."""
    chunk = len(layout.layers) - 1
    experts = expert_layers_in(layout.layers, layout.num_dense_layers)[chunk][stage] > 0
    first, start, end = layout.span(chunk, stage)
    if layout.layers[chunk][stage] <= first:
        return None
    patterns = tuple(pattern for pattern, counts in layout.recompute.operators.items() if _at(counts, chunk, stage) > first)
    full = layout.recompute.all_layers or _at(layout.recompute.full_layers, chunk, stage) > first
    return Load(patterns, layout.recompute.attention_core, experts=experts, frozen=start == end), full


def _at(counts: Counts, chunk: int, stage: int) -> int:
    return counts[chunk][stage] if chunk < len(counts) and stage < len(counts[chunk]) else 0
