"""Timeline: what ran when, on every stream and thread of every rank, down to 1 ns.

The page draws tiles on a canvas and asks for those that it lacks; the kernel answers in a thread of its own, so that a long search
does not hold up a zoom. Neither side ever holds more than what is looked at. Messages of the page and the answers:

    tiles, open                                   slices of some units in a range of tiles; the units of further ranks
    search, hits, detail, select, flows, walk     see _timeline_questions.py
    mark, view, run, retry                        notes, the address, another recording
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from typing import Any

import traitlets

from perfkit.errors import PerfkitError
from perfkit.panels import _context as context
from perfkit.panels import _timeline_tiles as wire
from perfkit.panels._page_state import page_state
from perfkit.panels._status import failure, loading
from perfkit.panels._timeline_data import Timeline, described, open_timeline, safely
from perfkit.panels._view import View
from perfkit.panels._worker import Progress

Task = Callable[[], None]


class TimelineView(View):
    """A timeline on a page; `timeline` is there once the recording was read."""

    name = traitlets.Unicode("timeline").tag(sync=True)
    status = traitlets.Dict().tag(sync=True)
    setup = traitlets.Dict().tag(sync=True)

    def __init__(self, run: str = "") -> None:
        self.timeline: Timeline | None = None
        self.error: Exception | None = None
        self._path = page_state().get("run") or run or context.first_run(context.SAMPLES)
        self._drawing, self._asking = _Lane("tiles"), _Lane("questions")
        super().__init__(kind="timeline", status=loading())
        self._asking.put(self._open)

    def wait(self, timeout_s: float = 60.0) -> Timeline:
        """The timeline once it is open; raises the error if there is none."""
        if not self._asking.wait(timeout_s):
            raise TimeoutError(f"the timeline still reads after {timeout_s} s")
        if self.error is not None:
            raise self.error
        assert self.timeline is not None
        return self.timeline

    def on_message(self, message: dict[str, Any]) -> None:
        """What the page asks for; it is answered in a thread."""
        kind = message.get("type")
        if kind == "tiles":
            self._drawing.put(lambda: self._send_tiles(message))
        elif kind == "open":
            self._asking.put(lambda: self._open_ranks(message))
        elif kind in ("run", "retry"):
            self._path = str(message.get("path", self._path))
            self._asking.put(self._open)

    # In the threads ---------------------------------------------------------

    def _open(self) -> None:
        progress = Progress(self._show_progress)
        try:
            self.timeline, self.error = None, None
            timeline = open_timeline(context.read_run(self._path, progress))
        except Exception as error:  # every end of reading is a state that the visitor sees
            self.error = error
            with self.lock:
                self.status = failure(error)
            return
        self.timeline = timeline
        self._show(timeline)

    def _show(self, timeline: Timeline, problem: str = "") -> None:
        options = [list(option) for option in context.run_options()]
        setup = {**described(timeline), "path": self._path, "options": options, "problem": problem}
        with self.lock, self.hold_sync():
            self.setup = setup
            self.status = {"state": "result"}

    def _show_progress(self, what: str, done: int, total: int) -> None:
        with self.lock:
            self.status = loading(what, done, total)

    def _open_ranks(self, message: dict[str, Any]) -> None:
        if self.timeline is not None:
            self._show(self.timeline, safely(self.timeline, [int(rank) for rank in message["ranks"]]))

    def _send_tiles(self, message: dict[str, Any]) -> None:
        if self.timeline is None:
            return
        try:
            header, buffers = wire.reply(self.timeline, message)
        except (PerfkitError, LookupError, ValueError, TypeError, OSError) as error:
            self._answer({"type": "tiles", "seq": message.get("seq"), "problem": str(error)})
            return
        self._answer({"type": "tiles", "seq": message.get("seq"), **header}, buffers)

    def _answer(self, content: dict[str, Any], buffers: list[bytes] | None = None) -> None:
        with self.lock:
            self.send(content, buffers)


class _Lane:
    """Tasks done one after another in a thread that starts with the first."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._tasks: queue.SimpleQueue[Task] = queue.SimpleQueue()
        self._lock = threading.Condition()
        self._waiting = 0

    def put(self, task: Task) -> None:
        """Do `task` after those before it."""
        with self._lock:
            self._waiting += 1
            self._tasks.put(task)
            if self._waiting == 1:
                threading.Thread(target=self._run, name=f"perfkit-{self._name}", daemon=True).start()

    def wait(self, timeout_s: float) -> bool:
        """Wait until all is done; False if it is not after `timeout_s`."""
        with self._lock:
            return self._lock.wait_for(lambda: self._waiting == 0, timeout_s)

    def _run(self) -> None:
        while True:
            task = self._tasks.get()
            try:
                task()
            finally:
                with self._lock:
                    self._waiting -= 1
                    last = self._waiting == 0
                    self._lock.notify_all()
            if last:
                return


def open_view(_state: object = None) -> TimelineView:
    """The timeline of the project's open recording, else of the bundled two-rank profile."""
    return TimelineView()
