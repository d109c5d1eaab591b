"""Utilization: throughput of a step, and the share of the hardware's peak that the model's own work takes (MFU, HFU).

MFU counts model FLOPs without recomputation, HFU with it (arXiv 2204.02311, appendix B); never one label for the other. Both need
three choices to be said: full or causal attention, head counted or not, which peak. Rates per device divide by all devices of
the job; guides that divide by the data-parallel size are too large by the tensor and pipeline sizes (erratum X02).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Literal

import pandas as pd

from perfkit.core import catalog
from perfkit.core.breakdown import Breakdown
from perfkit.core.errors import InputError
from perfkit.core.spec.model import ModelSpec
from perfkit.predict.cost.flops import Attention, training_flops

Judgement = Literal["impossible", "suspicious", "plausible"]
SUSPICIOUS_ABOVE, IMPOSSIBLE_ABOVE = 0.75, 1.0


def samples_per_s(global_batch_size: int, step_time_s: float) -> float:
    """Sequences per second of the whole job; the batch is micro batch x micro batches x replicas (guides' "Samples/s")."""
    return global_batch_size / _positive("step_time_s", step_time_s)


def samples_per_s_per_device(global_batch_size: int, step_time_s: float, num_devices: int) -> float:
    """Sequences per second and device, over all devices: what a MindFormers log prints as samples/s/p."""
    return samples_per_s(global_batch_size, step_time_s) / _positive("num_devices", num_devices)


def tokens_per_s_per_device(global_batch_size: int, seq_length: int, step_time_s: float, num_devices: int) -> float:
    """Tokens per second and device, over all devices of the job."""
    return seq_length * samples_per_s_per_device(global_batch_size, step_time_s, num_devices)


def solve_global_batch(
    *,
    global_batch_size: int | None = None,
    data_parallel_size: int | None = None,
    micro_batch_size: int | None = None,
    num_micro_batches: int | None = None,
) -> dict[str, int]:
    """The one unknown of global batch = data parallel x micro batch x number of micro batches, with the three given.

    Returns all four by name. Raises InputError unless exactly one is None, all are positive, and the division leaves no rest.
    """
    factors = {
        "data_parallel_size": data_parallel_size,
        "micro_batch_size": micro_batch_size,
        "num_micro_batches": num_micro_batches,
    }
    values = {"global_batch_size": global_batch_size, **factors}
    unknown = [name for name, value in values.items() if value is None]
    problems = [f"{name} = {value} must be positive" for name, value in values.items() if value is not None and value <= 0]
    if len(unknown) != 1:
        problems.append(f"exactly one of {', '.join(values)} must be unknown, not {len(unknown)}")
    if problems:
        raise InputError("global batch", problems)
    product = math.prod(value for value in factors.values() if value is not None)
    if global_batch_size is None:
        return {"global_batch_size": product, **{name: value for name, value in factors.items() if value is not None}}
    if global_batch_size % product:
        what = unknown[0].removesuffix("_size").removeprefix("num_").replace("_", " ")
        raise InputError(
            "global batch", [f"{global_batch_size} is not divisible by {product}: {global_batch_size / product:g} {what}"]
        )
    return {name: global_batch_size // product if value is None else value for name, value in values.items()}


def mfu(model_flops_per_token: Breakdown | float, tokens_per_s_per_device: float, peak_flops_per_s: float) -> float:
    """Model FLOPs utilization, 0 to 1: `training_flops` (no recomputation) x tokens per second over the peak of one device."""
    per_token = model_flops_per_token.total if isinstance(model_flops_per_token, Breakdown) else model_flops_per_token
    return per_token * tokens_per_s_per_device / _positive("peak_flops_per_s", peak_flops_per_s)


def hfu(
    model_flops_per_token: Breakdown | float,
    recompute_flops_per_token: Breakdown | float,
    tokens_per_s_per_device: float,
    peak_flops_per_s: float,
) -> float:
    """Hardware FLOPs utilization, 0 to 1: as `mfu`, with the work that is done again (`recompute_flops`) counted too."""
    return mfu(model_flops_per_token, tokens_per_s_per_device, peak_flops_per_s) + mfu(
        recompute_flops_per_token, tokens_per_s_per_device, peak_flops_per_s
    )


def guide_selective_hfu(
    model: ModelSpec, seq_length: int, tokens_per_s_per_device: float, peak_flops_per_s: float, attention: Attention = "full"
) -> float:
    """HFU with the attention core recomputed as arXiv 2205.05198 prints it: the attention term s/3h, twice that of training.

    One more forward pass of the core is 4/3 of that term (4 forward + 8 backward + 4 again over 12); the doubled term reproduces
    the guides' printed pair 65 / 57 and is kept beside the right one (erratum X06).
    """
    work = training_flops(model, seq_length, attention)
    core = work.amount("layers/scores") + work.amount("layers/values")
    return hfu(work, core, tokens_per_s_per_device, peak_flops_per_s)


def judge_utilization(value: float) -> Judgement:
    """Whether a utilization can be true: above 1 it cannot, above 0.75 no large model has been seen."""
    if not value >= 0:
        raise InputError("utilization", [f"{value} must be at least 0"])
    if value > IMPOSSIBLE_ABOVE:
        return "impossible"
    return "suspicious" if value > SUSPICIOUS_ABOVE else "plausible"


def published_cases() -> pd.DataFrame:
    """The guides' published speeds and utilisations beside the right formula, one row a case.

    Columns `case`, `model`, `tokens_per_s_per_device`, `peak_flops_per_s`, `convention` (how the printed value counts),
    `published_mfu`, `mfu` (in that convention), `deviation` (mfu over published, minus 1), `mfu_full` (full attention, head),
    `judgement` (of mfu_full), `implied_tokens_per_s_per_device` (the speed that the printed MFU needs), `published_hfu`, `hfu`,
    `solved_seq_length` (the sequence length that the printed MFU needs, where a step time is printed and no length), `source`,
    `note`. A cell is missing where the guide prints nothing or nothing can be computed. A model whose shape is not published counts
    6 FLOP a parameter and token.
    """
    return evaluate_cases(catalog.published_rows(), catalog.models())


def evaluate_cases(rows: Iterable[Mapping[str, str]], models: Mapping[str, ModelSpec]) -> pd.DataFrame:
    """As `published_cases`, for rows with the columns of `data/reference/published.csv`."""
    return pd.DataFrame([_evaluate(row, models[row["model"]]) if row["model"] else _evaluate_shapeless(row) for row in rows])


def _evaluate(row: Mapping[str, str], model: ModelSpec) -> dict[str, object]:
    seq_length, peak = int(row["seq_length"]), float(row["peak_flops_per_s"])
    speed, published = _number(row["tokens_per_s_per_device"]), _number(row["published_mfu"])
    attention: Attention = "causal" if row["attention"] == "causal" else "full"
    head = row["head"] == "1"
    work = training_flops(model, seq_length, attention, head=head)
    value, plain = mfu(work, speed, peak), mfu(training_flops(model, seq_length), speed, peak)
    doubled = row["hfu_convention"] == "attention doubled"
    return {
        "case": row["case"],
        "model": row["model"],
        "tokens_per_s_per_device": speed,
        "peak_flops_per_s": peak,
        "convention": f"{attention} attention, {'with' if head else 'without'} head",
        "published_mfu": published,
        "mfu": value,
        "deviation": value / published - 1,
        "mfu_full": plain,
        "judgement": None if math.isnan(plain) else judge_utilization(plain),
        "implied_tokens_per_s_per_device": published * peak / work.total,
        "published_hfu": _number(row["published_hfu"]),
        "hfu": guide_selective_hfu(model, seq_length, speed, peak, attention) if doubled else math.nan,
        "solved_seq_length": math.nan,
        "source": row["source"],
        "note": row["note"],
    }


def _evaluate_shapeless(row: Mapping[str, str]) -> dict[str, object]:
    """A case of which only the number of parameters is known: 6 FLOP a parameter and token, attention left out."""
    peak, published, work = float(row["peak_flops_per_s"]), _number(row["published_mfu"]), 6 * float(row["params"])
    implied = published * peak / work
    per_token = float(row["global_batch"]) / (float(row["step_time_s"]) * float(row["n_devices"]))
    seq_length = _number(row["seq_length"])
    value = per_token * seq_length * work / peak
    return {
        "case": row["case"],
        "model": row["model"],
        "tokens_per_s_per_device": per_token * seq_length,
        "peak_flops_per_s": peak,
        "convention": "6 FLOP a parameter and token",
        "published_mfu": published,
        "mfu": value,
        "deviation": value / published - 1,
        "mfu_full": math.nan,
        "judgement": None,
        "implied_tokens_per_s_per_device": implied,
        "published_hfu": _number(row["published_hfu"]),
        "hfu": math.nan,
        "solved_seq_length": implied / per_token if math.isnan(seq_length) else math.nan,
        "source": row["source"],
        "note": row["note"],
    }


def _number(text: str) -> float:
    return float(text) if text else math.nan


def _positive(name: str, value: float) -> float:
    if not (math.isfinite(value) and value > 0):
        raise InputError("utilization", [f"{name} = {value} must be positive"])
    return value
