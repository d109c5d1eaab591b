"""Step time of many plans at once: the passes of a layer and of every stage, the pipeline's schedule, and what is around it.

The parts are those of the stage that works longest on a micro batch. Everything that it waits for the others, from the first
forward pass to the end of the last update, is `bubble`; nothing of the schedule is left out or counted twice.
"""

from __future__ import annotations

import numpy as np

from perfkit.core.plan_columns import Floats
from perfkit.predict.cost.cost_columns import CostColumns
from perfkit.predict.cost.efficiency import Efficiency
from perfkit.predict.cost.exchange_columns import Exchange, send_each_s
from perfkit.predict.cost.stage_columns import FORWARD_SHARE, Standing, standing_stage
from perfkit.predict.cost.stage_layers import AMOUNTS
from perfkit.predict.cost.work_columns import Work, micro_batch_work


def step_parts(plans: CostColumns, eff: Efficiency, stage: int | None = None) -> dict[str, Floats]:
    """Seconds of a step by path, an array each; their sum is the step time. With `stage` the parts are those of that stage."""
    work = micro_batch_work(plans, eff)
    own, m = standing_stage(plans, eff, work, stage), plans.micro_batches * plans.interleave * plans.pieces
    amount, layer = dict(zip(AMOUNTS, own.amounts, strict=True)), work.layer
    sends = 2 * plans.virtual * send_each_s(plans, eff, work.network, work.tokens)
    parts = {
        **_computing(work, own, amount, m),
        "computing/optimizer": own.optimizer,
        "communication/exposed/tp": m * (_exchanged(layer.tensor, amount) + amount["gathers"] * layer.gathers),
        "communication/exposed/cp": m * _exchanged(layer.context, amount),
        "communication/exposed/ep": m * _exchanged(layer.expert, amount),
        "communication/exposed/pp": m * np.where(plans.pipeline > 1, sends, 0.0),
        "communication/exposed/dp": own.once + m * own.always,
        "communication/exposed/swap": m * own.swap,
        "free": m * (amount["layers"] * (layer.ahead + layer.behind) + amount["full"] * layer.ahead),
    }
    busy = sum(parts.values(), start=np.zeros(len(plans)))
    waited = np.where(plans.pipeline > 1, np.maximum(own.whole - busy, 0.0), 0.0)
    # All stages wait for slow nodes, so the waiting for stages becomes as much longer as all else.
    straggling, host = straggler_share(plans, eff), eff.step_host_s * eff.host
    parts["free"] = parts["free"] + host + straggling * (busy + host)
    return parts | {"bubble": waited * (1 + straggling)}


def straggler_share(plans: CostColumns, eff: Efficiency) -> Floats:
    """Share of a step that it takes longer because it waits for the slowest of many nodes."""
    nodes = np.maximum(plans.devices / plans.devices_per_node, 1.0)
    return np.asarray(eff.straggler * np.log2(nodes))


def _exchanged(exchange: Exchange, amount: dict[str, Floats]) -> Floats:
    """Seconds of the collectives of a stage's layers for one micro batch."""
    return amount["layers"] * (exchange.forward + exchange.backward) + amount["full"] * exchange.again


def _computing(work: Work, own: Standing, amount: dict[str, Floats], m: Floats) -> dict[str, Floats]:
    """What the stage computes."""
    layer, layers = work.layer, m * amount["layers"]
    products = m * own.last * work.head.matmul
    ends = m * (own.last * work.head.elementwise + own.first * work.embedding)
    light = amount["light_split"] * layer.split_s + amount["light_whole"] * layer.whole_s
    again = amount["full"] * layer.forward.total + amount["core"] * layer.forward.attention
    return {
        "computing/forward/matmul": layers * layer.forward.matmul + FORWARD_SHARE * products,
        "computing/forward/attention": layers * layer.forward.attention,
        "computing/forward/elementwise": layers * layer.forward.elementwise + FORWARD_SHARE * ends,
        "computing/backward/matmul": layers * layer.backward.matmul + (1 - FORWARD_SHARE) * products,
        "computing/backward/attention": layers * layer.backward.attention,
        "computing/backward/elementwise": layers * layer.backward.elementwise + (1 - FORWARD_SHARE) * ends,
        "computing/backward/accumulate": layers * layer.accumulate,
        "computing/recompute": m * (again + amount["products"] * layer.forward.matmul + light),
    }
