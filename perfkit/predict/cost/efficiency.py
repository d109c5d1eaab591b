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

    Device: `matmul` of the peak for large products, `half_depth` (inner dimension at which filling the pipeline costs as much as
    the work), `misaligned` (factor), `memory` of the bandwidth, `flash_forward` and `flash_backward` of the peak for the causal
    half, `score_bytes` moved for a score by unfused attention beside its products, `unpadded` (factor of the head where a rank's
    share of the vocabulary is off the matrix unit's grain; 1 where the software pads it). Host: `layer_host_s` to launch the
    forward pass of a layer, `backward_host` times that for the backward pass, `send_host_s` a send, `step_host_s` a step;
    `host_rounding` rounds off the maximum of host and device time (0 not, 1 gives their sum), `group_rounding` that under tensor
    parallelism, whose collectives wait for the launch of every rank; `node_wait` multiplies the wait where such a group fills a
    node. Links: shares of the nominal rate, `pair` and `quad` for groups of 2 and of up to 4, latencies a hop. Hidden:
    `gradients_hidden` of the window of computing beside the gradients, `tensor_hidden` of tensor-parallel collectives,
    `interleave_hidden` of them with several copies of a micro batch; `contention` of what is hidden is lost to computing.
    `host_link_share` of the link to the host is what copies reach. `straggler` is the share of the step added for every doubling
    of the nodes. `compute`, `communication`, `host`, `small_groups`
    and `release_gain` are for fits: factors on the time of operators, of collectives and of the host, on the rates of groups
    smaller than a node, and the share of time that a minor release of the software saves.
    """

    matmul: Amount = 0.8
    half_depth: Amount = 128.0
    misaligned: Amount = 1.25
    memory: Amount = 0.8
    elementwise: Amount = 1.0
    flash_forward: Amount = 0.6
    flash_backward: Amount = 0.45
    score_bytes: Amount = 9.0
    logit_bytes: Amount = 32.0
    unpadded: Amount = 1.0
    layer_host_s: Amount = 4e-4
    host_rounding: Amount = 0.15
    group_rounding: Amount = 0.3
    node_wait: Amount = 1.0
    backward_host: Amount = 1.5
    step_host_s: Amount = 1e-3
    send_host_s: Amount = 5e-4
    collective_host_s: Amount = 0.0
    softmax_host_s: Amount = 0.0
    host_link_share: Amount = 0.8
    intra_share: Amount = 0.75
    inter_share: Amount = 0.75
    pair: Amount = 0.83
    quad: Amount = 0.93
    small_groups: Amount = 1.0
    intra_latency_s: Amount = 1.4e-5
    inter_latency_s: Amount = 2e-5
    gradients_hidden: Amount = 0.0
    tensor_hidden: Amount = 0.0
    interleave_hidden: Amount = 0.45
    contention: Amount = 0.25
    optimizer_bytes: Amount = 28.0
    straggler: Amount = 0.01
    release_gain: Amount = 0.03
    compute: Amount = 1.0
    communication: Amount = 1.0
    host: Amount = 1.0

    def take(self, rows: slice) -> Efficiency:
        """The efficiencies of the plans at `rows`."""
        values = {item.name: getattr(self, item.name) for item in fields(self)}
        return Efficiency(**{name: value[rows] if isinstance(value, np.ndarray) else value for name, value in values.items()})
