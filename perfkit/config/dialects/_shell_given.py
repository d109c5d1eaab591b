"""Texts that a script gives to a command: what follows `<<END` up to the line that says END."""

from __future__ import annotations

import re
from bisect import bisect_left

_HERE = re.compile(r"<<(-?)[ \t]*(['\"]?)([\w.]+)\2[^\n]*\n")


class GivenTexts:
    """Where such texts of a script end."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._ends: dict[str, list[int]] = {}
        position = 0
        for line in text.split("\n"):
            position += len(line) + 1
            said = line.rstrip("\r")
            inner = said.lstrip("\t")
            self._ends.setdefault(said if said == inner else f"\t{inner}", []).append(position - 1)

    def behind(self, position: int) -> int | None:
        """Behind the text that `position` begins: after the first line that says its word, which tabs may precede for `<<-`."""
        found = _HERE.match(self._text, position)
        if found is None:
            return None
        lines = [self._ends.get(word, []) for word in ((found[3], f"\t{found[3]}") if found[1] else (found[3],))]
        places = [(bisect_left(each, found.end()), each) for each in lines]
        return min((each[place] for place, each in places if place < len(each)), default=None)
