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
    layout = _layouts(plans, schedule)
    for kind, rows, sizes in by_kind(plans, settings):
        for start in range(0, len(rows), CHUNK):
            own = rows[start : start + CHUNK]
            stages, counts, codes = _stages(plans, layout[own], own, schedule)
            repeats = counts[codes]
            plan = np.repeat(np.arange(len(own)), repeats)
            inner = np.arange(len(plan)) - np.repeat(np.cumsum(repeats) - repeats, repeats)
            found = stages.take((np.cumsum(counts) - counts)[codes][plan] + inner)
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


def _layouts(plans: PlanColumns, schedule: str) -> Codes:
    """A code for everything that decides which layers wait, by plan."""
    p, v, m = plans.pipeline_parallel_size, plans.virtual_pipeline_parallel_size, plans.num_micro_batches
    # Beyond a few rounds of the pipeline more micro batches change nothing but the remainder.
    shown = np.where((m <= 4 * p) | (schedule == "gpipe"), m, 4 * p + m % p)
    dense = np.where(plans.num_experts > 0, plans.num_dense_layers, plans.num_layers)
    return joint_codes(
        [plans.num_layers, p, v, dense, shown, plans.sequence_chunks, plans.layers_per_stage.codes, plans.recompute.codes]
    )


def _stages(plans: PlanColumns, codes: Codes, rows: Codes, schedule: str) -> tuple[StageRows, Codes, Codes]:
    """The stages of all layouts of some plans, how many of them each layout has, and every plan's layout."""
    _, first, own = np.unique(codes, return_index=True, return_inverse=True)
    found: list[Stage] = []
    counts = []
    for row in rows[first].tolist():
        stages = _waiting(plans, row, schedule)
        found += stages
        counts.append(len(stages))
    return StageRows.of(found), np.array(counts), own


def _waiting(plans: PlanColumns, row: int, schedule: str) -> tuple[Stage, ...]:
    layers, p, v = (
        int(plans.num_layers[row]),
        int(plans.pipeline_parallel_size[row]),
        int(plans.virtual_pipeline_parallel_size[row]),
    )
    dense = int(plans.num_dense_layers[row]) if plans.num_experts[row] else layers
    layout = Layout(plans.layers_per_stage[row] or even_layers(layers, p, v), dense, plans.recompute[row])
    return waiting_of(layout, schedule, int(plans.num_micro_batches[row]), int(plans.sequence_chunks[row]), all_stages=False)
