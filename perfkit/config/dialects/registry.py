"""All dialects there are, and reading a document in the one that its content is in."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from perfkit.config.dialects._started import Started, started
from perfkit.config.dialects.dialect import Dialect, Document
from perfkit.config.dialects.manifests import Manifest, manifest_of
from perfkit.config.dialects.unread import unread_program
from perfkit.core.discover import constants
from perfkit.core.errors import InputError
from perfkit.core.spec.plan import Plan
from perfkit.core.syntax import tree_of
from perfkit.core.texts import say


def dialects() -> tuple[Dialect, ...]:
    """All dialects, by module name."""
    return constants("perfkit.config.dialects", "DIALECT")


def dialect_named(name: str) -> Dialect:
    """The dialect of a name as in `perfkit convert --to`; InputError lists the names."""
    found = {dialect.name: dialect for dialect in dialects()}
    if name not in found:
        raise InputError("dialect", [f"no dialect is called {name!r}; there are {', '.join(found)}"])
    return found[name]


def recognised(document: Document) -> tuple[Dialect, ...]:
    """The dialects that the content may be in; what yields only where nothing else claims it."""
    found = [dialect for dialect in dialects() if dialect.detect(document)]
    return tuple(dialect for dialect in found if not dialect.yields) or tuple(found)


def read_document(document: Document) -> Plan:
    """The plan of a document whose dialect is recognised by content; of a manifest, of the script that its containers run."""
    if (manifest := manifest_of(document.text)).script != document.text:
        held = {path: file.text for path, file in manifest.files.items()}
        return _with_notes(read_document(replace(document, text=manifest.script, held=held)), _notes(manifest))
    found = recognised(document)
    begun = started(document.text, document.path) if not found or any(one.launched_with for one in found) else None
    if begun and (not found or (_takes_options(document, begun) and not _is_python(document.text))):
        return _read_started(document, begun)
    if not found:
        if why := unread_program(document.text):
            raise InputError(document.name, [why])
        wanted = [f"{dialect.title}: looks for {dialect.looks_for}" for dialect in dialects()]
        raise InputError(document.name, ["the content is in no configuration dialect that perfkit reads", *wanted])
    if len(found) > 1:
        titles = " and as ".join(dialect.title for dialect in found)
        raise InputError(document.name, [f"the content reads as {titles}; keep one configuration a file"])
    return found[0].read(document)


def _notes(manifest: Manifest) -> tuple[str, ...]:
    note = say("read from a manifest of containers: what is written is the script that they run")
    return (note, manifest.told()) if manifest.unknown else (note,)


def _with_notes(plan: Plan, notes: tuple[str, ...]) -> Plan:
    document = plan.document
    return plan if document is None else replace(plan, document=replace(document, notes=(*document.notes, *notes)))


def _takes_options(document: Document, begun: Started) -> bool:
    """Whether what looks like a configuration are options beside a file that is here, of a program that takes both."""
    found = recognised(_file_of(document, begun))
    return len(found) == 1 and bool(found[0].launched_with)


def _file_of(document: Document, begun: Started) -> Document:
    """The file of settings that a script starts a training with, which came along or lies beside it; else an empty one."""
    if (text := document.came_with(begun.named)) is None and begun.file is not None:
        text, document = begun.file.read_text(encoding="utf-8", errors="replace"), replace(document, path=begun.file)
    return replace(document, name=begun.named, text=text or "")


def _is_python(text: str) -> bool:
    """Whether a text is a program of Python, in which a line that starts another one is an example."""
    try:
        tree_of(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False
    return True


def _read_started(document: Document, begun: Started) -> Plan:
    """The plan of the file of settings that a script starts a training with, where it is here."""
    file = _file_of(document, begun)
    found = recognised(file)
    if len(found) != 1:
        raise InputError(document.name, [begun.told()])
    dialect = found[0]
    anew = begun.changes(
        {key for key, value in dialect.parse(file.text, begun.named).values.items() if not isinstance(value, Mapping)}
    )
    counted = begun.counted(dialect.launched_with)
    own, _ = dialect.edit(file, anew)
    changed, _ = dialect.edit(replace(file, text=own), counted)
    plan = dialect.read(replace(file, text=changed))
    keys = ", ".join(".".join(path) for path in (*counted, *anew))
    said = f"{begun.named}, which {document.name} starts" + (f"; its launch line wins over {keys}" if keys else "")
    if not isinstance(plan.document, Document):
        return plan
    return replace(plan, document=replace(plan.document, text=own, notes=(said, *plan.document.notes)))
