"""Recompute choice: what the usual settings of recomputation cost and need, and a choice of one's own beside them.

Every setting is predicted by the same step and memory model, so that they differ by nothing but recomputation. Choices are named:
the plan's own, the guides' lists, whole layers, the exact optimum for a saving, or patterns of one's own.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

import pandas as pd

from perfkit.core.errors import InputError
from perfkit.core.looks import brief, folded
from perfkit.core.patterns import PatternCheck, check_patterns, layer_paths, pattern_of
from perfkit.core.recomputed import SILU_MUL
from perfkit.core.spec.plan import Plan
from perfkit.core.spec.recompute import RecomputePlan
from perfkit.core.texts import joined, say
from perfkit.core.units import GIB, MIB, NS_PER_S, format_bytes, format_ratio
from perfkit.predict.changes import AS_PLANNED
from perfkit.predict.estimate import Estimate, efficiency_of, estimate, estimates
from perfkit.predict.limits import limit_of
from perfkit.predict.plans.balance.recompute_curve import Point, exact_front, greedy_curve, least_seconds
from perfkit.predict.plans.balance.recompute_options import Option, full_option, independent, operator_options, saved_bytes

FINE = tuple(
    pattern_of(path)
    for path in (
        *("feed_forward.mul", "feed_forward.w1.activation", "feed_forward.w1.reshape", "feed_forward.w1.matmul"),
        *("feed_forward.w3.matmul", "feed_forward.w3.reshape", "feed_forward.w2.matmul", "feed_forward.w2.reshape"),
        *("ffn_norm.norm", "ffn_norm.rcast", "attention_norm.norm", "attention_norm.rcast"),
        *("attention.wq.reshape", "attention.wk.reshape", "attention.wv.reshape", "attention.wo.matmul"),
        *("attention.wo.reshape", "attention.merger_head_transpose", "add", "attention.flash_attention"),
    )
)
"""The fine list of the guides."""
EXACT, OWN = "exact for a saving", "my patterns"
CHOICES = ("Silu and Mul", AS_PLANNED, "none", "fine list", "all layers", EXACT, OWN)


@dataclass(frozen=True, kw_only=True, slots=True)
class RecomputeGround:
    """What holds for a plan whatever is recomputed: the usual settings, the operators, and both curves of what they free.

    `options` are the operators, most bytes a second first; `greedy` adds them one by one, `exact` is the optimum over all subsets;
    `whole` is a layer in full.
    """

    plan: Plan
    limit_bytes: int
    settings: Mapping[str, Estimate]
    options: tuple[Option, ...]
    greedy: tuple[Point, ...]
    exact: tuple[Point, ...]
    whole: Option

    def told(self) -> str:
        """What a whole layer and the guides' two operators free and cost, in a sentence."""
        whole, first = self.settings["all layers"], self.settings["Silu and Mul"]
        return (
            f"All layers in full make the step {format_ratio(self.longer(whole))} longer and leave a peak of {_peak(whole)}; "
            f"Silu and Mul make it {format_ratio(self.longer(first))} longer and leave {_peak(first)}, "
            f"against {_peak(self.settings['none'])} with none."
        )

    def longer(self, found: Estimate) -> float:
        """How much longer a step is than without recomputation, as a ratio."""
        return found.step_time_s / self.settings["none"].step_time_s - 1

    def to_frame(self) -> pd.DataFrame:
        """The usual settings: columns `setting`, `step_time_ns`, `longer_ratio`, `freed_bytes` of a layer, `peak_bytes`, `fits`."""
        layer = {"none": 0.0, "Silu and Mul": saved_bytes(self.plan, SILU_MUL), "fine list": saved_bytes(self.plan, FINE)}
        layer["all layers"] = self.whole.saved_bytes
        frame = pd.DataFrame(
            [
                {
                    "setting": name,
                    "step_time_ns": found.step_time_s * NS_PER_S,
                    "longer_ratio": self.longer(found),
                    "freed_bytes": layer.get(name),
                    "peak_bytes": found.peak_memory_bytes,
                    "fits": "yes" if self.holds(found) else "no",
                }
                for name, found in self.settings.items()
            ]
        )
        frame.attrs = {"title": "The usual settings", "labels": {"freed_bytes": "freed a layer and micro batch"}}
        return brief(frame, "setting", "longer_ratio", "peak_bytes", "fits")

    def holds(self, found: Estimate) -> bool:
        """Whether the peak of a prediction stays within the limit."""
        return (found.peak_memory_bytes or 0) <= self.limit_bytes

    def operators(self) -> pd.DataFrame:
        """Operators, most memory for the time first: `operator`, `freed_bytes` and `cost_ns` a layer, `freed_bytes_per_s`."""
        frame = pd.DataFrame(
            [
                {
                    "operator": option.path,
                    "freed_bytes": option.saved_bytes,
                    "cost_ns": option.seconds * NS_PER_S,
                    "freed_bytes_per_s": option.saved_bytes / option.seconds if option.seconds else None,
                }
                for option in self.options
            ]
        )
        return folded(frame)

    def curves(self) -> dict[str, list[tuple[float, float, str]]]:
        """Both curves as points of seconds, bytes freed, and the operators in words."""
        return {
            name: [(point.seconds, point.saved_bytes, ", ".join(point.paths) or "nothing") for point in points]
            for name, points in (("greedy", self.greedy), ("exact", self.exact))
        }


