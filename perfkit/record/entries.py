"""Entries: folders in the cache that are there as a whole or not at all, and go when space is needed.

An entry is made in a folder of its own and renamed at the end, so a half-written one is never read. Anyone may delete entries at
any time; what is read from them must be able to fail. The least recently used go first.
"""

from __future__ import annotations

import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from perfkit.core.settings import cache_folder, cache_limit_bytes

_LEFTOVER_S = 24 * 3600
_WORK = "work"


def entry(kind: str, key: str) -> Path:
    """Where the entry `key` of a kind (a plain word) is or would be."""
    return cache_folder() / kind / key


def used(folder: Path) -> None:
    """Mark an entry as used now."""
    os.utime(folder)


@contextmanager
def new_entry(target: Path) -> Iterator[Path]:
    """A new folder that becomes the entry `target` when the block ends, or disappears if the block fails.

    If another process made the entry meanwhile, that one stays. Raises OSError if the cache cannot be written.
    """
    work = target.parent.parent / _WORK
    work.mkdir(parents=True, exist_ok=True, mode=0o700)
    folder = Path(tempfile.mkdtemp(dir=work))
    try:
        yield folder
        target.parent.mkdir(exist_ok=True, mode=0o700)
        try:
            folder.rename(target)
        except OSError:
            if not target.is_dir():
                raise
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def remove(folder: Path) -> None:
    """Remove an entry at once; one that is already gone is no error."""
    work = folder.parent.parent / _WORK
    work.mkdir(parents=True, exist_ok=True, mode=0o700)
    trash = Path(tempfile.mkdtemp(dir=work))
    try:
        folder.rename(trash / folder.name)
    except FileNotFoundError:
        return
    finally:
        shutil.rmtree(trash, ignore_errors=True)


def make_room() -> None:
    """Remove the least recently used entries until the cache is within its limit, and what ended processes left behind."""
    root = cache_folder()
    found = [(folder.stat().st_mtime_ns, _size_bytes(folder), folder) for folder in root.glob("*/*") if folder.parent.name != _WORK]
    total_bytes = sum(size_bytes for _, size_bytes, _ in found)
    for _, size_bytes, folder in sorted(found):
        if total_bytes <= cache_limit_bytes():
            break
        remove(folder)
        total_bytes -= size_bytes
    for folder in (root / _WORK).glob("*"):
        if time.time() - folder.stat().st_mtime > _LEFTOVER_S:
            shutil.rmtree(folder, ignore_errors=True)


def _size_bytes(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
