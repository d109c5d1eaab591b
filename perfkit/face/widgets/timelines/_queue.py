"""Queue: tasks done one after another in a thread of their own, which lives only while there is something to do."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable

Task = Callable[[], None]


class TaskQueue:
    """Tasks in the order in which they were put; a thread starts with the first and ends with the last."""

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
