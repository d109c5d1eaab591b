"""Estimates: how long a step takes, what it is made of, how much memory it needs, and how sure that is.

Whatever is predicted is computed of plans in columns: `estimate` takes one plan, a table of one; `estimate_table` a frame with the
columns of `data/reference/step_time.csv` or `memory.csv`, every row of which is a plan.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd

from perfkit.config.dialects.table import PlanTable
from perfkit.core.breakdown import Breakdown
from perfkit.core.display import breakdown_rows, text_table
from perfkit.core.errors import InputError
from perfkit.core.numbers import Number, listed
from perfkit.core.plan_columns import Coded, Codes, Floats, PlanColumns, combined
from perfkit.core.shown import Shown
from perfkit.core.source import Source
from perfkit.core.spec.hardware import HardwareSpec
from perfkit.core.spec.memory_limit import MemoryLimit
from perfkit.core.spec.plan import Plan, usable_limit
from perfkit.core.texts import say
from perfkit.core.units import NS_PER_S
from perfkit.predict.calibration import Calibration, calibration
from perfkit.predict.cost import step_time as step
from perfkit.predict.cost.cost_columns import CostColumns, cost_columns, refuse_unpriced, unpriced
from perfkit.predict.cost.efficiency import Efficiency
from perfkit.predict.cost.labels import labels_of
from perfkit.predict.cost.rates import flops_per_token
from perfkit.predict.cost.step_columns import step_parts as parts_of
from perfkit.predict.cost.utilization import judge_utilization
from perfkit.predict.limits import Assumed, assumed, assumed_of_programs, not_counted, outside_pool_bytes
from perfkit.predict.memory.counters import KINDS, SCOPES, counted_bytes, counter_of, problem_of, scope_of
from perfkit.predict.memory.memory import peak_memory
from perfkit.predict.memory.settings import settings_of
from perfkit.predict.unstated import read_table

NO_SCHEDULE = "there are fewer micro batches than stages: chunks of stages cannot be interleaved, and programs refuse to run it"
COLUMNS = (
    *("row_id", "step_time_s", "tokens_per_s_per_device", "mfu", "hfu", "peak_memory_bytes", "note"),
    *("step_time_low_s", "step_time_high_s"),
)
PIECE, CHUNK = 65536, 4096
"""Plans whose layers are looked at together, and those of them at once that the processor's cache holds."""


@dataclass(frozen=True, kw_only=True, slots=True, repr=False)
class Estimate(Shown):
    """What is predicted for one plan: `breakdown` in s, `memory` in bytes (None where it cannot be told).

    `interval_s` holds the measured time with 80 % probability. `memory_limit` is the limit that counts for the plan and who
    states it, `fits` whether the peak stays within it, and `outside_pool_bytes` what lies outside of a pool's limit. `assumed` is
    what the plan leaves open, `not_counted` the keys of its file that decide time or memory, or may, and that no
    prediction counts, with what they decide, `notes` what its reader says of the file.
    """

    step_time_s: float
    interval_s: tuple[float, float]
    tokens_per_s_per_device: float
    mfu: float
    hfu: float
    breakdown: Breakdown
    memory: Breakdown | None
    fits: bool | None
    sources: tuple[tuple[str, Source], ...]
    memory_limit: MemoryLimit | None = None
    outside_pool_bytes: int = 0
    assumed: tuple[Assumed, ...] = ()
    not_counted: tuple[tuple[str, str], ...] = ()
    warnings: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def peak_memory_bytes(self) -> int | None:
        """Bytes of the fullest stage at its peak."""
        return None if self.memory is None else round(self.memory.total)

    def __repr__(self) -> str:
        step = self.breakdown
        return text_table(f"Estimate: {self.told()[0]}", breakdown_rows(step.parts, step.unmeasured, step.unit))

    def told(self) -> tuple[str, ...]:
        """The step and its interval in a sentence, and what warns of it."""
        low_s, high_s = self.interval_s
        figures = {"step_time_s": self.step_time_s, "low_s": low_s, "high_s": high_s, "mfu": self.mfu}
        form = "{step_time_s} a step, 80 % between {low_s} and {high_s}; {tokens_per_s_per_device}, MFU {mfu}."
        return say(form, **figures, tokens_per_s_per_device=self.tokens_per_s_per_device), *self.warnings

    def to_frame(self) -> pd.DataFrame:
        """The step by part: columns `part`, `duration_ns`, `share`."""
        frame = self.breakdown.to_frame().rename(columns={"path": "part", "amount": "duration_ns"})
        frame["duration_ns"] *= NS_PER_S
        frame.attrs = {"title": "Every part of the predicted step", "look": "folded"}
        return frame

    def figures(self) -> pd.DataFrame:
        """The step with its 80 % interval, throughput and utilization, in one row, by the names of `to_dict`."""
        low, high = self.interval_s
        step = {"step_time_s": self.step_time_s, "low_step_time_s": low, "high_step_time_s": high}
        rates = {"tokens_per_s_per_device": self.tokens_per_s_per_device, "mfu": self.mfu, "hfu": self.hfu}
        frame = pd.DataFrame([step | rates])
        frame.attrs = {"title": "What is predicted", "look": "folded"}
        return frame

    def to_dict(self) -> dict[str, Any]:
        """The JSON document of `perfkit estimate --json`."""
        return {
            "step_time_s": self.step_time_s,
            "step_time_low_s": self.interval_s[0],
            "step_time_high_s": self.interval_s[1],
            "tokens_per_s_per_device": self.tokens_per_s_per_device,
            "mfu": self.mfu,
            "hfu": self.hfu,
            "peak_memory_bytes": self.peak_memory_bytes,
            "memory_limit_bytes": None if self.memory_limit is None else self.memory_limit.limit_bytes,
            "memory_limit_source": None if self.memory_limit is None else self.memory_limit.source,
            "memory_limit_part": None if self.memory_limit is None else self.memory_limit.part,
            "outside_pool_bytes": self.outside_pool_bytes,
            "fits": self.fits,
            "breakdown_s": dict(self.breakdown.parts),
            "breakdown_bytes": None if self.memory is None else {path: round(amount) for path, amount in self.memory.parts.items()},
            "sources": [
                {"quantity": quantity, "formula": source.where, "source": source.note or source.kind}
                for quantity, source in self.sources
            ],
            "assumed": [one.to_dict() for one in self.assumed],
            "not_counted": [{"key": key, "decides": decides} for key, decides in self.not_counted],
            "warnings": list(self.warnings),
            "notes": list(self.notes),
        }


