"""Model cost: parameters and FLOPs of a model by part, and the MFU of a measured speed in every convention, in words and as tables.

Conventions differ in whether attention counts in full or as its causal half, and in whether the output head counts; beside them
stand the totals and utilizations that the guides print.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache

import pandas as pd

from perfkit.core.breakdown import Breakdown
from perfkit.core.looks import brief
from perfkit.core.params import active_params, count_params, trained_params
from perfkit.core.shortening import shortened
from perfkit.core.spec.model import ModelSpec
from perfkit.core.spec.recompute import RecomputePlan
from perfkit.core.texts import joined, say
from perfkit.core.units import format_count, format_ratio, format_si, significant
from perfkit.predict.cost.flops import Attention, pass_flops, training_flops
from perfkit.predict.cost.guide import guide_flops
from perfkit.predict.cost.utilization import guide_selective_hfu, hfu, judge_utilization, mfu, published_cases

LONGEST_NAME = 24
"""Letters of the name of a model that a sentence shows."""

CONVENTIONS: tuple[tuple[str, Attention, bool], ...] = (
    ("full attention, with head", "full", True),
    ("full attention, without head", "full", False),
    ("causal half, with head", "causal", True),
    ("causal half, without head", "causal", False),
)


@dataclass(frozen=True, kw_only=True, slots=True)
class ModelCost:
    """The parameters of a model by part, and the FLOP of a token by pass ("forward", "backward", "recompute") and part."""

    model: ModelSpec
    seq_length: int
    attention: Attention
    count_head: bool
    parameters: Breakdown
    active_parameters: Breakdown
    passes: Mapping[str, Breakdown]

    @property
    def training_flops(self) -> Breakdown:
        """FLOP of a token in training by part, without what is recomputed."""
        return training_flops(self.model, self.seq_length, self.attention, head=self.count_head)

    def mfu(self, tokens_per_s_per_device: float, peak_flops_per_s: float) -> float:
        """The share of the peak that the model's own work takes at a speed."""
        return mfu(self.training_flops, tokens_per_s_per_device, peak_flops_per_s)

    def hfu(self, tokens_per_s_per_device: float, peak_flops_per_s: float) -> float:
        """As `mfu`, with what is recomputed."""
        return hfu(self.training_flops, self.passes["recompute"], tokens_per_s_per_device, peak_flops_per_s)

    def told(self) -> tuple[str, ...]:
        """The counts in a sentence, and what is odd about the sizes."""
        count = int(self.parameters.total)
        text = f"{shortened(self.model.name or 'The model', LONGEST_NAME)}: {format_count(count)} parameters"
        if self.model.num_experts:
            text += f", {format_si(self.active_parameters.total, '')} active per token"
        if self.model.adapters or self.model.trained_layers:
            text += f", {format_count(int(trained_params(self.model).total))} of them trained"
        text += f"; an honest MFU counts {format_si(self.training_flops.total, 'FLOP', 4)} a token, none of it recomputed."
        if self.model.hidden_size % self.model.num_attention_heads:
            return text, "The hidden size is not a multiple of the heads: the head size is rounded down."
        return (text,)

    def to_frame(self) -> pd.DataFrame:
        """Parameters by part, most first: columns `part`, `parameters`, `share`."""
        frame = self.parameters.to_frame().rename(columns={"path": "part", "amount": "parameters"})
        frame = frame.sort_values("parameters", ascending=False, ignore_index=True)
        frame.attrs = {"title": "Parameters by part", "look": "folded"}
        return frame


def model_cost(
    model: ModelSpec, *, seq_length: int, attention: Attention = "full", count_head: bool = True, recomputed_layers: int = 0
) -> ModelCost:
    """Count a model at a sequence length; `recomputed_layers` of its layers run their forward pass twice."""
    recompute = RecomputePlan(full_layers=((min(recomputed_layers, model.num_layers),),))
    return ModelCost(
        model=model,
        seq_length=seq_length,
        attention=attention,
        count_head=count_head,
        parameters=count_params(model),
        active_parameters=active_params(model),
        passes=pass_flops(model, seq_length, recompute, attention, head=count_head),
    )


