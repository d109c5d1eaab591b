"""Kill a process that writes to the experiment log with SIGKILL, many times, and count rounds that it had committed and are gone.

example: python -m benchmarks.log.bench_kill --kills 500 --writers 16

The writer is a forked child that starts, predicts and decides rounds as fast as it can and tells each one that it has
started through a pipe. It is killed at a random moment of its first rounds; then the log is opened, checked by SQLite
and written again.
"""

from __future__ import annotations

import argparse
import contextlib
import multiprocessing
import os
import random
import sqlite3
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from perfkit.core.errors import InputError
from perfkit.project.experiments import ExperimentLog

FIRST_ROUNDS_S = 2.5
"""Writers are killed within this multiple of the time that the first round took."""
PAUSE_S = 0.002
"""Between two tries to start a round while another writer's is open."""
REASON = "written to be killed while writing"


@dataclass(frozen=True, slots=True)
class Result:
    """How many writers were killed, how many rounds they had committed, which were lost and which numbers were given twice."""

    kills: int
    committed: int
    lost: list[int]
    twice: list[int]


def kill_writers(folder: Path, *, kills: int, writers: int = 1, seed: int = 0) -> Result:
    """Kill `kills` writers on one log, `writers` of them at work at a time; raises what a log that does not open raises."""
    moments = random.Random(seed)
    context = multiprocessing.get_context("fork")
    committed: list[int] = []
    lost: set[int] = set()
    round_s = _first_round_s(context, folder)
    for first in range(0, kills, writers):
        committed += _written_until_killed(context, folder, min(writers, kills - first), round_s * writers, moments)
        lost |= set(committed) - _rounds(folder)
    twice = sorted({number for number in committed if committed.count(number) > 1})
    return Result(kills, len(committed), sorted(lost), twice)


def _written_until_killed(
    context: multiprocessing.context.ForkContext, folder: Path, writers: int, round_s: float, moments: random.Random
) -> list[int]:
    """The rounds that `writers` processes told of, until each was killed at a random moment of its first rounds."""
    started = []
    for _ in range(writers):
        readable, writable = os.pipe()
        writer = context.Process(target=_write_rounds, args=(folder, writable), daemon=True)
        writer.start()
        os.close(writable)
        started.append((writer, readable))
    for _, readable in started:
        os.read(readable, 1)  # it runs
    ends_s = sorted(moments.uniform(0, FIRST_ROUNDS_S * round_s) for _ in started)
    moments.shuffle(started)
    told: list[int] = []
    now_s = 0.0
    for end_s, (writer, readable) in zip(ends_s, started, strict=True):
        time.sleep(end_s - now_s)
        now_s = end_s
        writer.kill()
        writer.join()
        with os.fdopen(readable, "rb") as lines:
            told += [int(line) for line in lines.read().splitlines() if line]
    return told


def _first_round_s(context: multiprocessing.context.ForkContext, folder: Path) -> float:
    """How long a writer takes from its start to its first round, on this machine at this time."""
    readable, writable = os.pipe()
    writer = context.Process(target=_write_rounds, args=(folder, writable), daemon=True)
    writer.start()
    os.close(writable)
    with os.fdopen(readable, "rb") as told:
        told.readline()
        start_s = time.monotonic()
        told.readline()
        seconds = time.monotonic() - start_s
        writer.kill()
        writer.join()
    return seconds


def _write_rounds(folder: Path, told: int) -> None:
    os.write(told, b"\n")
    log = ExperimentLog(folder, author="killed")
    for row in log.show("json")["rounds"]:
        if not row["verdict"]:
            _decide(log, row["number"])
    while True:
        try:
            number = log.start("killed while writing", REASON)
        except InputError:  # another writer has a round open
            time.sleep(PAUSE_S)
            continue
        os.write(told, b"%d\n" % number)
        with contextlib.suppress(InputError):  # decided already by a writer that has just started
            log.predict(number, "mfu", 0.4, method="made up")
        _decide(log, number)


def _decide(log: ExperimentLog, number: int) -> None:
    """Decide a round that was left open, unless another writer was faster: the log takes one decision only."""
    with contextlib.suppress(InputError):
        log.decide(number, "revert", REASON)


def _rounds(folder: Path) -> set[int]:
    """The rounds of the log, after SQLite has checked the file."""
    path = folder / "perfkit.sqlite"
    if not path.exists():
        return set()
    with contextlib.closing(sqlite3.connect(path)) as connection:
        found = connection.execute("PRAGMA integrity_check").fetchone()[0]
        if found != "ok":
            raise RuntimeError(f"{path}: {found}")
    return {int(row["number"]) for row in ExperimentLog(folder).show("json")["rounds"]}


def main() -> None:
    """Print the count."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=500)
    parser.add_argument("--writers", type=int, default=1, help="at work on one log at the same time")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        result = kill_writers(Path(folder), kills=arguments.kills, writers=arguments.writers)
    told = f"{result.kills} killed, {result.committed} rounds committed by them, {len(result.lost)} lost"
    print(f"{told}, {len(result.twice)} numbers given twice")


if __name__ == "__main__":
    main()
