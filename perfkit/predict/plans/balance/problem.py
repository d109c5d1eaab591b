"""Problem: layers to spread over the stages of a pipeline, what each costs by kind of recomputation, and the memory limit.

Times are int64 ns for one micro batch and one layer, sizes int bytes. `param_bytes` is weights, gradients and optimizer state;
`act_bytes` what one micro batch keeps until its backward pass; `bwd_ns` of a kind contains its recomputation.

A layout is an int64 array (varieties, chunks, stages) of layer counts; a variety is a layer type with a kind of recomputation.
Types follow each other in the order of `body`, through chunk 0 of every stage, then chunk 1 of every stage, and so on.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from types import MappingProxyType
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from perfkit.core.errors import InputError
from perfkit.predict.plans.schedule.compile import mode_problems
from perfkit.predict.plans.schedule.order import shape_problems
from perfkit.predict.plans.schedule.schedule import MAX_NS

KINDS = ("none", "select", "comm", "both", "full")
"""Nothing again; chosen operators; communication; both of these; the whole layer."""
BALANCED = ("gpipe", "1f1b", "zbh1", "vpp", "vpp_lm")
MAX_BYTES = 2**50
MAX_LAYERS = 100_000

Layout = NDArray[np.int64]


@dataclass(frozen=True, kw_only=True, slots=True)
class Kind:
    """Backward time and kept activations of a layer under one kind of recomputation."""

    bwd_ns: int
    act_bytes: int
    wgrad_ns: int = 0


@dataclass(frozen=True, kw_only=True, slots=True)
class LayerType:
    """Equal layers that follow each other; `forward_first`: in the first chunk of the first stage they only pass forward.

    There their backward pass takes no time and they keep nothing, whatever their kind.
    """

    name: str
    count: int
    fwd_ns: int
    param_bytes: int
    kinds: Mapping[str, Kind]
    forward_first: bool = False

    def least_work_ns(self, *, first: bool) -> int:
        """The shortest passes of one layer, in the first chunk of the first stage or in any other."""
        return self.fwd_ns + (0 if first and self.forward_first else min(k.bwd_ns + k.wgrad_ns for k in self.kinds.values()))

    def __post_init__(self) -> None:
        object.__setattr__(self, "kinds", MappingProxyType(dict(self.kinds)))


@dataclass(frozen=True, kw_only=True, slots=True)
class EndPart:
    """What the first stage (embedding) or the last one (norm, output head, loss) has besides layers."""

    fwd_ns: int
    bwd_ns: int
    param_bytes: int
    act_bytes: int = 0
    wgrad_ns: int = 0


class Variety(NamedTuple):
    """A layer type, by its place in the body, under a kind of recomputation."""

    type: int
    kind: str


@dataclass(frozen=True, kw_only=True, slots=True)
class PipelineProblem:
    """What `balance` solves; `memory_limit_bytes` None means no limit, `memory_limit_source` says who states it.

    What layers and ends do not explain: `pass_ns` of a micro batch, shape (2, chunks, stages) for forward and backward,
    `closing_ns` after the pipeline, and `stage_bytes` by stage, shape (3, stages), for a last chunk in which no layer is
    recomputed, some repeat operators, or some repeat everything. A micro batch passes in `micro_batch_copies` x `sequence_chunks`
    parts, which `num_microbatches` counts.
    """

    schedule: str
    num_stages: int
    num_microbatches: int
    body: tuple[LayerType, ...]
    head: EndPart | None = None
    tail: EndPart | None = None
    num_chunks: int = 1
    memory_limit_bytes: int | None = None
    memory_limit_source: str = ""
    const_bytes: int = 0
    p2p_ns: int = 0
    p2p_mode: str = "none"
    min_layers_per_chunk: int = 1
    pass_ns: tuple[tuple[tuple[int, ...], ...], ...] = ()
    closing_ns: int = 0
    stage_bytes: tuple[tuple[int, ...], ...] = ()
    micro_batch_copies: int = 1
    sequence_chunks: int = 1
    assumptions: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        problems = shape_problems(self.schedule, self.num_stages, self.num_chunks, self.num_microbatches)
        if self.schedule not in BALANCED:
            problems.append(f"schedule = {self.schedule!r}: balance knows {', '.join(BALANCED)}")
        if not problems:
            problems = [*mode_problems(self.schedule, self.p2p_mode), *self._layer_problems(), *self._amount_problems()]
        if problems:
            raise InputError("pipeline problem", problems)

    def _layer_problems(self) -> list[str]:
        problems = [
            f"body[{index}].count = {part.count} must be positive" for index, part in enumerate(self.body) if part.count < 1
        ]
        layers, positions = self.num_layers, self.num_stages * self.num_chunks
        if self.min_layers_per_chunk < 0 or layers < self.min_layers_per_chunk * positions:
            problems.append(
                f"{layers} layers are too few for {positions} chunks (num_stages x num_chunks) of at least "
                f"{self.min_layers_per_chunk} layers (min_layers_per_chunk)"
            )
        if layers > MAX_LAYERS:
            problems.append(f"{layers} layers: more than {MAX_LAYERS}")
        return problems

    def _amount_problems(self) -> list[str]:
        problems = []
        for index, part in enumerate(self.body):
            if not part.kinds or set(part.kinds) - set(KINDS):
                problems.append(f"body[{index}].kinds = {sorted(part.kinds)} must be some of {', '.join(KINDS)}")
        ends = [(name, part) for name, part in (("head", self.head), ("tail", self.tail)) if part is not None]
        times = [("p2p_ns", self.p2p_ns), *((f"body[{i}].fwd_ns", part.fwd_ns) for i, part in enumerate(self.body))]
        sizes = [
            ("const_bytes", self.const_bytes),
            *((f"body[{i}].param_bytes", part.param_bytes) for i, part in enumerate(self.body)),
        ]
        places = [(f"body[{i}].kinds.{name}", kind) for i, part in enumerate(self.body) for name, kind in part.kinds.items()]
        costs: list[tuple[str, EndPart | Kind]] = [*ends, *places]
        for name, cost in costs:
            times += [(f"{name}.bwd_ns", cost.bwd_ns), (f"{name}.wgrad_ns", cost.wgrad_ns)]
            sizes.append((f"{name}.act_bytes", cost.act_bytes))
        for name, end in ends:
            times.append((f"{name}.fwd_ns", end.fwd_ns))
            sizes.append((f"{name}.param_bytes", end.param_bytes))
        problems += [f"{name} = {value} ns must be 0 to {MAX_NS}" for name, value in times if not 0 <= value <= MAX_NS]
        # A fitted constant may be negative; the other sizes are amounts.
        problems += [
            f"{name} = {value} bytes must be {0 if name != 'const_bytes' else -MAX_BYTES} to {MAX_BYTES}"
            for name, value in sizes
            if not (0 if name != "const_bytes" else -MAX_BYTES) <= value <= MAX_BYTES
        ]
        return problems

    @property
    def num_layers(self) -> int:
        """Layers of all types."""
        return sum(part.count for part in self.body)

    @property
    def varieties(self) -> tuple[Variety, ...]:
        """The rows of a layout: every type with every kind that it allows, in the order of `KINDS`."""
        return tuple(Variety(index, kind) for index, part in enumerate(self.body) for kind in KINDS if kind in part.kinds)


def kind_counts(problem: PipelineProblem, layout: Layout) -> dict[str, dict[str, list[list[int]]]]:
    """A layout as {type: {kind: layers by chunk and stage}}; types of one name are told apart by their place."""
    names = [part.name for part in problem.body]
    result: dict[str, dict[str, list[list[int]]]] = {}
    for variety, rows in zip(problem.varieties, layout, strict=True):
        name = names[variety.type]
        name = name if names.count(name) == 1 else f"{name}[{variety.type}]"
        result.setdefault(name, {})[variety.kind] = [[int(count) for count in row] for row in rows]
    return result


def layers_of(layout: Layout) -> list[list[int]]:
    """Layers by chunk and stage."""
    return [[int(count) for count in row] for row in layout.sum(axis=0)]


def layout_from_kind_counts(problem: PipelineProblem, counts: Mapping[str, Mapping[str, object]]) -> Layout:
    """The layout of {type: {kind: layers by chunk and stage}}; kinds that are left out have no layers."""
    shape = (problem.num_chunks, problem.num_stages)
    rows, problems = [], []
    for variety in problem.varieties:
        name = problem.body[variety.type].name
        given = counts.get(name, {}).get(variety.kind)
        row = np.zeros(shape, dtype=np.int64) if given is None else np.asarray(given, dtype=np.int64)
        if row.shape != shape:
            problems.append(f"kind_counts.{name}.{variety.kind} has shape {row.shape}; chunks x stages is {shape}")
        rows.append(row)
    if problems:
        raise InputError("layout", problems)
    return np.stack(rows)


def layout_problems(problem: PipelineProblem, layout: Layout) -> list[str]:
    """Why a layout is no split of the body: counts, order of types, chunks with too few layers (memory is not checked)."""
    problems = []
    flat = layout.reshape(len(layout), -1)
    types = np.array([variety.type for variety in problem.varieties])
    per_type = np.stack([flat[types == index].sum(axis=0) for index in range(len(problem.body))])
    for part, row in zip(problem.body, per_type, strict=True):
        if int(row.sum()) != part.count:
            problems.append(f"{part.name}: {int(row.sum())} layers are placed, the body has {part.count}")
    if (layout < 0).any():
        problems.append("a count is negative")
    short = np.argwhere(layout.sum(axis=0) < problem.min_layers_per_chunk)
    problems += [
        f"chunk {chunk} of stage {stage} has fewer than {problem.min_layers_per_chunk} layers" for chunk, stage in short.tolist()
    ]
    for first, second in pairwise(per_type):
        if first.any() and second.any() and np.flatnonzero(first).max() > np.flatnonzero(second).min():
            problems.append("a layer of a later type comes before one of an earlier type")
    return problems
