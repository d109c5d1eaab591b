"""What a plan leaves open is solved: the micro batch, the chunks of a stage and the recomputation of the fastest plan that fits.

A published or tuned run has them, so that a default would be wrong in one direction. Tried is what a search tries: micro batches of
1 to 8, chunks among which layers spread evenly, no recomputation, the cheap one of the program, and as few layers of every chunk in
full as fit. Where nothing fits it is what needs least memory. Files of training programs leave nothing open: what they do not say
is what their program does then. The default calibration decides, so that a plan is the same whatever it is predicted with.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass, replace
from typing import TypeVar

import numpy as np
import pandas as pd

from perfkit.config.dialects import table as tables
from perfkit.config.dialects.table import AGAIN, CHUNKS, MICRO, OPEN, PlanTable
from perfkit.core.plan_columns import FIELDS, Coded, Codes, Flags, Floats, PlanColumns, combined
from perfkit.core.recomputed import SILU_MUL
from perfkit.core.spec.hardware import HardwareSpec
from perfkit.core.spec.plan import Plan, even_layers, slotted_layers, usable_limit
from perfkit.core.spec.recompute import Counts, RecomputePlan
from perfkit.predict.cost.cost_columns import cost_columns, unpriced
from perfkit.predict.cost.labels import labels_of
from perfkit.predict.cost.step_time import seconds
from perfkit.predict.memory.settings import settings_of
from perfkit.predict.memory.table import ALL, fullest_bytes
from perfkit.predict.plans.search.strategy_space import MICRO_BATCHES, MOST_CHUNKS

OWN, CHEAP, NONE = -2.0, -1.0, 0.0
"""What is recomputed: as the plan says, the cheap kind of its program, nothing; above that so many layers of every chunk."""
T = TypeVar("T", bound=Hashable)
FASTEST, NOTHING = ", the fastest that fits", ", as nothing fits"
SOLVED = ("micro_batch_size", "virtual_pipeline_parallel_size", "layers_per_stage", "recompute")
PIECE = 1024
"""Plans solved at once; each is tried in tens of ways."""
DECISIVE = tuple(name for name in FIELDS if name != "model_name")


def read_table(frame: pd.DataFrame, devices: Mapping[str, HardwareSpec] | None = None, limit_source: str = "") -> PlanTable:
    """The plans of a table (`perfkit.config.dialects.table.read_table`) with what its rows leave open solved, and that told."""
    table = tables.read_table(frame, devices, limit_source)
    plans, fits = settled(table.plans, table.is_open)
    told = {row: list(notes) for row, notes in table.assumed.items()}
    for name in OPEN:
        for place in np.flatnonzero(table.is_open[name]).tolist():
            told.setdefault(int(table.rows[place]), []).append(
                _told(plans, place, name, table.labels[name], fits=bool(fits[place]))
            )
    problems = {row: list(notes) for row, notes in table.problems.items()}
    lacking = unpriced(table.refused)
    for place, row in enumerate(sorted(problems)):
        problems[row] += lacking.get(place, ()) if table.refused.hardware[place] else ()  # no device is a problem already
    return replace(table, plans=plans, assumed=_fixed(told), problems=_fixed(problems))


def _fixed(notes: Mapping[int, list[str]]) -> dict[int, tuple[str, ...]]:
    return {row: tuple(texts) for row, texts in notes.items()}


def solved(plan: Plan) -> Plan:
    """The plan with what its document leaves open solved, and that told."""
    document = plan.document
    columns = PlanColumns.of([plan])
    found, fits = settled(columns, {name: np.array([name in document.is_open]) for name in OPEN})
    before = (note for note in document.defaulted if not note.endswith((FASTEST, NOTHING)))
    notes = (_told(found, 0, name, document.is_open[name], fits=bool(fits[0])) for name in document.is_open)
    return replace(found.plan(0), document=replace(document, defaulted=(*before, *notes)))


def settled(plans: PlanColumns, is_open: Mapping[str, Flags]) -> tuple[PlanColumns, Flags]:
    """The plans with their open fields solved, and which fit; one that cannot be priced stays as it is."""
    rows = np.any([is_open[name] for name in OPEN], axis=0)
    rows[list(unpriced(plans))] = False
    where, fits, solved_as = np.flatnonzero(rows), np.ones(len(plans), dtype=bool), np.arange(len(plans))
    first, places = _stated_alike(plans.take(where), {name: flags[where] for name, flags in is_open.items()})
    different = where[first]
    solved_as[where] = different[places]
    for start in range(0, len(different), PIECE):
        part = different[start : start + PIECE]
        found, fits[part] = _fastest(plans.take(part), {name: flags[part] for name, flags in is_open.items()})
        plans = replace(
            plans,
            micro_batch_size=_put(plans.micro_batch_size, part, found.micro_batch_size),
            virtual_pipeline_parallel_size=_put(plans.virtual_pipeline_parallel_size, part, found.virtual_pipeline_parallel_size),
            layers_per_stage=_put_coded(plans.layers_per_stage, part, found.layers_per_stage),
            recompute=_put_coded(plans.recompute, part, found.recompute),
        )
    taken = {name: getattr(plans, name) for name in SOLVED} if len(different) < len(where) else {}
    for name, column in taken.items():
        taken[name] = Coded(column.codes[solved_as], column.values) if isinstance(column, Coded) else column[solved_as]
    return replace(plans, **taken), fits[solved_as]


def _stated_alike(plans: PlanColumns, is_open: Mapping[str, Flags]) -> tuple[Codes, Codes]:
    """One position of every different set of stated settings, and which of them each plan has."""
    _, places = plans.different(DECISIVE)
    for name in OPEN:
        places = 2 * places + is_open[name]
    _, first, places = np.unique(places, return_index=True, return_inverse=True)
    return first, places


def _told(plans: PlanColumns, place: int, name: str, label: str, *, fits: bool) -> str:
    """What was taken for an open field of a plan, and why."""
    value = f"{label} = {getattr(plans, name)[place]:g}" if name != AGAIN else _again(plans.recompute[place], label)
    return value + (FASTEST if fits else NOTHING)


def _again(recompute: RecomputePlan, label: str) -> str:
    if recompute.full_layers:
        return f"full_layers = {max(map(max, recompute.full_layers))}"
    return f"{label} = {'full' if recompute.all_layers else 'selective' if recompute != RecomputePlan() else 'none'}"


def _put(values: Floats, where: Codes, new: Floats) -> Floats:
    values = values.copy()
    values[where] = new
    return values


def _put_coded(column: Coded[T], where: Codes, new: Coded[T]) -> Coded[T]:
    codes = column.codes.copy()
    codes[where] = len(column.values) + new.codes
    return Coded(codes, (*column.values, *new.values))


@dataclass(frozen=True, slots=True)
class _Ways:
    """Ways to complete plans: the plan's position, its micro batch and chunks, and what it recomputes."""

    rows: Codes
    micro: Floats
    chunks: Floats
    again: Floats

    def take(self, kept: Codes | Flags) -> _Ways:
        return _Ways(self.rows[kept], self.micro[kept], self.chunks[kept], self.again[kept])

    def plans(self, of: PlanColumns) -> PlanColumns:
        """The plans completed."""
        found = of.take(self.rows)
        sizes = (found.num_layers, found.pipeline_parallel_size, self.chunks)
        said = combined(*(Coded.of(column.astype(int).tolist()) for column in sizes), found.layers_per_stage)
        layouts = Coded(said.codes, tuple(_layout(*values) for values in said.values))
        again = combined(said, layouts, Coded.of(self.again.tolist()), found.attention_kernel, found.recompute)
        return replace(
            found,
            micro_batch_size=self.micro,
            virtual_pipeline_parallel_size=self.chunks,
            layers_per_stage=layouts,
            recompute=Coded(again.codes, tuple(_recompute(*values) for values in again.values)),
        )


