"""Guide: the layer totals and the closed form of the tuning guides, beside the exact count, and why the two differ.

Letters of the guides: s tokens, h hidden, f ffn hidden, q query heads a key-value head, v vocabulary, L layers. The closed form is
that of arXiv 2205.05198 with a correction c for grouped queries; it holds for a feed-forward of two matrices with f = 4h.
"""

from __future__ import annotations

from dataclasses import dataclass

from perfkit.core.breakdown import Breakdown
from perfkit.core.source import Source
from perfkit.core.spec.model import ModelSpec
from perfkit.predict.cost.flops import UNIT, forward_flops, training_flops

SOURCE = Source("published", "tuning guides, layer tables", "the head stands in every layer's total (erratum X04)")


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


def correction(query_heads_per_key_value_head: float) -> float:
    """The guides' factor c = (60 + 12/q)/72 for grouped queries; it holds for the GPT feed-forward only."""
    return (60 + 12 / query_heads_per_key_value_head) / 72


def guide_flops(model: ModelSpec, seq_length: int) -> tuple[GuideFigure, ...]:
    """The guides' totals for one sequence beside the exact ones, with the reason of every difference."""
    return (
        GuideFigure(
            "forward pass (layer total × layers)",
            guide_forward(model, seq_length).total * seq_length,
            forward_flops(model, seq_length).total * seq_length,
            "X04",
            f"the head 2bshv stands inside the layer total, so {model.num_layers} layers count it {model.num_layers} times",
        ),
        GuideFigure(
            "training step (closed form)",
            _closed_form(model, seq_length),
            training_flops(model, seq_length).total * seq_length,
            "X05",
            _why_closed_form(model),
        ),
    )


def guide_forward(model: ModelSpec, seq_length: int) -> Breakdown:
    """FLOP per token of the forward pass as the guides count it: same leaves as `forward_flops`, with one head a layer."""
    exact = forward_flops(model, seq_length)
    parts = {path: amount * (model.num_layers if path == "head" else 1) for path, amount in exact.parts.items()}
    return Breakdown(UNIT, parts, SOURCE)


def _closed_form(model: ModelSpec, seq_length: int) -> float:
    s, h, v, L = seq_length, model.hidden_size, model.vocab_size, model.num_layers
    c = correction(model.num_attention_heads / model.num_key_value_heads)
    return 72 * L * s * h**2 * (c + s / (6 * h) + v / (12 * h * L))


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
