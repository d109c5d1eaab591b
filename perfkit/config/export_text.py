"""Export text: a plan as configuration to copy: what changes in the file that it was read from, else a new text."""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

from perfkit.config.dialects import write_config
from perfkit.config.dialects.registry import dialect_named, dialects
from perfkit.core.errors import InputError
from perfkit.core.spec.plan import Plan
from perfkit.core.texts import say

DIALECTS = tuple((dialect.title, dialect.name) for dialect in dialects())
"""Dialects to choose from: title and name."""


class Export(NamedTuple):
    """A text with what it is: `language` is "diff" for changes; a plan that cannot be written has the problems as text."""

    title: str
    text: str
    language: str = ""


def export_text(plan: Plan, dialect: str) -> Export:
    """The plan in a dialect, with what cannot be said there in the title."""
    chosen = dialect_named(dialect)
    try:
        # A page has a device, for which most dialects have no place.
        written = write_config(plan if plan.document is None else replace(plan, hardware=None), dialect=dialect)
    except InputError as error:
        return Export(say("This cannot be written for {dialect}", dialect=chosen.title), "\n".join(error.problems))
    losses = [lost for lost in written.lost if not lost.startswith("hardware")]
    title = say("What changes for {dialect}" if written.before else "The plan for {dialect}", dialect=chosen.title)
    if losses:
        title = say("{title} (not said there: {losses})", title=title, losses="; ".join(losses))
    if written.before:
        return Export(title, written.diff() or "nothing changes", "diff")
    return Export(title, written.text, chosen.language)
