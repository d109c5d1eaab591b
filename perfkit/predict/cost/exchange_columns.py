"""Time of the collectives of a layer, the pipeline and the gradients, as far as computing does not hide them, a row a plan."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from perfkit.core.plan_columns import Codes, Flags, Floats
from perfkit.predict.cost.collectives import Network, all_reduce_s, all_to_all_s, gather_s, send_s
from perfkit.predict.cost.cost_columns import CostColumns
from perfkit.predict.cost.efficiency import Amount, Efficiency
from perfkit.predict.cost.layer_columns import layer_parameters, padded_vocab

GIGABYTE = 1e9


class Exchange(NamedTuple):
    """Exposed seconds of one kind of collectives in a layer's forward and backward pass, and where it computes all of it again."""

    forward: Floats
    backward: Floats
    again: Floats

    @classmethod
    def times(cls, seconds: Floats, forward: int, backward: int, again: int) -> Exchange:
        """So many of one collective."""
        return cls(forward * seconds, backward * seconds, again * seconds)


def tensor_s(plans: CostColumns, eff: Efficiency, network: Network, tokens: Floats) -> Exchange:
    """Tensor-parallel collectives: two all-reduces in a forward pass, two in a backward pass (arXiv 1909.08053)."""
    payload = tokens * plans.hidden * plans.element_bytes
    seconds = all_reduce_s(payload, plans.tensor, np.ones(len(plans)), network) * (1 - _hidden(plans, eff))
    return Exchange.times(_halves(plans) * seconds, 1, 1, 1)


def gathered_again_s(plans: CostColumns, eff: Efficiency, network: Network, tokens: Floats) -> Floats:
    """The all-gathers of sequence parallelism in a layer's forward pass, done again in its backward pass."""
    payload = tokens * plans.hidden * plans.element_bytes
    return np.asarray(_halves(plans) * gather_s(payload, plans.tensor, np.ones(len(plans)), network) * (1 - _hidden(plans, eff)))


def _halves(plans: CostColumns) -> Floats:
    """Halves of a layer around which tensor-parallel ranks meet: not its experts, to whom a piece of the sequence goes as it is."""
    return np.where(_exchanged(plans) & plans.sequence_parallel & (plans.shared_ffn == 0), 1.0, 2.0)


def _hidden(plans: CostColumns, eff: Efficiency) -> Floats:
    return np.where(plans.interleave > 1, eff.interleave_hidden, eff.tensor_hidden)


def context_s(plans: CostColumns, network: Network, tokens: Floats) -> Exchange:
    """Exchanges of keys and values: heads to their ranks as often forward as backward, a ring twice as much backward."""
    if (plans.context <= 1).all():
        return Exchange.times(np.zeros(len(plans)), 1, 1, 1)
    heads = np.minimum(plans.context, plans.head_exchange)
    ring = plans.context / heads
    # Queries, keys, values and outputs, to the rank of their heads and back (arXiv 2309.14509).
    exchanged = 2 * tokens * (plans.heads + plans.kv_heads) * plans.head_size / plans.tensor * plans.element_bytes
    # Keys and values of the whole group, of the heads that this rank has then (arXiv 2310.01889); twice as much backward.
    passed = 2 * tokens * plans.context * plans.kv_heads * plans.head_size / (plans.tensor * heads) * plans.element_bytes
    swaps = gather_s(exchanged, heads, plans.tensor, network)
    around = gather_s(passed, ring, plans.tensor * heads, network)
    return Exchange(swaps + around, swaps + 2 * around, swaps + around)


def expert_s(plans: CostColumns, eff: Efficiency, network: Network, tokens: Floats) -> Exchange:
    """Exchanges of tokens between experts: to them and back, forward and backward.

    With sequence parallelism a tensor-parallel rank sends the tokens of its own piece of the sequence. Ranks that hold parts of one
    expert then gather what each of them got, and reduce what it gives (Megatron-Core, `MoEAlltoAllTokenDispatcher`).
    """
    if (plans.expert_parallel <= 1).all():
        return Exchange.times(np.zeros(len(plans)), 2, 2, 2)
    pieces, parts = (np.where(plans.sequence_parallel, size, 1.0) for size in (plans.tensor, plans.expert_tensor))
    sent = plans.experts_per_token * plans.expert_load * tokens / pieces * plans.hidden * plans.element_bytes
    seconds = all_to_all_s(sent / eff.exchange_share, plans.expert_parallel, plans.expert_tensor, network)
    seconds = seconds + gather_s(sent * parts, parts, np.ones(len(plans)), network)
    return Exchange.times(np.where(_exchanged(plans), seconds * (1 - eff.experts_hidden), 0.0), 2, 2, 2)


def _exchanged(plans: CostColumns) -> Flags:
    """Layers whose tokens go to experts of other ranks."""
    return (plans.experts > 0) & (plans.expert_parallel > 1)


