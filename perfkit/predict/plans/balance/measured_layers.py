"""Measured layers: forward and backward time of single layers out of a run whose kernels name the layer that they belong to.

MindSpore names kernels by cell ("Default/.../layers-CellList/3-LLamaDecodeLayer/attention/MatMul-op7", "Gradients/..." on the way
back), simulated runs by "forward/layers.3/...". A layer's time is the sum of its kernels in a step, collectives of the layer
included, over the micro batches of the step; the median of ranks and steps counts.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from perfkit.core.run import Run
from perfkit.core.units import format_ns
from perfkit.predict.plans.balance.from_plan import PlanProblem, faster
from perfkit.predict.plans.balance.problem import LayerType, Layout, PipelineProblem, Variety

_LAYER = re.compile(r"(?:^|[/._-])(?:layers?|blocks?|h)(?:-[A-Za-z]\w*)?[/._](\d{1,4})(?=[-/._]|$)")
_BACKWARD = re.compile(r"(?:^|/)(?:gradients|backward|recompute)(?:/|$)|recompute", re.IGNORECASE)
_COUNTED = ("computing", "communication")
_FIRST_IN_CHUNK = ("full", "both", "select", "comm", "none")
"""Order of kinds in a chunk: recomputed layers come first."""


class LayerTime(NamedTuple):
    """Forward and backward of one layer and micro batch in ns; nan where the run has no kernel of it."""

    forward_ns: float
    backward_ns: float


def layer_times(run: Run, num_micro_batches: int) -> dict[int, LayerTime]:
    """The measured layers by their number in the model; empty if no kernel names one."""
    if not run.has("kernels"):
        return {}
    kernels = run.frame("kernels", columns=["rank", "step", "name", "kind", "duration_ns"])
    kernels = kernels[kernels["kind"].isin(_COUNTED)]
    names = kernels["name"].astype("category").cat
    found = [_LAYER.search(name) for name in names.categories]
    layer = np.array([int(match[1]) if match else -1 for match in found] or [-1])[names.codes]
    back = np.array([bool(_BACKWARD.search(name)) for name in names.categories] or [False])[names.codes]
    own = kernels.assign(layer=layer, back=back)[layer >= 0]
    if own.empty:
        return {}
    sums = own.groupby(["rank", "step", "layer", "back"], observed=True, dropna=False)["duration_ns"].sum()
    medians = (sums.groupby(level=["layer", "back"]).median() / num_micro_batches).unstack("back").reindex(columns=[False, True])
    rows: list[Any] = medians.astype(float).reset_index().to_numpy().tolist()
    return {int(number): LayerTime(forward, backward) for number, forward, backward in rows}


def with_layer_times(found: PlanProblem, times: Mapping[int, LayerTime]) -> PlanProblem | None:
    """The problem with the measured layers; None if `times` are none of this model.

    A layer's time is the mean of its type, without layers that have no backward pass where they stand. What recomputation adds is
    predicted and changes as the forward does, embedding and head as the layers do.
    """
    problem = found.problem
    if not times or max(times) >= problem.num_layers:
        return None
    rows, first = _kinds_of_layers(problem, found.start), int(found.start[:, 0, 0].sum())
    complete = {number: time for number, time in times.items() if math.isfinite(time.forward_ns + time.backward_ns)}
    body: list[LayerType] = []
    notes, ratios = [], []
    for index, part in enumerate(problem.body):
        numbers = range(first if part.forward_first else 0, problem.num_layers)
        own = [(rows[number].kind, time) for number, time in complete.items() if rows[number].type == index and number in numbers]
        if not own:
            body.append(part)
            continue
        changed_part = _measured(part, own)
        backward_ns = sum(time.backward_ns for _, time in own) / len(own)
        before_ns = part.fwd_ns + sum(part.kinds[kind].bwd_ns for kind, _ in own) / len(own)
        ratios.append((changed_part.fwd_ns + backward_ns) / max(1.0, before_ns))
        body.append(changed_part)
        notes.append(
            f"{part.name}: forward {format_ns(changed_part.fwd_ns, 4)}, backward {format_ns(round(backward_ns), 4)} are the means "
            f"of {len(own)} measured layers; what recomputation adds is predicted, scaled as the forward"
        )
    if not ratios:
        return None
    ratio = float(np.median(ratios))
    notes.append(f"embedding and output head are predicted, scaled by {ratio:.4g} as the layers")
    memory = ("memory is predicted by the calculators, not measured", *problem.assumptions[1:])
    changed = replace(
        problem,
        body=tuple(body),
        head=faster(problem.head, ratio),
        tail=faster(problem.tail, ratio),
        assumptions=(*memory, *notes),
    )
    return replace(found, problem=changed, prices=None, exact_at=None)


def _measured(part: LayerType, layers: Sequence[tuple[str, LayerTime]]) -> LayerType:
    """The type with the mean times of measured layers, each with the kind that it had; recomputation repeats forward work."""
    forward_ns = sum(time.forward_ns for _, time in layers) / len(layers)
    repeated = forward_ns / max(1, part.fwd_ns)
    plain_ns = min(kind.bwd_ns for kind in part.kinds.values())
    more_ns = {name: repeated * (kind.bwd_ns - plain_ns) for name, kind in part.kinds.items()}
    backward_ns = max(0.0, sum(time.backward_ns - more_ns[name] for name, time in layers) / len(layers))
    kinds = {name: replace(kind, bwd_ns=round(backward_ns + more_ns[name])) for name, kind in part.kinds.items()}
    return replace(part, fwd_ns=round(forward_ns), kinds=kinds)


def _kinds_of_layers(problem: PipelineProblem, layout: Layout) -> list[Variety]:
    """Type and kind of every layer in the order of the model."""
    layers: list[Variety] = []
    order = sorted(
        range(len(problem.varieties)),
        key=lambda row: (problem.varieties[row].type, _FIRST_IN_CHUNK.index(problem.varieties[row].kind)),
    )
    for chunk in range(problem.num_chunks):
        for stage in range(problem.num_stages):
            for row in order:
                layers += [problem.varieties[row]] * int(layout[row, chunk, stage])
    return layers
