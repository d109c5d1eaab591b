"""Database: class.sqlite, the only file that a class writes, beside the perfkit.toml of the served project.

The table `attempt` has the columns of the experiment log, where a lone learner's answers go instead. WAL mode and a busy timeout
let twenty pages write at once, without waiting for the disk at each answer: a killed process loses nothing, a power cut may lose
the last seconds. A connection lives as long as one operation.
"""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from perfkit.core.errors import InputError

FILE_NAME = "class.sqlite"
BUSY_S = 5.0

ATTEMPT = """
CREATE TABLE IF NOT EXISTS attempt (
    id INTEGER PRIMARY KEY,
    at_ns INTEGER NOT NULL,
    class_seed INTEGER NOT NULL,
    student TEXT NOT NULL,
    exercise TEXT NOT NULL,
    params_json TEXT NOT NULL CHECK (json_valid(params_json)),
    answer TEXT NOT NULL,
    correct INTEGER NOT NULL CHECK (correct IN (0, 1)),
    matched_wrong TEXT,
    hints INTEGER NOT NULL CHECK (hints >= 0),
    revealed INTEGER NOT NULL CHECK (revealed IN (0, 1)),
    seconds REAL NOT NULL CHECK (seconds >= 0),
    points REAL NOT NULL
) STRICT;
CREATE INDEX IF NOT EXISTS attempt_by_student ON attempt (class_seed, student, exercise);
"""
CONTROL = """
CREATE TABLE IF NOT EXISTS control (
    name TEXT PRIMARY KEY,
    value TEXT NOT NULL CHECK (json_valid(value))
) STRICT;
CREATE TABLE IF NOT EXISTS present (
    student TEXT PRIMARY KEY,
    seen_ns INTEGER NOT NULL
) STRICT;
CREATE TABLE IF NOT EXISTS team (
    student TEXT PRIMARY KEY,
    name TEXT NOT NULL
) STRICT;
"""


@contextmanager
def connected(path: Path, *, write: bool) -> Iterator[sqlite3.Connection]:
    """A connection to a class file; with `write` inside one transaction, committed at the end of the block."""
    try:
        with contextlib.closing(sqlite3.connect(path, timeout=BUSY_S, isolation_level=None)) as connection:
            connection.row_factory = sqlite3.Row
            connection.execute("PRAGMA synchronous = NORMAL")
            if write:
                connection.execute("BEGIN IMMEDIATE")
            yield connection
            if write:
                connection.execute("COMMIT")
    except sqlite3.Error as error:
        raise InputError(str(path), [f"cannot be used: {error}; is the disk full, or the file of another program?"]) from error


def create(path: Path) -> None:
    """Make the file with its tables if it does not exist; several processes may do so at once."""
    try:
        with contextlib.closing(sqlite3.connect(path, timeout=BUSY_S, isolation_level=None)) as connection:
            connection.execute("PRAGMA journal_mode = WAL")
            connection.executescript(ATTEMPT + CONTROL)
    except sqlite3.Error as error:
        raise InputError(str(path), [f"cannot be written: {error}"]) from error


def class_files(folder: Path) -> list[Path]:
    """What a class has left in a folder: the database and what SQLite keeps beside it."""
    return [path for suffix in ("", "-wal", "-shm") if (path := folder / f"{FILE_NAME}{suffix}").is_file()]
