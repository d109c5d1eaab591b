"""Time of the collectives of a layer, the pipeline and the gradients, as far as computing does not hide them, a row a plan."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from perfkit.core.numbers import Number, alike, any_of, maximum, minimum, where
from perfkit.core.plan_columns import Codes
from perfkit.predict.cost.collectives import Network, all_reduce_s, all_to_all_s, gather_s, latency_s, send_s
from perfkit.predict.cost.cost_columns import CostColumns
from perfkit.predict.cost.efficiency import Amount, Efficiency
from perfkit.predict.cost.layer_columns import layer_parameters, padded_vocab, trained_parameters

GIGABYTE = 1e9
SKIPPED = 4
"""Kinds of layers (`CostColumns.kinds`) that come before those without a backward pass."""


class Exchange(NamedTuple):
    """Exposed seconds of one kind of collectives in a layer's forward and backward pass, and where it computes all of it again."""

    forward: Number
    backward: Number
    again: Number

    @classmethod
    def times(cls, seconds: Number, forward: int, backward: int, again: int) -> Exchange:
        """So many of one collective."""
        return cls(forward * seconds, backward * seconds, again * seconds)


def tensor_s(plans: CostColumns, eff: Efficiency, network: Network, tokens: Number) -> Exchange:
    """Tensor-parallel collectives: two all-reduces in a forward pass, two in a backward pass (arXiv 1909.08053)."""
    payload = tokens * plans.hidden * plans.element_bytes
    seconds = all_reduce_s(payload, plans.tensor, 1.0, network) * (1 - _hidden(plans, eff))
    return Exchange.times(_halves(plans) * seconds, 1, 1, 1)


def gathered_again_s(plans: CostColumns, eff: Efficiency, network: Network, tokens: Number) -> Number:
    """The all-gathers of sequence parallelism in a layer's forward pass, done again in its backward pass."""
    payload = tokens * plans.hidden * plans.element_bytes
    return _halves(plans) * gather_s(payload, plans.tensor, 1.0, network) * (1 - _hidden(plans, eff))


def _halves(plans: CostColumns) -> Number:
    """Halves of a layer around which tensor-parallel ranks meet: not its experts, to whom a piece of the sequence goes as it is."""
    return where(_exchanged(plans) & plans.sequence_parallel & (plans.shared_ffn == 0), 1.0, 2.0)


def _hidden(plans: CostColumns, eff: Efficiency) -> Number:
    return where(plans.interleave > 1, eff.interleave_hidden, eff.tensor_hidden)


def context_s(plans: CostColumns, network: Network, tokens: Number) -> Exchange:
    """Exchanges of keys and values: heads to their ranks as often forward as backward, a ring twice as much backward."""
    if not any_of(plans.context > 1):
        return Exchange.times(alike(0.0, plans.context), 1, 1, 1)
    heads = minimum(plans.context, plans.head_exchange)
    ring = plans.context / heads
    # Queries, keys, values and outputs, to the rank of their heads and back (arXiv 2309.14509).
    exchanged = 2 * tokens * (plans.heads + plans.kv_heads) * plans.head_size / plans.tensor * plans.element_bytes
    # Keys and values of the whole group, of the heads that this rank has then (arXiv 2310.01889); twice as much backward.
    passed = 2 * tokens * plans.context * plans.kv_heads * plans.head_size / (plans.tensor * heads) * plans.element_bytes
    swaps = gather_s(exchanged, heads, plans.tensor, network)
    around = gather_s(passed, ring, plans.tensor * heads, network)
    return Exchange(swaps + around, swaps + 2 * around, swaps + around)


def expert_s(plans: CostColumns, eff: Efficiency, network: Network, tokens: Number) -> Exchange:
    """Exchanges of tokens between experts: to them and back, forward and backward.

    With sequence parallelism a tensor-parallel rank sends the tokens of its own piece of the sequence. Ranks that hold parts of one
    expert then gather what each of them got, and reduce what it gives (Megatron-Core, `MoEAlltoAllTokenDispatcher`).
    """
    if not any_of(plans.expert_parallel > 1):
        return Exchange.times(alike(0.0, plans.context), 2, 2, 2)
    pieces, parts = (where(plans.sequence_parallel, size, 1.0) for size in (plans.tensor, plans.expert_tensor))
    sent = plans.experts_per_token * plans.expert_load * tokens / pieces * plans.hidden * plans.element_bytes
    seconds = all_to_all_s(sent / eff.exchange_share, plans.expert_parallel, plans.expert_tensor, network)
    seconds = seconds + gather_s(sent * parts, parts, 1.0, network)
    return Exchange.times(where(_exchanged(plans), seconds * (1 - eff.experts_hidden), 0.0), 2, 2, 2)


