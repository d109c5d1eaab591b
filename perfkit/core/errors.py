"""Errors written for the user: where, what was found, what would be right; and all of it at once.

Anything that is not a `PerfkitError` is a bug: the command line prints one line for it and the way to get the traceback.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager


class PerfkitError(Exception):
    """Base of every error that a user can act on."""


class InputError(PerfkitError):
    """Input that cannot be used. `problems` lists everything found, not only the first."""

    def __init__(self, subject: str, problems: Iterable[str]) -> None:
        self.subject = subject
        self.problems = tuple(problems)
        count = len(self.problems)
        lines = "".join(f"\n  - {problem}" for problem in self.problems)
        super().__init__(f"{subject}: {count} problem{'' if count == 1 else 's'}{lines}")

    def __reduce__(self) -> tuple[type[InputError], tuple[str, tuple[str, ...]]]:
        """Parts to build it again from, so that it crosses from a worker process to its parent."""
        return type(self), (self.subject, self.problems)


class Problems(list[str]):
    """What is wrong with several inputs, to be told in one error."""

    @contextmanager
    def of(self, name: str = "") -> Iterator[None]:
        """Take the problems of an InputError that ends the block, each behind `name`."""
        try:
            yield
        except InputError as error:
            self += [f"{name}: {problem}" if name else problem for problem in error.problems]

    def tell(self, subject: str) -> None:
        """Raise InputError if there are any."""
        if self:
            raise InputError(subject, self)


class NotMeasuredError(PerfkitError):
    """A question that the recorded data cannot answer; says what is missing and how to collect it."""

    def __init__(self, missing: str, *, how_to_collect: str) -> None:
        self.missing = missing
        self.how_to_collect = how_to_collect
        super().__init__(f"not measured: {missing}. To collect it: {how_to_collect}")

    def __reduce__(self) -> tuple[Callable[[str, str], NotMeasuredError], tuple[str, str]]:
        """Parts to build it again from, as for InputError."""
        return _not_measured, (self.missing, self.how_to_collect)


def _not_measured(missing: str, how_to_collect: str) -> NotMeasuredError:
    return NotMeasuredError(missing, how_to_collect=how_to_collect)
