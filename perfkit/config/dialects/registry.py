"""All dialects there are, and reading a document in the one that its content is in."""

from __future__ import annotations

import re

from perfkit.config.dialects.dialect import Dialect, Document
from perfkit.core.discover import constants
from perfkit.core.errors import InputError
from perfkit.core.spec.plan import Plan

STARTED = re.compile(
    r"^[^#\n]*\b(?:msrun|torchrun|mpirun|deepspeed|accelerate|python3?|bash)\b[^\n]*?\s(\S+\.(?:ya?ml|toml|json))\b", re.MULTILINE
)
"""A line that starts a program with a file of settings; only asked where the text itself is none."""
DOTTED = re.compile(r"(?<=--)[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)+")
"""Options on such a line that state a key of the file anew."""


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
    """The plan of a document whose dialect is recognised by content."""
    found = recognised(document)
    if not found:
        if started := STARTED.search(re.sub(r"\\\n", " ", document.text)):
            told = f"starts a training whose configuration is {started[1]}: open that file"
            anew = ", ".join(dict.fromkeys(DOTTED.findall(document.text)))
            raise InputError(document.name, [f"{told}; options of the launch line win over it: {anew}" if anew else told])
        wanted = [f"{dialect.title}: looks for {dialect.looks_for}" for dialect in dialects()]
        raise InputError(document.name, ["the content is in no configuration dialect that perfkit reads", *wanted])
    if len(found) > 1:
        titles = " and as ".join(dialect.title for dialect in found)
        raise InputError(document.name, [f"the content reads as {titles}; keep one configuration a file"])
    return found[0].read(document)
