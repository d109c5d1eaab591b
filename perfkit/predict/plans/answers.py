"""Answers: what to recompute of a plan, and what to do about a layout of its layers, in a line each."""

from __future__ import annotations

import numpy as np

from perfkit.core.shortening import enumerated
from perfkit.core.texts import say
from perfkit.predict.changes import AS_PLANNED
from perfkit.predict.plans.balance.laid_out import LaidOut
from perfkit.predict.plans.balance.recompute_choice import RecomputeGround

MOST_STAGES = 4
_IN_SENTENCES = {AS_PLANNED: "the one in the file", "fine list": "the fine list", "gather again": "to gather again"}
"""Settings whose names are no objects of a sentence."""


def recompute_answer(ground: RecomputeGround) -> str:
    """The fastest of the usual settings whose peak fits, in a sentence; else how much the smallest needs."""
    peaks = {name: float(found.peak_memory_bytes or 0) for name, found in ground.settings.items()}
    fitting = [name for name, found in ground.settings.items() if ground.holds(found)]
    if not fitting:
        least = min(peaks, key=lambda name: peaks[name])
        form = "No usual setting fits into {limit_bytes}; the smallest is {name} with {peak_bytes}: page 04 shows what fills it."
        return say(form, name=_IN_SENTENCES.get(least, least), peak_bytes=peaks[least], limit_bytes=ground.limit_bytes)
    best = min(fitting, key=lambda name: ground.settings[name].step_time_s)
    form = "The fastest setting that fits is {name}: {longer_ratio} longer than none, a peak of {peak_bytes} of {limit_bytes}."
    if best == "none":
        form = "Nothing needs to be recomputed: without it the peak of {peak_bytes} fits into {limit_bytes}."
    longer = ground.longer(ground.settings[best])
    return say(
        form, name=_IN_SENTENCES.get(best, best), longer_ratio=longer, peak_bytes=peaks[best], limit_bytes=ground.limit_bytes
    )


def layout_answer(drawn: LaidOut) -> str:
    """Whether a layout fits, how long its step takes and which stage decides that, in a sentence."""
    limit = drawn.problem.memory_limit_bytes
    over = [] if limit is None else [stage for stage, peak in enumerate(drawn.peak_bytes) if peak > limit]
    if over:
        form = "This layout does not fit (stages: {stages}): see below whether another one does."
        return say(form, stages=enumerated(over, MOST_STAGES))
    busy_ns = drawn.schedule.stage_busy_ns
    busiest = int(np.argmax(busy_ns))
    form = "{step_time_ns} a step, stage {stage} works longest, {busy_ns}: see below what moving a layer changes."
    return say(form, step_time_ns=drawn.step_ns, stage=str(busiest), busy_ns=int(busy_ns[busiest]))
