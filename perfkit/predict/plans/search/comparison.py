"""Comparison: plans of a search side by side: those that were chosen, else the best two and the rule of thumb; and one by hand."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd

from perfkit.core.errors import InputError
from perfkit.core.spec.plan import Plan
from perfkit.core.texts import Said, joined, say
from perfkit.core.units import format_bytes
from perfkit.predict.estimate import Estimate, estimate
from perfkit.predict.plans.search.search_result import SearchResult
from perfkit.predict.plans.search.search_text import division_text, recompute_text

MOST = 4
ALIKE = 5e-6
"""Steps that differ by less are told as equal: three digits of a percentage show no more."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Compared:
    """A plan of a comparison, as which it is there ("plan", "rule of thumb", "by hand"), and its estimate."""

    number: int
    role: str
    plan: Plan
    estimate: Estimate

    @property
    def name(self) -> Said:
        """Its number, what it is there as, and its division, such as "1 plan: data 8 × tensor 4 × pipeline 2"."""
        form = "{number} by hand: {division}"
        form = {"plan": "{number} plan: {division}", "rule of thumb": "{number} rule of thumb: {division}"}.get(self.role, form)
        return say(form, number=str(self.number), division=division_text(self.plan))

    def told(self) -> Said:
        """The same as a sentence begins with it."""
        forms = {"plan": "Plan {number} ({division})", "rule of thumb": "Rule of thumb {number} ({division})"}
        form = forms.get(self.role, "By hand {number} ({division})")
        return say(form, number=str(self.number), division=division_text(self.plan))

    def against(self, step_s: float) -> str:
        """How much longer its step is, in a sentence."""
        ratio = self.estimate.step_time_s / step_s - 1
        if abs(ratio) < ALIKE:
            return say("{plan}: as long.", plan=self.told())
        return say("{plan}: {ratio} longer." if ratio > 0 else "{plan}: {ratio} shorter.", plan=self.told(), ratio=abs(ratio))


@dataclass(frozen=True, kw_only=True, slots=True)
class Comparison:
    """Plans side by side, the first of them the one to go on with; `problems` say why the plan by hand is impossible."""

    found: SearchResult
    plans: tuple[Compared, ...]
    problems: tuple[str, ...] = ()

    @property
    def first(self) -> Compared:
        """The plan to go on with; raises InputError where there is none."""
        if not self.plans:
            raise InputError("plan", ["there is no plan to go on with: the search found none"])
        return self.plans[0]

    def told(self) -> tuple[str, ...]:
        """The plans against the first one, in a sentence; then what is wrong with the plan by hand."""
        if not self.plans:
            return ("There is no plan to compare.",)
        first, *others = self.plans
        least_s = first.estimate.step_time_s
        alone = say("{plan} is compared with nothing yet: choose another row or mark.", plan=first.name)
        begin = say("{plan}: {step_s} a step.", plan=first.told(), step_s=least_s)
        text = joined((begin, *(one.against(least_s) for one in others))) if others else alone
        return (text, f"The plan by hand is impossible: {'; '.join(self.problems)}.") if self.problems else (text,)

    def to_frame(self) -> pd.DataFrame:
        """One row a plan: `compared`, micro batches, what is recomputed, step with its 80 % interval, MFU, HFU, peak, `fits`."""
        limit = self.found.memory_limit_bytes
        rows = []
        for one in self.plans:
            predicted, peak = one.estimate, one.estimate.peak_memory_bytes or 0
            rows.append(
                {
                    "compared": one.name,
                    "micro_batches": f"{one.plan.workload.micro_batch_size} × {one.plan.num_micro_batches}",
                    "recomputed": recompute_text(one.plan),
                    "step_time_s": predicted.step_time_s,
                    "against_first_ratio": predicted.step_time_s / self.first.estimate.step_time_s - 1,
                    "low_step_time_s": predicted.interval_s[0],
                    "high_step_time_s": predicted.interval_s[1],
                    "tokens_per_s_per_device": predicted.tokens_per_s_per_device,
                    "mfu": predicted.mfu,
                    "hfu": predicted.hfu,
                    "peak_memory_bytes": peak,
                    "fits": "yes" if peak <= limit else f"no, {format_bytes(peak - limit)} too much",
                }
            )
        frame = pd.DataFrame(rows)
        frame.attrs = {
            "title": "The compared plans",
            "first": ("compared", "step_time_s", "against_first_ratio", "peak_memory_bytes", "fits"),
        }
        return frame


def compare_plans(
    found: SearchResult, chosen: Sequence[str] = (), *, by_hand: Mapping[str, Any] | None = None, most: int = MOST
) -> Comparison:
    """The plans that `plan_text` calls as `chosen` says, at most `most`, one of them with the best; `by_hand` stands beside them.

    `by_hand` has what `SearchResult.plan_with` takes; a plan that is impossible is told and left out.
    """
    plans = [(role, *predicted) for role, predicted in _shown(found, chosen)][: most - (by_hand is not None)]
    problems: tuple[str, ...] = ()
    if by_hand is not None:
        try:
            own = found.plan_with(**by_hand)
            plans.append(("by hand", own, estimate(own, calibration=found.calibration)))
        except InputError as error:
            problems = error.problems
    compared = [
        Compared(number=number, role=role, plan=plan, estimate=predicted) for number, (role, plan, predicted) in enumerate(plans, 1)
    ]
    return Comparison(found=found, plans=tuple(compared), problems=problems)


def _shown(found: SearchResult, chosen: Sequence[str]) -> list[tuple[str, tuple[Plan, Estimate]]]:
    known = [predicted for name in chosen if (predicted := found.named(name)) is not None]
    nearest = () if found.nearest is None else (found.nearest,)  # where nothing fits, there are no plans
    best = [(one.plan, one.estimate) for one in (*found.plans[:2], *nearest)]
    if len(known) == 1 and best and best[0][0] != known[0][0]:
        known.append(best[0])
    if known:
        return [("plan", predicted) for predicted in known]
    rule = [] if found.suggestion is None else [("rule of thumb", (found.suggestion[1].plan, found.suggestion[1].estimate))]
    return [*(("plan", predicted) for predicted in best), *rule]
