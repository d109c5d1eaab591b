"""Recomputation of the plans of a table: how many layers of every stage repeat all, Silu and Mul, or what was gathered.

`recompute` says none, selective or full; `recompute_detail` may count layers by stage, as MindFormers writes them
(`recompute=[3, 0]; select_recompute=[8, 4]; select_comm_recompute=True`) or in words ("4 layers of stage 0 and none of stage 1").
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache

import numpy as np

from perfkit.core.plan_columns import Floats
from perfkit.predict.cost._table_cells import Cells
from perfkit.predict.cost._table_sizes import Sizes

RECOMPUTE = ("none", "selective", "full")
EVERY = (1_000_000,)
SILU_MUL_TRAFFIC = 5.0
"""Silu reads one tensor and writes one, Mul reads two and writes one."""

_WORDS = re.compile(r"(\d{1,4}|none)(?: layers)? of stage")
_LISTS = re.compile(r"(?<![a-z_])(recompute|select_recompute|select_comm_recompute)=(\[[\d, ]*\]|True)")
_REST = "Silu and Mul on the rest"


@dataclass(frozen=True, slots=True)
class StageCounts:
    """Layers by pipeline stage that repeat all, Silu and Mul, and gathers; empty where nothing is said, `EVERY` for all."""

    full: tuple[int, ...] = ()
    select: tuple[int, ...] = ()
    gathers: tuple[int, ...] = ()


@cache
def stage_counts(detail: str) -> StageCounts:
    """The counts that a text of `recompute_detail` states."""
    found = {name: EVERY if value == "True" else _numbers(value) for name, value in _LISTS.findall(detail)}
    full = found.get("recompute", ()) or tuple(0 if word == "none" else int(word) for word in _WORDS.findall(detail))
    select = found.get("select_recompute", ()) or (EVERY if _REST in detail else ())
    return StageCounts(full, select, found.get("select_comm_recompute", ()))


def read_recompute(cells: Cells, sizes: Sizes) -> dict[str, Floats]:
    """The columns of `CostColumns` about recomputation: those of the stage that repeats most of its layers.

    Selective means the attention core, on Ascend Silu and Mul (what MindFormers' `select_recompute` repeats by default).
    """
    codes, words = cells.chosen("recompute", RECOMPUTE, "none")
    details, texts = cells.words("recompute_detail")
    ascend = cells.flags("accelerator", lambda name: name.lower().startswith("ascend"))
    counts = [stage_counts(text) for text in texts]
    layers = np.maximum(sizes["layers"] / sizes["pp"], 1.0)
    is_full, is_selective = (np.array([word == name for word in words])[codes] for name in ("full", "selective"))
    listed = np.array([bool(count.full) for count in counts])[details]
    full = np.where(listed, _share([count.full for count in counts], details, layers), 1.0) * is_full
    selected = np.array([bool(count.select) for count in counts])[details] & ascend
    select = np.where(selected, _share([count.select for count in counts], details, layers), 1.0 * (is_selective & ascend))
    gathers = _share([count.gathers for count in counts], details, layers)
    rest = np.maximum(select - full, 0.0)
    width = np.where(sizes["experts"] > 0, sizes["expert_ffn_hidden"] * sizes["experts_per_token"], sizes["ffn_hidden"])
    zeros = np.zeros(len(full))
    return {
        "recompute_full": full,
        "recompute_core": np.where(is_selective & ~ascend, 1.0, 0.0),
        "recompute_extra": zeros,
        "recompute_gathers": np.maximum(gathers - full, 0.0),
        "recompute_mean": np.where(listed & (full > 0), np.array([_evenness(count.full) for count in counts])[details], 1.0),
        "light_split": rest * SILU_MUL_TRAFFIC * 2 * width,
        "light_whole": zeros,
    }


def _share(counts: list[tuple[int, ...]], details: np.ndarray[tuple[int, ...], np.dtype[np.intp]], layers: Floats) -> Floats:
    """Share of the layers of the stage with the largest count."""
    most = np.array([max(count, default=0) for count in counts], dtype=np.float64)[details]
    return np.asarray(np.minimum(most / layers, 1.0))


def _evenness(counts: tuple[int, ...]) -> float:
    return sum(counts) / (len(counts) * max(counts)) if max(counts, default=0) else 1.0


def layer_counts(counts: tuple[int, ...], stage_layers: tuple[tuple[int, ...], ...]) -> tuple[tuple[int, ...], ...]:
    """Counts by chunk and stage: as stated for every stage, spread over its chunks from the first on."""
    found = [[0] * len(row) for row in stage_layers]
    for stage in range(len(stage_layers[0])):
        left = counts[min(stage, len(counts) - 1)] if counts else 0
        for chunk, row in enumerate(stage_layers):
            found[chunk][stage] = min(left, row[stage])
            left -= found[chunk][stage]
    return tuple(map(tuple, found))


def _numbers(text: str) -> tuple[int, ...]:
    return tuple(int(number) for number in re.findall(r"\d+", text))


SILU_MUL: Mapping[str, str] = {"mul": r"feed_forward\.mul", "silu": r"feed_forward\.w1\.activation\.silu"}
"""What `select_recompute` repeats by default."""
