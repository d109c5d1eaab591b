"""Values: what a picker, a control, a choice in a table or a step holds now, and who has to hear when it becomes another one.

A value is asked for anew (`begin`) before it is there (`finish`); between the two, whoever needs it waits. So a step that follows
another one never computes with what the other has left behind.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from perfkit.core.errors import NotMeasuredError, PerfkitError
from perfkit.core.texts import say
from perfkit.face.widgets.status import Waiting

_TURN_S = 0.05
LATE_S = 0.35
"""Who waits longer than this is said to be loading; what comes sooner replaces the figure without a flicker."""


def no_answer_yet(title: str) -> Waiting:
    """What a step says that follows something above, of this title, which is not there."""
    return Waiting(say("This needs “{title}” above, which has no answer yet.", title=title))


class Value:
    """The newest value of something on a page; `title` names it in sentences."""

    def __init__(self, title: str) -> None:
        self.title = title
        self._changed = threading.Condition()
        self._asked, self._answered = 1, 0
        self._value: Any = None
        self._error: Exception | None = None
        self._listeners: list[Callable[[], None]] = []

    def listen(self, listener: Callable[[], None]) -> None:
        """Call `listener` whenever the value is about to become another one."""
        self._listeners.append(listener)

    def forget(self, listener: Callable[[], None]) -> None:
        """Call `listener` no more."""
        self._listeners = [known for known in self._listeners if known != listener]

    @property
    def followed(self) -> bool:
        """Whether anybody listens."""
        return bool(self._listeners)

    def begin(self) -> None:
        """The value is asked for anew."""
        with self._changed:
            pending = self._asked != self._answered
            self._asked += 1
        if not pending:  # else they know, and wait
            for listener in list(self._listeners):
                listener()

    def question(self) -> int:
        """The number of the newest question, for `finish`."""
        with self._changed:
            return self._asked

    def finish(self, question: int, value: Any = None, error: Exception | None = None) -> None:
        """Answer a question, unless a newer one was asked since."""
        with self._changed:
            if question == self._asked:
                self._answered, self._value, self._error = question, value, error
                self._changed.notify_all()

    def wait(self, *, late: Callable[[], None] | None = None, check: Callable[[], None] = lambda: None) -> Any:
        """The value once it is there; raises its error. `late` is called once if it takes long, `check` often and may raise."""
        waited_s = 0.0
        with self._changed:
            while self._asked != self._answered:
                check()
                if late is not None and waited_s >= LATE_S:
                    late()
                    late = None
                self._changed.wait(_TURN_S)
                waited_s += _TURN_S
            if self._error is not None:
                raise self._error
            return self._value

    def needed(self, **how: Any) -> Any:
        """The value for what follows it; raises Waiting, which names what it waits for, where there is none."""
        try:
            return self.wait(**how)
        except Waiting:
            raise
        except NotMeasuredError as error:
            raise Waiting("Not recorded: how to collect it stands above.") from error
        except PerfkitError as error:
            raise no_answer_yet(self.title) from error
        except Exception as error:
            if error is not self._error:  # of `check`: nobody waits any more
                raise
            raise Waiting(say("This needs “{title}” above, which has failed.", title=self.title)) from error
