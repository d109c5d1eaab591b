"""Roofline: how fast the matrix products of one layer could at best run on a device.

A product of (m, k) by (k, n) does 2mnk FLOP and moves (mk + kn + mn) elements. Its attainable rate is the smaller of the peak and
of intensity x memory bandwidth (Williams, Waterman, Patterson: Roofline, CACM 52(4), 2009). Attention's two products are counted
as a fused kernel that reads queries, keys and values once and writes the output, as flash attention does (arXiv 2205.14135).

Letters: s tokens of a micro batch, h hidden, f ffn hidden, a heads, k key-value heads, d head size, t tensor-parallel size.
"""

from __future__ import annotations

import pandas as pd

from perfkit.core.spec.hardware import HardwareSpec
from perfkit.core.spec.model import ModelSpec
from perfkit.core.spec.parallel import ParallelPlan
from perfkit.core.spec.workload import Workload
from perfkit.core.texts import say

BYTES_PER_ELEMENT = {"bfloat16": 2.0, "float16": 2.0, "float32": 4.0, "float8": 1.0, "int8": 1.0, "float4": 0.5}


def layer_matmuls(model: ModelSpec, workload: Workload, parallel: ParallelPlan, hardware: HardwareSpec) -> pd.DataFrame:
    """The matrix products of one layer's forward pass of one micro batch on one device, best case.

    One row a product: `part` (qkv, attention, output, ffn up, ffn down), `flops`, `bytes`, `intensity_flop_per_byte`,
    `attainable_flops_per_s`, `time_s`, `bound` ("compute" or "memory"). A mixture layer is drawn with its active experts and an
    even spread of tokens. Raises InputError if the device states no peak for the dtype.
    """
    s, t = workload.seq_length * workload.micro_batch_size, parallel.tensor_parallel_size
    h, a, k, d = model.hidden_size, model.num_attention_heads / t, model.num_key_value_heads / t, model.head_size
    up = 2 if model.gated_ffn else 1
    if model.num_experts:
        experts, f = model.num_experts, model.expert_ffn_hidden_size / t
        tokens = s * model.num_experts_per_token / experts
    else:
        experts, f, tokens = 1, model.ffn_hidden_size / t, float(s)
    size = BYTES_PER_ELEMENT[workload.dtype]
    products: list[tuple[str, float, float]] = [
        ("qkv", *_product(s, (a + 2 * k) * d, h)),
        ("attention", 4 * s * workload.seq_length * a * d, s * (2 * a + 2 * k) * d),
        ("output", *_product(s, h, a * d)),
        ("ffn up", *_product(tokens, up * f, h, experts)),
        ("ffn down", *_product(tokens, h, f, experts)),
    ]
    peak, bandwidth = hardware.peak(workload.dtype), hardware.memory_bytes_per_s
    rows = []
    for part, flops, elements in products:
        reached = flops / (elements * size) * bandwidth
        rows.append(
            {
                "part": part,
                "flops": float(flops),
                "bytes": float(elements * size),
                "intensity_flop_per_byte": flops / (elements * size),
                "attainable_flops_per_s": min(reached, peak),
                "time_s": flops / min(reached, peak),
                "bound": "memory" if reached < peak else "compute",
            }
        )
    return pd.DataFrame(rows)


def _product(m: float, n: float, k: float, count: int = 1) -> tuple[float, float]:
    return count * (2 * m * n * k), count * (m * k + k * n + m * n)


def products_told(products: pd.DataFrame) -> str:
    """Which products of a layer memory holds up and how much of the layer's time they take, in a sentence."""
    held = products[products["bound"] == "memory"]
    if held.empty:
        return "No product of the layer is held up by memory: all are bound by computing."
    share = float(held["time_s"].sum() / products["time_s"].sum())
    return say("Memory holds up {parts}: {share} of the time of the layer's products.", parts=", ".join(held["part"]), share=share)
