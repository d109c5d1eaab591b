"""A run beside its plan: residuals by stage and part, and sentences that say where to look.

The plan's parts are those of its slowest stage, so the run is taken on its own slowest stage; every other stage is compared with
the same stage of the plan. A residual is measured minus planned: positive is slower than planned.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

from perfkit.core.breakdown import Breakdown
from perfkit.core.plan_columns import PlanColumns
from perfkit.core.run import Run
from perfkit.core.spec.plan import Plan
from perfkit.core.texts import say
from perfkit.core.units import NS_PER_S, format_ns, format_ratio, significant
from perfkit.explain.compare._exposed import Exposed, exposed_by_dimension
from perfkit.explain.compare._measure import Measure, measure, stages
from perfkit.explain.compare._parts import EXPOSED, Part, common, parts
from perfkit.predict.calibration import Calibration
from perfkit.predict.cost import step_time as step
from perfkit.predict.cost.cost_columns import costs_of
from perfkit.predict.cost.labels import labels_of
from perfkit.predict.estimate import Estimate, _known, estimate

WORTH_SAYING = 0.01
"""Residuals below this share of the planned step are not made into sentences."""

NAMES = {
    "computing": "computing",
    "computing/recompute": "recomputation",
    "computing/optimizer": "the optimizer",
    "bubble": "waiting for other pipeline stages",
    "free": "idle time of the device",
    "communication/exposed": "exposed communication",
    "communication/exposed/dp": "exposed gradient communication",
    "communication/exposed/tp": "exposed tensor-parallel communication",
    "communication/exposed/pp": "exposed pipeline communication",
    "communication/exposed/cp": "exposed context-parallel communication",
    "communication/exposed/ep": "exposed expert communication",
    "communication/exposed/other": "exposed communication of other groups",
}
PAGES = {"computing": "12", "communication": "13", "bubble": "06", "free": "16", "step": "11"}


@dataclass(frozen=True, kw_only=True, slots=True)
class Finding:
    """A residual worth a look: measured minus planned in ns, its share of the planned step, and what it says."""

    path: str
    stage: int | None
    residual_ns: int
    share_of_step: float
    sentence: str
    next: tuple[str, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class Beside:
    """A run and its plan on the same leaves, in ns; `stages` has the parts of every stage (a: measured, b: planned)."""

    measured: Breakdown
    planned: Breakdown
    run: Measure
    estimate: Estimate
    stages: Mapping[int, tuple[Part, ...]]
    findings: tuple[Finding, ...]
    notes: tuple[str, ...]

    def to_json(self) -> dict[str, Any]:
        """What a run beside its plan has more than other comparisons."""
        low, high = (round(bound * NS_PER_S) for bound in self.estimate.interval_s)
        return {
            "planned_interval_ns": [low, high],
            "within_interval": low <= self.run.median_ns <= high,
            "stages": [
                {
                    "stage": stage,
                    "parts": [
                        {"path": part.path, "measured_ns": part.a, "planned_ns": part.b, "residual_ns": part.a - part.b}
                        for part in found
                    ],
                }
                for stage, found in self.stages.items()
            ],
            "findings": [asdict(finding) for finding in self.findings],
        }


def beside(run: Run, plan: Plan, *, calibration: str | Calibration | None = None) -> Beside:
    """Put a run beside the estimate of its plan. Raises InputError if the plan cannot be estimated."""
    predicted = estimate(plan, calibration=calibration)
    by_stage = stages(run)
    measures = {stage: measure(run, ranks=ranks) for stage, ranks in by_stage.items()}
    slowest = max(measures, key=lambda stage: measures[stage].breakdown.amount("computing")) if measures else None
    whole = measures[slowest] if slowest is not None else measure(run)
    split = exposed_by_dimension(run, plan, whole.ranks, whole.steps)
    measured, planned, notes = common(_with_dimensions(whole.breakdown, split), predicted.breakdown)
    if slowest is not None:
        notes = (*notes, f"stage {slowest} computes most and stands for the run, as the plan's parts are of its slowest stage")
    found = _findings(parts(measured, planned), planned, whole, split, slowest)
    table = {stage: _stage_parts(plan, measures[stage], stage, calibration) for stage in measures}
    for stage, rows in table.items():
        if stage != slowest:
            found += _findings([row for row in rows if row.path == "computing"], planned, measures[stage], {}, stage)
    return Beside(
        measured=measured,
        planned=planned,
        run=whole,
        estimate=predicted,
        stages=table,
        findings=tuple(sorted(found, key=lambda finding: -abs(finding.residual_ns))),
        notes=(*whole.notes, *notes),
    )


def planned_stage(plan: Plan, stage: int, calibration: str | Calibration | None = None) -> Breakdown:
    """Seconds of one step of a pipeline stage; the leaves sum to the step of the plan, what is not its own work is `bubble`."""
    columns = costs_of([plan])
    efficiency = _known(calibration).efficiency(labels_of(PlanColumns.of([plan])))
    return step.breakdown(columns, efficiency, stage)


def _stage_parts(plan: Plan, own: Measure, stage: int, calibration: str | Calibration | None) -> tuple[Part, ...]:
    measured, planned, _ = common(own.breakdown, planned_stage(plan, stage, calibration))
    return parts(measured, planned)


def _with_dimensions(measured: Breakdown, split: Mapping[str, Exposed]) -> Breakdown:
    """The exposed communication of a measured step divided by what it is for; what is not told apart stays `other`."""
    whole = measured.parts.get(EXPOSED)
    told = sum(found.exposed_ns for found in split.values())
    if whole is None or not told or told > 1.02 * whole + 1:
        return measured
    shares = {f"{EXPOSED}/{name}": int(min(found.exposed_ns, whole)) for name, found in split.items()}
    shares[f"{EXPOSED}/other"] = max(0, int(whole) - sum(shares.values()))
    excess = sum(shares.values()) - int(whole)
    largest = max(shares, key=lambda path: shares[path])
    shares[largest] -= excess
    amounts: dict[str, int | float] = {}
    for path, amount in measured.parts.items():
        amounts |= {name: value for name, value in shares.items() if value} if path == EXPOSED else {path: amount}
    return replace(measured, parts=amounts)


def _findings(
    rows: Iterable[Part], planned: Breakdown, own: Measure, split: Mapping[str, Exposed], stage: int | None
) -> list[Finding]:
    found = []
    for part in rows:
        residual = round(part.a - part.b)
        if abs(residual) < WORTH_SAYING * planned.total:
            continue
        name = NAMES.get(part.path, part.path.replace("/", ", "))
        where = say(" on stage {stage}", stage=str(stage)) if stage is not None else ""
        above, below = "{name}{where} is {amount} above the plan: {why}", "{name}{where} is {amount} below the plan: {why}"
        why = _why(part, own, split) if residual > 0 else "the plan asks for too much here; recalibrate from this run"
        found.append(
            Finding(
                path=part.path,
                stage=stage,
                residual_ns=residual,
                share_of_step=residual / planned.total,
                sentence=say(above if residual > 0 else below, name=name, where=where, amount=format_ns(abs(residual)), why=why),
                next=(PAGES[part.path.split("/")[0]],) if part.path.split("/")[0] in PAGES else (),
            )
        )
    return found


def _why(part: Part, own: Measure, split: Mapping[str, Exposed]) -> str:
    """The likeliest reason for a part above its plan."""
    head, name = part.path.split("/")[0], part.path.rpartition("/")[2]
    ratio = part.a / part.b if part.b else None
    if head == "communication":
        known = split.get(name)
        total, exposed = (known.total_ns, known.exposed_ns) if known else (own.communication_ns or 0.0, float(part.a))
        hidden = max(0.0, 1 - exposed / total) if total else None
        overlappable = name in ("dp", "ep", "exposed")
        if overlappable and hidden is not None and hidden < 0.1:
            return "overlap is off"
        if hidden is not None and hidden >= 0.1:
            return say(
                "{hidden} of it is hidden, but it takes longer than the plan's links would, or waits for late ranks",
                hidden=format_ratio(hidden),
            )
        return "the links are slower than planned, or ranks wait for late ones"
    if head == "computing":
        times = "" if ratio is None else say(" ({ratio} times)", ratio=significant(ratio))
        form = "operators run below the efficiency that the calibration states{times}, or other work was done than planned"
        return say(form, times=times)
    if head == "bubble":
        return "stages are less even than planned, or sends take longer"
    if head == "free":
        return "the host or the data feed keeps the device waiting"
    return "the recording does not tell the parts of a step apart"
