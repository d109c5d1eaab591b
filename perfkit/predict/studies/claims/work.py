"""Claims about throughput, work and utilization."""

from __future__ import annotations

from perfkit.core.spec.plan import Plan
from perfkit.predict.cost.flops import matmul_flops, training_flops
from perfkit.predict.cost.guide import guide_flops
from perfkit.predict.cost.scaling import linearity
from perfkit.predict.cost.utilization import samples_per_s, samples_per_s_per_device, tokens_per_s_per_device
from perfkit.predict.estimate import estimate
from perfkit.predict.studies.claims import _figures as of
from perfkit.predict.studies.claims.claim import Claim

STEP_S = 122.7266


def _tokens(plan: Plan) -> float:
    return estimate(plan).tokens_per_s_per_device


def _mfu(plan: Plan) -> float:
    return 100 * estimate(plan).mfu


def _hfu(plan: Plan) -> float:
    return 100 * estimate(plan).hfu


CLAIMS = (
    Claim(
        guide="000, 003 throughput",
        number="R005",
        claim="13B on 16 devices, batch 1,024: tokens of a device and second",
        unit="tokens/s",
        stated=2136,
        computed=lambda: tokens_per_s_per_device(1024, of.SEQ, STEP_S, 16),
        of_plan=_tokens,
    ),
    Claim(
        guide="000, 003 throughput",
        number="X02",
        claim="p of samples/s/p is the size of data parallelism (8)",
        unit="tokens/s",
        stated=2136,
        computed=lambda: tokens_per_s_per_device(1024, of.SEQ, STEP_S, 8),
        why="p is all devices: with 8 the rate doubles to 99 % of a peak of 376 TFLOP/s",
    ),
    Claim(
        guide="000, 003 against logs",
        number="X03",
        claim="the log's samples/s/p is divided by the size of data parallelism",
        unit="samples/s",
        stated=0.5215,
        computed=lambda: samples_per_s_per_device(1024, STEP_S, 8),
        why="the logged number is that of all 16 devices",
    ),
    Claim(
        guide="000 utilization",
        number="R009",
        claim="a product of (4096, 4096) and (4096, 512)",
        unit="FLOP",
        stated=17_179_869_184,
        computed=lambda: matmul_flops(4096, 4096, 512),
    ),
    Claim(
        guide="000 utilization",
        number="X01",
        claim="the quotient with recomputed work is MFU (7B, full recomputation)",
        unit="%",
        stated=57.54,
        computed=lambda: 100 * (of.training("llama2-7b") + of.full_again("llama2-7b")) * 4695 / of.PEAK,
        why="it is HFU; and the table of FLOPs is headed as memory",
    ),
    Claim(
        guide="000 utilization",
        number="R013",
        claim="closed form of a training step, 7B's width, feed-forward of 4h",
        unit="TFLOP",
        stated=187.939,
        computed=lambda: float(training_flops(of.gpt("llama2-7b"), of.SEQ).total) * of.SEQ / 1e12,
    ),
    Claim(
        guide="000 layer tables",
        number="X04",
        claim="layer total x layers is the model (7B): the sum over the exact work",
        unit="",
        stated=1.0,
        computed=lambda: guide_flops(of.model("llama2-7b"), of.SEQ)[0].ratio,
        why="the head stands in every layer's total; it is counted 32 times",
    ),
    Claim(
        guide="000 utilization",
        number="X05",
        claim="the closed form holds for the Llama series (70B): form over exact work",
        stated=1.0,
        computed=lambda: guide_flops(of.model("llama2-70b"), of.SEQ)[1].ratio,
        why="its correction is for a feed-forward of two matrices of width 4h",
    ),
    Claim(
        guide="000 utilization",
        number="X06",
        claim="7B: HFU 65 over MFU 57",
        stated=65 / 57,
        computed=lambda: 1 + of.attention_forward("llama2-7b") / of.training("llama2-7b"),
        otherwise=lambda: 1 + 3 * of.attention_forward("llama2-7b") / of.training("llama2-7b"),
        close=0.002,
        why="not the text's 4/3 of attention (1.047), but the paper's form with twice the attention term (s/3h)",
    ),
    Claim(
        guide="000 utilization",
        number="R018",
        claim="7B at 4,695 tokens/s: MFU on 376 TFLOP/s",
        unit="%",
        stated=57.5,
        computed=lambda: 100 * of.utilization("llama2-7b", 4695),
        of_plan=_mfu,
    ),
    Claim(
        guide="000 13B case",
        number="X07",
        claim="the 7B has 53 % MFU (elsewhere 57 %)",
        unit="%",
        stated=53,
        computed=lambda: 100 * of.utilization("llama2-7b", 4695),
        why="53 % would be 4,366 tokens/s on the same device",
    ),
    Claim(
        guide="003 13B case",
        number="X08",
        claim="13B (1,860) is clearly slower than 7B (2,465): MFU of 13B over that of 7B",
        stated=1860 / 2465,
        computed=lambda: of.utilization("llama2-13b", 1860) / of.utilization("llama2-7b", 2465),
        why="by work the 13B is faster: 43.1 against 30.2 % of 376 TFLOP/s",
    ),
    Claim(
        guide="003 13B case",
        number="X08a",
        claim="70B runs at 1,974 tokens/s a device: MFU on 376 TFLOP/s",
        unit="%",
        stated=47,
        computed=lambda: 100 * of.utilization("llama2-70b", 1974),
        why="more than the device has; 47 % would be 398 tokens/s",
    ),
    Claim(
        guide="000",
        number="X08b",
        claim="one device: peak that 7B at 57 % and 13B at 40 % imply, the second over the first",
        stated=1.0,
        computed=lambda: (1860 * of.training("llama2-13b") / 0.40) / (4695 * of.training("llama2-7b") / 0.57),
        why="379.6 and 405.4 TFLOP/s are two devices",
    ),
    Claim(
        guide="001 indicators",
        number="R007",
        claim="dp 4, batch 2, 32 micro batches, 11.5 s: samples a second",
        unit="samples/s",
        stated=22.261,
        computed=lambda: samples_per_s(4 * 2 * 32, 11.5),
    ),
    Claim(
        guide="001 indicators",
        number="X12",
        claim="linearity = total / (throughput of one node x cards), 8 nodes of 8",
        stated=0.8986,
        computed=lambda: 270_000 / (37_560 * 64),
        otherwise=lambda: linearity(270_000, 8, 37_560, 1),
        why="a node's throughput is multiplied by nodes, not by cards",
    ),
    Claim(
        guide="000 13B case",
        number="R181",
        claim="13B at the start: MFU 40 % (1,860 tokens/s)",
        unit="%",
        stated=40,
        computed=lambda: 100 * of.utilization("llama2-13b", 1860),
        why="43.1 % on 376 TFLOP/s; 40 % implies 405 TFLOP/s",
    ),
    Claim(
        guide="000 13B case",
        number="R188",
        claim="13B at the end: HFU 60.4 % beside MFU 55.4 %",
        unit="%",
        stated=60.4,
        computed=lambda: 55.4 * (1 + 0.1 * of.full_again("llama2-13b") / of.training("llama2-13b")),
        otherwise=lambda: (
            55.4 * (1 + (0.1 * of.full_again("llama2-13b") + 1.5 * of.attention_forward("llama2-13b")) / of.training("llama2-13b"))
        ),
        why="4 of 40 layers in full give 57.2 %; attention counted 1.5 times more meets it: one reading, which nothing proves",
        of_plan=_hfu,
    ),
    Claim(
        guide="000 13B case",
        number="R188",
        claim="13B at the end: peak memory 57.2 GB",
        unit="GB",
        stated=57.2,
        computed=lambda: of.last_peak_bytes() / 1e9,
        why="read as a setting of the pool, GB means 2^30 (X27): the peak, 53.2 GiB, fits into it",
    ),
    Claim(
        guide="001 Pangu",
        number="R190",
        claim="38B on 128 devices, 11.5 s a step: MFU over 45 % (with 4,096 tokens assumed)",
        unit="%",
        stated=45,
        computed=lambda: 100 * 6 * 38e9 * tokens_per_s_per_device(256, 4096, 11.5, 128) / of.PEAK,
        close=0.05,
        why="6N alone is 43.2 % of 376 TFLOP/s; attention adds the rest",
    ),
    Claim(
        guide="001 Pangu",
        number="R190",
        claim="the 38B step, simulated with 4,096 tokens",
        unit="s",
        stated=11.5,
        computed=lambda: estimate(of.pangu_38b()).step_time_s,
        close=0.05,
        why="the length follows: 2,048 and 8,192 tokens would take half and twice as long; layers and widths are assumed",
    ),
)
