"""Extrapolate: a recording of a scaled-down model calibrates the prediction of the whole one.

The guides profile two layers, or few ranks, before they ask for the machine. Every part of the recorded step over what was
predicted for it is a factor on the same part of the wanted plan; layers, ranks and batch are scaled by the two plans. Time that
the recording has and its plan does not (the host, mostly) comes again for every layer and micro batch of a device. A part that
the recording does not have stays as the calibration says, and is named.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from perfkit.core.breakdown import Breakdown
from perfkit.core.errors import InputError
from perfkit.core.run import Run
from perfkit.core.spec.plan import Plan
from perfkit.core.units import NS_PER_S, format_change, format_ns
from perfkit.explain.compare._measure import WHOLE
from perfkit.explain.compare._parts import BUBBLE
from perfkit.explain.compare._planned import NAMES, beside
from perfkit.explain.compare.settings import comparable
from perfkit.predict.calibration import Calibration
from perfkit.predict.estimate import Estimate, estimate, under_limit

INTERVAL = (0.88, 1.09)
"""Measured over extrapolated time that holds 80 %: medians of the 10 and 90 % quantiles of four sources of `data/reference`.

Of each, one row was scaled by its ratio to others with the same layer and more layers or devices (docs/prediction.md).
"""
LEAST_SHARE = 0.01
"""Of the predicted step, below which a part is too small to be a factor of."""
SAME = ("dtype", "attention_kernel")


@dataclass(frozen=True, slots=True)
class Factor:
    """A part of the profiled step: what was measured and predicted in s, and by what the wanted plan's part is multiplied.

    `added_s` comes to the wanted step besides, where the prediction has next to nothing of the part.
    """

    path: str
    measured_s: float
    predicted_s: float
    factor: float
    added_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Extrapolation:
    """The estimate of the wanted plan as the recording says (`estimate`) and without it (`plain`), with all factors."""

    estimate: Estimate
    plain: Estimate
    measured_s: float
    predicted_s: float
    factors: tuple[Factor, ...]
    not_recorded: tuple[str, ...]

    def told(self) -> tuple[str, ...]:
        """What the recording changes, in sentences."""
        times = [format_ns(seconds * NS_PER_S, 4) for seconds in (self.measured_s, self.predicted_s)]
        after, before = (format_ns(one.step_time_s * NS_PER_S, 4) for one in (self.estimate, self.plain))
        off = format_change(self.measured_s / self.predicted_s - 1)
        found = [
            f"The profiled step takes {times[0]}, its prediction {times[1]} ({off}).",
            f"So the whole plan takes {after} a step instead of {before}.",
        ]
        if self.not_recorded:
            names = ", ".join(NAMES.get(path, path.replace("/", ", ")) for path in self.not_recorded)
            found.append(f"Not in the recording, so as the calibration says: {names}.")
        return tuple(found)


def extrapolate(run: Run, profiled: Plan, wanted: Plan, *, calibration: str | Calibration | None = None) -> Extrapolation:
    """Predict `wanted` from a run of `profiled`.

    Raises InputError with every reason why the run says nothing about it: it is not of `profiled`, or device, program, precision or
    attention of the two plans differ.
    """
    problems = [f"{row['key']} is {row['old']} in the run and {row['new']} in its plan" for row in comparable(run, profiled)]
    if problems := [*problems, *_unlike(profiled, wanted)]:
        raise InputError("extrapolate", problems)
    found = beside(run, profiled, calibration=calibration)
    plain = estimate(wanted, calibration=calibration)
    measured_s = found.run.median_ns / NS_PER_S
    times = _passes(wanted) / _passes(profiled)
    factors = tuple(_factors(found.measured, found.planned, times))
    parts, missing = _scaled(plain.breakdown, factors)
    breakdown = replace(plain.breakdown, parts=parts)
    seconds, share = float(breakdown.total), plain.step_time_s / float(breakdown.total)
    own = replace(
        plain,
        step_time_s=seconds,
        interval_s=(seconds * INTERVAL[0], seconds * INTERVAL[1]),
        tokens_per_s_per_device=plain.tokens_per_s_per_device * share,
        mfu=plain.mfu * share,
        hfu=plain.hfu * share,
        breakdown=breakdown,
    )
    return Extrapolation(under_limit(own, wanted), plain, measured_s, found.planned.total / NS_PER_S, factors, tuple(missing))


def _unlike(profiled: Plan, wanted: Plan) -> list[str]:
    """What must be the same in both plans and is not."""
    pairs = {"hardware": [plan.hardware.name if plan.hardware else "" for plan in (profiled, wanted)]}
    pairs |= {"framework": [plan.program for plan in (profiled, wanted)]}
    pairs |= {name: [getattr(plan.workload, name) for plan in (profiled, wanted)] for name in SAME}
    return [
        f"{name} is {old or 'not stated'} in the profiled plan and {new or 'not stated'} in the wanted one; they must be the same"
        for name, (old, new) in pairs.items()
        if old != new
    ]


def _passes(plan: Plan) -> float:
    """Layers of a device times micro batches: how often its host starts a layer in a step."""
    return plan.model.num_layers / plan.parallel.pipeline_parallel_size * plan.num_micro_batches


def _factors(measured: Breakdown, planned: Breakdown, times: float) -> list[Factor]:
    """A factor for every part of both; where nearly nothing was predicted, what was measured comes `times` as often."""
    found = []
    for path in dict.fromkeys([*planned.parts, *measured.parts]):
        own, said = (float(side.parts.get(path, 0)) / NS_PER_S for side in (measured, planned))
        if path in measured.unmeasured or (path not in measured.parts and path in planned.parts and path.startswith(BUBBLE)):
            continue
        if said >= LEAST_SHARE * planned.total / NS_PER_S:
            found.append(Factor(path, own, said, own / said))
        else:
            found.append(Factor(path, own, said, 1.0, max(0.0, own - said) * times))
    return found


def _scaled(plain: Breakdown, factors: Sequence[Factor]) -> tuple[Mapping[str, float], list[str]]:
    """The parts of the wanted plan, multiplied and added to, and those that no factor speaks of."""
    parts: dict[str, float] = {}
    missing = []
    known = {one.path: one for one in factors}
    for path, seconds in plain.parts.items():
        if (own := _of(path, known)) is None and path.startswith(BUBBLE):
            own = _of("computing", known)  # Waiting for stages lasts as these do.
        if own is None:
            missing.append(path)
        parts[path] = float(seconds) * (own.factor if own else 1.0)
    for one in factors:
        if one.added_s:
            parts[one.path] = parts.get(one.path, 0.0) + one.added_s
    return parts, missing


def _of(path: str, known: Mapping[str, Factor]) -> Factor | None:
    """The factor of a part: its own, or of the nearest one that holds it; of one whose pieces are told apart, of all together."""
    pieces = path.split("/")
    for depth in range(len(pieces), 0, -1):
        if (found := known.get("/".join(pieces[:depth]))) is not None:
            return found
    inner = [one for name, one in known.items() if name.startswith(f"{path}/")]
    if not inner:
        return known.get(WHOLE)  # A recording that knows only how long its steps are.
    measured, said = sum(one.measured_s for one in inner), sum(one.predicted_s for one in inner)
    return Factor(path, measured, said, measured / said if said else 1.0)
