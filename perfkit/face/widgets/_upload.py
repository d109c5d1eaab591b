"""Upload: a file that comes from the visitor's machine in parts, checked, and placed in `uploads/` of the project.

Parts travel as messages of a few MiB, each answered before the next is sent, so that a file of any size needs little memory and
no connection is dropped for a message that is too long. Archives are unpacked once every member is known to be harmless; what is
refused leaves nothing behind.
"""

from __future__ import annotations

import os
import re
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path, PurePosixPath
from secrets import token_hex
from typing import BinaryIO

from perfkit.core.errors import InputError
from perfkit.core.units import GIB, MIB, format_bytes
from perfkit.face.widgets import context
from perfkit.record.archive import is_archive, unpack_into

FOLDER = "uploads"
MAX_BYTES = 200 * MIB
QUOTA_BYTES = 5 * GIB
PART_BYTES = 2 * MIB
OTHER_WAYS = (
    "type its path, if the file lies on the machine that runs perfkit",
    f"copy it into the folder {FOLDER} of the project",
    "run `perfkit summary FILE` where the file is",
)
_LEFT_AFTER_S = 3600
_LONGEST_NAME = 80


def uploads_folder() -> Path | None:
    """Where uploads go; None without a project, or if it is only read."""
    project = context.current_project()
    return None if project is None or project.read_only else project.folder / FOLDER


def offer() -> dict[str, int]:
    """What the page needs to know to offer an upload; empty if there is none."""
    return {"max_bytes": MAX_BYTES, "part_bytes": PART_BYTES} if uploads_folder() is not None else {}


class Upload:
    """One file on its way. Raises InputError for a file that is too large, or for which there is no room."""

    def __init__(self, name: str, size_bytes: int) -> None:
        self.name, self.size_bytes, self.num_received = _safe_name(name), size_bytes, 0
        folder = uploads_folder()
        if folder is None:
            raise InputError(self.name, ["nothing can be uploaded: there is no project, or it is only read"])
        if size_bytes > MAX_BYTES:
            limit = f"{format_bytes(size_bytes)} is more than the {format_bytes(MAX_BYTES)} that a page takes; other ways:"
            raise InputError(self.name, [limit, *OTHER_WAYS])
        self._folder, self._part = folder, folder / f".part-{token_hex(6)}"
        with _told(self.name, folder):
            folder.mkdir(exist_ok=True)
            with _alone(folder):
                _clear_left(folder)
                self._check_room(_size(folder), shutil.disk_usage(folder).free)
                self._stream: BinaryIO = self._part.open("xb")
                try:
                    self._stream.truncate(size_bytes)  # takes its part of the quota now: others announce files at the same time
                except BaseException:
                    self.cancel()
                    raise

    def _check_room(self, used: int, free: int) -> None:
        if used + self.size_bytes > QUOTA_BYTES:
            text = f"{FOLDER} of the project would exceed {format_bytes(QUOTA_BYTES)}; delete what is not needed there"
            raise InputError(self.name, [text])
        if self.size_bytes > free:
            text = f"the disk has {format_bytes(free)} left, the file needs {format_bytes(self.size_bytes)}"
            raise InputError(self.name, [text])

    def receive(self, content: bytes | memoryview) -> None:
        """Write the next part."""
        self.num_received += len(content)
        try:
            if self.num_received > self.size_bytes:
                raise InputError(self.name, [f"more than the {self.size_bytes} bytes that were announced"])
            with _told(self.name, self._folder):
                self._stream.write(content)
        except InputError:
            self.cancel()
            raise

    @property
    def is_complete(self) -> bool:
        """Whether all bytes have come."""
        return self.num_received == self.size_bytes

    def cancel(self) -> None:
        """Drop what has come."""
        with suppress(OSError):  # a full disk: closing would write what is still in memory
            self._stream.close()
        self._part.unlink(missing_ok=True)

    def finish(self) -> Path:
        """Place the file, or the content of the archive that it is, and give its path."""
        try:
            with _told(self.name, self._folder):
                self._stream.close()
                if not is_archive(self._part):
                    return self._part.rename(_free(self._folder / self.name))
                room = QUOTA_BYTES - _size(self._folder) + self.size_bytes
                stem = re.sub(r"\.(zip|tar|tgz|tar\.gz)$", "", self.name, flags=re.IGNORECASE)
                return unpack_into(self._part, _free(self._folder / stem), subject=self.name, max_bytes=room)
        finally:
            self._part.unlink(missing_ok=True)


def _safe_name(name: str) -> str:
    """The last part of a name as the browser tells it, in characters that every file system takes."""
    last = PurePosixPath(name.replace("\\", "/")).name
    plain = re.sub(r"[^\w.-]+", "_", last).strip("._")
    return plain[-_LONGEST_NAME:] or "upload"


def _free(path: Path) -> Path:
    """`path`, or with a number if that is taken."""
    candidates = (path, *(path.with_name(f"{path.stem}-{number}{path.suffix}") for number in range(2, 1000)))
    return next(candidate for candidate in candidates if not candidate.exists())


def _size(folder: Path) -> int:
    return sum(path.lstat().st_size for path in folder.rglob("*") if path.is_file())


def _clear_left(folder: Path) -> None:
    """Remove parts of uploads whose page has gone."""
    for part in folder.glob(".part-*"):
        if time.time() - part.lstat().st_mtime > _LEFT_AFTER_S:
            shutil.rmtree(part) if part.is_dir() else part.unlink(missing_ok=True)


@contextmanager
def _told(name: str, folder: Path) -> Iterator[None]:
    """A full or protected disk in words."""
    try:
        yield
    except OSError as error:
        raise InputError(name, [f"cannot be written to {folder.name} of the project: {error.strerror or error}"]) from error


@contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """Let no other page of the project look at the room meanwhile, where the system has locks of files."""
    if os.name == "nt":
        yield
        return
    import fcntl  # noqa: PLC0415  not on Windows

    handle = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)
