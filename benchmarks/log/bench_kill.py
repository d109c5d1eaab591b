"""Kill a process that writes to the experiment log with SIGKILL, many times, and count rounds that it had committed and are gone.

example: python -m benchmarks.log.bench_kill --kills 500

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

from perfkit.project.experiments import ExperimentLog

FIRST_ROUNDS_S = 2.5
"""Writers are killed within this multiple of the time that the first round took."""
REASON = "written to be killed while writing"


@dataclass(frozen=True, slots=True)
class Result:
    """How many writers were killed, how many rounds they had committed, and which of these were lost."""

    kills: int
    committed: int
    lost: list[int]


def kill_writers(folder: Path, *, kills: int, seed: int = 0) -> Result:
    """Kill `kills` writers on the log in `folder`; raises whatever a log that does not open raises."""
    moments = random.Random(seed)
    context = multiprocessing.get_context("fork")
    committed: set[int] = set()
    lost: set[int] = set()
    round_s = _first_round_s(context, folder)
    for _ in range(kills):
        readable, writable = os.pipe()
        writer = context.Process(target=_write_rounds, args=(folder, writable), daemon=True)
        writer.start()
        os.close(writable)
        os.read(readable, 1)  # it runs
        time.sleep(moments.uniform(0, FIRST_ROUNDS_S * round_s))
        writer.kill()
        writer.join()
        with os.fdopen(readable, "rb") as told:
            committed |= {int(line) for line in told.read().splitlines() if line}
        lost |= committed - _rounds(folder)
    return Result(kills, len(committed), sorted(lost))


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
            log.decide(row["number"], "revert", REASON)
    while True:
        number = log.start("killed while writing", REASON)
        os.write(told, b"%d\n" % number)
        log.predict(number, "mfu", 0.4, method="made up")
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
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        result = kill_writers(Path(folder), kills=arguments.kills)
    print(f"{result.kills} writers killed, {result.committed} rounds committed by them, {len(result.lost)} lost")


if __name__ == "__main__":
    main()
