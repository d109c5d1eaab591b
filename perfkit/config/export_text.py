"""Export text: a plan as configuration to copy: what changes in the file that it was read from, else a new text."""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

from perfkit.config.dialects import read_text, write_config
from perfkit.config.dialects.registry import dialect_named, dialects
from perfkit.core.errors import InputError
from perfkit.core.spec.plan import Plan
from perfkit.core.texts import say

DIALECTS = tuple((dialect.title, dialect.name) for dialect in dialects())
"""Dialects to choose from: title and name."""


class Export(NamedTuple):
    """A text with what it is: `language` is "diff" for changes; a plan that cannot be written has the problems as text.

    A page shows the `folded` ones when they are asked for.
    """

    title: str
    text: str
    language: str = ""
    folded: bool = False


def as_stated(plan: Plan) -> Plan:
    """The plan without a device that was chosen beside its file, which names none."""
    document = plan.document
    if document is None or read_text(document.text, document.name, document.path).hardware is not None:
        return plan
    return replace(plan, hardware=None)


def export_text(plan: Plan, dialect: str, *, whole: bool = False) -> Export:
    """The plan in a dialect, with what cannot be said there in the title: what changes in its file, or the `whole` of it."""
    chosen = dialect_named(dialect)
    try:
        written = write_config(as_stated(plan), dialect=dialect)
    except InputError as error:
        return Export(say("This cannot be written for {dialect}", dialect=chosen.title), "\n".join(error.problems))
    losses = [lost for lost in written.lost if not lost.startswith("hardware")]
    changes = written.before and not whole
    title = say("What changes for {dialect}" if changes else "The plan for {dialect}", dialect=chosen.title)
    if losses:
        title = say("{title} (not said there: {losses})", title=title, losses="; ".join(losses))
    if changes:
        return Export(title, written.diff() or "nothing changes", "diff")
    return Export(title, written.text, chosen.language, folded=whole)
