"""Keys: the part that explains settings, whether they were written as YAML, dotted names, a Python literal or JSON."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Any

from perfkit.config.dialects.dialect import Document
from perfkit.config.dialects.memory_text import size_of
from perfkit.config.dialects.registry import dialect_named, recognised
from perfkit.config.dialects.yaml import parse
from perfkit.config.fragments.meanings import meanings
from perfkit.config.fragments.place import Path, Placed, flat, placed
from perfkit.config.fragments.repair import as_yaml, without_hanging
from perfkit.config.lint import Problem, lint_text
from perfkit.core.errors import InputError
from perfkit.core.figure import Figure, figure
from perfkit.core.patterns import check_patterns
from perfkit.core.spec.checks import LARGEST
from perfkit.core.spec.plan import Plan
from perfkit.core.texts import Said, joined, say
from perfkit.explain.fragments.applied import apply
from perfkit.explain.fragments.effects import effects
from perfkit.explain.fragments.kind import Part, Piece

MOST_PROBLEMS = 5
SIZED = ("data", "tensor", "pipeline", "context", "expert", "batch", "micro_batches")
COUNTS = ("recompute", "select_recompute", "select_comm_recompute")
SIZES = {
    "mindformers": ("data_parallel", "model_parallel", "context_parallel", "pipeline_stage"),
    "mindspeed-core": ("tensor_model_parallel_size", "pipeline_model_parallel_size", "context_parallel_size", "data_parallel_size"),
}


def _of_others(text: str) -> str:
    """What keys are that no dialect explained here has: those of a dialect that is read as a whole file, or of none."""
    known = next(iter(recognised(Document(name="fragment", text=text))), None)
    if known is None:
        return "keys that no dialect of perfkit has"
    return say("keys of {dialect}, which is explained as a whole file", dialect=known.title)


def _why_no_plan(text: str, line: int) -> list[str]:
    """What a dialect misses that is read as a whole file: the first problems of its reader, with the lines of the paste."""
    document = Document(name="fragment", text="\n" * (line - 1) + text)
    if len(found := recognised(document)) != 1:
        return []
    try:
        found[0].read(document)
    except InputError as error:
        return list(error.problems[:MOST_PROBLEMS])
    return []


def explain_keys(piece: Piece, kind: str) -> Part:
    """The part of keys and values: each with its meaning, checked as far as it states something, and put into the plan."""
    moved = without_hanging(piece.text)
    piece = replace(piece, text=moved.text)
    repaired = as_yaml(piece.text)
    dialect = getattr(piece.plan.document, "dialect", "") if piece.plan is not None else ""
    found = placed(repaired.text, dialect)
    if found is None:
        return Part(kind=kind, title=_of_others(repaired.text), says=(*repaired.notes, *_why_no_plan(repaired.text, piece.line)))
    title = dialect_named(found.dialect).title
    problems = [_shifted(one, piece) for one in lint_text("fragment.yaml", piece.text).problems]
    values, corrected = _values(found), _corrected(found, bool(repaired.notes))
    changes = flat(values) if values else {}
    problems += [
        piece.problem(
            "misspelled-key",
            "warning",
            say("the key {name} is read as {near}; the program does not", name=repr(name), near=repr(near)),
            line=line,
            key=name,
            fix=say("write {value}", value=near),
        )
        for line, name, near in found.misspelled
    ]
    impossible = _impossible(found.dialect, changes, piece)
    keys = {one.key.rpartition(".")[2] for one in impossible}
    problems = [one for one in problems if one.rule != "value-unreadable" or one.key.rpartition(".")[2] not in keys]
    problems += impossible
    belongs = joined((say("{key} under {parents}", key=key, parents=parents) for key, parents in found.belongs), "; ")
    says = [
        *(_shifted_note(note, piece) for note in (*moved.notes, *repaired.notes)),
        *_meanings(found, changes, piece.plan),
        *_counts(changes),
    ]
    says += [say("no key of {dialect}: {key}", dialect=title, key=key) for key in found.unknown]
    says += [say("could also be {others}", others=", ".join(found.also))] if found.also else []
    figures = list(_figures(found.dialect, changes))
    if piece.plan is not None and changes and not impossible:
        applied = apply(piece.plan, found.dialect, changes, piece.name)
        told = {(one.rule, one.message) for one in problems}
        says += applied.says
        figures += applied.figures
        problems += [one for one in applied.problems if (one.rule, one.message) not in told]
    return Part(
        kind=kind,
        title=say("keys of {dialect}" if found.text.strip() else "names of keys of {dialect}", dialect=title),
        belongs=belongs,
        says=tuple(says),
        figures=tuple(figures),
        problems=tuple(problems),
        corrected=corrected,
    )


def _shifted_note(note: str, piece: Piece) -> str:
    if not isinstance(note, Said):
        return note
    line = str(int(str(note.values["line"])) + piece.line - 1)
    return say(note.form, **{**note.values, "line": line})


def _shifted(problem: Problem, piece: Piece) -> Problem:
    return piece.problem(problem.rule, problem.severity, problem.message, line=problem.line, key=problem.key, fix=problem.fix)


def _impossible(dialect: str, changes: Mapping[Path, Any], piece: Piece) -> list[Problem]:
    """Sizes that no job has; a variable may be anything."""
    sizes = {name.rpartition(".")[2] for group in SIZED for name in dialect_named(dialect).sizes.get(group, ())}
    return [
        piece.problem(
            "size-impossible",
            "error",
            say("{key} = {value} is no size: a whole number from 1 on", key=key, value=repr(value)[:60]),
            key=".".join(path),
            fix=say("write {value}", value=digits) if (digits := str(value).strip(" ,;.")).isdecimal() else "",
        )
        for path, value in changes.items()
        if (key := path[-1]) in sizes and not (isinstance(value, str) and "$" in value)
        if not (isinstance(value, int) and not isinstance(value, bool) and 1 <= value <= LARGEST)
    ]


def _values(found: Placed) -> Mapping[str, Any]:
    try:
        return parse(found.text, "fragment").values if found.text.strip() else {}
    except InputError:
        return {}


def _corrected(found: Placed, repaired: bool) -> str:
    """The fragment with its parents and with patterns that name operators; "" where it is right as it stands."""
    text = found.text
    for one in check_patterns(list(_patterns(_values(found)))):
        if not one.matched and one.repaired:
            text = text.replace(f"'{one.pattern}'", f"'{one.repaired}'").replace(f'"{one.pattern}"', f'"{one.repaired}"')
    return text if repaired or found.belongs or found.misspelled or text != found.text else ""


def _patterns(values: Mapping[str, Any]) -> Iterator[str]:
    for path, value in flat(values).items():
        if path[-1] == "select_recompute" and isinstance(value, list | dict):
            yield from (item for item in value if isinstance(item, str))


def _meanings(found: Placed, changes: Mapping[Path, Any], plan: Plan | None) -> Iterator[str]:
    """What each key is for, by the list of keys or by what the reader of the dialect makes of it."""
    known = meanings(found.dialect)
    settings = _settings(plan, found.dialect) if plan is not None else {}
    for key in (*found.asked, *(".".join(path) for path in changes)):
        if meaning := known.get(key):
            now = settings.get(tuple(key.split(".")))
            form = (
                "{key}: {meaning} (default {default})"
                if now is None
                else "{key}: {meaning} (default {default}, the plan has {now})"
            )
            yield say(form, key=key, meaning=meaning.text, default=meaning.default, now=str(now))
    yield from effects(
        found.dialect,
        {path: value for path, value in changes.items() if not {".".join(path), path[0]} & {*known, *found.unknown}},
    )


def _settings(plan: Plan, dialect: str) -> Mapping[Path, Any]:
    try:
        return dialect_named(dialect).settings(plan)
    except InputError:
        return {}


def _counts(changes: Mapping[Path, Any]) -> Iterator[str]:
    """What recompute lists say, stage by stage."""
    for path, value in changes.items():
        if path[-1] not in COUNTS or not isinstance(value, list | Mapping) or not value:
            continue
        if isinstance(value, list) and all(isinstance(item, int) and not isinstance(item, bool) for item in value):
            stages = joined(
                (say("stage {stage}: the first {count}", stage=str(at), count=str(count)) for at, count in enumerate(value)), ", "
            )
            yield say("{key}: {number} stages; layers: {stages}", key=path[-1], number=len(value), stages=stages)
        elif all(isinstance(item, str) for item in value):
            matched = sum(bool(one.matched) for one in check_patterns(list(value)))
            where = "in all layers" if isinstance(value, list) else "each with counts"
            form = "{key}: {number} patterns, {where}, of which {matched} name an operator of MindFormers' Llama layer"
            yield say(form, key=path[-1], number=len(value), where=where, matched=matched)


def _figures(dialect: str, changes: Mapping[Path, Any]) -> Iterator[Figure]:
    """What follows from the stated values alone."""
    values = {path[-1]: value for path, value in changes.items()}
    if (pool := values.get("max_device_memory")) is not None:
        with suppress(ValueError):
            yield figure("memory pool", size_of(str(pool)), "bytes", "reported", "max_device_memory; GB means 2^30 here (X27)")
    start = values.get("profile_start_step", values.get("profile_step_start"))
    stop = values.get("profile_stop_step", values.get("profile_step_end"))
    if isinstance(start, int) and isinstance(stop, int) and stop >= start:
        yield figure("recorded steps", stop - start + 1, "steps", "computed", "stop - start + 1")
    stated = [values[name] for name in SIZES[dialect] if isinstance(values.get(name), int)]
    if len(stated) > 1:
        product = 1
        for size in stated:
            product *= size
        yield figure("devices of the stated sizes", product, "", "computed", "product of the sizes that are stated")
    batch, num = values.get("batch_size"), values.get("micro_batch_num")
    if isinstance(batch, int) and isinstance(num, int):
        source = "batch_size x micro_batch_num; x replicas is the global batch"
        yield figure("sequences of a replica", batch * num, "sequences", "computed", source)
