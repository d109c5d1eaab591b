"""Fit: the peak of a plan beside the limit that counts for it, in words and as tables, and what would free enough."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import pandas as pd

from perfkit.core.spec.plan import Plan
from perfkit.core.spec.recompute import RecomputePlan
from perfkit.core.texts import say
from perfkit.predict.limits import limit_of
from perfkit.predict.memory.guide import activation_table, static_table
from perfkit.predict.memory.memory import MemoryEstimate, peak_memory
from perfkit.predict.memory.switches import Switch, switches

AMPLE_HEADROOM = 0.1
"""Share of the limit above which giving up recomputation comes first."""


@dataclass(frozen=True, kw_only=True, slots=True)
class MemoryFit:
    """The peak of a plan, and the bytes of a device that it may fill."""

    plan: Plan
    schedule: str
    estimate: MemoryEstimate
    limit_bytes: int

    @property
    def fits(self) -> bool:
        """Whether every stage stays within the limit."""
        return self.estimate.fits(self.limit_bytes)

    def told(self) -> tuple[str, str]:
        """The fullest stage against the limit, in a sentence, and what fills most of it, in another."""
        return self._against_the_limit(), self._filled()

    def _filled(self) -> str:
        peak = self.estimate.peak
        held = [path for path in peak.collapse(2).parts if not path.startswith("reserved/")]
        part = max([*held, "reserved"], key=peak.amount)
        form = "The largest part is {part}: {part_bytes}, {share} of the peak."
        return say(form, part=part, part_bytes=float(peak.amount(part)), share=float(peak.amount(part) / peak.total))

    def _against_the_limit(self) -> str:
        found, limit, peak = self.estimate, self.limit_bytes, int(self.estimate.peak.total)
        less = (
            "{name} on {devices} devices: {where} needs {peak_bytes} {moment}, {rest_bytes} less than the limit of {limit_bytes}."
        )
        more = (
            "{name} on {devices} devices: {where} needs {peak_bytes} {moment}, {rest_bytes} more than the limit of {limit_bytes}. "
            "It does not fit."
        )
        return say(
            less if self.fits else more,
            name=self.plan.model.name or say("The plan"),
            devices=str(self.plan.num_devices),
            where=say("stage {stage}", stage=str(found.fullest_stage)) if len(found.stages) > 1 else say("every device"),
            peak_bytes=peak,
            moment=say(found.moment),
            rest_bytes=abs(limit - peak),
            limit_bytes=limit,
        )

    def to_frame(self) -> pd.DataFrame:
        """What the fullest stage holds at its peak, most first: columns `part`, `peak_bytes`."""
        peak = self.estimate.peak
        parts = sorted(peak.parts.items(), key=lambda part: -part[1])
        frame = pd.DataFrame(
            {
                "part": [name for name, _ in parts],
                "peak_bytes": [amount for _, amount in parts],
                "share": [amount / peak.total if peak.total else 0.0 for _, amount in parts],
            }
        )
        frame.attrs |= {"title": f"What stage {self.estimate.fullest_stage} holds at its peak", "look": "folded"}
        return frame

    def switches(self) -> tuple[Switch, ...]:
        """Every single change of the plan with the peak that it would have (`perfkit.predict.memory.switches`)."""
        return switches(self.plan, self.estimate.settings, self.schedule)

    def static_table(self) -> pd.DataFrame:
        """What the fullest stage holds from step to step, beside the guides' 10N: `item`, `guide_bytes`, `exact_bytes`, `why`."""
        return static_table(self.plan, self.estimate.settings, self.estimate.fullest_stage)

    def layer_table(self) -> pd.DataFrame:
        """What one layer keeps of a micro batch, tensor by tensor, beside the guides' GPT with dropout."""
        model = self.plan.model
        return activation_table(self.plan, self.estimate.settings, experts=bool(model.num_experts and not model.num_dense_layers))


