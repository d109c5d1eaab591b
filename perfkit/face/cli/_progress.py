"""Progress on a terminal: one line that is redrawn, and nothing when the output is piped."""

from __future__ import annotations

import signal
from collections.abc import Callable
from typing import Any, TextIO

from perfkit.core.shortening import shortened
from perfkit.core.texts import Said, say, told
from perfkit.core.units import format_ratio
from perfkit.face.cli._screen import screen_width, visible

NAME_WIDTH = 60


class Progress:
    """A one-line progress bar on a terminal; silent when the output is piped."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._shown = stream.isatty()

    def __enter__(self) -> Callable[[str, int, int], None]:
        return self._show

    def __exit__(self, *_: Any) -> None:
        if self._shown:
            self._stream.write("\r\x1b[K")

    def _show(self, what: str, done_bytes: int, total_bytes: int) -> None:
        if self._shown:
            room = min(NAME_WIDTH, (screen_width(self._stream) or NAME_WIDTH) - 8)
            shown = told(what) if isinstance(what, Said) else what
            share = done_bytes / total_bytes if total_bytes else 1.0
            self._stream.write(f"\r\x1b[K{format_ratio(share):>6} {shortened(visible(shown), room)}")
            self._stream.flush()


class SolveProgress:
    """Bound and best makespan on one line of a terminal; Ctrl-C once ends the solve with its best layout instead of an error."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._shown = stream.isatty()
        self._asked_to_stop = False

    def __enter__(self) -> Callable[[Any], bool]:
        try:
            self._before = signal.signal(signal.SIGINT, self._stop)
        except ValueError:  # not in the main thread, where nobody presses Ctrl-C
            self._before = None
        return self._show

    def __exit__(self, *_: Any) -> None:
        if self._before is not None:
            signal.signal(signal.SIGINT, self._before)
        if self._shown:
            self._stream.write("\r\x1b[K")

    def _stop(self, *_: Any) -> None:
        self._asked_to_stop = True

    def _show(self, now: Any) -> bool:
        if self._shown:
            best = "none yet" if now.best_ns is None else f"{now.best_ns} ns"
            form = "{seconds} s, {what}: best {best}, bound {bound} ns"
            line = say(form, seconds=str(round(now.seconds)), what=now.what, best=best, bound=str(now.bound_ns))
            self._stream.write(f"\r\x1b[K{told(line)}")
            self._stream.flush()
        return not self._asked_to_stop
