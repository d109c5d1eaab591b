"""Ahead: the answer to a slider's next value, made while the page draws that to the last one.

A slider that went from one value to the next mostly goes on to the one after it, or turns back. Drawing takes the browser about as
long as computing takes the kernel; of the two the visitor then waits for one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from perfkit.face.widgets._fills import Fills
from perfkit.face.widgets._given import same
from perfkit.face.widgets.answer import Whole
from perfkit.face.widgets.control import Control, Slider, settling
from perfkit.face.widgets.entries import Known

AFTER_S = 0.01
"""The answer to the last value has left the kernel by then, which computing ahead would only hold up."""
LONGEST_S = 0.1
"""What takes longer is not begun: a guess that was wrong holds up the value that the visitor does ask for."""

Made = tuple[Whole, tuple[dict[str, Any], Any]]
"""An answer, what it was made of, and what the function of its step returned."""


class Ahead:
    """What is there before it is asked for: one answer further on, and the one that was left last, for a slider that turns back."""

    def __init__(self) -> None:
        self.forget()

    def forget(self) -> None:
        """Answers to the same values may be others from now on."""
        self._further: Made | None = None
        self._left: Made | None = None
        self._standing: Made | None = None

    def make(self, made: Callable[[], Made]) -> None:
        """Keep an answer in place of any other that was made. One that fails is not kept: it fails again when it is asked for."""
        self._further = None
        try:
            self._further = made()
        except Exception:  # it is told where it is asked for
            return

    def take(self, given: Mapping[str, Any]) -> Made | None:
        """The answer to what is `given` now, if it is there. The one that stands is left for it."""
        found = next((one for one in (self._further, self._left) if one is not None and same(one[1][0], given)), None)
        self._further, self._left, self._standing = None, self._standing or self._left, None
        return found

    def stands(self, made: Made) -> None:
        """This is the answer now."""
        self._standing = made


def foreseen(controls: Sequence[Control], fills: Fills, known: Known, state: Mapping[str, Any]) -> Mapping[str, Any]:
    """What a state becomes before a step computes: filled by what its controls follow, and settled on what their options allow."""
    fills = fills.copy()
    state, _ = fills.fill(known, state, keep=False)
    settled = state
    for now, _, _ in settling(controls, state):
        settled = now
    return settled if settled == state else fills.fill(known, settled, keep=False)[0]


def going_on(controls: Sequence[Control], before: Mapping[str, Any] | None, now: Mapping[str, Any]) -> dict[str, Any]:
    """The next value of the one slider that went from `before` to `now`, by path; empty if no slider or several did."""
    sliders = (one for one in controls if isinstance(one, Slider))
    moved = [one for one in sliders if before is not None and before[one.path] != now[one.path]]
    if before is None or len(moved) != 1:
        return {}
    further = moved[0].further(before[moved[0].path], now)
    return {} if further is None else {moved[0].path: further}
