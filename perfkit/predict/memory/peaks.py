"""Peaks: the memory of every pipeline stage of many plans at its largest moment, part by part.

Rows are stages. Three moments are compared on each: the loss (last stage: all activations and the logits), the backward pass of a
layer (activations, recomputed tensors, gradients of activations) and the optimizer step (its buffers, no activations).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from perfkit.core.numbers import Number, maximum, minimum, where
from perfkit.core.plan_columns import Codes, Flags, Floats
from perfkit.predict.memory.activations import (
    MicroBatch,
    backward_gradients,
    micro_batch,
    outside_layers,
    scores,
    tensors_of,
)
from perfkit.predict.memory.sizes import Kind, Sizes
from perfkit.predict.memory.static import Part, StageParameters, padded_vocab, stage_parameters, static_bytes, trained_of
from perfkit.predict.memory.waiting import Load, Sort, Stage

LOSS, BACKWARD, OPTIMIZER, WAITS = range(4)
MOMENTS = (
    "at the loss of a micro batch",
    "in the backward pass of a layer",
    "in the optimizer step",
    "while micro batches wait",
)
"""The largest moment of a stage; the last one is that of a stage whose last chunk has no layers."""


@dataclass(frozen=True, slots=True)
class StageRows:
    """Stages of plans of one kind, a row each; `parts` are the layers that they hold (two parts where both directions pass).

    `counts` are layers by combination and load, then full layer inputs and micro batches of the first chunk. Of the layer that
    comes back first, `backward` is the position of its load among `loads` (-1: none), `again` whether all of it is made again.
    """

    parts: tuple[Part, ...]
    loads: tuple[Load, ...]
    counts: Floats
    backward: Codes
    again: Flags

    @classmethod
    def of(cls, stages: Sequence[Stage]) -> StageRows:
        """Stages as rows."""
        loads: dict[Load, int] = {}
        for stage in stages:
            for combination in stage.waiting:
                for load in combination.loads:
                    loads.setdefault(load, len(loads))
            if stage.backward:
                loads.setdefault(stage.backward[0], len(loads))
        counts = np.zeros((len(stages), max(len(stage.waiting) for stage in stages), len(loads) + 2))
        for row, stage in enumerate(stages):
            for index, (live, full, own) in enumerate(stage.waiting):
                counts[row, index, -2:] = full, live
                for load, count in own.items():
                    counts[row, index, loads[load]] = count
        held = np.array([stage.parts for stage in stages], dtype=np.float64)
        return cls(
            parts=tuple(Part(*held[:, index].T) for index in range(held.shape[1])),
            loads=tuple(loads),
            counts=counts,
            backward=np.array([loads[stage.backward[0]] if stage.backward else -1 for stage in stages]),
            again=np.array([stage.backward is not None and stage.backward[1] for stage in stages]),
        )

    def take(self, rows: Codes) -> StageRows:
        """The stages at `rows`."""
        parts = tuple(Part(*(column[rows] for column in part)) for part in self.parts)
        return StageRows(parts, self.loads, self.counts[rows], self.backward[rows], self.again[rows])


@dataclass(frozen=True, slots=True)
class Peaks:
    """Whole bytes by path (the leaves of a breakdown) and row, and the largest moment of every row (a position in `MOMENTS`)."""

    paths: tuple[str, ...]
    amounts: Floats
    moments: Codes

    def amount(self, *roots: str) -> Floats:
        """Whole bytes of every row below some paths."""
        return np.asarray(self.amounts[[path.startswith(roots) for path in self.paths]].sum(axis=0))


def peaks(kind: Kind, sizes: Sizes, rows: StageRows) -> Peaks:
    """The peak of every stage; `sizes` has a row for every stage, or numbers that all of them share."""
    batch, stage = micro_batch(kind, sizes), rows.parts[0]
    kinds = {frozen: replace(kind, in_frozen_layer=frozen) for frozen in {load.frozen for load in rows.loads}}
    sorts = {load.sort for load in rows.loads}
    tensors = {sort: tensors_of(kinds[sort[1]], sizes, batch, experts=sort[0]) for sort in sorts}
    kept = [load.kept(tensors[load.sort]) for load in rows.loads]
    held = _held(rows, kept, outside_layers(kind, batch, sizes), batch.stream)
    every = {sort: sum(tensor.bytes for tensor in of) for sort, of in tensors.items()}
    again = _made_again(rows, kept, every, batch.stream)
    with_experts = {experts for experts, _ in sorts}
    gradients = _gradients(rows, {experts: backward_gradients(kind, sizes, batch, experts=experts) for experts in with_experts})
    parameters = [stage_parameters(kind, sizes, part) for part in rows.parts]
    static = [static_bytes(kind, sizes, part, own) for part, own in zip(rows.parts, parameters, strict=True)]
    logits = batch.tokens * padded_vocab(kind, sizes) / sizes.tensor_parallel_size * kind.settings.logits_bytes_per_element
    logits = (1 + sizes.num_mtp_layers) * logits  # of every loss until the backward pass
    trained = trained_of(kind, sizes, stage, parameters[0])
    copies = _gradient_copies(kind, sizes, trained)
    waits: Number = sum(held.values())
    moments = np.empty((3, len(stage.layers)))
    accumulated = sum(part.gradients for part in static)
    unmade = accumulated * _made_once(kind, sizes)
    moments[LOSS] = where(stage.last > 0, waits + logits - unmade, -1.0)
    moments[BACKWARD], moments[OPTIMIZER] = waits + again + gradients, copies
    at = moments.argmax(axis=0)
    leaves: dict[str, Number] = {
        "static/parameters": sum(part.parameters for part in static),
        "static/gradients": accumulated - unmade * (at == LOSS),
        "static/optimizer": sum(part.optimizer for part in static),
        **{f"dynamic/activations/{name}": amount * (at != OPTIMIZER) for name, amount in held.items()},
        "dynamic/logits": logits * (at == LOSS),
        "dynamic/recomputed_tensors": again * (at == BACKWARD),
        "dynamic/activation_gradients": gradients * (at == BACKWARD),
        "dynamic/gradient_copies": copies * (at == OPTIMIZER),
        "dynamic/gathered_parameters": sum(part.gathered for part in static),
        **_buffers(kind, sizes, batch, trained),
        "reserved/workspace": _workspace(kind, sizes, batch),
    }
    amounts = np.empty((len(leaves) + 2, len(at)))
    for row, amount in zip(amounts, leaves.values(), strict=False):
        row[:] = amount
    amounts[-2] = kind.settings.fragmentation * amounts[:-2].sum(axis=0)
    amounts[-1] = kind.settings.context_bytes
    paths = (*leaves, "reserved/fragmentation", "reserved/context")
    return Peaks(paths, np.rint(amounts, out=amounts), where((at == BACKWARD) & (rows.backward < 0), WAITS, at))


def _held(
    rows: StageRows, kept: Sequence[Mapping[str, Number]], outside: Mapping[str, Number], layer_input: Number
) -> dict[str, Number]:
    """Activations by part when most micro batches wait, of the layers and outside of them."""
    stage, counts = rows.parts[0], rows.counts[:, 0]
    if rows.counts.shape[1] > 1:
        each = np.stack(
            [np.broadcast_to(amount, len(counts)) for amount in (*(sum(parts.values()) for parts in kept), layer_input)]
        )
        most = np.einsum("scl,ls->sc", rows.counts[:, :, :-1], each).argmax(axis=1)
        counts = rows.counts[np.arange(len(counts)), most]
    held = {
        "embedding": stage.first * counts[:, -1] * outside["embedding"],
        "head": stage.last * outside["head"],
        "batch": maximum(stage.first, stage.last) * outside["batch"],
        "recomputed_layers": counts[:, -2] * layer_input,
    }
    for number, parts in zip(counts.T, kept, strict=False):
        for part, amount in parts.items():
            held[part] = held.get(part, 0.0) + number * amount
    return held


def _made_again(rows: StageRows, kept: Sequence[Mapping[str, Number]], every: Mapping[Sort, Number], layer_input: Number) -> Number:
    """Tensors that the layer whose backward pass comes first makes again: `every` one without those that it kept."""
    again = np.zeros(len(rows.backward))
    for code in set(rows.backward[rows.backward >= 0].tolist()):
        left = where(rows.again, layer_input, sum(kept[code].values()))
        again += (rows.backward == code) * maximum(0.0, every[rows.loads[code].sort] - left)
    return again


def _gradients(rows: StageRows, each: Mapping[bool, Number]) -> Number:
    """Gradients of the layer whose backward pass comes first; `each` with and without experts."""
    with_experts = np.array([load.experts for load in rows.loads] or [False])[rows.backward]
    found = where(with_experts, each.get(True, 0.0), each.get(False, 0.0))
    return found * (rows.backward >= 0)


def _gradient_copies(kind: Kind, sizes: Sizes, trained: StageParameters) -> Number:
    """DeepSpeed lines up the gradients of its part in one tensor and casts that to 32 bit."""
    if not kind.settings.bucket_elements:
        return 0.0
    return (sizes.gradient_bytes + 4) * trained.total / sizes.optimizer_shard_size


def _made_once(kind: Kind, sizes: Sizes) -> Number:
    """Whether (0 or 1) a step makes its gradients in one backward pass and drops them after the update, as FSDP's does."""
    if not kind.settings.gathers_with_root:
        return 0.0
    return (sizes.level == 3) * (sizes.num_micro_batches == 1) * (sizes.pipeline_parallel_size == 1) * 1.0


