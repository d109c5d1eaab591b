"""Attention to a selection of earlier tokens, or to fewer that stand for several, as DeepSeek-V3.2 and DeepSeek-V4 have it.

The reference is the modelling code of DeepSeek-V4 in `huggingface/transformers` (`models/deepseek_v4`) and MindFormers 2.1
(`pynative/transformers/experimental_attention_variant`).
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import TYPE_CHECKING

from perfkit.core.errors import InputError
from perfkit.core.spec.checks import counts

if TYPE_CHECKING:  # commands that calculate nothing start without NumPy
    from perfkit.core.numbers import Number


@dataclass(frozen=True, kw_only=True, slots=True)
class CompressedAttention:
    """What layers attend to besides their window: sizes are counts of elements, ratios of tokens.

    In `num_selected_layers` layers an indexer of `index_heads` heads scores all compressed tokens, of which each stands for
    `selected_ratio` (1: the tokens themselves), and attention takes the best `index_top_k`. `num_pooled_layers` layers attend to
    all tokens that stand for `pooled_ratio` each. Where a layer is neither, it has its window alone.

    With `output_lora_rank` > 0 keys are the values, of one head that all queries share, queries come of `query_lora_rank`, and
    the output goes through that rank in each of `output_groups` groups of heads.
    """

    num_selected_layers: int = 0
    selected_ratio: int = 1
    index_heads: int = 0
    index_head_size: int = 0
    index_top_k: int = 0
    num_pooled_layers: int = 0
    pooled_ratio: int = 128
    output_groups: int = 0
    output_lora_rank: int = 0

    def __post_init__(self) -> None:
        ratios = ("selected_ratio", "pooled_ratio")
        problems = counts(self, [one.name for one in fields(self) if one.name not in ratios], low=0) + counts(self, ratios)
        if not problems and self.num_selected_layers:
            problems = counts(self, ("index_heads", "index_head_size", "index_top_k"))
        if not problems and self.output_lora_rank:
            problems = counts(self, ("output_groups",))
        if problems:
            raise InputError("CompressedAttention", problems)

    def compressing(self, layers: Number, hidden: Number, rank: Number, head: Number) -> Number:
        """Elements of the matrices that select and compress, of a mean layer: `rank` is that of the queries, `head` a head's size.

        A compressor has a matrix for what it pools and one for the weights by which it does, both twice as wide where its groups
        overlap (ratios below `OVERLAPPING`). An indexer has its queries, a weight a head, and keys: compressed ones of its own.
        """
        keys = 1 if self.selected_ratio == 1 else 2 * _overlap(self.selected_ratio)
        indexer = rank * self.index_heads * self.index_head_size + hidden * (self.index_heads + keys * self.index_head_size)
        own = 0 if self.selected_ratio == 1 else 2 * _overlap(self.selected_ratio) * hidden * head
        selected = self.num_selected_layers * (indexer + own)
        return (selected + self.num_pooled_layers * 2 * _overlap(self.pooled_ratio) * hidden * head) / layers

    def small(self, head: int) -> int:
        """Elements of positions and norms of all compressors and indexers."""
        index, r, p = self.index_head_size, self.selected_ratio, self.pooled_ratio
        selected = 2 * index if r == 1 else (head + index) * (1 + r * _overlap(r))
        return self.num_selected_layers * selected + self.num_pooled_layers * head * (1 + p * _overlap(p))

    def kept(self, layers: Number, head: Number) -> Number:
        """Values a token that selecting and compressing keep for the backward pass, in a mean layer."""
        index, r, p = self.index_head_size, self.selected_ratio, self.pooled_ratio
        keys = index if r == 1 else 2 * _overlap(r) * (index + head) + (index + head) / r
        selected = self.index_heads * (index + 1) + keys
        return (self.num_selected_layers * selected + self.num_pooled_layers * head * (2 * _overlap(p) + 1 / p)) / layers


OVERLAPPING = 128
"""Groups of fewer tokens than these overlap with the group before."""


def _overlap(ratio: int) -> int:
    return 2 if ratio < OVERLAPPING else 1
