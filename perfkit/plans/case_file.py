"""Case file: reads the JSON documents `perfkit.plans.schedules/1` and `perfkit.plans.plan/1`.

A schedules file has `cases`, each an object with the fields of `ScheduleCase`; docs/plans.md lists them.
"""

from __future__ import annotations

from pathlib import Path

from perfkit.errors import InputError
from perfkit.plans._compile import MODES
from perfkit.plans._fields import Fields, read_document
from perfkit.plans._order import MAX_OPS, SCHEDULES
from perfkit.plans.schedule import MAX_NS, ScheduleCase

SCHEDULES_FORMAT = "perfkit.plans.schedules/1"


def read_schedules(path: str | Path) -> list[ScheduleCase]:
    """The cases of a `perfkit.plans.schedules/1` file ("-" is standard input); InputError lists the problems of all of them."""
    document = read_document(path, [SCHEDULES_FORMAT])
    problems: list[str] = []
    cases = [case for part in Fields(document, "", problems).parts("cases") if (case := _schedule_case(part)) is not None]
    if problems:
        raise InputError(str(path), problems)
    return cases


def _schedule_case(part: Fields) -> ScheduleCase | None:
    before = len(part.problems)
    values = {
        "schedule": part.word("schedule", SCHEDULES),
        "num_stages": part.integer("num_stages", low=1, high=MAX_OPS),
        "num_chunks": part.integer("num_chunks", 1, low=1, high=MAX_OPS),
        "num_microbatches": part.integer("num_microbatches", low=1, high=MAX_OPS),
        "fwd_ns": part.table("fwd_ns") or (),
        "bwd_ns": part.table("bwd_ns") or (),
        "wgrad_ns": part.table("wgrad_ns"),
        "pair_ns": part.row("pair_ns"),
        "p2p_ns": part.integer("p2p_ns", 0, high=MAX_NS),
        "p2p_mode": part.word("p2p_mode", MODES, "none"),
    }
    if len(part.problems) > before:
        return None
    try:
        return ScheduleCase(**values)  # type: ignore[arg-type]
    except InputError as error:
        part.problems += [f"{part.place}: {problem}" for problem in error.problems]
        return None
