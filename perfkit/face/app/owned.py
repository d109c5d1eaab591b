"""Owned: one table of every process, socket and file that the server holds for its pages, each under the kernel that owns it.

Jupyter closes what it opens where all goes in order; a page that ends while its socket closes, or a start that fails halfway, is
not in order. So what is opened for a kernel is entered here at the moment of opening, and ends with the kernel whatever happens:
what comes too late, for a kernel that has ended, is closed at once.
"""

from __future__ import annotations

import time
from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal

from traitlets.log import get_logger

Kind = Literal["process", "socket", "file"]
_REMEMBERED = 10_000
"""Ended kernels that are remembered, for what comes too late."""


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Owned:
    """Something that must be closed. `pid` of a process, 0 of anything else."""

    kind: Kind
    close: Callable[[], object]
    is_open: Callable[[], bool]
    pid: int = 0
    since_s: float = field(default_factory=time.monotonic)


class TooLate(RuntimeError):  # noqa: N818  said of what was opened, not of whoever opened it
    """Raised for what was opened for a kernel that has ended; it is closed already."""


class OwnedTable:
    """What is open, by the id of the kernel that it was opened for."""

    def __init__(self) -> None:
        self._rows: dict[str, list[Owned]] = {}
        self._ended: set[str] = set()
        self._order: deque[str] = deque()

    def own(self, owner: str, thing: Owned) -> None:
        """Enter `thing`; raises TooLate, and closes it, if its owner has ended."""
        if owner in self._ended:
            _close(owner, thing)
            raise TooLate(f"kernel {owner} has ended")
        rows = self._rows.setdefault(owner, [])
        rows[:] = [row for row in rows if row.is_open()]
        rows.append(thing)

    def end(self, owner: str) -> int:
        """Close all that `owner` has, the last first; gives how many were still open."""
        if owner not in self._ended:
            self._ended.add(owner)
            self._order.append(owner)
        while len(self._order) > _REMEMBERED:
            self._ended.discard(self._order.popleft())
        rows = [row for row in self._rows.pop(owner, []) if row.is_open()]
        for row in reversed(rows):
            _close(owner, row)
        return len(rows)

    def owners(self) -> set[str]:
        """Kernels that have something open."""
        return {owner for owner, rows in self._rows.items() if any(row.is_open() for row in rows)}

    def processes(self) -> dict[int, str]:
        """The owner of every process that runs, by the number of the process."""
        return {row.pid: owner for owner, rows in self._rows.items() for row in rows if row.kind == "process" and row.is_open()}

    def since_s(self, owner: str) -> float:
        """When the newest thing of `owner` was opened (monotonic); 0 if it has nothing."""
        return max((row.since_s for row in self._rows.get(owner, [])), default=0.0)

    def counts(self) -> Counter[str]:
        """How many of each kind are open."""
        return Counter(row.kind for rows in self._rows.values() for row in rows if row.is_open())


def _close(owner: str, thing: Owned) -> None:
    try:
        thing.close()
    except Exception as error:  # one thing that does not close must not keep the others open
        get_logger().warning("a %s of kernel %s did not close: %s", thing.kind, owner, error)
