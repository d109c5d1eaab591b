"""Sentences that are made of data: the catalogue knows them with places ({0}, {1}, ...) where the data stand.

A sentence is recognised by its fixed words, and what stands in a place is looked up in turn, so that a clause in a sentence is
translated too. What no entry fits stays as it is: names, figures, and the words of somebody else.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

PLACE = re.compile(r"\{(\d)\}")
MARKS = ("✓ ", "✗ ")
_END = re.compile(r"(?<=[.!?]) (?=[A-Z0-9✓✗])")
"""Between two sentences."""
_FILE = re.compile(r"[^\s:]*[./\\][^\s:]*: ")
"""A file that a problem begins with."""
_WORD = re.compile(r"[A-Za-z]+")
_WHOLE = re.compile(r"(?<![A-Za-z}])[A-Za-z]+(?![A-Za-z{])")
"""A word of an entry that no value in a place beside it makes longer."""


class Sentences:
    """The texts of one language by their English: whole ones, and those with places; `groups` has the latter, sentences first."""

    def __init__(self, known: Mapping[str, str], *groups: Iterable[str]) -> None:
        self._known = known
        placed = [[english for english in group if PLACE.search(english)] for group in groups]
        # Of several that fit, the one with most words of its own says most exactly what is meant.
        ordered = [english for group in placed for english in sorted(group, key=lambda one: -len(PLACE.sub("", one)))]
        self._places = [(PLACE.split(english)[::2], known[english]) for english in ordered]
        self._with: dict[str, list[int]] = {}
        for number, english in enumerate(ordered):
            self._with.setdefault(max(_WHOLE.findall(english), key=len, default=""), []).append(number)

    def told(self, text: str) -> str:
        """A sentence in this language; itself where there is none."""
        if text in self._known:
            return self._known[text]
        if text[:2] in MARKS:
            return text[:2] + self.told(text[2:])
        if (file := _FILE.match(text)) and text[file.end() :] in self._known:
            return file[0] + self._known[text[file.end() :]]
        # Only entries of which the longest word stands in the text can fit: a few of hundreds.
        for number in sorted(number for word in {"", *_WORD.findall(text)} for number in self._with.get(word, ())):
            words, translated = self._places[number]
            values = _values(words, text)
            if values is not None and not any(map(_END.search, values)):  # a place does not hold the end of a sentence
                return PLACE.sub(lambda place, values=values: self.told(values[int(place[1])]), translated)  # type: ignore[misc]
        sentences = _END.split(text) if self._known else [text]
        return text if len(sentences) == 1 else _joined([self.told(one) for one in sentences])


def _joined(sentences: list[str]) -> str:
    """Sentences one after the other, with a space where the one before is in a script that has one."""
    return "".join(
        one if last.endswith("。") or not last else f" {one}" for last, one in zip(["", *sentences], sentences, strict=False)
    )


def _values(words: list[str], text: str) -> list[str] | None:
    """What stands between fixed words in a text, each word at its first place, a mere space at its last; None if they do not fit.

    Linear in the text, which may hold a name of any length that somebody chose.
    """
    first, *between, last = words
    at, end = len(first), len(text) - len(last)
    if end < at or not (text.startswith(first) and text.endswith(last)):
        return None
    values = []
    for number, word in enumerate(between):
        if word == " ":  # what stands before a figure has spaces itself, the figure has none
            limit = text.find(between[number + 1], at, end) if number + 1 < len(between) else end
            found = text.rfind(word, at, max(limit, at))
        else:
            found = text.find(word, at, end)
        if found < 0:
            return None
        values.append(text[at:found])
        at = found + len(word)
    return [*values, text[at:end]]