def estimate(plan: Plan, *, calibration: str | Calibration | None = None) -> Estimate:
    """Predict one plan. Raises InputError if it names no device or the device's numbers do not suffice."""
    return estimates([plan], calibration=calibration)[0]


def estimates(plans: Sequence[Plan], *, calibration: str | Calibration | None = None) -> list[Estimate]:
    """Predict several plans as `estimate` does; their step times are computed at once."""
    if not plans:
        return []
    known, columns = _known(calibration), PlanColumns.of(plans) if len(plans) > 1 else PlanColumns.one(plans[0])
    refuse_unpriced(columns)
    costs, labels = cost_columns(columns), labels_of(columns)
    parts = {path: listed(amounts) for path, amounts in parts_of(costs, known.efficiency(labels)).items()}
    low, high = map(listed, known.bounds(labels, costs.experts > 0, costs.nodes > 1))
    steps = [
        Breakdown("s", {path: amounts[index] for path, amounts in parts.items() if amounts[index] > 0}, step.SOURCE)
        for index in range(len(plans))
    ]
    seconds = np.array([float(one.total) for one in steps]) if len(steps) > 1 else np.float64(steps[0].total)
    rates = {name: listed(values) for name, values in _rates(costs, seconds).items()}
    return [
        _estimate(plan, known, breakdown, (low[index], high[index]), {name: values[index] for name, values in rates.items()})
        for index, (plan, breakdown) in enumerate(zip(plans, steps, strict=True))
    ]


def stage_breakdowns(plan: Plan, *, calibration: str | Calibration | None = None) -> list[Breakdown]:
    """Seconds of the plan's step by path on every pipeline stage; with `bubble`, its waits for others, each sums to the step."""
    columns = PlanColumns.of([plan])
    refuse_unpriced(columns)
    costs, eff = cost_columns(columns), _known(calibration).efficiency(labels_of(columns))
    stages = (parts_of(costs, eff, stage).items() for stage in range(plan.parallel.pipeline_parallel_size))
    return [Breakdown("s", {path: float(amount[0]) for path, amount in parts if amount[0] > 0}, step.SOURCE) for parts in stages]


def _estimate(
    plan: Plan, known: Calibration, breakdown: Breakdown, bounds: tuple[float, float], rates: Mapping[str, Any]
) -> Estimate:
    peak, seconds = peak_memory(plan).peak, float(breakdown.total)
    found = Estimate(
        step_time_s=seconds,
        interval_s=(seconds * bounds[0], seconds * bounds[1]),
        breakdown=breakdown,
        memory=peak,
        fits=None,
        sources=_sources(plan, known, peak),
        **rates,
    )
    return under_limit(found, plan)


