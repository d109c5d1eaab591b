"""Case file: reads the JSON documents `perfkit.plans.schedules/1` and `perfkit.plans.plan/1`.

A schedules file has `cases`, each an object with the fields of `ScheduleCase`; a plan file has `problem`, an object with those of
`PipelineProblem`. docs/plans.md lists them.
"""

from __future__ import annotations

from pathlib import Path

from perfkit.core.errors import InputError
from perfkit.predict.plans.balance.fields import Fields, read_document
from perfkit.predict.plans.balance.problem import BALANCED, KINDS, MAX_BYTES, MAX_LAYERS, EndPart, Kind, LayerType, PipelineProblem
from perfkit.predict.plans.schedule.compile import MODES
from perfkit.predict.plans.schedule.order import MAX_OPS, SCHEDULES
from perfkit.predict.plans.schedule.schedule import MAX_NS, ScheduleCase

SCHEDULES_FORMAT = "perfkit.plans.schedules/1"
PLAN_FORMAT = "perfkit.plans.plan/1"
_FAMILY = PLAN_FORMAT.rpartition("plan/")[0].encode()  # another format of this family is a case that is refused with its name
_START = 4096


def is_case(path: str | Path, text: str | None = None) -> bool:
    """Whether a file, or `text` in its place, is a case of any format of the family; InputError if it cannot be read."""
    if text is not None:
        start = text[:_START].encode().lstrip()
    else:
        try:
            with Path(path).open("rb") as stream:
                start = stream.read(_START).lstrip()
        except OSError as error:
            raise InputError(str(path), [f"the file cannot be read: {error.strerror}"]) from error
    return start.startswith(b"{") and _FAMILY in start


def read_schedules(path: str | Path) -> list[ScheduleCase]:
    """The cases of a `perfkit.plans.schedules/1` file ("-" is standard input); InputError lists the problems of all of them."""
    document = read_document(path, [SCHEDULES_FORMAT])
    problems: list[str] = []
    cases = [case for part in Fields(document, "", problems).parts("cases") if (case := _schedule_case(part)) is not None]
    if problems:
        raise InputError(str(path), problems)
    return cases


def read_problem(path: str | Path, text: str | None = None) -> PipelineProblem:
    """The problem of a `perfkit.plans.plan/1` file ("-" is standard input); InputError lists everything that is wrong with it.

    With `text` that is read instead, and `path` only names it.
    """
    document = read_document(path, [PLAN_FORMAT], text)
    problems: list[str] = []
    part = Fields(document.get("problem"), "problem", problems)
    values = {
        "schedule": part.word("schedule", BALANCED),
        "num_stages": part.integer("num_stages", low=1, high=MAX_OPS),
        "num_chunks": part.integer("num_chunks", 1, low=1, high=MAX_OPS),
        "num_microbatches": part.integer("num_microbatches", low=1, high=MAX_OPS),
        "memory_limit_bytes": part.integer("memory_limit_bytes", high=MAX_BYTES) if part.has("memory_limit_bytes") else None,
        "const_bytes": part.integer("const_bytes", 0, low=-MAX_BYTES, high=MAX_BYTES),
        "p2p_ns": part.integer("p2p_ns", 0, high=MAX_NS),
        "p2p_mode": part.word("p2p_mode", MODES, "none"),
        "min_layers_per_chunk": part.integer("min_layers_per_chunk", 1, high=MAX_LAYERS),
        "body": tuple(_layer_type(layer) for layer in part.parts("body")),
        "head": _end_part(part.part("head")),
        "tail": _end_part(part.part("tail")),
    }
    if problems:
        raise InputError(str(path), problems)
    try:
        return PipelineProblem(**values)  # type: ignore[arg-type]
    except InputError as error:
        raise InputError(str(path), error.problems) from error


def _layer_type(part: Fields) -> LayerType:
    return LayerType(
        name=part.word("name"),
        count=part.integer("count", low=1, high=MAX_LAYERS),
        fwd_ns=part.integer("fwd_ns", high=MAX_NS),
        param_bytes=part.integer("param_bytes", high=MAX_BYTES),
        kinds={name: _kind(part, name, kind) for name, kind in part.named_parts("kinds")},
    )


def _kind(part: Fields, name: str, kind: Fields) -> Kind:
    if name not in KINDS:
        part.problems.append(f"{part.place}.kinds has {name!r}; a kind is one of {', '.join(KINDS)}")
    return Kind(
        bwd_ns=kind.integer("bwd_ns", high=MAX_NS),
        act_bytes=kind.integer("act_bytes", high=MAX_BYTES),
        wgrad_ns=kind.integer("wgrad_ns", 0, high=MAX_NS),
    )


def _end_part(part: Fields | None) -> EndPart | None:
    if part is None:
        return None
    return EndPart(
        fwd_ns=part.integer("fwd_ns", high=MAX_NS),
        bwd_ns=part.integer("bwd_ns", high=MAX_NS),
        param_bytes=part.integer("param_bytes", high=MAX_BYTES),
        act_bytes=part.integer("act_bytes", 0, high=MAX_BYTES),
        wgrad_ns=part.integer("wgrad_ns", 0, high=MAX_NS),
    )


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
