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

from perfkit.core.plan_columns import Coded, Floats
from perfkit.predict.cost._table_cells import Cells, said
from perfkit.predict.cost._table_sizes import Sizes
from perfkit.predict.cost.stage_layers import StageLayers

RECOMPUTE = ("none", "selective", "full")
EVERY = (1_000_000,)
MOST_CHUNKS = 4096
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


def read_stages(cells: Cells, sizes: Sizes, swapped: Floats) -> Coded[StageLayers]:
    """Layers by stage, what they compute again, and those of the rest whose `swapped` bytes a token go to the host.

    Selective means the attention core, on Ascend Silu and Mul (what MindFormers' `select_recompute` repeats by default).
    """
    codes, words = cells.chosen("recompute", RECOMPUTE, "none")
    details, texts = cells.words("recompute_detail")
    ascend = cells.flags("accelerator", lambda name: name.lower().startswith("ascend"))
    width = np.where(sizes["experts"] > 0, sizes["expert_ffn_hidden"] * sizes["experts_per_token"], sizes["ffn_hidden"])
    chunks = sizes["pp"] * sizes["vpp"]
    placed = (chunks >= 1) & (chunks <= np.minimum(sizes["layers"], MOST_CHUNKS))
    cells.problem(~placed, said(f"pp x vpp: there must be as many layers, and at most {MOST_CHUNKS} chunks"))
    split = [np.where(placed, sizes[name], 1.0) for name in ("layers", "pp", "vpp")]
    keys = np.stack([*split, codes, details, ascend, width * ascend, *swapped], axis=1)
    found, places = np.unique(np.nan_to_num(keys), axis=0, return_inverse=True)
    values = tuple(
        _stages(
            (layers, stages, chunks),
            words[int(word)],
            texts[int(detail)],
            width=wide,
            ascend=bool(is_ascend),
            swapped=(count, kept),
        )
        for layers, stages, chunks, word, detail, is_ascend, wide, count, kept in found.tolist()
    )
    return Coded(places.ravel(), values)


def _stages(
    sizes: tuple[float, float, float], word: str, detail: str, *, width: float, ascend: bool, swapped: tuple[float, float]
) -> StageLayers:
    counts = split_layers(int(sizes[0]), max(1, int(sizes[1])), max(1, int(sizes[2])))
    stated = stage_counts(detail)
    none = tuple((0,) * len(row) for row in counts)
    full = (layer_counts(stated.full, counts) if stated.full else counts) if word == "full" else none
    silu = ascend and (word == "selective" or bool(stated.select))
    select = none if not silu else layer_counts(stated.select, counts) if stated.select else counts
    gathers = layer_counts(stated.gathers, counts) if stated.gathers else none
    n, f, e, g = (np.array(rows, dtype=np.float64) for rows in (counts, full, select, gathers))
    rest = np.maximum(e - f, 0.0)
    core = (n - f) * (word == "selective" and not ascend)
    zero = np.zeros_like(n)
    away = np.minimum(swapped[0], n - f) * swapped[1]
    return StageLayers(np.stack([n, f, core, zero, np.maximum(g - f, 0.0), rest * SILU_MUL_TRAFFIC * 2 * width, zero, away]))


def layer_counts(counts: tuple[int, ...], stage_layers: tuple[tuple[int, ...], ...]) -> tuple[tuple[int, ...], ...]:
    """Counts by chunk and stage: as stated for every stage, spread over its chunks from the first on."""
    found = [[0] * len(row) for row in stage_layers]
    for stage in range(len(stage_layers[0])):
        left = counts[min(stage, len(counts) - 1)] if counts else 0
        for chunk, row in enumerate(stage_layers):
            found[chunk][stage] = min(left, row[stage])
            left -= found[chunk][stage]
    return tuple(map(tuple, found))


def split_layers(layers: int, stages: int, chunks: int) -> tuple[tuple[int, ...], ...]:
    """As the reader of tables had it."""
    if layers % stages == 0:
        each = [layers // stages] * stages
    elif stages > 2 and (layers + 2) % stages == 0:
        each = [(layers + 2) // stages - (s in (0, stages - 1)) for s in range(stages)]
    else:
        split, extra = divmod(layers, stages)
        each = [split + (0 < s < stages - 1 and s - 1 < extra) for s in range(stages)]
        each[0] += layers - sum(each)
    return tuple(tuple(n // chunks + (c < n % chunks) for n in each) for c in range(chunks))


def _numbers(text: str) -> tuple[int, ...]:
    return tuple(int(number) for number in re.findall(r"\d+", text))


SILU_MUL: Mapping[str, str] = {"mul": r"feed_forward\.mul", "silu": r"feed_forward\.w1\.activation\.silu"}
"""What `select_recompute` repeats by default."""
