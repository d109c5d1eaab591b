"""Efficiency: the few numbers by which real devices and software fall short of their data sheets.

One value for all plans, or an array with one a plan; the formulas broadcast. What each means, and where the shipped values come
from, is in the files of `data/calibration`.
"""

from __future__ import annotations

from dataclasses import dataclass, fields

import numpy as np

from perfkit.core.plan_columns import Floats

Amount = float | Floats


@dataclass(frozen=True, kw_only=True, slots=True)
class Efficiency:
    """Shares of data-sheet rates (0 to 1), multipliers of modelled work, and times of the host and the network in seconds.

    Device: `matmul` of the peak for large products, `half_depth` (inner dimension at which filling the pipeline costs as much
    as the work), `group_rows` (rows that starting each of several grouped products costs), `misaligned`
    (factor), `memory` of the bandwidth, `flash_forward` and `flash_backward` of the peak for the causal half, `flash_rows`
    of queries in a unit, of which the last ones are left alone with all keys, `score_bytes`
    moved for a score by unfused attention beside its products, `cast_bytes` moved for an element that a product takes in fewer
    than 16 bits, `accumulation` (1: gradients are added up in a pass of their own, 0: by the product that makes them),
    `last_again` (1: recomputing a layer repeats its last product too, 0: it stops where the backward pass needs no more),
    `unpadded` (factor of the head where a rank's share of the vocabulary is off the matrix unit's grain; 1 where the software
    pads it). Host: `layer_host_s` to launch the forward pass of a layer, `expert_host_s` more for one of experts,
    `backward_host` times that for the backward pass, `send_host_s` a send, `step_host_s` a step; `host_rounding` rounds off the
    maximum of host and device time (0 not, 1 gives their sum), `group_rounding` that under tensor parallelism, whose
    collectives wait for the launch of every rank; `node_wait` multiplies the wait where such a group fills a node. Links:
    shares of the nominal rate, `pair` and `quad` for groups of 2 and of up to 4, latencies a hop; `exchange_share` of the rate of a
    gather is what an all-to-all reaches, `permuted` of the bandwidth what tokens in any order do. Hidden: `gradients_hidden` of
    the window of computing beside the gradients, `tensor_hidden` of tensor-parallel collectives, `sends_hidden` of transfers
    between stages of several chunks, `experts_hidden` of exchanges of tokens between experts, `interleave_hidden` of
    tensor-parallel collectives with several copies of a micro batch; `gradients_overlapped`, `tensor_overlapped`,
    `sends_overlapped` and `experts_overlapped` where the plan states that they overlap; `contention` of what is hidden is lost to
    computing. `host_link_share` of the link to the host is what copies reach. `straggler` is the share of the step added for every
    doubling of the nodes. `compute`, `communication`, `host`, `small_groups` and `release_gain` are for fits: factors on the time
    of operators, of collectives and of the host, on the rates of groups smaller than a node, and the share of time that a minor
    release of the software saves.
    """

    matmul: Amount
    half_depth: Amount
    group_rows: Amount
    misaligned: Amount
    memory: Amount
    elementwise: Amount
    cast_bytes: Amount
    accumulation: Amount
    last_again: Amount
    flash_forward: Amount
    flash_backward: Amount
    flash_rows: Amount
    score_bytes: Amount
    logit_bytes: Amount
    unpadded: Amount
    layer_host_s: Amount
    expert_host_s: Amount
    host_rounding: Amount
    group_rounding: Amount
    node_wait: Amount
    backward_host: Amount
    step_host_s: Amount
    send_host_s: Amount
    collective_host_s: Amount
    softmax_host_s: Amount
    host_link_share: Amount
    intra_share: Amount
    inter_share: Amount
    pair: Amount
    quad: Amount
    small_groups: Amount
    intra_latency_s: Amount
    inter_latency_s: Amount
    exchange_share: Amount
    permuted: Amount
    gradients_hidden: Amount
    tensor_hidden: Amount
    sends_hidden: Amount
    experts_hidden: Amount
    gradients_overlapped: Amount
    tensor_overlapped: Amount
    sends_overlapped: Amount
    experts_overlapped: Amount
    interleave_hidden: Amount
    contention: Amount
    optimizer_bytes: Amount
    straggler: Amount
    release_gain: Amount
    compute: Amount
    communication: Amount
    host: Amount

    def take(self, rows: slice) -> Efficiency:
        """The efficiencies of the plans at `rows`."""
        values = {item.name: getattr(self, item.name) for item in fields(self)}
        return Efficiency(**{name: value[rows] if isinstance(value, np.ndarray) else value for name, value in values.items()})
