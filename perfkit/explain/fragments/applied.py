"""Applied: settings of a fragment put into a project's plan: problems that are new, time and memory before and after.

The project's own file is changed where it is in the same dialect, else the plan as that dialect writes it, which is then what "now"
means too, so that what a dialect cannot say is no difference. Nothing is saved.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from perfkit.config.dialects import write_config
from perfkit.config.dialects.compare import differences
from perfkit.config.dialects.dialect import Document
from perfkit.config.dialects.registry import dialect_named
from perfkit.config.fragments.place import Path
from perfkit.config.lint import Problem, lint_text
from perfkit.core.errors import InputError
from perfkit.core.figure import Figure, figure
from perfkit.core.spec.plan import Plan
from perfkit.core.texts import say
from perfkit.core.units import NS_PER_S
from perfkit.predict.cost.pipeline_bubble import bubble_share
from perfkit.predict.estimate import Estimate, estimates
from perfkit.predict.memory.memory import peak_memory
from perfkit.predict.reading import completed


@dataclass(frozen=True, kw_only=True, slots=True)
class Applied:
    """The plan with the settings (None where they contradict it), what is different, and problems that were not there before."""

    plan: Plan | None
    says: tuple[str, ...] = ()
    figures: tuple[Figure, ...] = ()
    problems: tuple[Problem, ...] = ()


def apply(plan: Plan, dialect: str, changes: Mapping[Path, Any], name: str) -> Applied:
    """The plan of a project with settings of a dialect changed."""
    known = dialect_named(dialect)
    try:
        document = _document(plan, dialect)
        now = replace(completed(known.read(document)), hardware=plan.hardware)
        text, _ = known.edit(document, changes)
        changed = replace(completed(known.read(replace(document, text=text))), hardware=plan.hardware)
    except InputError as error:
        found = [
            Problem(
                rule="not-with-this-plan",
                severity="error",
                file=name,
                line=None,
                key="",
                message=say("with the project's plan: {problem}", problem=problem),
                fix="",
            )
            for problem in error.problems
        ]
        return Applied(plan=None, problems=tuple(found))
    different = differences(changed, now)
    if not different:
        return Applied(plan=changed, says=("the project's plan says the same: nothing changes",))
    before = {(one.rule, one.key, one.message) for one in lint_text(f"plan{known.suffix}", document.text).problems}
    after = [
        one
        for one in lint_text(f"plan{known.suffix}", text).problems
        if one.severity != "information" and (one.rule, one.key, one.message) not in before
    ]
    return Applied(
        plan=changed,
        says=tuple(say("in the project's plan: {difference}", difference=one) for one in different),
        figures=_compared(now, changed),
        problems=tuple(replace(one, file=name, line=None) for one in after),
    )


def _document(plan: Plan, dialect: str) -> Document:
    own = plan.document
    if isinstance(own, Document) and own.dialect == dialect:
        return own
    written = write_config(replace(plan, document=None), dialect=dialect)
    return Document(name=written.name, text=written.text, dialect=dialect)


def _compared(plan: Plan, changed: Plan) -> tuple[Figure, ...]:
    """Figures of both plans that differ, the project's first."""
    rows: list[Figure] = []
    for name, unit, source, values in _pairs(plan, changed):
        if values[0] != values[1]:
            rows.append(figure(say("{name}, now", name=name), values[0], unit, "computed", source))
            rows.append(figure(say("{name}, with it", name=name), values[1], unit, "computed", source))
    return tuple(rows)


def _pairs(plan: Plan, changed: Plan) -> list[tuple[str, str, str, tuple[float | None, float | None]]]:
    both = (plan, changed)
    found: list[tuple[str, str, str, tuple[float | None, float | None]]] = [
        (
            "global batch",
            "sequences",
            "micro batch x replicas x micro batches",
            _two(lambda one: one.workload.global_batch_size, both),
        ),
        ("devices", "", "data x tensor x context x pipeline", _two(lambda one: one.num_devices, both)),
        ("bubble of the step", "ratio", "(p - 1) / (v m + p - 1)", _two(_bubble, both)),
        ("memory pool", "bytes", "limit that the plan states", _two(_limit, both)),
    ]
    known = _estimates(both)
    if known is None:
        found.append(
            ("peak memory", "bytes", "sum of states and activations", _two(lambda one: float(peak_memory(one).peak.total), both))
        )
        return found
    first, second = known
    return [
        *found,
        ("step time", "ns", "estimate", (first.step_time_s * NS_PER_S, second.step_time_s * NS_PER_S)),
        ("tokens a device", "tokens/s", "estimate", (first.tokens_per_s_per_device, second.tokens_per_s_per_device)),
        ("MFU", "ratio", "estimate", (first.mfu, second.mfu)),
        ("peak memory", "bytes", "estimate", (first.peak_memory_bytes, second.peak_memory_bytes)),
    ]


def _two(value: Any, plans: tuple[Plan, Plan]) -> tuple[float | None, float | None]:
    return value(plans[0]), value(plans[1])


def _bubble(plan: Plan) -> float:
    parallel = plan.parallel
    return bubble_share(parallel.pipeline_parallel_size, plan.num_micro_batches, parallel.virtual_pipeline_parallel_size)


def _limit(plan: Plan) -> float | None:
    return plan.memory_limit.limit_bytes if plan.memory_limit is not None else None


def _estimates(plans: tuple[Plan, Plan]) -> tuple[Estimate, Estimate] | None:
    try:
        first, second = estimates(plans)
    except InputError:
        return None
    return first, second