def _workspace(kind: Kind, sizes: Sizes, batch: MicroBatch) -> Number:
    """Fixed buffers of the framework's allocator, and its buffer of attention scores where that outlives the step."""
    settings = kind.settings
    fixed = settings.workspace_bytes + (settings.expert_workspace_bytes if kind.num_experts else 0)
    if not settings.keeps_score_buffer or kind.flash:
        return float(fixed)
    return fixed + scores(sizes, batch) * kind.element_bytes


def _buffers(kind: Kind, sizes: Sizes, batch: MicroBatch, trained: StageParameters) -> dict[str, Number]:
    """Buffers of collectives that stay allocated, by what they carry."""
    t = sizes.tensor_parallel_size
    # What is sent forward, and gradients sent and received; what is received forward is a layer's input. Interleaving posts the
    # next exchange before the last one is used.
    exchanged = 3.0 + 3.0 * (sizes.virtual_pipeline_parallel_size > 1)
    # Ring: keys and values, one block in use and one on its way. Exchange of heads: what is sent and what arrives.
    values = sizes.num_key_value_heads * sizes.head_size / sizes.hidden_size * batch.hidden / t
    context = 4 * sizes.ring * values + 2 * sizes.exchange * batch.hidden / t
    found: dict[str, Number] = {
        "sequence": batch.hidden * (sizes.sequence_split > 1),
        "pipeline": (sizes.pipeline_parallel_size > 1) * exchanged * batch.stream,
        "context": (sizes.context_parallel_size > 1) * context,
    }
    if bucket := kind.settings.bucket_elements:  # One of gradients and one of parameters, in 16 bit.
        found["buckets"] = (sizes.data_parallel_size > 1) * 2 * 2 * minimum(bucket, trained.total)
    return {f"dynamic/communication_buffers/{name}": amount for name, amount in found.items()}