def _layout(layers: int, stages: int, chunks: int, own: Counts | None) -> Counts | None:
    """The layout of so many chunks: the plan's own where it has them, else one of its kind."""
    return own if own is None or len(own) == chunks else slotted_layers(layers, stages, chunks)


def _recompute(
    sizes: tuple[int, int, int, Counts | None], layout: Counts | None, again: float, kernel: str, own: RecomputePlan
) -> RecomputePlan:
    if again == OWN:
        return own
    shape = layout or even_layers(*sizes[:3])
    if again == CHEAP:
        return (
            RecomputePlan(attention_core=True) if kernel == "unfused" else RecomputePlan(operators=dict.fromkeys(SILU_MUL, shape))
        )
    if again == NONE:
        return RecomputePlan()
    if again >= max(map(max, shape)):
        return RecomputePlan(all_layers=True)
    return RecomputePlan(full_layers=tuple(tuple(min(int(again), count) for count in row) for row in shape))


def _joined(ways: _Ways, more: _Ways) -> _Ways:
    pairs = ((ways.micro, more.micro), (ways.chunks, more.chunks), (ways.again, more.again))
    return _Ways(np.concatenate((ways.rows, more.rows)), *map(np.concatenate, pairs))


def _fastest(plans: PlanColumns, is_open: Mapping[str, Flags]) -> tuple[PlanColumns, Flags]:
    from perfkit.predict.calibration.file import calibration  # noqa: PLC0415  whose package measures rows that are completed here

    ways = _divided(plans, is_open)
    limit = _limits(plans)
    peak = _peaks(plans, ways)
    short = np.flatnonzero((ways.again == NONE) & (peak > limit[ways.rows]))
    for found in (_cheap(plans, ways.take(short)), _least_full(plans, ways.take(short), limit)):
        ways = _joined(ways, found)
        peak = np.concatenate((peak, _peaks(plans, found)))
    fits = peak <= limit[ways.rows]
    # Where nothing fits the run that was made has the least of each number of chunks, and the fastest of those.
    lost = ~np.isin(ways.rows, ways.rows[fits])
    order = np.lexsort((peak, ways.chunks, ways.rows))
    _, first = np.unique(np.stack((ways.rows, ways.chunks))[:, order], axis=1, return_index=True)
    fits[order[first]] |= lost[order[first]]
    lost = lost[fits]
    ways, peak = ways.take(fits), peak[fits]
    tried = ways.plans(plans)
    time = seconds(cost_columns(tried), calibration("default").efficiency(labels_of(tried)))
    order = np.lexsort((peak, time, ways.rows))
    _, first = np.unique(ways.rows[order], return_index=True)
    return tried.take(order[first]), ~lost[order[first]]


