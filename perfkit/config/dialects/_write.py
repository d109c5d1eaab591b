"""Writing plans and single values: the text first, then a second look at what a reader makes of it.

A plan is written into its own document by changing only the settings that differ, or into a new text of another dialect. The text
is read back, and every field that does not come back as it was is listed: a dialect's limits are found, not declared.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from perfkit.config.dialects.compare import differences
from perfkit.config.dialects.dialect import Changes, Dialect, Document, Written
from perfkit.config.dialects.registry import dialect_named
from perfkit.core.errors import InputError
from perfkit.core.spec.plan import Plan


def write_config(plan: Plan, target: str | Path | None = None, *, dialect: str = "") -> Written:
    """A plan as configuration text, saved to `target` if that is given.

    `dialect` is one of mindformers, mindspeed-core, megatron, perfkit; without it that of the plan's document, or perfkit. In the
    document's own dialect comments, order and unknown keys stay and only what differs changes; otherwise the text is new. Raises
    InputError for an unknown dialect, a `target` that is the input, or text that cannot be read back.
    """
    document = plan.document if isinstance(plan.document, Document) else None
    asked = dialect_named(dialect or (document.dialect if document else "perfkit"))
    if document is not None and document.dialect == asked.name:
        written = _rewritten(plan, document, asked)
    else:
        written = _new(plan, document, asked)
    if target is not None:
        written.save(target)
    return written


def edit_config(document: Document, changes: Changes | dict[str, Any]) -> Written:
    """A document with single values changed, by dotted key or key path; nothing else moves.

    `notes` names the places that follow a changed anchor, and the new batch or layers if these changed. Raises InputError if the
    result is no valid configuration, with every problem.
    """
    asked = dialect_named(document.dialect)
    paths = {tuple(key.split(".")) if isinstance(key, str) else key: value for key, value in changes.items()}
    text, notes = asked.edit(document, paths)
    after = _read(document, asked, text)
    return _written(document, asked, text, (*notes, *_consequences(asked.read(document), after)))


def _rewritten(plan: Plan, document: Document, dialect: Dialect) -> Written:
    """The plan in its own document: what differs first; all settings where old ones without effect came to life."""
    was = dialect.read(document)
    if not differences(plan, was):
        return _written(document, dialect, document.text)
    before, wanted = dialect.settings(was), dialect.settings(plan)
    changed = {path: value for path, value in wanted.items() if path not in before or before[path] != value}
    best: Written | None = None
    problems: InputError | None = None
    for changes in (changed, wanted):
        try:
            text, notes = dialect.edit(document, changes)
            found = _read(document, dialect, text)
        except InputError as error:
            problems = problems or error
            continue
        lost = tuple(differences(plan, found))
        if best is None or len(lost) < len(best.lost):
            best = replace(_written(document, dialect, text, (*notes, *_consequences(was, found))), lost=lost)
        if not lost:
            break
    if best is None:
        raise problems or InputError(document.name, ["the plan cannot be written into this file"])
    return best


def _new(plan: Plan, document: Document | None, dialect: Dialect) -> Written:
    name = Path(document.name).stem if document else plan.model.name or "plan"
    text = dialect.new(dialect.settings(plan))
    found = dialect.read(Document(name=f"{name}{dialect.suffix}", text=text))
    source = document.path if document else None
    return Written(
        dialect=dialect.name, name=f"{name}{dialect.suffix}", text=text, lost=tuple(differences(plan, found)), source=source
    )


def _written(document: Document, dialect: Dialect, text: str, notes: tuple[str, ...] = ()) -> Written:
    return Written(
        dialect=dialect.name,
        name=document.name,
        text=text,
        before=document.text,
        notes=notes,
        marked=document.marked,
        source=document.path,
    )


def _read(document: Document, dialect: Dialect, text: str) -> Plan:
    return dialect.read(Document(name=document.name, text=text, dialect=dialect.name, path=document.path))


def _consequences(before: Plan, after: Plan) -> list[str]:
    """Figures that follow from others and that a change has moved."""
    notes = []
    if before.workload.global_batch_size != after.workload.global_batch_size:
        notes.append(f"the global batch becomes {after.workload.global_batch_size}, was {before.workload.global_batch_size}")
    if before.num_devices != after.num_devices:
        notes.append(f"the plan now needs {after.num_devices} devices, was {before.num_devices}")
    return notes
