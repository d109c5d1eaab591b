"""Pipeline: bubbles, slow stages, where to cut (E26 to E30)."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from statistics import fmean

from perfkit.core.units import NS_PER_MS
from perfkit.predict.cost.flops import forward_flops
from perfkit.predict.cost.pipeline_bubble import bubble_over_ideal, bubble_share
from perfkit.predict.cost.utilization import solve_global_batch
from perfkit.predict.plans.schedule.schedule import ScheduleCase, simulate_schedule
from perfkit.teach.models import layer_flops, named
from perfkit.teach.worked import Draw, Group, Worked

SEQ = 4096


def bubble(draw: Draw) -> Worked:
    """E26: the bubble of 1F1B as a share of the step."""
    pp, micro = draw["pp"], draw["micro"]
    wrong = {"over_m": 100 * bubble_over_ideal(pp, micro)}
    return Worked({"pp": pp, "micro_batch_num": micro}, 100 * bubble_share(pp, micro), wrong)


def interleaved_bubble(draw: Draw) -> Worked:
    """E27: the same with several chunks a stage."""
    pp, micro, vpp = draw["pp"], draw["micro"], draw["vpp"]
    wrong = {"no_vpp": 100 * bubble_share(pp, micro), "over_m": 100 * bubble_over_ideal(pp, micro, vpp)}
    return Worked({"pp": pp, "micro_batch_num": micro, "vpp": vpp}, 100 * bubble_share(pp, micro, vpp), wrong)


def slow_stage(draw: Draw) -> Worked:
    """E28: a step of 1F1B whose last stage is slow, simulated."""
    slow, fast, micro = draw["slow"], draw["fast"], draw["micro"]
    stages = (fast, fast, fast, slow)
    wrong = {"mean_stage": sum(stages) + (micro - 1) * fmean(stages), "max_all": (micro + len(stages) - 1) * slow}
    return Worked({"stage_ms": list(stages), "micro_batch_num": micro}, _step_ms(stages, micro), wrong)


@cache
def _step_ms(stages: tuple[int, ...], micro: int) -> float:
    # Backward takes twice the forward; the answer does not depend on how the two share a stage's time.
    forward = tuple(stage * NS_PER_MS // 3 for stage in stages)
    backward = tuple(stage * NS_PER_MS - ahead for stage, ahead in zip(stages, forward, strict=True))
    case = ScheduleCase(
        schedule="1f1b", num_stages=len(stages), num_microbatches=micro, fwd_ns=(forward,), bwd_ns=(backward,)
    )  # fmt: skip
    return simulate_schedule(case).makespan_ns / NS_PER_MS


def micro_batch_num(draw: Draw) -> Worked:
    """E29: the one unknown of the global batch."""
    gbs, dp, size = draw["gbs"], draw["dp"], draw["batch_size"]

    def micro(batch: int) -> int:
        return solve_global_batch(global_batch_size=gbs, data_parallel_size=dp, micro_batch_size=batch)["num_micro_batches"]

    return Worked({"gbs": gbs, "dp": dp, "batch_size": size}, micro(size), {"ignores_bs": micro(1)})


def where_to_cut(draw: Draw) -> Worked:
    """E30: layers on stage 0 of two, with the head on stage 1."""
    model = replace(named(draw["model"]), vocab_size=draw["vocab"])
    layers = model.num_layers
    head = float(forward_flops(model, SEQ).amount("head")) / layer_flops(model, SEQ)

    def best(first: float, last: float) -> int:
        return min(range(1, layers), key=lambda x: max(x + first, layers - x + last))

    shown = {"model": draw["model"], "vocab": draw["vocab"], "pp": 2, "s": SEQ, "recompute": "none"}
    return Worked(shown, best(0, head), {"equal_split": layers // 2, "head_on_stage0": best(head, 0)})


GROUP = Group(
    title="Pipeline",
    order=4,
    formulas={
        "E26": bubble,
        "E27": interleaved_bubble,
        "E28": slow_stage,
        "E29": micro_batch_num,
        "E30": where_to_cut,
    },
)