def under_limit(found: Estimate, plan: Plan) -> Estimate:
    """What was predicted for a plan under the memory limit of `plan`, which differs from it in nothing else."""
    limit, peak = plan.usable_memory, found.memory
    fits = None if limit is None or peak is None else limit.holds(peak.total)
    warnings = [_too_much(float(peak.total), limit)] if limit and peak and not fits else []
    parallel = plan.parallel
    if _has_no_schedule(parallel.virtual_pipeline_parallel_size, parallel.pipeline_parallel_size, plan.num_micro_batches):
        warnings.append(NO_SCHEDULE)
    if judge_utilization(found.mfu) != "plausible":
        form = "the predicted MFU of {mfu} has not been seen on large models; check the configuration"
        warnings.append(say(form, mfu=f"{found.mfu:.0%}"))
    return replace(
        found,
        fits=fits,
        memory_limit=limit,
        outside_pool_bytes=outside_pool_bytes(plan),
        assumed=assumed(plan),
        not_counted=not_counted(plan),
        warnings=tuple(warnings),
        notes=tuple(getattr(plan.document, "notes", ())),
    )


def _too_much(needed_bytes: float, limit: MemoryLimit) -> str:
    times = f"{needed_bytes / (limit.limit_bytes or 1):.2f}"
    return say("needs {times} times its limit ({source})", times=times, source=limit.source)


def _has_no_schedule(chunks: Any, stages: Any, micro_batches: Any) -> Any:
    """Whether chunks of stages are interleaved with fewer micro batches than stages: as `schedule.order.shape_problems` rules."""
    return (chunks > 1) & (stages > 1) & (micro_batches < stages)


def step_parts(plans: PlanColumns, calibration: str | Calibration | None = None) -> dict[str, Floats]:
    """Seconds of a step by path, an array each, of many plans at once. The sum is the step."""
    return parts_of(cost_columns(plans), _known(calibration).efficiency(labels_of(plans)))


def step_seconds(plans: PlanColumns, calibration: str | Calibration | None = None) -> Floats:
    """Seconds of a step of every plan."""
    return sum(step_parts(plans, calibration).values(), start=np.zeros(len(plans)))


def efficiency_of(plan: Plan, calibration: str | Calibration | None = None) -> Efficiency:
    """The efficiencies that a prediction of this plan rests on."""
    return _known(calibration).efficiency(labels_of(PlanColumns.of([plan])))


def estimate_table(
    frame: pd.DataFrame,
    devices: Mapping[str, HardwareSpec] | None = None,
    *,
    calibration: str | Calibration | None = None,
    memory: bool = True,
    limit_source: str = "",
) -> pd.DataFrame:
    """Predict every row of a table; gives `COLUMNS` in the order of the input.

    A row that cannot be computed has empty numbers, and all reasons in `note`; what was assumed, and that a row needs more than its
    limit, is there too, and in that of the first row columns that are not read but nearly have the name of one. Bytes are those
    that the row's `memory_kind` counts on its `memory_scope`; `memory` can be switched off. `limit_source` says who states the
    limits, if their column does not. Raises InputError for columns that state the same, and for missing ones.
    """
    table, known = read_table(frame, devices, limit_source), _known(calibration)
    lacking = unpriced(table.plans)
    for place, problems in _miscounted(table).items():
        lacking.setdefault(place, []).extend(problems)
    notes = _notes(table, lacking)
    priced = np.delete(np.arange(len(table.rows)), list(lacking))
    rows, plans = table.rows[priced], table.plans.take(priced) if lacking else table.plans
    found: dict[str, Any] = {name: np.full(len(frame), np.nan) for name in COLUMNS} | {"row_id": _ids(frame), "note": notes}
    impossible = _has_no_schedule(plans.virtual_pipeline_parallel_size, plans.pipeline_parallel_size, plans.num_micro_batches)
    for row in rows[impossible].tolist():
        notes[row] = "; ".join(filter(None, (notes[row], NO_SCHEDULE)))
    for start, part in zip(range(0, len(rows), PIECE), plans.chunks(PIECE), strict=True):
        for name, values in _predicted(part, known).items():
            found[name][rows[start : start + PIECE]] = values
    if memory:
        kinds, scopes = table.kinds.take(priced), table.scopes.take(priced)
        found["peak_memory_bytes"][rows] = needed = _counted(plans, kinds, scopes)
        if (other := ~(kinds.is_("") & scopes.is_(""))).any():
            unstated = Coded.same("", int(other.sum()))
            needed = needed.copy()
            needed[other] = _counted(plans.take(other), unstated, unstated)
        _note_limits(notes, rows, plans, needed)
    return pd.DataFrame(found)


