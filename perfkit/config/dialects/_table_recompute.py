"""Layers by stage and what is recomputed of them, of every row of a table of plans.

`recompute` says none, selective or full. `full_layers`, `communication` and `swapped_layers` count layers: "8" that many of every
stage, "[3, 0]" by stage, "[[2, 0], [1, 0]]" by chunk and stage, "true" all; `operators` is a JSON object of such counts by pattern.
Selective means the core of attention, in MindSpore Silu and Mul of every layer (what its `select_recompute: True` repeats).
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from itertools import chain
from typing import Any

import numpy as np

from perfkit.config.dialects._table_cells import Cells, coded, filled, said
from perfkit.config.dialects._table_names import RECOMPUTE
from perfkit.core.plan_columns import Coded, Flags, Floats, combined
from perfkit.core.recomputed import SILU_MUL
from perfkit.core.spec.plan import even_layers, slotted_layers
from perfkit.core.spec.recompute import Counts, RecomputePlan

NOT_STATED = -1.0
COUNTED = ("full_layers", "communication", "swapped_layers")


def read_layouts(cells: Cells, layers: Floats, stages: Floats, chunks: Floats) -> Coded[Counts | None]:
    """Layers by chunk and stage where a row states them, or where the embedding and the head count as layers (`slotted_layers`)."""
    texts, switch = cells.texts("layers_per_stage"), cells.switches("embeddings_count_as_layers")
    places = stages * chunks
    slots = (places > 1) & ((layers + 2) % places == 0) & ((switch > 0) | (np.isnan(switch) & (layers % places != 0)))
    shapes = combined(texts, *(coded(np.where(slots, size, 0.0)) for size in (layers, stages, chunks)))
    found: list[Counts | None] = []
    for code, (text, *shape) in enumerate(shapes.values):
        layout = _grid(text) if text else slotted_layers(*map(int, shape)) if shape[0] else None
        if text and layout is None:
            problem = f"{cells.label('layers_per_stage')} = {text!r} must be a list of counts by stage, one a chunk"
            cells.problem(shapes.codes == code, said(problem))
        found.append(layout)
    return Coded(shapes.codes, tuple(found))


def _grid(text: str) -> Counts | None:
    """A list of lists of counts, or one list for one chunk; None if it is neither."""
    value = _json(text)
    rows = value if isinstance(value, list) and value and all(isinstance(row, list) for row in value) else [value]
    good = all(isinstance(row, list) and all(_is_count(count) for count in row) for row in rows)
    return tuple(tuple(row) for row in rows) if good else None


def _json(text: str) -> Any:
    """What the text says in JSON, or None."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def read_recompute(
    cells: Cells, layouts: Coded[Counts | None], sizes: tuple[Floats, Floats, Floats], mindspore: Flags
) -> Coded[RecomputePlan]:
    """The recompute plan of every row; `sizes` are its layers, stages and chunks."""
    kinds, texts = cells.chosen("recompute", RECOMPUTE, ""), [cells.texts(name) for name in (*COUNTED, "operators")]
    switches = [coded(filled(cells.switches(name), NOT_STATED)) for name in ("all_layers", "attention_core")]
    cheap = kinds.is_("selective") & mindspore
    counted = np.any([~text.is_("") for text in texts], axis=0)
    # Only counts depend on the stages: plans without any are the same whatever the stages are.
    shapes = [coded(np.where(cheap | counted, size, 0.0)) for size in sizes]
    placed = Coded(np.where(cheap | counted, layouts.codes, len(layouts.values)), (*layouts.values, None))
    found = combined(kinds, Coded(cheap.astype(np.intp), (False, True)), *switches, *texts, *shapes, placed)
    plans = []
    for code, values in enumerate(found.values):
        try:
            plans.append(_plan(cells, *values))
        except ValueError as error:
            cells.problem(found.codes == code, said(str(error)))
            plans.append(RecomputePlan())
    return Coded(found.codes, tuple(plans))


