"""Worker: computing outside the kernel's main thread, with progress and cancel, where only the newest question counts."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from perfkit.core.texts import say
from perfkit.core.units import format_bytes, format_count

_MIN_INTERVAL_S = 0.1


class Cancelled(Exception):  # noqa: N818  it is no error: somebody asked for it
    """Raised out of a computation whose answer nobody waits for any more."""


class Progress:
    """Called by long computations as `progress(what, done, total)`; raises Cancelled once the visitor or a newer question says so.

    Amounts are bytes unless `unit` says otherwise, for example "ranks". `show(text, done, total)` gets at most 10 calls a second.
    """

    def __init__(self, show: Callable[[str, int, int], None], *, beside: Progress | None = None) -> None:
        self._show = show
        self._last_s = 0.0
        self._cancelled: threading.Event = threading.Event() if beside is None else beside._cancelled
        self.by_visitor = self.ended_early = False

    def __call__(self, what: str, done: int, total: int, unit: str = "") -> None:
        """Say how far it has come; raises Cancelled if the answer is not wanted any more."""
        self.check()
        now_s = time.monotonic()
        if now_s - self._last_s < _MIN_INTERVAL_S and done < total:
            return
        self._last_s = now_s
        done_text, total_text = (_grouped(done), _grouped(total)) if unit else (format_bytes(done), format_bytes(total))
        form = "{what}: {done} of {total} {unit}" if unit else "{what}: {done} of {total}"
        self._show(say(form, what=what, done=done_text, total=total_text, unit=unit), done, total)

    def check(self) -> None:
        """Raise Cancelled if the answer is not wanted any more."""
        if self._cancelled.is_set():
            raise Cancelled

    def pause(self, seconds: float) -> None:
        """Do nothing for so long; raises Cancelled as soon as the answer is not wanted any more."""
        self._cancelled.wait(seconds)
        self.check()

    def rest(self, seconds: float) -> None:
        """Do nothing for so long with an answer that is out: what the visitor cancels now is over, a newer question ends it."""
        self._cancelled.wait(seconds)
        if not self.heed():
            self.check()

    def heed(self) -> bool:
        """Whether the visitor cancelled a computation that can end early: what it returns is then shown, not the cancellation."""
        if self.by_visitor:
            self._cancelled.clear()
        return self.by_visitor

    def cancel(self, *, by_visitor: bool = False) -> None:
        """Ask the computation to stop at its next call."""
        self.by_visitor = by_visitor
        self._cancelled.set()


_of_thread = threading.local()


def check() -> None:
    """Raise Cancelled if the answer of the running step is not wanted any more; for long computations, which call it often."""
    if (progress := running()) is not None:
        progress.check()


def go_on(what: str, done: int, total: int, unit: str = "") -> bool:
    """Say how far the search of the running step has come, and whether to go on: no after the visitor's stop.

    What was found until then is the answer of the step; a newer question throws it away. Outside of a step nobody stops it.
    """
    progress = running()
    if progress is None:
        return True
    try:
        progress(what, done, total, unit)
    except Cancelled:
        progress.ended_early = not progress.heed()
        return False
    return True


def running() -> Progress | None:
    """The progress of what this thread computes, for files that are read on the way; None in the kernel's main thread."""
    return getattr(_of_thread, "progress", None)


@contextmanager
def unasked() -> Iterator[Progress]:
    """What this thread computes here nobody asked for yet: it shows no progress, and ends with what it is made beside."""
    progress = running()
    _of_thread.progress = silent = Progress(lambda *_: None, beside=progress)
    try:
        yield silent
    finally:
        _of_thread.progress = progress


def _grouped(number: int) -> str:
    return format_count(number)


class Background:
    """Runs `work(progress)` in a thread whenever asked; asked again meanwhile, it cancels and runs once more at the end."""

    def __init__(self, work: Callable[[Progress], None], show: Callable[[str, int, int], None]) -> None:
        self._work, self._show = work, show
        self._lock = threading.Lock()
        self._idle = threading.Event()
        self._idle.set()
        self._again = False
        self._progress: Progress | None = None

    def ask(self) -> None:
        """Run, or run again."""
        with self._lock:
            self._again = True
            if self._progress is not None:
                self._progress.cancel()
            if self._idle.is_set():
                self._idle.clear()
                threading.Thread(target=self._run, name="perfkit-panel", daemon=True).start()

    def cancel(self) -> None:
        """Stop the running computation for the visitor."""
        with self._lock:
            if self._progress is not None:
                self._progress.cancel(by_visitor=True)

    def wait(self, timeout_s: float | None = None) -> bool:
        """Wait until nothing runs; False if it still does after `timeout_s`."""
        return self._idle.wait(timeout_s)

    def _run(self) -> None:
        while True:
            with self._lock:
                if not self._again:
                    self._progress = None
                    self._idle.set()
                    return
                self._again = False
                self._progress = _of_thread.progress = progress = Progress(self._show)
            self._work(progress)
