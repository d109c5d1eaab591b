"""Tasks for the tests of workers, in a module that imports little, because every process imports it."""

import os
import signal
import time
from pathlib import Path

from perfkit.core.errors import InputError
from perfkit.record.workers import Report


def square(item: int, report: Report) -> int:
    report(f"item {item}", 1)
    return item * item


def slow_first(item: int, report: Report) -> tuple[int, int]:
    time.sleep(0.3 if item == 0 else 0)
    return item, os.getpid()


def whereabouts(item: int, report: Report) -> tuple[int, str]:
    return os.getpid(), os.environ.get("PERFKIT_THREADS", "")


def sleep_on(item: Path, report: Report) -> None:
    part = item.with_suffix(".part")
    part.write_text(str(os.getpid()), encoding="ascii")
    part.rename(item)
    time.sleep(600)


def refuse_three(item: int, report: Report) -> int:
    if item == 3:
        raise InputError("rank 3", ["is empty", "is not there"])
    return item


def fail_oddly(item: int, report: Report) -> int:
    class OddError(Exception):
        """An error that cannot be pickled."""

    raise OddError(f"odd {item}")


def die_once(item: Path, report: Report) -> str:
    report(item.name, 10)
    if not item.exists():
        item.touch()
        os.kill(os.getpid(), signal.SIGKILL)
    report(item.name, 20)
    return item.name


def always_die(item: int, report: Report) -> int:
    os._exit(7) if item == 2 else None
    return item


def chatter(item: int, report: Report) -> int:
    print("a line on standard output")
    return item


class Unreadable:
    """What cannot be built again from what was sent."""

    def __reduce__(self) -> tuple[type[int], tuple[str]]:
        return int, ("no number",)


def unreadable(item: int, report: Report) -> Unreadable:
    return Unreadable()
