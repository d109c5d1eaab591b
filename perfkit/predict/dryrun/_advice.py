"""Advice on memory: fits, tight or out of memory, for what reason, and the cheapest change that frees enough.

Follows the guides' tree: gaps first where they alone break the limit, then static memory (share it, more stages), else dynamic
memory in the order of cost per byte (attention kernel, sequence parallel, cheap recomputation, all of it, smaller batches).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from perfkit.core.errors import NotMeasuredError
from perfkit.core.spec.recompute import RecomputePlan
from perfkit.core.texts import say
from perfkit.core.units import format_bytes, format_ratio
from perfkit.predict.dryrun._substitute import Predicted, Substitute
from perfkit.predict.dryrun._table import Row, fullest
from perfkit.predict.memory.switches import switches

Verdict = Literal["fits", "tight", "does not fit"]
TIGHT = 0.9
"""Share of the limit above which a peak that fits is tight."""
FRAGMENTS = 0.05
"""Share of the limit that gaps must reach to be named as a cause."""
STATIC = 0.6
"""Share of the limit above which memory that stays is the cause."""
SHARING = ("share the optimizer state", "share gradients too", "share parameters too", "pipeline parallel", "tensor parallel")
ON_STATIC = (*SHARING, "gradients in 16 bit", "swap")
ON_DYNAMIC = (
    "flash attention",
    "sequence parallel",
    "recompute Silu and Mul",
    "recompute the attention core",
    "recompute ",
    "no dropout",
    "micro batch",
    "tensor parallel",
    "context parallel",
    *SHARING,
    "gradients in 16 bit",
    "swap",
)
"""Beginnings of the names of switches, cheapest per byte first; after those on static memory all others follow."""
VMM = "MS_ALLOC_CONF=enable_vmm:True (one variable holds all items: enable_vmm:True,memory_tracker:True), and fewer dynamic shapes"


@dataclass(frozen=True, kw_only=True, slots=True)
class Step:
    """A change to try: the peak of the fullest stage with it in bytes, what it saves, whether that is enough, and its price."""

    change: str
    peak_bytes: int
    saved_bytes: int
    enough: bool
    price: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Advice:
    """`rule` is the finding's id ("" if nothing is wrong), `reason` one sentence, `steps` the changes in the order to try them.

    `over_bytes` is what the peak is above the limit, below 0 if it fits.
    """

    verdict: Verdict
    rule: str
    reason: str
    over_bytes: int
    steps: tuple[Step, ...] = ()


def advise(rows: Sequence[Row], predicted: Substitute | None = None, schedule: str = "1f1b") -> Advice:
    """What to do about the row with the least room. Changes are named only with a substitute, which says what they save.

    Raises NotMeasuredError if no row has both a peak and a limit.
    """
    row = fullest(rows)
    if row is None or row.headroom_bytes is None or row.limit_bytes is None or row.peak_bytes is None:
        raise NotMeasuredError("a peak and the limit of the device", how_to_collect="MS_MEMORY_STATISTIC=1, or name the limit")
    peak, limit = row.peak_bytes, row.limit_bytes
    gaps = (row.actual_bytes or 0) - (row.used_bytes or 0) if row.used_bytes and row.actual_bytes else 0
    if peak <= TIGHT * limit:
        return _with_room(row, predicted)
    if peak <= limit:
        form = "{label} uses {peak_bytes} of {limit_bytes} ({used_ratio}): it fits, but a longer sample or workspace may not."
        tight = say(form, label=row.begun, peak_bytes=peak, limit_bytes=limit, used_ratio=peak / limit)
        steps = _steps(row, predicted, schedule, ON_DYNAMIC)
        return Advice(verdict="tight", rule="", reason=tight, over_bytes=peak - limit, steps=steps)
    over = f"{row.begun} needs {format_bytes(peak - limit)} more than its limit of {format_bytes(limit)}"
    if gaps >= FRAGMENTS * limit and row.used_bytes is not None and row.used_bytes <= limit:
        reason = f"{over}; without {format_bytes(gaps)} of gaps between blocks it would fit: {VMM}."
        return Advice(verdict="does not fit", rule="memory-fragmentation", reason=reason, over_bytes=peak - limit)
    parts = _of(row, predicted)
    if parts is not None and _static(parts, predicted) >= STATIC * limit:
        reason = f"{over}; {format_bytes(_static(parts, predicted))} of it stay from step to step."
        return Advice(
            verdict="does not fit",
            rule="oom-static",
            reason=reason,
            over_bytes=peak - limit,
            steps=_steps(row, predicted, schedule, (*ON_STATIC, *ON_DYNAMIC)),
        )
    reason = f"{over}; most of what can go is memory that comes and goes within a step."
    if parts is None:
        reason = f"{over}."
    steps = _steps(row, predicted, schedule, ON_DYNAMIC)
    return Advice(verdict="does not fit", rule="oom-dynamic", reason=reason, over_bytes=peak - limit, steps=steps)


def freed_told(advice: Advice, *, has_plan: bool) -> tuple[str, str]:
    """Which change frees enough, in a sentence, and the reason of the advice; changes are known with the plan only."""
    return _freed_told(advice, has_plan=has_plan), advice.reason


def _freed_told(advice: Advice, *, has_plan: bool) -> str:
    steps, fits = advice.steps, advice.over_bytes <= 0
    if advice.verdict == "fits":
        return "None is needed: it fits."
    if advice.rule == "memory-fragmentation":
        return "Joining the gaps between blocks is enough."
    if not steps:
        if has_plan:
            return "It fits already; no change of the plan frees more." if fits else "No change of the plan frees anything."
        return "It fits already; what frees more is told with the plan." if fits else "What frees enough is told with the plan."
    enough = [step for step in steps if step.enough]
    if not enough:
        most = max(steps, key=lambda step: step.saved_bytes)
        form = "No single change is enough: {change} frees most, {saved_bytes} of the {over_bytes} needed."
        return say(form, change=most.change, saved_bytes=most.saved_bytes, over_bytes=advice.over_bytes)
    first = enough[0]
    if fits:
        form = "It fits already; the cheapest change that frees more is {change}: it frees {saved_bytes}."
    else:
        form = "The cheapest change that is enough is {change}: it frees {saved_bytes}, {over_bytes} are needed."
    return say(form, change=first.change, saved_bytes=first.saved_bytes, over_bytes=advice.over_bytes)


def _with_room(row: Row, predicted: Substitute | None) -> Advice:
    free, limit = row.headroom_bytes or 0, row.limit_bytes or 1
    text = f"{row.begun} is the fullest and leaves {format_bytes(free)}, {format_ratio(free / limit)} of its limit"
    if predicted is not None and predicted.plan.recompute != RecomputePlan():
        reason = f"{text}: recompute fewer layers first, then selectively, then nothing; then a larger micro batch."
        return Advice(verdict="fits", rule="recompute-with-headroom", reason=reason, over_bytes=-free)
    reason = f"{text}: a larger micro batch or fewer slices of the model are worth a try."
    return Advice(verdict="fits", rule="", reason=reason, over_bytes=-free)


def _of(row: Row, predicted: Substitute | None) -> Predicted | None:
    return predicted.stages[row.stage] if predicted is not None and row.stage is not None else None


def _static(found: Predicted, predicted: Substitute | None) -> float:
    factor = predicted.calibration.factors["static"] if predicted is not None else 1.0
    return factor * found.parts.static


def _steps(row: Row, predicted: Substitute | None, schedule: str, order: Sequence[str]) -> tuple[Step, ...]:
    """The switches of `order` that save something, in that order; each judged on the fullest stage of its own plan."""
    if predicted is None or row.limit_bytes is None:
        return ()
    now = max(stage.peak_bytes for stage in predicted.stages)
    # What the calculator still misses of the fullest rank stays with every change.
    rest = max(0, (row.peak_bytes or 0) - now)
    found = []
    for switch in switches(predicted.plan, predicted.estimate.settings, schedule):
        place = next((index for index, name in enumerate(order) if switch.name.startswith(name)), None)
        if place is None or switch.plan is None or switch.name == "recompute nothing":
            continue
        peak = rest + max(stage.peak_bytes for stage in predicted.of_plan(switch.plan, schedule))
        if peak < now + rest:
            step = Step(
                change=switch.name,
                peak_bytes=peak,
                saved_bytes=now + rest - peak,
                enough=peak <= row.limit_bytes,
                price=switch.price,
            )
            found.append((place, -peak, step))
    return tuple(step for _, _, step in sorted(found, key=lambda entry: entry[:2]))
