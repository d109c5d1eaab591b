"""Lock: one writer of a tuning project at a time, on one machine or on a shared disk.

The lock is a file made with O_EXCL that names process and host. It is stale after 30 s, or at once if its process has ended on
this host; a stale lock is moved away first, so that two waiting writers cannot both take it over.
"""

from __future__ import annotations

import json
import os
import socket
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from perfkit.core.errors import InputError
from perfkit.core.units import format_entry

STALE_S = 30.0
WAIT_S = 5.0
POLL_S = 0.02


@contextmanager
def locked(folder: Path, *, wait_s: float = WAIT_S) -> Iterator[None]:
    """Hold the lock of `folder` inside the block. Raises InputError that names the holder after `wait_s` seconds."""
    path = folder / ".lock"
    ours = json.dumps({"pid": os.getpid(), "host": socket.gethostname(), "token": uuid.uuid4().hex})
    deadline = time.monotonic() + wait_s
    while not _take(path, ours):
        if _is_stale(path):
            _move_away(path)
        elif time.monotonic() > deadline:
            raise InputError(
                str(folder), [f"another writer holds the project for more than {format_entry(wait_s)} s: {_holder(path)}"]
            )
        else:
            time.sleep(POLL_S)
    try:
        yield
    finally:
        if _text(path) == ours:
            path.unlink(missing_ok=True)


def _take(path: Path, ours: str) -> bool:
    try:
        descriptor = os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o644)
    except FileExistsError:
        return False
    except OSError as error:
        raise InputError(str(path), [f"cannot be written: {error.strerror}"]) from error
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write(ours)
    except OSError as error:  # a full disk; an empty lock would keep everybody waiting until it is stale
        path.unlink(missing_ok=True)
        raise InputError(str(path), [f"cannot be written: {error.strerror}"]) from error
    return True


def _text(path: Path) -> str | None:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None


def _owner(path: Path) -> tuple[int | None, str]:
    try:
        found = json.loads(_text(path) or "")
        return int(found["pid"]), str(found["host"])
    except (ValueError, TypeError, KeyError):
        return None, "unknown host"


def _holder(path: Path) -> str:
    pid, host = _owner(path)
    return f"process {pid} on {host}" if pid is not None else f"unknown process; delete {path} if nobody is writing"


def _is_stale(path: Path) -> bool:
    try:
        age_s = time.time() - path.stat().st_mtime
    except OSError:
        return False
    if age_s > STALE_S:
        return True
    pid, host = _owner(path)
    return pid is not None and host == socket.gethostname() and not _is_running(pid)


def _is_running(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except (OSError, OverflowError):
        return True
    return True


def _move_away(path: Path) -> None:
    """Remove a stale lock; put it back if another writer had replaced it in between."""
    aside = path.with_name(f".lock.{uuid.uuid4().hex}")
    try:
        path.rename(aside)
    except OSError:
        return
    if not _is_stale(aside):
        try:
            os.link(aside, path)
        except OSError as error:
            raise InputError(str(path), [f"a writer lost its lock: {error.strerror}; try again"]) from error
        finally:
            aside.unlink(missing_ok=True)
        return
    aside.unlink(missing_ok=True)
