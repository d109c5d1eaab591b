"""Listing: the files of a run, read once, that every format looks at to recognise itself.

Formats decide by names and by the first 4 KiB of the content (after gunzip), never by the name of the chosen folder.
"""

from __future__ import annotations

import os
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from io import RawIOBase
from pathlib import Path
from stat import S_ISREG

from perfkit.core.errors import InputError
from perfkit.core.units import MIB
from perfkit.record import encoding

HEAD_BYTES = 4096
MAX_FILES = 200_000
_GZIP_MAGIC = b"\x1f\x8b"
_PIECE_BYTES = MIB
_SKIPPED_FOLDERS = frozenset({".git", "node_modules", "__pycache__", ".ipynb_checkpoints"})


@dataclass(frozen=True)
class File:
    """One file: its path, its path relative to the chosen folder, its size, and when it was written (0: not asked)."""

    path: Path
    relative: Path
    size_bytes: int
    mtime_ns: int = 0

    @cached_property
    def name(self) -> str:
        """Its name; bytes that are no UTF-8 are kept as surrogates, so that the file can be opened."""
        return self.path.name

    @cached_property
    def head(self) -> bytes:
        """The first 4 KiB of its content, decompressed if it is gzip, as UTF-8 with line feeds; empty if it cannot be read."""
        return b"".join(encoding.as_utf8([self._start]))

    @cached_property
    def _start(self) -> bytes:
        try:
            with self.path.open("rb") as stream:
                start = stream.read(HEAD_BYTES)
        except OSError:
            return b""
        if not start.startswith(_GZIP_MAGIC):
            return start
        try:
            return zlib.decompressobj(wbits=31).decompress(start, HEAD_BYTES)
        except zlib.error:
            return b""

    @property
    def is_gzip(self) -> bool:
        """Whether the content is gzip, whatever the name says."""
        with self.path.open("rb") as stream:
            return stream.read(2) == _GZIP_MAGIC

    @property
    def is_plain(self) -> bool:
        """Whether its bytes are its content: neither packed nor in another encoding."""
        return not self.is_gzip and encoding.is_plain(self._start)

    def open(self) -> RawIOBase:
        """Its content as it is if that is UTF-8 (or no text), else as UTF-8 with line feeds. Raises OSError as `Path.open` does."""
        raw = self.path.open("rb", buffering=0)
        if encoding.is_plain(self._start):
            return raw
        return encoding.stream(iter(lambda: raw.read(_PIECE_BYTES) or b"", b""), raw)

    @property
    def label(self) -> str:
        """Its relative path as text that can be shown and stored anywhere."""
        return printable(str(self.relative))


@dataclass(frozen=True)
class Listing:
    """All files below `root` (or `root` itself if it is a file), in a stable order."""

    root: Path
    files: tuple[File, ...]

    def __iter__(self) -> Iterator[File]:
        return iter(self.files)

    @cached_property
    def is_one_file(self) -> bool:
        """Whether `root` is itself the file."""
        return self.root.is_file()

    def named(self, *names: str) -> tuple[File, ...]:
        """The files with one of the given names."""
        return tuple(file for file in self.files if file.name in names)

    def below(self, folder: Path) -> tuple[File, ...]:
        """The files below `folder`, at any depth."""
        return tuple(file for file in self.files if file.path.is_relative_to(folder))


def printable(text: str) -> str:
    """`text` with bytes that are no UTF-8 and control characters shown as escapes."""
    if text.isascii() and text.isprintable():
        return text
    text = text.encode("utf-8", "backslashreplace").decode("utf-8")
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode("ascii") for char in text)


def list_files(root: Path) -> Listing:
    """The files of a run, at any depth; links to folders are not followed.

    Raises InputError if `root` does not exist, holds nothing, or holds more than 200 000 files.
    """
    subject = printable(str(root))
    if not root.exists():
        raise InputError(subject, ["no such file or folder"])
    if root.is_file():
        return Listing(root, (File(root, Path(root.name), root.stat().st_size),))
    files: list[File] = []
    for folder, folders, names in os.walk(root):
        folders[:] = sorted(name for name in folders if name not in _SKIPPED_FOLDERS)
        here = Path(folder)
        below = here.relative_to(root)
        for name in sorted(names):
            try:
                status = os.stat(os.path.join(folder, name))  # noqa: PTH116, PTH118  (thousands of files: a Path each takes longer)
            except OSError:
                continue  # a link to nothing
            if S_ISREG(status.st_mode):
                files.append(File(here / name, below / name, status.st_size, status.st_mtime_ns))
        if len(files) > MAX_FILES:
            raise InputError(subject, [f"more than {MAX_FILES} files; choose the folder of one run"])
    if not files:
        raise InputError(subject, ["the folder is empty"])
    return Listing(root, tuple(files))
