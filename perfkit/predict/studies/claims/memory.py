"""Claims about memory, recomputation and messages."""

from __future__ import annotations

from perfkit.core.spec.plan import Plan
from perfkit.core.units import GIB, MIB
from perfkit.predict.cost.communication import all_reduce_bytes, gather_bytes
from perfkit.predict.cost.pipeline_bubble import bubble_over_ideal, bubble_share
from perfkit.predict.memory.guide import BYTES_A_PARAMETER, guide_static
from perfkit.predict.memory.memory import peak_memory
from perfkit.predict.studies.claims import _figures as of
from perfkit.predict.studies.claims.claim import Claim

REDUCED = 2 * of.SEQ * 4096


def _peak(plan: Plan) -> float:
    return float(peak_memory(plan).peak.total) / GIB


def _bubble(plan: Plan) -> float:
    parallel = plan.parallel
    return 100 * bubble_share(parallel.pipeline_parallel_size, plan.num_micro_batches, parallel.virtual_pipeline_parallel_size)


CLAIMS = (
    Claim("000 static memory", "R061", "7B without parallelism: 10N", 70, lambda: guide_static(7e9) / 1e9, "GB"),
    Claim("000 static memory", "R061", "7B, optimizer shared by 8", 8.75, lambda: guide_static(7e9, shards=8) / 1e9, "GB"),
    Claim(
        guide="000 static memory",
        number="R062",
        claim="7B, optimizer shared by 8, with accumulation",
        unit="GB",
        stated=22.75,
        computed=lambda: guide_static(7e9, shards=8, accumulation=True) / 1e9,
    ),
    Claim(
        guide="000 static memory",
        number="X09",
        claim="10N is the static memory of 7B in mixed precision",
        unit="GB",
        stated=70,
        computed=lambda: BYTES_A_PARAMETER["16N (16-bit gradient)"] * 7,
        why="the master copy (4N) and the gradient (2N to 4N) are left out: 16N to 18N",
        of_plan=_peak,
    ),
    Claim(
        guide="000 dynamic memory",
        number="R066",
        claim="a layer of 7B's width, nothing split: 34 + 5as/h",
        unit="B",
        stated=3_254_779_904,
        computed=lambda: of.activations("tensor and sequence", 1),
    ),
    Claim("000 dynamic memory", "R067", "split 8 ways", 553_648_128, lambda: of.activations("tensor"), "B"),
    Claim(
        "000 dynamic memory", "R067", "with the sequence split too", 406_847_488, lambda: of.activations("tensor and sequence"), "B"
    ),
    Claim(
        "000 dynamic memory", "R067", "split, attention recomputed", 218_103_808, lambda: of.activations("tensor, selective"), "B"
    ),
    Claim(
        guide="000 dynamic memory",
        number="R067",
        claim="both split, attention recomputed",
        unit="B",
        stated=71_303_168,
        computed=lambda: of.activations("tensor and sequence, selective"),
    ),
    Claim("000 dynamic memory", "R067", "recomputed in full", 33_554_432, lambda: of.activations("full"), "B"),
    Claim(
        guide="000 dynamic memory",
        number="X10",
        claim="the table is the total memory (7B): the model over the table",
        stated=1,
        computed=lambda: of.model("llama2-7b").num_layers,
        why="it is one layer's, for GPT with dropout and without flash attention; its attention total lacks b",
    ),
    Claim(
        guide="000, 003 recomputation",
        number="X13",
        claim="SiLU and Mul are kept: bytes that recomputing them would free",
        unit="B",
        stated=0,
        computed=lambda: of.freed(r"feed_forward\.mul", r"feed_forward\.w1\.activation\.silu"),
        why="every other passage recomputes them, and it frees 226 MB of every layer of 13B",
    ),
    Claim(
        guide="000, 003 recomputation",
        number="R084",
        claim="SiLU and Mul of a layer of 13B: bytes that are freed",
        unit="B",
        stated=226_492_416,
        computed=lambda: of.freed(r"feed_forward\.mul", r"feed_forward\.w1\.activation\.silu"),
    ),
    Claim(
        guide="000 communication recomputation",
        number="R085",
        claim="a gather done again: bytes no longer kept, 8 devices, 7B",
        unit="B",
        stated=29_360_128,
        computed=lambda: gather_bytes(REDUCED, 8),
    ),
    Claim(
        guide="001 parallel",
        number="R055",
        claim="an AllReduce of tensor parallelism, 8 devices, 7B: bytes that a device sends",
        unit="B",
        stated=58_720_256,
        computed=lambda: all_reduce_bytes(REDUCED, 8),
    ),
    Claim(
        guide="000, 003 13B case",
        number="X22",
        claim="full recomputation costs 20 to 25 % more work (13B)",
        unit="%",
        stated=24.8,
        computed=lambda: 100 * of.full_again("llama2-13b") / of.training("llama2-13b"),
        otherwise=lambda: 100 * of.full_again("llama2-13b") / (of.training("llama2-13b") + of.full_again("llama2-13b")),
        why="33.0 % of the model's work, which is 24.8 % of the work that is executed",
    ),
    Claim(
        guide="001 configuration",
        number="R053",
        claim="pp 4, 32 micro batches: bubble of the ideal time",
        unit="%",
        stated=9.375,
        computed=lambda: 100 * bubble_over_ideal(4, 32),
        of_plan=_bubble,
    ),
    Claim("001 configuration", "R053", "half as many micro batches double it", 18.75, lambda: 100 * bubble_over_ideal(4, 16), "%"),
    Claim(
        guide="001 configuration",
        number="R054",
        claim="pp 4, 4 chunks, 32 micro batches: bubble of the ideal time",
        unit="%",
        stated=2.344,
        computed=lambda: 100 * bubble_over_ideal(4, 32, 4),
    ),
    Claim(
        "000, 003 peaks", "R069", "62,432M of the device, 59,392M in the pool: outside of it", 3040, lambda: 62_432 - 59_392, "MiB"
    ),
    Claim("000, 003 peaks", "R069", "a peak of 48,874M leaves of the pool", 17.7, lambda: 100 * (59_392 - 48_874) / 59_392, "%"),
    Claim(
        guide="000, 003 peaks",
        number="X27",
        claim="58GB of the configuration are the log's 59,392M",
        unit="MiB",
        stated=59_392,
        computed=lambda: 58e9 / MIB,
        otherwise=lambda: 58 * GIB / MIB,
        why="GB means 2^30 there; 70, 8.75 and 22.75 GB are decimal",
    ),
)