@dataclass(frozen=True, kw_only=True, slots=True)
class RecomputeChoice:
    """A plan with a choice of recomputation, its prediction, and the patterns of the choice checked."""

    name: str
    plan: Plan
    ground: RecomputeGround
    estimate: Estimate
    checks: tuple[PatternCheck, ...]

    def told(self) -> tuple[str, ...]:
        """What the choice costs and frees in a sentence, and what is odd about its patterns."""
        fits = "With “{name}” the step is {longer_ratio} longer than without recomputation; {peak} fits into {limit_bytes}."
        over = "With “{name}” the step is {longer_ratio} longer than without recomputation; {peak} does not fit into {limit_bytes}."
        said = [
            say(
                fits if self.ground.holds(self.estimate) else over,
                name=self.name,
                longer_ratio=self.ground.longer(self.estimate),
                peak=_peak(self.estimate),
                limit_bytes=self.ground.limit_bytes,
            )
        ]
        if self.checks:
            freed, whole = saved_bytes(self.plan, [check.pattern for check in self.checks]), self.ground.whole.saved_bytes
            form = "The operators free {freed_bytes} a layer and micro batch, a whole layer {whole_bytes}."
            said.append(say(form, freed_bytes=float(freed), whole_bytes=float(whole)))
        dead = [check.pattern for check in self.checks if not check.matched]
        if dead:
            form = "✗ {dead} of {all} patterns name no operator and have no effect."
            said.append(say(form, dead=str(len(dead)), all=str(len(self.checks))))
        return joined(said), *self._notes()

    def _notes(self) -> Iterator[str]:
        names = {path for check in self.checks for path in check.matched}
        if {"feed_forward.mul", "feed_forward.w1.activation"} & names and "feed_forward.w2.reshape" not in names:
            yield "Without multi-copy a Reshape between Mul and w2 can keep the result: see page 31, or add w2.reshape."
        if any(path.endswith("rcast") for path in names) and not any(path.endswith(".norm") for path in names):
            yield "Repeating only the cast back to 16 bit keeps the wide copy: memory grows. Name the norm as well."

    def to_frame(self) -> pd.DataFrame:
        """The patterns and what they name: columns `pattern`, `operators`, `verdict`, `names`, `freed_bytes` of a layer."""
        freed = [saved_bytes(self.plan, [check.pattern]) if check.matched else 0.0 for check in self.checks]
        rows = [{**_checked(check), "freed_bytes": amount} for check, amount in zip(self.checks, freed, strict=True)]
        frame = pd.DataFrame(rows, columns=["pattern", "operators", "verdict", "names", "freed_bytes"])
        frame.attrs = {"title": "Patterns of the choice and what they name"}
        return frame


def recompute_ground(plan: Plan) -> RecomputeGround:
    """Predict the usual settings of a plan and rank its operators. Raises InputError if neither device nor limit is stated."""
    efficiency = efficiency_of(plan)
    options = operator_options(plan, layer_paths(), efficiency)
    alone = independent(plan, options)
    usual = {
        "none": RecomputePlan(),
        "Silu and Mul": _of_patterns(plan, SILU_MUL),
        "fine list": _of_patterns(plan, FINE),
        "all layers": RecomputePlan(all_layers=True),
        AS_PLANNED: plan.recompute,
    }
    if plan.parallel.sequence_parallel:
        usual["gather again"] = RecomputePlan(communication=plan.stage_layers)
    found = estimates([replace(plan, recompute=one) for one in usual.values()])
    return RecomputeGround(
        plan=plan,
        limit_bytes=int(limit_of(plan).limit_bytes or 0),
        settings=dict(zip(usual, found, strict=True)),
        options=tuple(options),
        greedy=tuple(greedy_curve(alone)),
        exact=tuple(exact_front(alone)),
        whole=full_option(plan, efficiency),
    )


def first_choice(ground: RecomputeGround) -> str:
    """What to begin with: what the plan recomputes itself; where it recomputes nothing, what frees most for its time."""
    return CHOICES[0] if ground.plan.recompute == RecomputePlan() else AS_PLANNED