def memory_fit(plan: Plan, *, schedule: str = "1f1b") -> MemoryFit:
    """The peak of a plan against its limit, `schedule` as `peak_memory` has it.

    Raises InputError if neither a device nor a limit is stated.
    """
    limit = limit_of(plan)
    return MemoryFit(
        plan=plan, schedule=schedule, estimate=peak_memory(plan, schedule=schedule), limit_bytes=int(limit.limit_bytes or 0)
    )


def switch_table(fit: MemoryFit, found: Iterable[Switch]) -> pd.DataFrame:
    """Switches as rows: `switch`, `peak_bytes` and `saved_bytes` (None where it is impossible), `fits`, `price`."""
    peak = fit.estimate.peak.total
    return pd.DataFrame(
        [
            {
                "switch": one.name,
                "peak_bytes": one.estimate.peak.total if one.estimate else None,
                "saved_bytes": peak - one.estimate.peak.total if one.estimate else None,
                "fits": "" if not one.estimate else "yes" if one.estimate.fits(fit.limit_bytes) else "no",
                "price": one.price if one.estimate else f"impossible: {one.why_not}",
            }
            for one in found
        ]
    )


def switches_told(fit: MemoryFit, found: Iterable[Switch]) -> tuple[str, str]:
    """Which switch frees most and its price, in a sentence; then which is enough, or what the room that is left is good for."""
    known = [one for one in found if one.estimate]
    return _most_freed_told(fit, known), _room_told(fit, known)


def _most_freed_told(fit: MemoryFit, known: list[Switch]) -> str:
    freed = {one.name: float(fit.estimate.peak.total - one.estimate.peak.total) for one in known if one.estimate}
    most = max(known, key=lambda one: freed[one.name], default=None)
    if most is None or freed[most.name] <= 0:
        return say("No switch that is possible here frees memory.")
    return say(
        "“{switch}” frees most: {freed_bytes}. Its price: {price}.",
        switch=most.name,
        freed_bytes=freed[most.name],
        price=most.price,
    )


def _room_told(fit: MemoryFit, known: list[Switch]) -> str:
    """What to do next, in a sentence: which switch is enough, or what the room that is left is good for."""
    if not fit.fits:
        enough = [one.name for one in known if one.estimate and one.estimate.fits(fit.limit_bytes)]
        return f"One switch is enough: {', '.join(enough[::-1][:3])}." if enough else "No single switch is enough; combine them."
    left = fit.limit_bytes - fit.estimate.peak.total
    amounts = {"peak_bytes": float(fit.estimate.peak.total), "limit_bytes": fit.limit_bytes, "left_bytes": float(left)}
    room = say("{peak_bytes} of {limit_bytes} are used, {left_bytes} are left", **amounts)
    if left <= AMPLE_HEADROOM * fit.limit_bytes:
        return say("{room}; every change is shown with the peak that it would have.", room=room)
    if fit.plan.recompute == RecomputePlan():
        return say("{room}: a larger micro batch or fewer slices of the model are worth a try.", room=room)
    plain = next((one.estimate for one in known if one.name == "recompute nothing"), None)
    if plain is not None and plain.fits(fit.limit_bytes):
        form = "{room}: first give up recomputation, the peak would be {peak_bytes}."
        return say(form, room=room, peak_bytes=float(plain.peak.total))
    return say("{room}: first recompute fewer layers; without any the peak would be too high.", room=room)


def static_told(fit: MemoryFit) -> str:
    """How much of the fullest stage's peak stays from step to step, in a sentence."""
    static = fit.estimate.peak.amount("static")
    form = (
        "{static_bytes}, {share} of the peak, stays from step to step; the guides' 10N has no gradients and no master copy (X09)."
    )
    return say(form, static_bytes=float(static), share=float(static / fit.estimate.peak.total))


def activations_told(fit: MemoryFit) -> str:
    """How much of the fullest stage's peak is kept for the backward pass, in a sentence."""
    share = float(fit.estimate.peak.amount("dynamic/activations") / fit.estimate.peak.total)
    form = "Activations are {share} of the peak; the guides' table counts a GPT with dropout and without flash attention (X10)."
    return say(form, share=share)