def _plan(cells: Cells, kind: str, cheap: bool, every: float, core: float, *rest: Any) -> RecomputePlan:
    *texts, layers, stages, chunks, layout = rest
    # A row with fewer layers than places is told by the checks of its plan.
    shape = layout or (even_layers(int(layers), int(stages), int(chunks)) if layers >= stages * chunks > 0 else ())
    named = {name: _counts(cells.label(name), text, shape) for name, text in zip(COUNTED, texts, strict=False)}
    operators = _operators(cells.label("operators"), texts[-1], shape)
    _agree(cells, kind, {"all_layers": every, "attention_core": core}, named, operators)
    if kind == "selective" and core == 0 and not (cheap or operators or any(map(any, chain(*named.values())))):
        label = cells.label("attention_core")
        raise ValueError(f"{cells.label('recompute')} = 'selective' contradicts {label} = 0; nearest is {label} = 1")
    return RecomputePlan(
        all_layers=every > 0 or (kind == "full" and not named["full_layers"]),
        attention_core=core > 0 or (kind == "selective" and core < 0 and not cheap and not operators),
        operators=operators or (dict.fromkeys(SILU_MUL, shape) if cheap else {}),
        **named,
    )


def _agree(
    cells: Cells, kind: str, switches: Mapping[str, float], named: Mapping[str, Counts], operators: Mapping[str, Counts]
) -> None:
    """Raises ValueError where the word for what is recomputed contradicts the switches and counts beside it."""
    label, full, every = cells.label("recompute"), named["full_layers"], cells.label("all_layers")
    switched = [name for name, on in switches.items() if on > 0]
    if kind == "none" and (operators or any(named.values())):
        raise ValueError(f"{label} = 'none' contradicts the layers that are counted; nearest is selective or full")
    if kind == "none" and switched:
        near = "full" if "all_layers" in switched else "selective"
        raise ValueError(
            f"{label} = 'none' contradicts {' and '.join(cells.label(one) + ' = 1' for one in switched)}; nearest is {near}"
        )
    if kind == "full" and full and not any(map(any, full)):
        raise ValueError(f"{label} = 'full' contradicts {cells.label('full_layers')} = 0; nearest is none")
    if kind == "full" and not full and switches["all_layers"] == 0:
        raise ValueError(f"{label} = 'full' contradicts {every} = 0; nearest is {every} = 1")
    if kind == "selective" and switches["all_layers"] > 0:
        raise ValueError(f"{label} = 'selective' contradicts {every} = 1; nearest is full")


def _operators(label: str, text: str, shape: Counts) -> dict[str, Counts]:
    if not text:
        return {}
    value = _json(text)
    if not isinstance(value, dict):
        raise ValueError(f"{label} = {text!r} must be a JSON object of counts by operator")
    for pattern in value:
        _compiled(label, pattern)
    return {pattern: _counts(f"{label} of {pattern}", json.dumps(counts), shape) for pattern, counts in value.items()}


def _compiled(label: str, pattern: str) -> None:
    try:
        for piece in re.split(r"\\\.", pattern):
            re.compile(piece)
    except re.error as error:
        raise ValueError(f"{label}: {pattern!r} is no regular expression: {error}") from error


def _counts(label: str, text: str, shape: Counts) -> Counts:
    """The counts that a cell states, by chunk and stage; those of a whole stage go to its chunks from the first on."""
    if not text or not shape:  # a row without a shape is refused for that
        return ()
    if text.lower() == "true":
        return shape
    grid = _grid(text) if text.startswith("[") else ((int(text),) * len(shape[0]),) if text.isdecimal() else None
    if grid is not None and len(grid) == len(shape) and all(len(row) == len(shape[0]) for row in grid) and text.startswith("[["):
        return _within(label, text, grid, shape)
    if grid is None or len(grid) != 1 or len(grid[0]) != len(shape[0]):
        raise ValueError(f"{label} = {text!r} must be a count, or a list of counts for {len(shape[0])} stages")
    whole = tuple(map(sum, zip(*shape, strict=True)))
    # One count for all stages is beyond those that have fewer layers, but not beyond all.
    _within(label, text, grid if text.startswith("[") else ((grid[0][0],),), (whole,) if text.startswith("[") else ((max(whole),),))
    return _spread(grid[0], shape)


def _within(label: str, text: str, counts: Counts, layers: Counts) -> Counts:
    """The counts, none of them above the layers. Raises ValueError with the nearest right ones."""
    near = [[min(pair) for pair in zip(*rows, strict=True)] for rows in zip(counts, layers, strict=True)]
    if near != [list(row) for row in counts]:
        right = near if text.startswith("[[") else near[0] if text.startswith("[") else near[0][0]
        raise ValueError(f"{label} = {text!r} is more than the layers there; nearest is {right}")
    return counts


def _spread(counts: tuple[int, ...], shape: Counts) -> Counts:
    left, rows = list(counts), []
    for row in shape:
        taken = tuple(min(count, layers) for count, layers in zip(left, row, strict=True))
        left = [count - own for count, own in zip(left, taken, strict=True)]
        rows.append(taken)
    return tuple(rows)