def _exchanged(plans: CostColumns) -> Number:
    """Layers whose tokens go to experts of other ranks."""
    return (plans.experts > 0) & (plans.expert_parallel > 1)


def send_each_s(plans: CostColumns, eff: Efficiency, network: Network, tokens: Number) -> Number:
    """Exposed seconds of one send of a micro batch to a neighbouring stage; 0 without one."""
    width = maximum(plans.streams, 1.0) * plans.hidden
    payload = tokens * width * plans.element_bytes / plans.tensor  # scattered over the tensor-parallel ranks
    seconds = send_s(payload, plans.devices / plans.pipeline, network) + eff.send_host_s * eff.host
    return where(plans.pipeline > 1, seconds * (1.0 - sends_hidden(plans, eff)), 0.0)


def sends_hidden(plans: CostColumns, eff: Efficiency) -> Number:
    """Share of a transfer that computing hides: only with several chunks a stage has another one to work on meanwhile."""
    return where(plans.virtual > 1, eff.sends_hidden, 0.0)


def vocab_tables(plans: CostColumns) -> Number:
    """Parameters of the embedding, which is the head too where they are tied or stand on different stages."""
    both = (plans.pipeline == 1) | (plans.further > 0)  # Layers that predict further tokens look these up on the last stage.
    tables = where(both & ~plans.tied, 2.0, 1.0) * padded_vocab(plans)
    return (tables + plans.further * 2 * plans.hidden) * plans.hidden / plans.tensor


class GradientRates(NamedTuple):
    """Data-parallel collectives by parameter of a stage: seconds a parameter and latency; what computing hides, as shares.

    `layers` are parameters of a layer of every kind, shape (kinds, plans), `tables` those of a table of the vocabulary;
    `trained_layers` and `trained_tables` those of them that have gradients and are updated, `trained_first` and `trained_last` what
    the first and the last stage train of a table where it is of one of them alone; `shares_trained` (0 or 1) says that what is
    trained alone is sharded.
    `reduced` is a reduce-scatter of gradients, `gathered` an all-gather of parameters. `states` (0 or 1) says that the optimizer is
    sharded, so that parameters are gathered after its update; else an all-reduce ends before it. `sharded` (0 or 1) says that
    parameters are sharded too (ZeRO 3).
    """

    layers: Number
    trained_layers: Number
    tables: Number
    trained_tables: Number
    trained_first: Number
    trained_last: Number
    shares_trained: Number
    latency: Number
    reduced: Number
    gathered: Number
    states: Number
    sharded: Number
    pieces: Number
    hidden: Number
    contention: Number

    def of_one(self) -> GradientRates:
        """Those of a single plan, for amounts of shape (1, stages)."""
        kinds, trained, *others = self
        return GradientRates(kinds[:, None, None], trained[:, None, None], *others)

    def at(self, rows: Codes) -> GradientRates:
        """Those of some plans, for amounts of shape (plans, stages)."""
        return GradientRates(*(column[..., rows, None] for column in self))

    def parameters(self, held: Sequence[Number]) -> Number:
        """Parameters on one device of stages that hold so many layers of every kind, and a table."""
        return sum((count * each for count, each in zip(held, self.layers, strict=False)), start=self.tables)

    def trained(self, held: Sequence[Number]) -> Number:
        """As `parameters` of all stages of a pipeline, on the last axis, of these those that are trained."""
        found = sum((count * each for count, each in zip(held, self.trained_layers, strict=False)), start=self.trained_tables)
        if any_of(self.trained_first + self.trained_last):
            stages = np.arange(np.shape(found)[-1])
            found = found + self.trained_first * (stages == 0) + self.trained_last * (stages == len(stages) - 1)
        return found

    def once_s(self, parameters: Number, window: Number, most: float = 1.0) -> tuple[Number, Number, Number]:
        """Exposed seconds of a step before and after the update, on stages that train so many; of the first, what a pass loses.

        `window` is what the last backward pass computes, beside which gradients are reduced and then parameters gathered.
        """
        scattered, gathered = (self.latency + parameters * rate for rate in (self.reduced, self.gathered))
        reduced, after = where(self.states > 0, scattered, 2 * scattered), self.states * gathered
        beside = self.hidden * minimum(self.pieces * window, most * (reduced + after))
        left = minimum(after, maximum(reduced + after - beside, 0.0))
        once = 1.0 - self.sharded
        slowed = once * self.contention * minimum(reduced + after, beside)
        return once * (maximum(reduced + after - beside, 0.0) - left) + slowed, once * left, slowed

    def always_s(self, held: Sequence[Number], trained: Number, forward: Number, backward: Number) -> tuple[Number, Number]:
        """Exposed seconds of either pass of a micro batch (of each of its pieces) that computes for so long.

        Parameters are gathered for both passes of the layers that have both, and gradients of those that are trained reduced
        beside the second (arXiv 1910.02054, section 7.2.2).
        """
        share = self.sharded / self.pieces
        gathered = gathered_again = share * (self.latency + self._sharded(held, trained) * self.gathered)
        if len(held) > SKIPPED:
            gathered_again = share * (self.latency + self._sharded(held[:SKIPPED], trained) * self.gathered)
        reduced = share * (self.latency + trained * self.reduced)
        ahead = exposed_s(gathered, forward * self.hidden, self.contention)
        return ahead, exposed_s(gathered_again + reduced, backward * self.hidden, self.contention)

    def _sharded(self, held: Sequence[Number], trained: Number) -> Number:
        """Parameters that devices share, of stages that hold so many layers of every kind and train so many parameters."""
        return where(self.shares_trained > 0, trained, self.parameters(held))


