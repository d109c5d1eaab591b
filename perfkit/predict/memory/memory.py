"""Memory: the peak of one device by pipeline stage, what it is made of, and when in the step it happens.

The peak is the largest of three moments (`perfkit.predict.memory.peaks`); its leaves sum to it. `static` stays from step to step,
`dynamic` comes and goes, `reserved` is what the allocator and the driver hold beyond the tensors. Activations are those of arXiv
2205.05198 in flight by the exact order of the schedule.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache

from perfkit.core.breakdown import Breakdown
from perfkit.core.source import Source
from perfkit.core.spec.plan import Plan
from perfkit.predict.memory.activations import micro_batch, tensors_of
from perfkit.predict.memory.peaks import MOMENTS, Peaks, StageRows, peaks
from perfkit.predict.memory.settings import MemorySettings, settings_for
from perfkit.predict.memory.sizes import of_plan
from perfkit.predict.memory.static import StageParameters, StaticBytes, stage_parameters, static_bytes
from perfkit.predict.memory.waiting import Layout, kept_by, layout_of, parts_of, waiting_of

SOURCE = Source("computed", "perfkit.predict.memory.peak_memory", "tensors of the largest moment of a step, by stage")


@dataclass(frozen=True)
class MemoryEstimate:
    """The peak in bytes of the fullest stage (`peak`) and of every stage (`stages`), and the moment when it happens, in words."""

    settings: MemorySettings
    _peaks: Peaks = field(repr=False)

    @cached_property
    def stages(self) -> tuple[Breakdown, ...]:
        """The peak of every stage."""
        return tuple(self._stage(index) for index in range(len(self._peaks.moments)))

    @cached_property
    def fullest_stage(self) -> int:
        """The stage (0-based) that needs most."""
        return int(self._peaks.amounts.sum(axis=0).argmax())

    @cached_property
    def peak(self) -> Breakdown:
        """The peak of the fullest stage."""
        return self._stage(self.fullest_stage)

    @property
    def moments(self) -> tuple[str, ...]:
        """When every stage reaches its peak."""
        return tuple(MOMENTS[moment] for moment in self._peaks.moments)

    @property
    def moment(self) -> str:
        """When the fullest stage reaches its peak."""
        return self.moments[self.fullest_stage]

    def fits(self, limit_bytes: float) -> bool:
        """Whether every stage stays within `limit_bytes`."""
        return self.peak.total <= limit_bytes

    def _stage(self, index: int) -> Breakdown:
        amounts = zip(self._peaks.paths, self._peaks.amounts[:, index].tolist(), strict=True)
        return Breakdown("bytes", {path: int(amount) for path, amount in amounts if amount}, SOURCE)


def peak_memory(plan: Plan, *, schedule: str = "1f1b", settings: MemorySettings | None = None) -> MemoryEstimate:
    """The memory that a device of every stage needs at its peak, in bytes.

    `schedule` is gpipe, 1f1b (interleaved if the plan has virtual stages), zbh1, vpp, vpp_lm or dualpipe. `settings` are those of
    the framework that the plan's file was written for unless given. Raises InputError for a schedule that does not fit.
    """
    settings = settings or settings_for(plan)
    kind, sizes = of_plan(plan, settings)
    rows = _rows(layout_of(plan), schedule, plan.num_micro_batches, plan.parallel.sequence_chunks)
    return MemoryEstimate(settings, peaks(kind, sizes, rows))


def chunk_activations(plan: Plan, settings: MemorySettings, chunk: int, stage: int) -> dict[str, float]:
    """Bytes by part that the layers of one chunk of a stage keep of one micro batch, with recomputation and swapping."""
    kind, sizes = of_plan(plan, settings)
    batch, kept = micro_batch(kind, sizes), kept_by(layout_of(plan), chunk, stage)
    found = {"recomputed_layers": float(kept.full * batch.split)} if kept.full else {}
    for load, count in kept.loads.items():
        tensors = tensors_of(replace(kind, in_frozen_layer=load.frozen), sizes, batch, experts=load.experts)
        for part, amount in load.kept(tensors).items():
            found[part] = found.get(part, 0.0) + float(count * amount)
    return found


def parameters_of(plan: Plan, settings: MemorySettings, stage: int) -> StageParameters:
    """The parameters of a device of `stage` (0-based)."""
    return stage_parameters(*of_plan(plan, settings), parts_of(layout_of(plan))[stage])


def static_of(plan: Plan, settings: MemorySettings, stage: int) -> StaticBytes:
    """What a device of `stage` (0-based) holds from step to step, in bytes."""
    part = parts_of(layout_of(plan))[stage]
    return static_bytes(*of_plan(plan, settings), part, parameters_of(plan, settings, stage))


@lru_cache(maxsize=4096)
def _rows(layout: Layout, schedule: str, micro_batches: int, pieces: int) -> StageRows:
    return StageRows.of(waiting_of(layout, schedule, micro_batches, pieces))
