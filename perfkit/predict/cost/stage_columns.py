"""Stage columns: how long every stage of many plans works, how long the pipeline takes, and which stage stands for the step.

The forward and backward pass of a position (a chunk of a stage) are its layers, what they compute again, the embedding or the head
where they stand, and its sends. After the last backward pass of a stage its gradients are reduced, which the drain of the pipeline
hides as far as the stage ends early; then every stage updates and gathers what is sharded, which the filling of the next step's
pipeline hides as far as the stage begins late. A step is one of many alike: from one meeting of all stages to the next.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from perfkit.core.numbers import Number, alike, any_of, where
from perfkit.core.plan_columns import Coded, Codes, Floats, distinct
from perfkit.predict.cost.cost_columns import CostColumns
from perfkit.predict.cost.efficiency import Efficiency
from perfkit.predict.cost.exchange_columns import SKIPPED, GradientRates, exposed_s, gradient_rates, send_each_s
from perfkit.predict.cost.pipeline import pipeline_s
from perfkit.predict.cost.stage_layers import AMOUNTS, StageLayers
from perfkit.predict.cost.work_columns import Layer, Work, micro_batch_work

SWAPPED = AMOUNTS.index("swapped")


class Standing(NamedTuple):
    """The stage that stands for the step, by plan, and the step's seconds.

    `amounts` are sums over its layers, shape (kinds, amounts, plans); `first` and `last` (0 or 1) say whether it has the embedding
    and the head. In seconds: `swap` and `always` (data-parallel collectives with sharded parameters) of a micro batch; `once` (the
    other ones) and `optimizer` of a step; `whole` from a step's begin to that of the next one.
    """

    amounts: Floats
    first: Floats
    last: Floats
    swap: Floats
    always: Floats
    once: Floats
    optimizer: Floats
    whole: Floats

    def of_one(self) -> Standing:
        """The numbers of the only plan."""
        amounts, *others = self
        return Standing(amounts[:, :, 0], *(column[0] for column in others))


class Rates(NamedTuple):
    """What the amounts of a position cost, the plans on the last axis.

    `forward` and `computing_ahead` have a row for every kind of layers, `backward` one for every kind and each of `AMOUNTS`, and
    `computing` the part of it in which the device computes or waits for its host, beside which the links are free for other
    transfers; `link_s` are seconds for a byte a token to or from the host.
    """

    passes: Floats
    forward: Floats
    backward: Floats
    computing_ahead: Floats
    computing: Floats
    embedding: Floats
    head: Floats
    embedding_share: Floats
    head_share: Floats
    send: Floats
    link_s: Floats
    contention: Floats
    optimizer_s: Floats

    def of_one(self) -> Rates:
        """Those of a single plan, as a table of one: the plan on the first axis."""
        return Rates(*(np.array(column)[None] for column in self))

    def at(self, rows: Codes) -> Rates:
        """Those of some plans, the plans on the first axis."""
        return Rates(*(column[..., rows].transpose(-1, *range(column.ndim - 1)) for column in self))


class Passes(NamedTuple):
    """Seconds of a micro batch by position, shape (plans, chunks, stages): both passes; of them swapping, and `always`."""

    forward: Floats
    backward: Floats
    swap: Floats
    always: Floats


def standing_stage(plans: CostColumns, eff: Efficiency, work: Work, stage: int | None = None) -> Standing:
    """The stage that works longest on a micro batch, or the given one, of every plan."""
    rates, gradients = _rates(plans, eff, work), gradient_rates(plans, eff, work.network)
    if plans.stages.is_one:
        return _standing(rates.of_one(), gradients.of_one(), plans.stages.values[0].amounts[None], stage).of_one()
    kinds = np.zeros((len(work.layers), len(AMOUNTS), len(plans)))
    found = Standing(kinds, *(np.zeros(len(plans)) for _ in Standing._fields[1:]))
    for rows, amounts in _by_shape(plans.stages):
        own = _standing(rates.at(rows), gradients.at(rows), amounts, stage)
        found.amounts[: len(own.amounts), :, rows] = own.amounts
        for column, values in zip(found[1:], own[1:], strict=True):
            column[rows] = values
    return found


def _by_shape(stages: Coded[StageLayers]) -> Iterator[tuple[Codes, Floats]]:
    """Plans with the same chunks and stages, and their amounts: shape (plans, amounts, chunks, stages)."""
    shapes = list(dict.fromkeys(value.amounts.shape for value in stages.values))
    kinds = np.array([shapes.index(value.amounts.shape) for value in stages.values])[stages.codes]
    for kind in range(len(shapes)):
        rows = np.flatnonzero(kinds == kind)
        if len(rows):
            used, codes = distinct(stages.codes[rows], len(stages.values))
            yield rows, np.stack([stages.values[code].amounts for code in used.tolist()])[codes]


def _standing(rates: Rates, gradients: GradientRates, amounts: Floats, stage: int | None) -> Standing:
    passes, parameters = _passes(rates, gradients, amounts), gradients.trained(_held(amounts))
    (before, after, slowed), optimizer = _once(rates, gradients, amounts, parameters), parameters * rates.optimizer_s[:, None]
    own = (passes.forward + passes.backward).sum(axis=1)
    length = pipeline_s(passes.forward, passes.backward, rates.passes, rates.send)
    chosen = own.argmax(axis=1) if stage is None else np.full(len(own), stage)
    rows, last = np.arange(len(own)), own.shape[1] - 1
    return Standing(
        amounts=amounts.sum(axis=2)[rows, :, chosen].T.reshape(-1, len(AMOUNTS), len(rows)),
        first=(chosen == 0).astype(np.float64),
        last=(chosen == last).astype(np.float64),
        swap=passes.swap.sum(axis=1)[rows, chosen],
        always=passes.always.sum(axis=1)[rows, chosen],
        once=(before + after)[rows, chosen],
        optimizer=optimizer[rows, chosen],
        whole=length + _around(rates, passes, before + _chained(passes, slowed), optimizer + after),
    )


class StageRates(NamedTuple):
    """What passes and gradients of plans are priced with, whatever their layout."""

    rates: Rates
    gradients: GradientRates

    def of_first(self, layouts: int) -> StageRates:
        """Those of the first plan, for so many layouts."""
        rows = np.zeros(layouts, dtype=np.intp)
        return StageRates(self.rates.at(rows), self.gradients.at(rows))


def stage_rates(plans: CostColumns, eff: Efficiency) -> StageRates:
    """For `stage_times` and `stage_passes`, asked once for all layouts."""
    work = micro_batch_work(plans, eff)
    return StageRates(_rates(plans, eff, work), gradient_rates(plans, eff, work.network))


def stage_times(priced: StageRates, amounts: Floats) -> tuple[Passes, Floats]:
    """Passes of the first plan if its layers lay otherwise, and seconds that the step takes beyond the schedule of these passes.

    `amounts` has shape (layouts, kinds x amounts, chunks, stages); without the straggling of many nodes.
    """
    rates, gradients = priced.of_first(len(amounts))
    passes = _passes(rates, gradients, amounts)
    parameters = gradients.trained(_held(amounts))
    before, after, slowed = _once(rates, gradients, amounts, parameters)
    around = _around(rates, passes, before + _chained(passes, slowed), parameters * rates.optimizer_s[:, None] + after)
    forward, backward, number = (np.concatenate([one, one]) for one in (passes.forward, passes.backward, rates.passes))
    sends = np.concatenate([rates.send, np.zeros_like(rates.send)])
    with_send, without = np.split(pipeline_s(forward, backward, number, sends), 2)
    return passes, around + with_send - without


def stage_passes(priced: StageRates, amounts: Floats) -> Passes:
    """The passes of `stage_times` alone, for which no schedule is timed."""
    return _passes(*priced.of_first(len(amounts)), amounts)


def _once(rates: Rates, gradients: GradientRates, amounts: Floats, parameters: Floats) -> tuple[Floats, Floats, Floats]:
    """Exposed seconds of what every stage sends, before and after the update; of the first, what its last backward pass loses."""
    _, window = _left_s(rates, amounts)
    chunks, stages = amounts.shape[2:]
    if chunks > 1:
        # Chunks end one after another, a group of micro batches at a time: all gradients but those of the last one have company.
        group = np.minimum(rates.passes, stages)[:, None]
        return gradients.once_s(parameters, window * group * (1.0 - 1.0 / chunks), 1.0 - 1.0 / chunks)
    # Nothing is left to run beside the gradients of the layer that ends the last backward pass.
    layers = sum(_held(amounts)[:SKIPPED])
    return gradients.once_s(parameters, window * (1.0 - 1.0 / np.maximum(layers, 1.0)))


def _chained(passes: Passes, slowed: Floats) -> Floats:
    """What a stage waits longer for its last backward pass because gradients slow those of the stages behind it."""
    behind = np.cumsum(slowed[:, ::-1], axis=1)[:, ::-1] - slowed
    return np.asarray(behind / passes.forward.shape[1])


def _around(rates: Rates, passes: Passes, closing: Floats, opening: Floats) -> Floats:
    """Seconds that a step takes beyond its pipeline, of stages that reduce for `closing` after it and update for `opening`.

    All stages meet between the two, for the norm of the gradients.
    """
    # A stage ends before those ahead of it, which still have its output to work on, and has nothing to begin with until theirs.
    # It receives once it has updated, and the last one reduces once it has sent, unless its first chunk comes last.
    stages, chunks = np.arange(closing.shape[1]), passes.forward.shape[1]
    received, sent = (rates.send[:, None] * place for place in (stages > 0, (stages == len(stages) - 1) & (chunks == 1)))
    return _beyond(passes.backward[:, 0], closing + sent) + _beyond(passes.forward[:, 0], opening + received)


def _beyond(passes: Floats, seconds: Floats) -> Floats:
    """The most that `seconds` of a stage are above the passes of the stages ahead of it."""
    return np.asarray((seconds - np.cumsum(passes, axis=1) + passes).max(axis=1))


def _of(rates: Floats, amounts: Floats) -> Floats:
    """The rates of the kinds of layers that plans of these amounts have."""
    return rates[:, : amounts.shape[1]]


def _held(amounts: Floats) -> list[Floats]:
    """Layers of every stage by kind, shape (plans, stages) each."""
    return [amounts[:, kind].sum(axis=1) for kind in range(0, amounts.shape[1], len(AMOUNTS))]


def _ahead(rates: Floats, amounts: Floats) -> Floats:
    """Rates of the forward pass times layers, shape (plans, chunks, stages)."""
    found = amounts[:, 0] * _wide(rates[:, 0])
    for kind in range(1, amounts.shape[1] // len(AMOUNTS)):
        found += amounts[:, kind * len(AMOUNTS)] * _wide(rates[:, kind])
    return np.asarray(found)


def _passes(rates: Rates, gradients: GradientRates, amounts: Floats) -> Passes:
    forward = _ahead(rates.forward, amounts)
    backward = np.einsum("ka,kacs->kcs", _of(rates.backward, amounts), amounts)
    for stage, seconds, share in ((0, rates.embedding, rates.embedding_share), (-1, rates.head, rates.head_share)):
        forward[:, stage, stage] += share * seconds
        backward[:, stage, stage] += (1 - share) * seconds
    swap, always = np.zeros_like(forward), np.zeros_like(forward)
    if amounts[:, SWAPPED :: len(AMOUNTS)].any():
        ahead, behind = _swaps_s(rates, amounts)
        swap, forward, backward = ahead + behind, forward + ahead, backward + behind
    if any_of(gradients.sharded):
        held, layers = _held(amounts), amounts[:, :: len(AMOUNTS)].sum(axis=1)
        exposed = gradients.always_s(held, gradients.trained(held), *_left_s(rates, amounts))
        ahead, behind = (_spread(seconds, layers) for seconds in exposed)
        always, forward, backward = ahead + behind, forward + ahead, backward + behind
    return Passes(forward + _wide(rates.send), backward + _wide(rates.send), swap, always)


def _swaps_s(rates: Rates, amounts: Floats) -> tuple[Floats, Floats]:
    """Exposed seconds of activations on their way to the host beside the forward pass, and back beside the backward pass."""
    way, contention = _way_s(rates, amounts), _wide(rates.contention)
    ahead, behind = (exposed_s(way, window, contention) for window in _computing_s(rates, amounts))
    return ahead, behind


def _way_s(rates: Rates, amounts: Floats) -> Floats:
    """Seconds of activations on their way to the host or back, shape (plans, chunks, stages)."""
    return np.asarray(amounts[:, SWAPPED :: len(AMOUNTS)].sum(axis=1) * _wide(rates.link_s))


def _computing_s(rates: Rates, amounts: Floats) -> tuple[Floats, Floats]:
    """Seconds that either pass computes or waits for the host, shape (plans, chunks, stages)."""
    return _ahead(rates.computing_ahead, amounts), np.einsum("ka,kacs->kcs", _of(rates.computing, amounts), amounts)


def _left_s(rates: Rates, amounts: Floats) -> tuple[Floats, Floats]:
    """Those seconds of a stage that copies to and from the host leave to gradients, shape (plans, stages).

    What runs beside computing costs it time, so that the same computing cannot hide two things.
    """
    passes = _computing_s(rates, amounts)
    if amounts[:, SWAPPED :: len(AMOUNTS)].any():
        way = _way_s(rates, amounts)
        passes = passes[0] - np.minimum(way, passes[0]), passes[1] - np.minimum(way, passes[1])
    ahead, behind = (window.sum(axis=1) for window in passes)
    return ahead, behind


def _wide(column: Floats) -> Floats:
    return column[:, None, None]


def _spread(by_stage: Floats, layers: Floats) -> Floats:
    """What a stage takes over its chunks, by their layers."""
    share = layers / np.maximum(layers.sum(axis=1, keepdims=True), 1.0)
    return np.asarray(by_stage[:, None] * share)


def _rates(plans: CostColumns, eff: Efficiency, work: Work) -> Rates:
    rows = alike(1.0, plans.tensor)
    moved = eff.optimizer_bytes * plans.optimizer_ratio / plans.optimizer_shards / work.device.bytes_per_s
    return Rates(
        passes=plans.micro_batches * plans.interleave * plans.pieces,
        forward=np.array([layer.forward_s for layer in work.layers]),
        backward=np.array([row for layer in work.layers for row in (layer.backward_s, *layer.again_s)]),
        computing_ahead=np.array([layer.forward.total + layer.ahead for layer in work.layers]),
        computing=np.array([row for layer in work.layers for row in _computing(layer)]),
        embedding=work.embedding,
        head=work.head.total,
        embedding_share=work.embedding_share,
        head_share=work.head_share,
        send=where(plans.pipeline > 1, send_each_s(plans, eff, work.network, work.tokens), 0.0),
        link_s=work.tokens / (plans.host_bytes_per_s * eff.host_link_share),
        contention=rows * eff.contention,
        optimizer_s=rows * moved,
    )


def _computing(layer: Layer) -> tuple[Number, ...]:
    """What the device computes in the backward pass for one of each of `AMOUNTS`, and waits for its host."""
    forward, nothing = layer.forward, alike(0.0, layer.accumulate)
    again = (
        forward.total - layer.spared + layer.ahead,
        forward.attention,
        forward.matmul,
        nothing,
        layer.split_s,
        layer.whole_s,
        nothing,
    )
    return layer.backward.total + layer.behind, *again
