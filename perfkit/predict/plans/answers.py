"""Answers: what to recompute of a plan, and what to do about a layout of its layers, in a line each."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from perfkit.core.shortening import LEFT_OUT, enumerated
from perfkit.core.texts import say
from perfkit.predict.changes import AS_PLANNED
from perfkit.predict.plans.balance.laid_out import LaidOut
from perfkit.predict.plans.balance.recompute_choice import RecomputeGround
from perfkit.predict.plans.search.search_text import recompute_text

MOST_STAGES = 2
MOST_COUNTS = 5
"""Stages of which layers are told in full."""
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
    if best == AS_PLANNED:
        form = "Keep the file's setting ({what}): {peak_bytes} of {limit_bytes}, {longer_ratio} longer than none."
    elif best == "none":
        form = "Nothing needs to be recomputed: without it the peak of {peak_bytes} fits into {limit_bytes}."
    longer = ground.longer(ground.settings[best])
    name, what = _IN_SENTENCES.get(best, best), recompute_text(ground.plan)
    return say(form, name=name, what=what, longer_ratio=longer, peak_bytes=peaks[best], limit_bytes=ground.limit_bytes)


def layout_answer(drawn: LaidOut) -> str:
    """The layers of the stages and which are recomputed, how long a step takes and which stage decides that, in a sentence."""
    limit = drawn.problem.memory_limit_bytes
    over = [] if limit is None else [stage for stage, peak in enumerate(drawn.peak_bytes) if peak > limit]
    layers = drawn.layout.sum(axis=(0, 1))
    again = _recomputed_told(drawn, layers)
    if over:
        form = "Layers {layers}, {again}, do not fit (stages: {stages})."
        return say(form, layers=_counted(layers), again=again, stages=enumerated(over, MOST_STAGES))
    busy_ns = drawn.schedule.stage_busy_ns
    longest = [stage for stage, ns in enumerate(busy_ns) if ns == max(busy_ns)]
    form = "Layers {layers}, {again}: {step_time_ns} a step; stage {stage} works longest."
    if len(busy_ns) == 1:
        form = "Layers {layers}, {again}: {step_time_ns} a step on the only stage."
    elif len(longest) == len(busy_ns):
        form = "Layers {layers}, {again}: {step_time_ns} a step; all stages work equally long."
    elif len(longest) > 1:
        form = "Layers {layers}, {again}: {step_time_ns} a step; stages {stage} work longest."
    stage = enumerated(longest, MOST_STAGES)
    return say(form, layers=_counted(layers), again=again, step_time_ns=drawn.step_ns, stage=stage)


def _recomputed_told(drawn: LaidOut, layers: NDArray[np.int64]) -> str:
    """How many layers of every stage are recomputed in full and in part, as a part of a sentence."""
    kinds = np.array([variety.kind for variety in drawn.problem.varieties])
    full, some = (drawn.layout[which].sum(axis=(0, 1)) for which in (kinds == "full", ~np.isin(kinds, ("none", "full"))))
    for counts, form in ((full, "all recomputed in full"), (some, "all recomputed in part")):
        if np.array_equal(counts, layers):
            return say(form)
    form = "of which recomputed in full {full}, in part {some}"
    if not some.any():
        form = "of which recomputed in full {full}" if full.any() else "none of them recomputed"
    elif not full.any():
        form = "of which recomputed in part {some}"
    return say(form, full=_counted(full), some=_counted(some))


def _counted(counts: NDArray[np.int64]) -> str:
    """A number for every stage; of many stages the first ones and the last."""
    words = [str(count) for count in counts]
    return " ".join(words if len(words) <= MOST_COUNTS else [*words[: MOST_COUNTS - 2], LEFT_OUT, words[-1]])
