"""Memory of many plans at once: the peaks of the stages that can be the fullest, plan by plan."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from perfkit.core.plan_columns import Coded, Codes, Flags, Floats, PlanColumns
from perfkit.core.spec.plan import even_layers
from perfkit.predict.memory.peaks import Peaks, StageRows, peaks
from perfkit.predict.memory.settings import MemorySettings
from perfkit.predict.memory.sizes import by_kind, joint_codes
from perfkit.predict.memory.waiting import Layout, Stage, waiting_of

ALL = ("static", "dynamic", "reserved")
CHUNK = 4096
"""Plans at once: few enough for the arrays of a formula to stay in the processor's cache."""


@dataclass(frozen=True, slots=True)
class StagePeaks:
    """Peaks of stages: the position of every row's plan in the table, whether it is the first and the last stage, its peak."""

    plans: Codes
    first: Flags
    last: Flags
    peaks: Peaks

    def fullest(self, amounts: Floats) -> tuple[Codes, Floats]:
        """The plans, and the largest amount of the rows of each."""
        starts = np.flatnonzero(np.diff(self.plans, prepend=-1))
        return self.plans[starts], np.maximum.reduceat(amounts, starts)


def stage_peaks(plans: PlanColumns, settings: Coded[MemorySettings], schedule: str = "1f1b") -> Iterator[StagePeaks]:
    """The peaks of all plans, in pieces; of every plan first and last stage, and those between that can need most."""
    micro_batches = plans.num_micro_batches
    layouts = _layouts(plans, micro_batches, schedule)
    for kind, rows, sizes in by_kind(plans, settings):
        for start in range(0, len(rows), CHUNK):
            own = rows[start : start + CHUNK]
            _, first, codes = np.unique(layouts[own], return_index=True, return_inverse=True)
            plan, found = _stages(plans, micro_batches, own[first], schedule).of(codes)
            ends = found.parts[0]
            yield StagePeaks(own[plan], ends.first > 0, ends.last > 0, peaks(kind, sizes.take(plan + start), found))


def fullest_bytes(
    plans: PlanColumns, settings: Coded[MemorySettings], *counted: tuple[str, ...], schedule: str = "1f1b"
) -> tuple[Floats, ...]:
    """For every tuple of paths the bytes below them of every plan, on the stage that has most of them."""
    found = tuple(np.zeros(len(plans)) for _ in counted)
    for piece in stage_peaks(plans, settings, schedule):
        for paths, amounts in zip(counted, found, strict=True):
            rows, most = piece.fullest(piece.peaks.amount(*paths))
            amounts[rows] = most
    return found


def _layouts(plans: PlanColumns, micro_batches: Floats, schedule: str) -> Codes:
    """A code for everything that decides which layers wait, by plan."""
    p, v, m = plans.pipeline_parallel_size, plans.virtual_pipeline_parallel_size, micro_batches
    # Beyond a few rounds of the pipeline more micro batches change nothing but the remainder.
    shown = np.where((m <= 4 * p) | (schedule == "gpipe"), m, np.where(v > 1, 4 * p + m % p, 4 * p))
    dense = np.where(plans.num_experts > 0, plans.num_dense_layers, plans.num_layers)
    coded = (plans.layers_per_stage, plans.recompute, plans.trained_layers)
    return joint_codes([plans.num_layers, p, v, dense, shown, plans.sequence_chunks, *(column.codes for column in coded)])


@dataclass(frozen=True, slots=True)
class _Stages:
    """The stages of different layouts: `counts` stages of each layout, `starts` where they begin among the rows."""

    rows: StageRows
    starts: Codes
    counts: Codes

    def of(self, layouts: Codes) -> tuple[Codes, StageRows]:
        """The stages of plans with these layouts: the plan of every stage, and the stages."""
        repeats = self.counts[layouts]
        plan = np.repeat(np.arange(len(layouts)), repeats)
        inner = np.arange(len(plan)) - np.repeat(np.cumsum(repeats) - repeats, repeats)
        return plan, self.rows.take(self.starts[layouts][plan] + inner)


def _stages(plans: PlanColumns, micro_batches: Floats, rows: Codes, schedule: str) -> _Stages:
    """The stages of the layouts of some plans."""
    found = [_waiting(plans, int(micro_batches[row]), row, schedule) for row in rows.tolist()]
    counts = np.array([len(stages) for stages in found])
    return _Stages(StageRows.of([stage for stages in found for stage in stages]), np.cumsum(counts) - counts, counts)


def _waiting(plans: PlanColumns, micro_batches: int, row: int, schedule: str) -> tuple[Stage, ...]:
    layers, p, v = (
        int(column[row]) for column in (plans.num_layers, plans.pipeline_parallel_size, plans.virtual_pipeline_parallel_size)
    )
    dense = int(plans.num_dense_layers[row]) if plans.num_experts[row] else layers
    stages = plans.layers_per_stage[row] or even_layers(layers, p, v)
    layout = Layout(stages, dense, plans.recompute[row], plans.trained_layers[row])
    return waiting_of(layout, schedule, micro_batches, int(plans.sequence_chunks[row]), all_stages=False)
