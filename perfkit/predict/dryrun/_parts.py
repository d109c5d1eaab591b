"""Parts of a predicted peak that a log can tell apart, and which stage a rank belongs to.

What the framework's statistic counts is inside its pool: the driver's context and the gaps between blocks are left out.
"""

from __future__ import annotations

from dataclasses import dataclass

from perfkit.core.breakdown import Breakdown
from perfkit.core.errors import InputError
from perfkit.core.spec.plan import Plan
from perfkit.predict.memory.memory import MemoryEstimate

STATIC, ACTIVATIONS, ENDS, OTHERS = "static", "activations", "ends", "others"
PARTS = (STATIC, ACTIVATIONS, ENDS, OTHERS)
_OF_LAYERS = ("norm", "attention", "ffn", "experts", "recomputed_layers")
_OF_ENDS = ("dynamic/logits", "dynamic/activations/head", "dynamic/activations/embedding", "dynamic/activations/batch")
_OUTSIDE = ("reserved/fragmentation", "reserved/context")


@dataclass(frozen=True, kw_only=True, slots=True)
class Parts:
    """Bytes of a stage inside the framework's pool.

    `static` stays from step to step; `activations` are kept by layers, times the micro batches in flight; `ends` are of embedding,
    head and loss; `others` are buffers and tensors of one layer.
    """

    static: float
    activations: float
    ends: float
    others: float

    @property
    def total(self) -> float:
        """All of it."""
        return self.static + self.activations + self.ends + self.others


def parts_of(stage: Breakdown) -> Parts:
    """The parts of one stage of an estimate of `perfkit.predict.memory.memory.peak_memory`."""
    found = dict.fromkeys(PARTS, 0.0)
    for path, amount in stage.parts.items():
        if path.startswith(_OUTSIDE):
            continue
        found[_part(path)] += amount
    return Parts(**found)


def stage_parts(estimate: MemoryEstimate) -> tuple[Parts, ...]:
    """The parts of every stage."""
    return tuple(parts_of(stage) for stage in estimate.stages)


def _part(path: str) -> str:
    if path.startswith("static/"):
        return STATIC
    if path.startswith(_OF_ENDS):
        return ENDS
    inside = path.removeprefix("dynamic/activations/")
    return ACTIVATIONS if inside != path and inside.startswith(_OF_LAYERS) else OTHERS


def stage_of(rank: int, plan: Plan) -> int:
    """The pipeline stage (0-based) of a rank: stages are runs of ranks, as MindFormers and Megatron place them by default."""
    if not 0 <= rank < plan.num_devices:
        raise InputError("rank", [f"rank {rank} is not one of the plan's {plan.num_devices} devices, 0 to {plan.num_devices - 1}"])
    return rank // (plan.num_devices // plan.parallel.pipeline_parallel_size)


def ranks_of_interest(plan: Plan) -> tuple[int, ...]:
    """The first and the last rank of every stage, ascending."""
    each = plan.num_devices // plan.parallel.pipeline_parallel_size
    firsts = range(0, plan.num_devices, each)
    return tuple(sorted({*firsts, *(first + each - 1 for first in firsts)}))
