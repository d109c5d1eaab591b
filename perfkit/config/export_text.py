"""Export text: a plan as configuration to copy: what changes in the file that it was read from, else a new text."""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

from perfkit.config.dialects import write_config
from perfkit.config.dialects.registry import dialect_named, dialects
from perfkit.core.errors import InputError
from perfkit.core.spec.plan import Plan

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
        return Export(f"This cannot be written for {chosen.title}", "\n".join(error.problems))
    losses = [lost for lost in written.lost if not lost.startswith("hardware")]
    lost = f" (not said there: {'; '.join(losses)})" if losses else ""
    if written.before:
        return Export(f"What changes for {chosen.title}{lost}", written.diff() or "nothing changes", "diff")
    return Export(f"The plan for {chosen.title}{lost}", written.text, chosen.language)