def gradient_rates(plans: CostColumns, eff: Efficiency, network: Network) -> GradientRates:
    """What the data-parallel group of every plan takes."""
    rows, group, stride = alike(1.0, plans.data), plans.data * plans.context, plans.tensor
    tables, kinds = vocab_tables(plans), plans.kinds
    latency = where(group > 1, latency_s(group, stride, network), 0.0)
    byte_s = (gather_s(GIGABYTE, group, stride, network) - latency) / GIGABYTE
    gathered, reduced = byte_s * plans.element_bytes, byte_s * plans.gradient_bytes
    layers = np.array([layer_parameters(kind) for kind in kinds])
    trained_layers = np.array([trained_parameters(kind) for kind in kinds])
    first, last = plans.embedding_trained, plans.head_trained
    table = padded_vocab(plans) * plans.hidden / plans.tensor
    return GradientRates(
        layers=layers,
        trained_layers=trained_layers,
        tables=tables,
        trained_tables=tables * first * last,
        trained_first=table * first * (1 - last),
        trained_last=table * last * (1 - first),
        shares_trained=plans.shares_trained,
        latency=latency,
        reduced=reduced,
        gathered=gathered,
        states=where(plans.zero > 0, 1.0, 0.0),
        sharded=where(plans.zero >= 3, 1.0, 0.0),
        pieces=plans.pieces,
        hidden=rows * eff.gradients_hidden,
        contention=rows * eff.contention,
    )


def exposed_s(seconds: Number, window: Number, contention: Amount) -> Number:
    """What is left of a collective beside computing of `window` seconds, with what it costs that computing."""
    return maximum(seconds - window, 0.0) + contention * minimum(seconds, window)


def network_of_plans(plans: CostColumns, eff: Efficiency) -> Network:
    """Links of every plan, as the collectives take them."""
    rows = alike(1.0, plans.tensor)
    return Network(
        intra_bytes_per_s=plans.intra_bytes_per_s * eff.intra_share / eff.communication,
        node_bytes_per_s=plans.node_bytes_per_s * eff.inter_share / eff.communication,
        intra_latency_s=rows * eff.intra_latency_s,
        inter_latency_s=rows * eff.inter_latency_s,
        devices_per_node=plans.devices_per_node,
        mesh=plans.mesh,
        pair=rows * eff.pair * eff.small_groups,
        quad=rows * eff.quad * eff.small_groups,
    )