def _divided(plans: PlanColumns, is_open: Mapping[str, Flags]) -> _Ways:
    """Every open micro batch and number of chunks that the plan's sizes allow, without recomputation where that is open."""
    p, once = plans.pipeline_parallel_size, plans.data_parallel_size * plans.micro_batch_interleave_size
    counted = plans.recompute.flags(lambda recompute: any(recompute.named_counts.values()))
    slots = plans.layers_per_stage.flags(_is_slotted)
    free = is_open[CHUNKS] & (plans.layers_per_stage.is_(None) | slots) & (is_open[AGAIN] | ~counted)
    placed = plans.num_layers + 2 * slots
    waits = ~plans.program.is_("megatron", "deepspeed")
    found = []
    for size in (0, *MICRO_BATCHES):
        micro = plans.micro_batch_size if size == 0 else np.full(len(plans), float(size))
        count = plans.global_batch_size / (once * micro)
        fitting = (count == np.floor(count)) & ((count >= p) | ~waits | (micro == 1))
        fitting = np.where(is_open[MICRO], fitting & (size > 0), size == 0)
        for number in range(MOST_CHUNKS + 1):
            chunks = np.full(len(plans), float(number)) if number else plans.virtual_pipeline_parallel_size
            even = (chunks == 1) | ((placed % (p * chunks) == 0) & (count % p == 0))
            rows = np.flatnonzero(fitting & np.where(free, even & (number > 0), number == 0))
            found.append((rows, micro[rows], chunks[rows]))
    rows, micro, chunks = (np.concatenate(parts) for parts in zip(*found, strict=True))
    return _Ways(rows, micro, chunks, np.where(is_open[AGAIN][rows], NONE, OWN))


def _is_slotted(layout: Counts | None) -> bool:
    """Whether the embedding and the head count as layers of an even split, in one chunk."""
    return layout is not None and len(layout) == 1 and layout == slotted_layers(sum(layout[0]), len(layout[0]), 1)


def _cheap(plans: PlanColumns, ways: _Ways) -> _Ways:
    """The ways that have a cheap recomputation, with it."""
    unfused, gated = plans.attention_kernel.is_("unfused"), plans.gated_ffn & plans.program.is_("mindspore")
    ways = ways.take((unfused | gated)[ways.rows])
    return replace(ways, again=np.full(len(ways.rows), CHEAP))


def _least_full(plans: PlanColumns, ways: _Ways, limit: Floats) -> _Ways:
    """The ways with the fewest layers of every chunk recomputed in full that fit; all of them where not even those do."""
    places = plans.pipeline_parallel_size[ways.rows] * ways.chunks
    most = np.ceil(plans.num_layers[ways.rows] / places)
    laid = plans.layers_per_stage.numbers(lambda layout: max(map(max, layout)) if layout else 0)[ways.rows]
    low, high = np.ones(len(places)), np.maximum(most, laid)
    while (left := np.flatnonzero(low < high)).size:
        middle = np.floor((low + high)[left] / 2)
        fits = _peaks(plans, replace(ways.take(left), again=middle)) <= limit[ways.rows[left]]
        high[left[fits]], low[left[~fits]] = middle[fits], middle[~fits] + 1
    return replace(ways, again=high)


def _limits(plans: PlanColumns) -> Floats:
    found = combined(plans.memory_limit, plans.hardware, plans.program)
    limits = Coded(found.codes, tuple(usable_limit(*values) for values in found.values))
    return limits.numbers(lambda limit: np.inf if limit is None else limit.limit_bytes or 1)


def _peaks(plans: PlanColumns, ways: _Ways) -> Floats:
    tried = ways.plans(plans)
    return fullest_bytes(tried, settings_of(tried), ALL)[0]
