"""Fills: controls of a step that follow something take its value when it becomes another one."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from perfkit.face.widgets._given import same
from perfkit.face.widgets.entries import Entry
from perfkit.face.widgets.status import NothingYet

State = Mapping[str, Any]


class Fills:
    """What filled each of the controls `entries` last: what it follows, and the value that came of it."""

    def __init__(self, entries: Mapping[str, Entry]) -> None:
        self._entries = entries
        self._made: dict[str, tuple[State, Any]] = {}

    def copy(self) -> Fills:
        """The same, to try what another state would be filled with."""
        other = Fills(self._entries)
        other._made = dict(self._made)
        return other

    def fill(self, known: Callable[[str, State], Any], state: State, *, keep: bool) -> tuple[State, bool]:
        """`state` with what follows something filled, and whether that is of another plan or recording than before.

        What an address or an undo said (`keep`) stays as it is. `known` gives what the step follows, or raises NothingYet.
        """
        of_another = False
        for name, entry in self._entries.items():
            try:
                asked, value = entry.filled(known, state)
            except NothingYet:
                continue
            before = self._made.get(name)
            if value is None or (before is not None and before[1] == value and (value == "" or same(before[0], asked))):
                continue
            if not keep and (before is not None or state[name] is None):
                state = {**state, name: value}
                of_another |= before is None or not same(self._other(before[0]), self._other(asked))
            self._made[name] = asked, value
        return state, of_another

    def _other(self, asked: State) -> State:
        """What fills a control beside the other controls of its step: the plan or recording above."""
        return {name: value for name, value in asked.items() if name not in self._entries}
