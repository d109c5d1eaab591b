"""Request and snippet: what a user wants recorded, and the lines that record it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Language = Literal["yaml", "python", "shell"]


@dataclass(frozen=True, slots=True)
class Snippet:
    """Lines to paste: `text` in `language`, where they belong (`file_hint`), and what to know before (`notes`)."""

    text: str
    language: Language
    file_hint: str
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Request:
    """What to record: the parts, the steps from 1 (both ends included), the layers of a reduced model, and arguments of extras."""

    parts: frozenset[str]
    start_step: int
    stop_step: int
    num_layers: int | None = None
    extras: str = ""

    def wants(self, *parts: str) -> bool:
        """Whether at least one of `parts` is asked for."""
        return not self.parts.isdisjoint(parts)

    @property
    def level(self) -> int:
        """Profiler level: 0 has device tasks only, 1 adds communication details, shapes, statistics and host calls."""
        return 1 if self.wants("collectives", "links", "operator statistics", "host calls") else 0

    @property
    def schedule(self) -> str:
        """Arguments of `schedule`: one warm-up step where there is room for it, then the window, once."""
        warmup = 1 if self.start_step > 1 else 0
        return f"wait={self.start_step - 1 - warmup}, warmup={warmup}, active={self.num_steps}, repeat=1"

    @property
    def num_steps(self) -> int:
        """Steps in the window."""
        return self.stop_step - self.start_step + 1
