"""Ranks of a timeline on their way: those that a visitor asked for and whose tiles are not there yet, each with how far it is."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from threading import RLock
from typing import Any

from perfkit.core.texts import t
from perfkit.face.widgets.worker import Progress

Shown = Mapping[str, dict[str, Any]]
"""What the page shows of each rank on its way: `text`, `done` and `total`, 0 while it waits for its turn."""


class Openings:
    """Ranks that are being opened; `show` gets all of them whenever one comes, goes or gets on."""

    def __init__(self, show: Callable[[Shown], None]) -> None:
        self._show = show
        self._lock = RLock()
        self._known: dict[int, tuple[Progress, dict[str, Any]]] = {}

    def add(self, rank: int) -> Progress | None:
        """How the work on a rank says how far it is, and learns that nobody waits any more; None if somebody works on it."""
        with self._lock:
            if rank in self._known:
                return None
            progress = Progress(partial(self._advance, rank))
            self._known[rank] = (progress, {"text": "", "done": 0, "total": 0})
            self._tell()
        return progress

    def begin(self, rank: int) -> None:
        """It is the turn of a rank; nobody knows yet how much there is to do."""
        self._advance(rank, t("Reading…"), 0, 0)

    def done(self, rank: int) -> None:
        """A rank is there, or nobody waits for it any more."""
        with self._lock:
            if self._known.pop(rank, None) is not None:
                self._tell()

    def cancel(self, rank: int | None = None) -> None:
        """Give up one rank, or all of them."""
        with self._lock:
            for known, (progress, _) in self._known.items():
                if rank in (None, known):
                    progress.cancel()

    def _advance(self, rank: int, text: str, done: int, total: int) -> None:
        with self._lock:
            if rank in self._known:
                self._known[rank][1].update(text=text, done=done, total=total)
                self._tell()

    def _tell(self) -> None:
        self._show({str(rank): dict(shown) for rank, (_, shown) in self._known.items()})