def send_each_s(plans: CostColumns, eff: Efficiency, network: Network, tokens: Floats) -> Floats:
    """Exposed seconds of one send of a micro batch to a neighbouring stage; 0 without one."""
    payload = tokens * plans.hidden * plans.element_bytes / plans.tensor  # scattered over the tensor-parallel ranks
    seconds = send_s(payload, plans.devices / plans.pipeline, network) + eff.send_host_s * eff.host
    return np.where(plans.pipeline > 1, seconds * (1.0 - sends_hidden(plans, eff)), 0.0)


def sends_hidden(plans: CostColumns, eff: Efficiency) -> Floats:
    """Share of a transfer that computing hides: only with several chunks a stage has another one to work on meanwhile."""
    return np.where(plans.virtual > 1, eff.sends_hidden, 0.0)


def vocab_tables(plans: CostColumns) -> Floats:
    """Parameters of the embedding, which is the head too where they are tied or stand on different stages."""
    both = (plans.pipeline == 1) | (plans.further > 0)  # Layers that predict further tokens look these up on the last stage.
    tables = np.where(both & ~plans.tied, 2.0, 1.0) * padded_vocab(plans)
    return np.asarray((tables + plans.further * 2 * plans.hidden) * plans.hidden / plans.tensor)


class GradientRates(NamedTuple):
    """Data-parallel collectives by parameter of a stage: seconds a parameter and latency; what computing hides, as shares.

    `layers` are parameters of a layer of every kind, shape (kinds, plans), `tables` those of a table of the vocabulary.
    `reduced` is a reduce-scatter of gradients, `gathered` an all-gather of parameters. `states` (0 or 1) says that the optimizer is
    sharded, so that parameters are gathered after its update; else an all-reduce ends before it. `sharded` (0 or 1) says that
    parameters are sharded too (ZeRO 3).
    """

    layers: Floats
    tables: Floats
    latency: Floats
    reduced: Floats
    gathered: Floats
    states: Floats
    sharded: Floats
    pieces: Floats
    hidden: Floats
    contention: Floats

    def at(self, rows: Codes) -> GradientRates:
        """Those of some plans, for amounts of shape (plans, stages)."""
        return GradientRates(*(column[..., rows, None] for column in self))

    def parameters(self, held: Sequence[Floats]) -> Floats:
        """Parameters on one device of stages that hold so many layers of every kind, and a table."""
        return np.asarray(sum((count * each for count, each in zip(held, self.layers, strict=False)), start=self.tables))

    def once_s(self, parameters: Floats, window: Floats) -> tuple[Floats, Floats, Floats]:
        """Exposed seconds of a step before and after the update, on stages of so many parameters; of the first, what a pass loses.

        `window` is what the last backward pass computes, beside which gradients are reduced and then parameters gathered.
        """
        scattered, gathered = (self.latency + parameters * rate for rate in (self.reduced, self.gathered))
        reduced, after = np.where(self.states > 0, scattered, 2 * scattered), self.states * gathered
        beside = self.pieces * window * self.hidden
        left = np.minimum(after, np.maximum(reduced + after - beside, 0.0))
        once = 1.0 - self.sharded
        slowed = once * self.contention * np.minimum(reduced + after, beside)
        return once * (np.maximum(reduced + after - beside, 0.0) - left) + slowed, once * left, slowed

    def always_s(self, parameters: Floats, forward: Floats, backward: Floats) -> tuple[Floats, Floats]:
        """Exposed seconds of either pass of a micro batch (of each of its pieces) that computes for so long.

        Parameters are gathered for both passes, and gradients reduced beside the second (arXiv 1910.02054, section 7.2.2).
        """
        share = self.sharded / self.pieces
        gathered = share * (self.latency + parameters * self.gathered)
        reduced = share * (self.latency + parameters * self.reduced)
        ahead = exposed_s(gathered, forward * self.hidden, self.contention)
        return ahead, exposed_s(gathered + reduced, backward * self.hidden, self.contention)


def gradient_rates(plans: CostColumns, eff: Efficiency, network: Network) -> GradientRates:
    """What the data-parallel group of every plan takes."""
    rows, group, stride = np.ones(len(plans)), plans.data * plans.context, plans.tensor
    latency, gigabyte = gather_s(np.array([[0.0], [GIGABYTE]]), group, stride, network)
    byte_s = (gigabyte - latency) / GIGABYTE
    gathered, reduced = byte_s * plans.element_bytes, byte_s * plans.gradient_bytes
    return GradientRates(
        layers=np.stack([layer_parameters(kind) for kind in plans.kinds]),
        tables=vocab_tables(plans),
        latency=latency,
        reduced=reduced,
        gathered=gathered,
        states=np.where(plans.zero > 0, 1.0, 0.0),
        sharded=np.where(plans.zero >= 3, 1.0, 0.0),
        pieces=plans.pieces,
        hidden=rows * eff.gradients_hidden,
        contention=rows * eff.contention,
    )


def exposed_s(seconds: Floats, window: Floats, contention: Amount) -> Floats:
    """What is left of a collective beside computing of `window` seconds, with what it costs that computing."""
    return np.asarray(np.maximum(seconds - window, 0.0) + contention * np.minimum(seconds, window))


def network_of_plans(plans: CostColumns, eff: Efficiency) -> Network:
    """Links of every plan, as the collectives take them."""
    rows = np.ones(len(plans))
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