def recompute_choice(
    ground: RecomputeGround,
    choice: str,
    *,
    patterns: str = "",
    wanted_mib: float = 0.0,
    full_layers: int = 0,
    communication: bool = False,
) -> RecomputeChoice:
    """The plan with one of `CHOICES`: `patterns` one a line, or those that free `wanted_mib` a layer in the least time.

    `full_layers` layers of each stage come first, in full; with `communication` gathered inputs are gathered again. Raises
    InputError for a saving that no operators reach, or a choice that is not known.
    """
    if choice not in CHOICES:
        raise InputError("recompute", [f"{choice!r} is not known; there are {', '.join(CHOICES)}"])
    named = _patterns(ground, choice, patterns, wanted_mib)
    base = ground.plan
    if choice == AS_PLANNED:
        asked = base.recompute
    elif choice == "all layers":
        asked = RecomputePlan(all_layers=True)
    else:
        full = tuple(tuple(min(full_layers, count) for count in row) for row in base.stage_layers) if full_layers else ()
        gathers = base.stage_layers if communication else ()
        asked = replace(_of_patterns(base, named), full_layers=full, communication=gathers)
    plan = replace(base, recompute=asked)
    return RecomputeChoice(name=choice, plan=plan, ground=ground, estimate=estimate(plan), checks=tuple(check_patterns(named)))


def curves_told(ground: RecomputeGround) -> str:
    """Which operator frees most for its time, and how much all of them free of a layer, in a sentence."""
    first, most = ground.options[0], ground.exact[-1]
    costly = "{path} comes first: it frees {freed_bytes} a layer for {cost_s}."
    free = "{path} comes first: it frees {freed_bytes} a layer for no time."
    form = costly if first.seconds else free
    best = say(form, path=first.path, freed_bytes=float(first.saved_bytes), cost_s=float(first.seconds))
    form = "All operators together free {freed_bytes}, a whole layer {whole_bytes}."
    every = say(form, freed_bytes=float(most.saved_bytes), whole_bytes=float(ground.whole.saved_bytes))
    return joined((best, every))


def settings_points(ground: RecomputeGround, chosen: RecomputeChoice | None = None) -> list[dict[str, object]]:
    """Settings, and a choice, as points: `name`, `more` (longer than without, a ratio), `gib` at the peak, `fits`.

    Equal ones are one point.
    """
    found = {**ground.settings, **({} if chosen is None else {"chosen": chosen.estimate})}
    points: dict[tuple[float, float], list[str]] = {}
    for name, one in found.items():
        points.setdefault((ground.longer(one), (one.peak_memory_bytes or 0) / GIB), []).append(name)
    limit_gib = ground.limit_bytes / GIB
    return [
        {"name": ", ".join(names), "more": more, "gib": gib, "fits": "fits" if gib <= limit_gib else "does not fit"}
        for (more, gib), names in points.items()
    ]


def settings_rows(ground: RecomputeGround, chosen: RecomputeChoice | None = None) -> dict[str, list[dict[str, object]]]:
    """The data sets of a picture of `settings_points` and the limit; without a point where a choice is one of the settings."""
    usual = settings_points(ground)
    points = usual if chosen is None else settings_points(ground, chosen)
    shown = points if chosen is None or len(points) > len(usual) else []
    return {"settings": shown, "limit": [{"limit": ground.limit_bytes / GIB}]}


def _patterns(ground: RecomputeGround, choice: str, patterns: str, wanted_mib: float) -> tuple[str, ...]:
    if choice == OWN:
        return tuple(dict.fromkeys(line.strip().strip("'\",") for line in patterns.splitlines() if line.strip()))
    if choice == EXACT:
        point = least_seconds(ground.exact, wanted_mib * MIB)
        if point is None:
            most = format_bytes(ground.exact[-1].saved_bytes)
            raise InputError("saving", [f"{format_bytes(wanted_mib * MIB)} a layer: all operators together free {most}"])
        return tuple(pattern_of(path) for path in point.paths)
    lists = {"Silu and Mul": SILU_MUL, "fine list": FINE, AS_PLANNED: tuple(ground.plan.recompute.operators)}
    return tuple(lists.get(choice, ()))


def _of_patterns(base: Plan, patterns: tuple[str, ...]) -> RecomputePlan:
    return RecomputePlan(operators=dict.fromkeys(patterns, base.stage_layers))


def _peak(found: Estimate) -> str:
    return format_bytes(found.peak_memory_bytes)


def _checked(check: PatternCheck) -> dict[str, object]:
    hint = f"names nothing; meant {check.repaired}?" if check.repaired else "names nothing"
    names = say("repeats the attention kernel: dear for what it frees") if check.is_costly else ", ".join(check.matched[:3])
    return {
        "pattern": check.pattern,
        "operators": len(check.matched),
        "verdict": "✓ in effect" if check.matched else "✗ no effect",
        "names": names if check.matched else hint,
    }