def utilization_told(cost: ModelCost, tokens_per_s_per_device: float, peak_flops_per_s: float) -> tuple[str, ...]:
    """The utilization of a speed in a sentence, whether it can be true, and HFU with only the attention core recomputed."""
    value, peak = cost.mfu(tokens_per_s_per_device, peak_flops_per_s), format_si(peak_flops_per_s, "FLOP/s")
    text = f"At {significant(tokens_per_s_per_device, 4)} tokens/s/device MFU is {format_ratio(value, 4)} of {peak}"
    if cost.passes["recompute"].total:
        text += f", HFU {format_ratio(cost.hfu(tokens_per_s_per_device, peak_flops_per_s), 4)}"
    judged = {
        "impossible": f"Impossible: MFU {format_ratio(value)} is above 1. Check speed, sequence length and peak (X08a).",
        "suspicious": f"Suspicious: no published training of a large model reaches an MFU of {format_ratio(value)}.",
    }.get(judge_utilization(value), "")
    model, length, attention = cost.model, cost.seq_length, cost.attention
    core = pass_flops(model, length, RecomputePlan(attention_core=True), attention)["recompute"]
    right = hfu(training_flops(model, length, attention), core, tokens_per_s_per_device, peak_flops_per_s)
    printed = guide_selective_hfu(model, length, tokens_per_s_per_device, peak_flops_per_s, attention)
    form = "With only the attention core recomputed, HFU is {right_hfu}; the variant that the guides print gives {guide_hfu} (X06)."
    selective = say(form, right_hfu=right, guide_hfu=printed)
    return (f"{text}.", *([judged] if judged else []), selective)


def utilization_table(cost: ModelCost, tokens_per_s_per_device: float, peak_flops_per_s: float) -> pd.DataFrame:
    """The utilization of a speed by convention.

    Columns `convention`, `per_token_flops`, `mfu`, and HFU with layers recomputed in full, with the attention core alone, and the
    latter as the guides print it: `full_recompute_hfu`, `core_recompute_hfu`, `guide_core_recompute_hfu`.
    """
    rows = []
    for name, attention, head in CONVENTIONS:
        work = training_flops(cost.model, cost.seq_length, attention, head=head)
        full, core = (
            pass_flops(cost.model, cost.seq_length, plan, attention, head=head)["recompute"]
            for plan in (RecomputePlan(all_layers=True), RecomputePlan(attention_core=True))
        )
        rows.append(
            {
                "convention": name,
                "per_token_flops": work.total,
                "mfu": mfu(work, tokens_per_s_per_device, peak_flops_per_s),
                "full_recompute_hfu": hfu(work, full, tokens_per_s_per_device, peak_flops_per_s),
                "core_recompute_hfu": hfu(work, core, tokens_per_s_per_device, peak_flops_per_s),
                "guide_core_recompute_hfu": guide_selective_hfu(
                    cost.model, cost.seq_length, tokens_per_s_per_device, peak_flops_per_s, attention
                ),
            }
        )
    return brief(pd.DataFrame(rows), "convention", "per_token_flops", "mfu", "full_recompute_hfu", "core_recompute_hfu")


def guide_table(model: ModelSpec, seq_length: int) -> pd.DataFrame:
    """The totals of the guides for one sequence: `quantity`, `guide_flops`, `exact_flops`, `difference_ratio`, `why`."""
    return pd.DataFrame(
        [
            {
                "quantity": figure.name,
                "guide_flops": figure.guide_flops,
                "exact_flops": figure.exact_flops,
                "difference_ratio": figure.ratio - 1,
                "why": f"{figure.erratum}: {figure.why}",
            }
            for figure in guide_flops(model, seq_length)
        ]
    )


_EQUAL = 5e-7
"""Ratios nearer to 1 than this are equal."""


def guide_told(model: ModelSpec, seq_length: int) -> str:
    """How far the totals of the guides are from the exact ones, in a sentence."""
    large, small = "the {name} is {apart_ratio} too large", "the {name} is {apart_ratio} too small"
    apart = [
        say(large if figure.ratio > 1 else small, name=figure.name, apart_ratio=abs(figure.ratio - 1))
        for figure in guide_flops(model, seq_length)
        if abs(figure.ratio - 1) > _EQUAL
    ]
    if not apart:
        return "The totals of the guides are exact."
    one, two = "One total of the guides is off: {apart}.", "Two totals of the guides are off: {apart}."
    return say(one if len(apart) == 1 else two, apart=joined(apart, "; "))


@cache
def published_table() -> pd.DataFrame:
    """Speeds and utilizations that the guides print, recomputed: see `published_cases`."""
    columns = {
        "case": "case",
        "tokens_per_s_per_device": "tokens_per_s_per_device",
        "published_mfu": "printed_mfu",
        "mfu": "recomputed_mfu",
        "convention": "counted_as",
        "judgement": "verdict",
    }
    return published_cases()[list(columns)].rename(columns=columns)
