"""Database: opening perfkit.sqlite, one transaction an operation, and who holds it when it is busy.

The file is made complete beside its place and then linked into it, so that two processes cannot both create it and no reader
sees half a schema. It is in WAL mode: readers never wait. Every connection is closed at the end of its operation.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import sqlite3
import tempfile
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from perfkit.core.errors import InputError
from perfkit.core.units import KIB, format_entry
from perfkit.project.experiments import _schema

FILE_NAME = "perfkit.sqlite"
WRITER_NAME = ".writer"
WAIT_S = 5.0
SHARED_BYTES = 32 * KIB
"""The shared-memory file that SQLite keeps beside a log that is open."""
_UNWRITTEN = (
    "cannot be written ({error}): nothing of this was saved, what was there before is; free space on the disk and try again"
)


@contextmanager
def writing(folder: Path, author: str, *, wait_s: float = WAIT_S) -> Iterator[sqlite3.Connection]:
    """One write transaction on the log in `folder`, committed at the end of the block, undone by an exception.

    Waits `wait_s` for another writer, then raises InputError that names it. Values that the tables cannot hold are an
    InputError too.
    """
    path = folder / FILE_NAME
    _create(folder)
    with _opened(path, f"{path.absolute().as_uri()}?mode=rw", wait_s) as connection:
        _migrate(connection, path)
        try:
            connection.execute("BEGIN IMMEDIATE")
        except sqlite3.OperationalError as error:
            raise InputError(
                str(path), [f"is in use for more than {format_entry(wait_s)} s by {_writer(folder)}; try again"]
            ) from error
        try:
            _announce(folder, author)
            yield connection
            connection.execute("COMMIT")
        except (sqlite3.IntegrityError, sqlite3.DataError, OverflowError, UnicodeEncodeError) as error:
            raise InputError(str(path), [f"the log cannot hold this: {error}"]) from error
        except (sqlite3.OperationalError, OSError) as error:
            raise InputError(str(path), [_UNWRITTEN.format(error=error)]) from error
        finally:
            (folder / WRITER_NAME).unlink(missing_ok=True)
            if connection.in_transaction:
                connection.execute("ROLLBACK")


@contextmanager
def reading(folder: Path) -> Iterator[sqlite3.Connection]:
    """A connection that cannot write; an empty log in memory if there is no file yet."""
    path = folder / FILE_NAME
    if not path.is_file():
        with contextlib.closing(sqlite3.connect(":memory:")) as empty:
            empty.row_factory = sqlite3.Row
            empty.executescript("".join(_schema.MIGRATIONS))
            yield empty
        return
    with _opened(path, f"{path.absolute().as_uri()}?{_reading_mode(folder)}", WAIT_S) as connection:
        version = _version(connection)
        if version != len(_schema.MIGRATIONS):
            raise InputError(str(path), [_version_problem(version)])
        yield connection


def _reading_mode(folder: Path) -> str:
    """How to open a log to read it. WAL readers need a shared-memory file beside it.

    A read-only or full disk has no room for that file; then nobody can be writing either, and the log is complete by itself unless
    a write-ahead log is left beside it.
    """
    if not os.access(folder, os.W_OK):
        return "immutable=1"
    if _size(folder / f"{FILE_NAME}-wal") or _size(folder / f"{FILE_NAME}-shm") >= SHARED_BYTES:
        return "mode=ro"
    try:
        with tempfile.TemporaryFile(dir=folder, prefix=".room-") as probe:
            probe.write(bytes(SHARED_BYTES))
            probe.flush()
    except OSError:
        return "immutable=1"
    return "mode=ro"


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0


@contextmanager
def _opened(path: Path, uri: str, wait_s: float) -> Iterator[sqlite3.Connection]:
    try:
        connection = sqlite3.connect(uri, uri=True, timeout=wait_s, isolation_level=None)
    except sqlite3.Error as error:
        raise InputError(str(path), [f"cannot be opened: {error}"]) from error
    with contextlib.closing(connection):
        connection.row_factory = sqlite3.Row
        try:
            connection.execute("PRAGMA foreign_keys = ON")
            connection.execute("SELECT name FROM sqlite_schema LIMIT 1").fetchall()
        except sqlite3.OperationalError as error:
            raise InputError(str(path), [_UNWRITTEN.format(error=error)]) from error
        except sqlite3.DatabaseError as error:
            raise InputError(str(path), [f"is no experiment log: {error}"]) from error
        yield connection


def _version(connection: sqlite3.Connection) -> int:
    return int(connection.execute("PRAGMA user_version").fetchone()[0])


def _version_problem(version: int) -> str:
    newest = len(_schema.MIGRATIONS)
    if version > newest:
        return f"was written by a newer perfkit (version {version}, this one knows {newest}); update perfkit"
    if version == 0:
        return "is a database of another program; move it away"
    return f"has version {version} of {newest}; open the project once with write access to migrate it"


def _create(folder: Path) -> None:
    path = folder / FILE_NAME
    if path.exists():
        return
    fresh = path.with_name(f".{FILE_NAME}.{uuid.uuid4().hex}")
    try:
        with contextlib.closing(sqlite3.connect(fresh, isolation_level=None)) as connection:
            connection.execute("PRAGMA journal_mode = WAL")
            _apply(connection, 0)
        _place(fresh, path)
    except (OSError, sqlite3.OperationalError) as error:
        raise InputError(str(path), [f"cannot be written: {error}"]) from error
    finally:
        fresh.unlink(missing_ok=True)


def _place(fresh: Path, path: Path) -> None:
    try:
        os.link(fresh, path)
    except FileExistsError:
        return
    except OSError:  # a disk without hard links: the window in which two processes could both create the log is tiny
        if not path.exists():
            fresh.rename(path)


def _apply(connection: sqlite3.Connection, version: int) -> None:
    script = "".join(_schema.MIGRATIONS[version:])
    connection.executescript(f"BEGIN EXCLUSIVE; {script} PRAGMA user_version = {len(_schema.MIGRATIONS)}; COMMIT;")


def _migrate(connection: sqlite3.Connection, path: Path) -> None:
    """Bring an older log to the newest version, after a copy beside it; refuse a newer or foreign one."""
    version = _version(connection)
    if version == len(_schema.MIGRATIONS):
        return
    if version == 0 or version > len(_schema.MIGRATIONS):
        raise InputError(str(path), [_version_problem(version)])
    try:
        with contextlib.closing(sqlite3.connect(path.with_name(f"{FILE_NAME}.version{version}.backup"))) as copy:
            connection.backup(copy)
    except sqlite3.OperationalError as error:
        raise InputError(str(path), [f"has no room for a copy before its migration from version {version}: {error}"]) from error
    try:
        _apply(connection, version)
    except sqlite3.Error as error:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        if _version(connection) != len(_schema.MIGRATIONS):  # else another process has just migrated it
            raise InputError(str(path), [f"could not be migrated from version {version}: {error}"]) from error


def _announce(folder: Path, author: str) -> None:
    text = json.dumps({"pid": os.getpid(), "host": socket.gethostname(), "author": author})
    (folder / WRITER_NAME).write_text(text, encoding="utf-8")


def _writer(folder: Path) -> str:
    try:
        found = json.loads((folder / WRITER_NAME).read_text(encoding="utf-8"))
        return f"process {int(found['pid'])} on {found['host']} ({found['author']})"
    except (OSError, ValueError, TypeError, KeyError):
        return "a program that is not perfkit"