def _ids(frame: pd.DataFrame) -> Any:
    """The table's own names of its rows, or their numbers from 1."""
    columns = list(frame.columns).count("row_id")
    if columns > 1:
        raise InputError("table of plans", [f"{columns} columns are named 'row_id'; keep one"])
    return frame["row_id"].to_numpy() if columns else np.arange(1, len(frame) + 1)


def _miscounted(table: PlanTable) -> dict[int, list[str]]:
    """By position in the plans, words for what is counted and where that mean nothing."""
    found: dict[int, list[str]] = {}
    for name, words, known in (("memory_kind", table.kinds, KINDS), ("memory_scope", table.scopes, SCOPES)):
        for code, word in enumerate(words.values):
            if problem := problem_of(word, known):
                for place in np.flatnonzero(words.codes == code).tolist():
                    found.setdefault(place, []).append(f"{table.labels[name]} = {word!r} {problem}")
    return found


def _notes(table: PlanTable, lacking: Mapping[int, Sequence[str]]) -> Any:
    """Why a row cannot be computed, or what was assumed of it."""
    found = np.full(len(table.rows) + len(table.problems), "", dtype=object)
    programs = assumed_of_programs(table.plans)
    found[table.rows] = np.array([text and f"assumed: {text}" for text in programs.values], dtype=object)[programs.codes]
    for row, messages in table.assumed.items():
        found[row] = "; ".join(filter(None, ("assumed: " + "; ".join(messages), found[row].removeprefix("assumed: "))))
    problems = {int(table.rows[place]): messages for place, messages in lacking.items()}
    for row, reasons in (problems | dict(table.problems)).items():
        found[row] = "; ".join(reasons)
    if len(found) and table.unread:
        found[0] = "; ".join(filter(None, (found[0], *table.unread)))
    return found


def _note_limits(notes: Any, rows: Codes, plans: PlanColumns, needed: Floats) -> None:
    """Note which rows need more bytes than their limits, as their plans count them whatever the row's own counter sees."""
    found = combined(plans.memory_limit, plans.hardware, plans.program)
    limits = Coded(found.codes, tuple(usable_limit(*values) for values in found.values))
    over = needed > limits.numbers(lambda limit: np.inf if limit is None else limit.limit_bytes or 1)
    for place in np.flatnonzero(over).tolist():
        if (limit := limits[place]) is not None:
            row = rows[place]
            notes[row] = "; ".join(filter(None, (notes[row], _too_much(needed[place], limit))))


def _predicted(plans: PlanColumns, known: Calibration) -> dict[str, Floats]:
    """What is predicted of plans but their memory, by column of a table of predictions."""
    costs, labels = cost_columns(plans), labels_of(plans)
    chunks = [slice(start, start + CHUNK) for start in range(0, len(plans), CHUNK)]
    seconds = np.concatenate([step.seconds(costs.take(part), known.efficiency(labels.take(part))) for part in chunks])
    low, high = known.bounds(labels, costs.experts > 0, costs.nodes > 1)
    return {
        "step_time_s": seconds,
        **_rates(costs, seconds),
        "step_time_low_s": seconds * low,
        "step_time_high_s": seconds * high,
    }


def _counted(plans: PlanColumns, kinds: Coded[str], scopes: Coded[str]) -> Floats:
    """Bytes of every plan that its counter sees on its stage."""
    counters = Coded(kinds.codes, tuple(map(counter_of, kinds.values)))
    stages = Coded(scopes.codes, tuple(map(scope_of, scopes.values)))
    return counted_bytes(plans, settings_of(plans), counters, stages)


def _known(chosen: str | Calibration | None) -> Calibration:
    return chosen if isinstance(chosen, Calibration) else calibration(chosen or "default")


def _sources(plan: Plan, known: Calibration, peak: Breakdown) -> tuple[tuple[str, Source], ...]:
    """Where the numbers come from: formulas, calibration, and every figure of the device."""
    computed = (
        ("step_time_s", step.SOURCE),
        ("efficiencies", Source("computed", f"calibration {known.name}", known.origin)),
        ("peak_memory_bytes", peak.source),
    )
    return computed + (tuple(plan.hardware.sources.items()) if plan.hardware else ())


def _rates(plans: CostColumns, seconds: Number) -> dict[str, Number]:
    tokens = plans.global_batch * plans.seq_length / (seconds * plans.devices)
    once, again = flops_per_token(plans)
    share = tokens / plans.peak_flops_per_s
    return {"tokens_per_s_per_device": tokens, "mfu": share * once, "hfu": share * again}
