"""Step time of many plans at once: the passes of a layer and of every stage, the pipeline's schedule, and what is around it.

The parts are those of the stage that works longest on a micro batch. Everything that it waits for the others, from the first
forward pass to the end of the last update, is `bubble`; nothing of the schedule is left out or counted twice.
"""

from __future__ import annotations

import numpy as np

from perfkit.core.numbers import Number, maximum, where
from perfkit.predict.cost.cost_columns import CostColumns
from perfkit.predict.cost.efficiency import Efficiency
from perfkit.predict.cost.exchange_columns import Exchange, send_each_s
from perfkit.predict.cost.stage_columns import Standing, standing_stage
from perfkit.predict.cost.stage_layers import AMOUNTS
from perfkit.predict.cost.work_columns import Layer, Work, micro_batch_work


def step_parts(plans: CostColumns, eff: Efficiency, stage: int | None = None) -> dict[str, Number]:
    """Seconds of a step by path, an array each; their sum is the step time. With `stage` the parts are those of that stage."""
    work = micro_batch_work(plans, eff)
    own, m = standing_stage(plans, eff, work, stage), plans.micro_batches * plans.interleave * plans.pieces
    sends = 2 * plans.virtual * send_each_s(plans, eff, work.network, work.tokens)
    parts = _ends(work, own, m)
    for layer, amounts in zip(work.layers, own.amounts, strict=True):
        for path, seconds in _of_layers(layer, dict(zip(AMOUNTS, m * amounts, strict=True))).items():
            parts[path] = parts[path] + seconds if path in parts else seconds
    parts |= {
        "computing/optimizer": own.optimizer,
        "communication/exposed/pp": m * where(plans.pipeline > 1, sends, 0.0),
        "communication/exposed/dp": own.once + m * own.always,
        "communication/exposed/swap": m * own.swap,
    }
    busy = sum(parts.values())
    waited = where(plans.pipeline > 1, maximum(own.whole - busy, 0.0), 0.0)
    # All stages wait for slow nodes, so the waiting for stages becomes as much longer as all else.
    straggling, host = straggler_share(plans, eff), eff.step_host_s * eff.host
    parts["free"] = parts["free"] + host + straggling * (busy + host)
    return parts | {"bubble": waited * (1 + straggling)}


def straggler_share(plans: CostColumns, eff: Efficiency) -> Number:
    """Share of a step that it takes longer because it waits for the slowest of many nodes."""
    return eff.straggler * np.log2(plans.nodes)


def _of_layers(layer: Layer, amount: dict[str, Number]) -> dict[str, Number]:
    """What layers of one kind take, by path, with what they compute again; amounts are sums over micro batches."""
    layers, forward, backward = amount["layers"], layer.forward, layer.backward
    light = amount["light_split"] * layer.split_s + amount["light_whole"] * layer.whole_s
    again = (
        amount["full"] * (forward.total - layer.spared) + amount["core"] * forward.attention + amount["products"] * forward.matmul
    )

    def exchanged(exchange: Exchange) -> Number:
        return layers * (exchange.forward + exchange.backward) + amount["full"] * exchange.again

    return {
        "computing/forward/matmul": layers * forward.matmul,
        "computing/forward/attention": layers * forward.attention,
        "computing/forward/elementwise": layers * forward.elementwise,
        "computing/backward/matmul": layers * backward.matmul,
        "computing/backward/attention": layers * backward.attention,
        "computing/backward/elementwise": layers * backward.elementwise,
        "computing/backward/accumulate": layers * layer.accumulate,
        "computing/recompute": again + light,
        "communication/exposed/tp": exchanged(layer.tensor) + amount["gathers"] * layer.gathers,
        "communication/exposed/cp": exchanged(layer.context),
        "communication/exposed/ep": exchanged(layer.expert),
        "free": layers * (layer.ahead + layer.behind) + amount["full"] * layer.ahead,
    }


def _ends(work: Work, own: Standing, m: Number) -> dict[str, Number]:
    """What the head and the embedding take where the stage has them."""
    products = m * own.last * work.head.matmul
    loss, rows = m * own.last * work.head.elementwise, m * own.first * work.embedding
    head, embedding = work.head_share, work.embedding_share
    return {
        "computing/forward/matmul": head * products,
        "computing/forward/elementwise": head * loss + embedding * rows,
        "computing/backward/matmul": (1 - head) * products,
        "computing/backward/elementwise": (1 - head) * loss + (1 - embedding) * rows,
    }
