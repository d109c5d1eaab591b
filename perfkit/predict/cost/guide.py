"""Guide: the layer tables and closed forms of the tuning guides, beside the exact count, and why the two differ.

The tables give the forward FLOP of one layer and micro batch by operator. Letters of the guides: b sequences, s tokens, h hidden,
f ffn hidden, q query heads a key-value head, v vocabulary, L layers. The closed forms are those of arXiv 2205.05198 with a
correction c for grouped queries; they hold for a feed-forward of two matrices with f = 4h.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import pandas as pd

from perfkit.core.breakdown import Breakdown
from perfkit.core.errors import InputError
from perfkit.core.source import Source
from perfkit.core.spec.model import ModelSpec
from perfkit.core.spec.workload import Workload
from perfkit.predict.cost.flops import UNIT, forward_flops, training_flops

SOURCE = Source("published", "tuning guides, layer tables", "the head stands in every layer's total (erratum X04)")

Family = Literal["gpt", "llama", "bert"]
Recompute = Literal["none", "selective", "full"]


@dataclass(frozen=True, slots=True)
class GuideFigure:
    """A total as a guide counts it, in FLOP, beside the exact one; `why` explains the difference, `erratum` numbers it."""

    name: str
    guide_flops: float
    exact_flops: float
    erratum: str
    why: str

    @property
    def ratio(self) -> float:
        """The guide's figure over the exact one."""
        return self.guide_flops / self.exact_flops


def layer_table(family: Family, model: ModelSpec, seq_length: int, batch: int = 1) -> pd.DataFrame:
    """Forward FLOP of one layer by operator, then the head once: columns `operator`, `formula`, `flops`, `part`.

    `part` is "layer" or "head". The BERT rows are an extension: the guides have no BERT table.
    """
    if family not in ("gpt", "llama", "bert"):
        raise InputError("layer_table", [f"family = {family!r} must be gpt, llama or bert"])
    b, s, h, f, v = batch, seq_length, model.hidden_size, model.ffn_hidden_size, model.vocab_size
    width = model.num_attention_heads * model.head_size
    qkv = 2 * b * s * h * model.head_size * (model.num_attention_heads + 2 * model.num_key_value_heads)
    rows = [
        ("QKV", "(2 + 4/q)bsh²", qkv, "layer"),
        ("QKᵀ", "2bs²h", 2 * b * s * s * width, "layer"),
        ("scores x V", "2bs²h", 2 * b * s * s * width, "layer"),
        ("projection", "2bsh²", 2 * b * s * h * width, "layer"),
    ]
    names = ("MLP up", "MLP gate", "MLP down") if family == "llama" else ("MLP up", "MLP down")
    formula = "8bsh²" if family != "llama" and f == 4 * h else "2bshf"
    rows += [(name, formula, 2 * b * s * h * f, "layer") for name in names]
    if family == "bert":
        rows.append(("transform", "2bsh²", 2 * b * s * h * h, "head"))
    rows.append(("logits", "2bshv", 2 * b * s * h * v, "head"))
    return pd.DataFrame(rows, columns=["operator", "formula", "flops", "part"])


def closed_form_flops(model: ModelSpec, seq_length: int, batch: int = 1, recompute: Recompute = "none") -> float:
    """FLOP of one GPT training iteration by the guide's closed form, 72bLsh²[c + s/6h + v/12hL] without recomputation.

    Selective recomputation of the attention core multiplies s/6h by 4/3, full recomputation also c. Raises InputError for a model
    whose feed-forward the form does not describe (erratum X05).
    """
    if model.gated_ffn or model.ffn_hidden_size != 4 * model.hidden_size or model.num_experts:
        raise InputError(
            "closed_form_flops",
            [f"the closed form needs two ffn matrices of width 4h; {model.name or 'this model'} has another feed-forward"],
        )
    return _closed_form(model, seq_length, batch, recompute)


def correction(query_heads_per_key_value_head: float) -> float:
    """The guides' factor c = (60 + 12/q)/72 for grouped queries; it holds for the GPT feed-forward only."""
    return (60 + 12 / query_heads_per_key_value_head) / 72


def guide_flops(model: ModelSpec, seq_length: int) -> tuple[GuideFigure, ...]:
    """The guides' totals for one sequence beside the exact ones, with the reason of every difference."""
    work = Workload(seq_length=seq_length, micro_batch_size=1, global_batch_size=1)
    return (
        GuideFigure(
            "forward pass, layer total x layers",
            guide_forward(model, work).total * seq_length,
            forward_flops(model, seq_length).total * seq_length,
            "X04",
            f"the head 2bshv stands inside the layer total, so {model.num_layers} layers count it {model.num_layers} times",
        ),
        GuideFigure(
            "training step, closed form",
            _closed_form(model, seq_length, 1, "none"),
            training_flops(model, seq_length).total * seq_length,
            "X05",
            _why_closed_form(model),
        ),
    )


def guide_forward(model: ModelSpec, workload: Workload) -> Breakdown:
    """FLOP per token of the forward pass as the guides count it: same leaves as `forward_flops`, with one head a layer."""
    exact = forward_flops(model, workload.seq_length)
    parts = {path: amount * (model.num_layers if path == "head" else 1) for path, amount in exact.parts.items()}
    return Breakdown(UNIT, parts, SOURCE)


def _closed_form(model: ModelSpec, seq_length: int, batch: int, recompute: Recompute) -> float:
    b, s, h, v, L = batch, seq_length, model.hidden_size, model.vocab_size, model.num_layers
    again = 4 / 3
    c = correction(model.num_attention_heads / model.num_key_value_heads) * (again if recompute == "full" else 1)
    attention = s / (6 * h) * (1 if recompute == "none" else again)
    return 72 * b * L * s * h**2 * (c + attention + v / (12 * h * L))


def _why_closed_form(model: ModelSpec) -> str:
    q = model.num_attention_heads / model.num_key_value_heads
    h, f = model.hidden_size, model.ffn_hidden_size
    if not model.gated_ffn and f == 4 * h and not model.num_experts:
        return "the closed form describes this model"
    exact = (4 + 4 / q + 2 * (3 if model.gated_ffn else 2) * f / h) / 24
    return (
        f"c = (60 + 12/q)/72 = {correction(q):.4f} takes a feed-forward of two matrices of width 4h; "
        f"with this one the factor is {exact:.4f}"
    )
