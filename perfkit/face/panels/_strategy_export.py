"""Strategy export: a plan of page 03 as configuration text, and saved with its prediction to a round."""

from __future__ import annotations

import tempfile
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from perfkit.config.dialects import Written, write_config
from perfkit.config.dialects.registry import dialect_named, dialects
from perfkit.core.errors import InputError
from perfkit.core.spec.plan import Plan
from perfkit.face.widgets import context
from perfkit.face.widgets.panel import Code
from perfkit.predict.estimate import Estimate
from perfkit.predict.plans.search.search_text import plan_text
from perfkit.project.experiments import ExperimentLog

DIALECTS = tuple((dialect.title, dialect.name) for dialect in dialects())

_kept: deque[tuple[tuple[Plan, str], Written]] = deque(maxlen=8)


@dataclass(frozen=True, kw_only=True, slots=True)
class Compared:
    """A plan of the comparison: its `key` among the marks, the `name` on the page, and its estimate."""

    key: str
    name: str
    plan: Plan
    estimate: Estimate


def short(plan: Plan) -> str:
    """The division of a plan, such as "dp 8 tp 4 pp 2"."""
    return plan_text(plan).split(",")[0]


def exported(compared: Sequence[Compared], dialect: str) -> tuple[Code, ...]:
    """The first plan in a dialect: what changes in the file that was read, or a new text; what cannot be said is in the title."""
    if not compared:
        return ()
    item, chosen = compared[0], dialect_named(dialect)
    try:
        written = _written(item.plan, dialect)
    except InputError as error:
        return (Code("\n".join(error.problems), "", f"{item.name} cannot be written for {chosen.title}"),)
    # The page has a device that most dialects have no place for.
    losses = [lost for lost in written.lost if not lost.startswith("hardware:")]
    lost = f" (not said there: {'; '.join(losses)})" if losses else ""
    if written.before:
        return (Code(written.diff() or "nothing changes", "diff", f"{item.name}, changes for {chosen.title}{lost}"),)
    return (Code(written.text, chosen.language, f"{item.name} for {chosen.title}{lost}"),)


def _written(plan: Plan, dialect: str) -> Written:
    """The plan in a dialect; the last ones are kept, as most sliders leave the first plan as it is and writing takes 0.1 s."""
    known = next((kept for of, kept in list(_kept) if of[1] == dialect and of[0] == plan), None)
    if known is None:
        known = write_config(plan, dialect=dialect)
        _kept.append(((plan, dialect), known))
    return known


def save(compared: Sequence[Compared], dialect: str) -> str:
    """Write the first plan, with what is predicted for it, to the open round of the project; opens one if all are decided."""
    project = context.current_project()
    if project is None:
        raise InputError("plan", ["no project is open; make one on page 00"])
    if not compared:
        raise InputError("plan", ["there is no plan to save"])
    item = compared[0]
    log = ExperimentLog(project.folder)
    number = next((row["number"] for row in log.show("json")["rounds"] if not row["verdict"]), None)
    if number is None:
        number = log.start(f"Strategy: {short(item.plan)}", item.name)
    written = write_config(item.plan, dialect=dialect)
    with tempfile.TemporaryDirectory() as folder:
        file = written.save(Path(folder) / f"config{Path(written.name).suffix}")
        log.attach(number, file, "config", devices=item.plan.num_devices)
    rate, (low, high) = item.estimate.tokens_per_s_per_device, item.estimate.interval_s
    step, method = item.estimate.step_time_s, "perfkit estimate, page 03"
    log.predict(number, "tokens_per_s_per_device", rate, low=rate * step / high, high=rate * step / low, method=method)
    log.predict(number, "peak_memory_bytes", item.estimate.peak_memory_bytes or 0, method=method)
    return f"Saved to round {number} of {project.name}: {item.name}, with its predicted throughput and memory."
