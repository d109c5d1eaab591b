"""MindSpeed-Core-MS' layer and recompute lists as counts: one list of a number a stage, with virtual chunks one such list a chunk.

The lists count disjoint layers: first `recompute` in full; of the next ones min(select, comm) get both, the rest of the larger one
only that. A select layer repeats the activation of the feed-forward under flash attention, else the attention core.
"""

from __future__ import annotations

import ast
from typing import Any

from perfkit.config.dialects._section import HIGHEST, Section, shown
from perfkit.core.spec.recompute import Counts, RecomputePlan

KEYS = ("recompute", "select_recompute", "select_comm_recompute")
ACTIVATION = (r"feed_forward\.w1\.activation",)
CORE = (r"attention\.batch_matmul_q_k", r"attention\.softmax", r"attention\.batch_matmul")
MAX_TEXT = 10_000


def num_chunks(parallel: Section, num_layers: int, num_stages: int) -> int:
    """Virtual chunks a stage; the number of layers of a chunk may be given in their place."""
    each = parallel.integer("num_layers_per_virtual_pipeline_stage", default=0)
    chunks = parallel.positive_int("virtual_pipeline_model_parallel_size", default=0)
    if not each:
        return chunks or 1
    found = num_layers // (num_stages * each)
    if num_layers % (num_stages * each) or (chunks and chunks != found):
        parallel.reading.problem(
            parallel.path("num_layers_per_virtual_pipeline_stage"),
            f"{num_layers} layers on {num_stages} stages in chunks of {each} make {num_layers / (num_stages * each):.6g} chunks"
            + (f", virtual_pipeline_model_parallel_size says {chunks}" if chunks else ""),
        )
        return chunks or 1
    return found


def stage_layers(parallel: Section, num_layers: int, num_stages: int, chunks: int) -> Counts | None:
    """Layers of every chunk and stage; None after a problem."""
    rows = _rows(parallel, "num_layer_list", num_stages, chunks)
    if rows is None:
        return None
    if not rows:
        if num_layers % (num_stages * chunks):
            parallel.reading.problem(
                parallel.path("pipeline_model_parallel_size"),
                f"{num_layers} layers are not divisible by {num_stages} stages x {chunks} chunks; give num_layer_list",
            )
            return None
        return ((num_layers // (num_stages * chunks),) * num_stages,) * chunks
    total = sum(map(sum, rows))
    if total != num_layers:
        parallel.reading.problem(
            parallel.path("num_layer_list"),
            f"{shown([list(row) for row in rows])} places {total} layers, the model has {num_layers}",
        )
        return None
    return rows


def recompute_plan(parallel: Section, layers: Counts, *, flash: bool) -> RecomputePlan | None:
    """The recompute lists as a plan, in its counting: select and communication include the full layers. None after a problem."""
    section = parallel.section("recompute_config")
    section.only(KEYS)
    found = {}
    for key in KEYS:
        inside = section.has(key)
        if inside and parallel.has(key):
            parallel.reading.problem(parallel.path(key), f"stands in {section.path(key)} too; give one of them")
        found[key] = _rows(section if inside else parallel, key, len(layers[0]), len(layers))
    if any(rows is None for rows in found.values()):
        return None
    none = tuple((0,) * len(row) for row in layers)
    full, select, comm = (found[key] or none for key in KEYS)
    for key, rows in zip(KEYS, (none, select, comm), strict=True):
        _within(parallel, key, full, rows, layers)
    everywhere, chosen = full == layers, _sum(full, select)
    core = not flash and chosen == layers and not everywhere
    return RecomputePlan(
        all_layers=everywhere,
        full_layers=() if everywhere else full,
        operators=dict.fromkeys(ACTIVATION if flash else CORE, chosen) if any(map(any, select)) and not core else {},
        attention_core=core,
        communication=_sum(full, comm) if any(map(any, comm)) else (),
    )


def _within(parallel: Section, key: str, full: Counts, more: Counts, layers: Counts) -> None:
    for chunk, row in enumerate(_sum(full, more)):
        for stage, count in enumerate(row):
            if count > layers[chunk][stage]:
                what = "recompute" if key == "recompute" else f"recompute + {key}"
                place = f"stage {stage}, chunk {chunk}" if len(layers) > 1 else f"stage {stage}"
                parallel.reading.problem(
                    f"{parallel.name}.recompute_config.{key}",
                    f"{place}: {what} = {count} of {layers[chunk][stage]} layers",
                )


def _rows(section: Section, key: str, num_stages: int, chunks: int) -> Counts | None:
    """A list as rows, empty where there is none; None after a problem. Texts hold a Python list."""
    value = section.raw(key)
    if isinstance(value, str):
        value = _literal(value)
    if value is None or value == []:
        return ()
    wanted = f"a list of {num_stages} counts" if chunks == 1 else f"{chunks} lists of {num_stages} counts, one a chunk"
    rows = value if isinstance(value, list) and value and isinstance(value[0], list | tuple) else [value]
    good = isinstance(value, list) and (chunks == 1 or len(rows) > 1 or isinstance(value[0], list | tuple))
    if not good or len(rows) != chunks or any(not _is_row(row, num_stages) for row in rows):
        section.reading.problem(section.path(key), f"{shown(section.values.get(key))} must be {wanted}, whole and not negative")
        return None
    return tuple(tuple(row) for row in rows)


def _is_row(row: Any, length: int) -> bool:
    whole = isinstance(row, list | tuple) and all(isinstance(item, int) and not isinstance(item, bool) for item in row)
    return whole and len(row) == length and all(0 <= item <= HIGHEST for item in row)


def _literal(text: str) -> Any:
    """A Python list in a text; the text itself if it is none."""
    try:
        found = ast.literal_eval(text) if len(text) <= MAX_TEXT else text
    except (ValueError, SyntaxError, RecursionError, MemoryError):
        return text
    return list(found) if isinstance(found, tuple) else found


def _sum(one: Counts, other: Counts) -> Counts:
    return tuple(tuple(a + b for a, b in zip(row, more, strict=True)) for row, more in zip(one, other, strict=True))
