"""Said: a sentence with figures or names in it that knows its form and what stands in the places, so it need not be recognised.

`say("{who} {idle_ns} a step", who=..., idle_ns=1.5e6)` is the English sentence as a text. A number is written as everywhere else:
the unit with which the name of its place ends says how (`core.quantity`), so it is digit for digit what a table under this name
shows. What is itself said is translated in turn, other texts are data, except for whole words that the catalogue has.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping

from perfkit.core import quantity

NAMED = re.compile(r"\{([a-z]\w*)\}")
_ORDINARY = re.compile(r"(?!(?:Adam|Ascend|Kineto|Megatron|Python)\b)[A-Z][a-z]*(?=[ ,]|$)")
"""A word with no more capitals than a sentence begins with: no abbreviation, no name like AllReduce, none that looks ordinary."""
Value = str | float


class Said(str):
    """A sentence in English with its `form`, which has places in braces, and the `values` by the names of the places."""

    form: str
    values: Mapping[str, Value]

    def in_words(self, known: Mapping[str, str], recognised: Callable[[str], str] = str) -> str:
        """The sentence by a catalogue of texts by their English; what that has not is `recognised`, or stays English."""

        def turn(value: str) -> str:
            return value.in_words(known, recognised) if isinstance(value, Said) else known.get(value) or recognised(value)

        return _filled(known.get(self.form, self.form), self.values, turn).replace("。 ", "。")

    def figures(self) -> dict[str, float]:
        """The numbers in the sentence and in what is said in it, by the names of their places."""
        found: dict[str, float] = {}
        for name, value in self.values.items():
            if isinstance(value, Said):
                found |= value.figures()
            elif not isinstance(value, str):
                found[name] = value
        return found


def say(form: str, /, **values: Value) -> Said:
    """The sentence of a form; values that it has no place for are left out. Raises KeyError for a place without a value."""
    chosen = {name: _plain(values[name]) for name in NAMED.findall(form)}
    said = Said(_filled(form, chosen, str))
    said.form, said.values = form, chosen
    return said


def capital(said: Said) -> Said:
    """A sentence with a capital at its start, which only English has."""
    begun = Said(said[:1].upper() + said[1:])
    begun.form, begun.values = said.form, said.values
    return begun


def within(text: str) -> str:
    """A sentence as it stands within another one: in English without a capital, unless data or a name like AllReduce begin it."""
    if not isinstance(text, Said) or not _begins_ordinarily(text):
        return text
    begun = Said(text[:1].lower() + text[1:])
    begun.form, begun.values = text.form, text.values
    return begun


def _begins_ordinarily(said: Said) -> bool:
    place = NAMED.match(said.form)
    first = said if place is None else said.values[place[1]]
    return isinstance(first, Said) and bool(_ORDINARY.match(first) if first is said else _begins_ordinarily(first))


def joined(parts: Iterable[str], by: str = " ") -> Said:
    """Several texts as one, each translated by itself; empty ones are left out."""
    kept = {f"part{number}": part for number, part in enumerate(parts) if part}
    return say(by.join(f"{{{name}}}" for name in kept), **kept)


def _plain(value: Value) -> Value:
    """A number of numpy as one of Python."""
    item: Callable[[], Value] = getattr(value, "item", lambda: value)
    return item()


def _filled(form: str, values: Mapping[str, Value], turn: Callable[[str], str]) -> str:
    def put(place: re.Match[str]) -> str:
        value = values[place[1]]
        return turn(value) if isinstance(value, str) else quantity.text(place[1], value)

    return NAMED.sub(put, form)
