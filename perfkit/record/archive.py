"""Archives: .zip, .tar and .tar.gz files of ranks, unpacked into the cache once everything in them is known to be harmless.

All members are looked at before anything is written. Names that lead out of the folder, links, devices and archives that grow
beyond the limits are refused with all offending members; nothing of a refused archive remains. Archives in archives stay closed.
"""

from __future__ import annotations

import calendar
import gzip
import hashlib
import io
import os
import re
import secrets
import shutil
import stat
import tarfile
import zipfile
import zlib
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import IO, Any

from perfkit.core.errors import InputError
from perfkit.core.units import GIB, MIB, format_bytes
from perfkit.record import entries
from perfkit.record.listing import File, printable

MAX_MEMBERS = 20_000
MAX_BYTES = 4 * GIB
MAX_RATIO = 200
_HARMLESS_BYTES = 16 * MIB
"""So small a content is no bomb, however well it was packed."""
_KIND = "archives"
_LISTED = 20
_LAST_S = 2**32
_TAR_MAGIC_AT = 257
_DRIVE = re.compile(r"^[A-Za-z]:")
_SUFFIXES = re.compile(r"\.(zip|tar|tgz|tar\.gz)$", re.IGNORECASE)
_DAMAGE = (
    zipfile.BadZipFile,
    tarfile.TarError,
    gzip.BadGzipFile,
    zlib.error,
    EOFError,
    NotImplementedError,
    RuntimeError,
    UnicodeError,
    ValueError,
)


@dataclass(frozen=True, slots=True)
class _Member:
    """One file or folder of an archive; `wrong` says why it must not be unpacked, `key` is the library's own object for it."""

    name: str
    size_bytes: int
    mtime_s: int
    is_folder: bool
    wrong: str | None
    key: Any


def is_archive(path: Path) -> bool:
    """Whether a file is a zip or tar archive, by its content; a single gzip file is none."""
    try:
        file = File(path, Path(path.name), path.stat().st_size)
        with path.open("rb") as stream:
            if stream.read(4) in (b"PK\x03\x04", b"PK\x05\x06"):
                return True
        return file.head[_TAR_MAGIC_AT : _TAR_MAGIC_AT + 5] == b"ustar"
    except OSError:
        return False


def unpacked(path: Path) -> Path:
    """The folder in the cache with the content of an archive, unpacked now or earlier.

    Raises InputError that lists every member that must not be unpacked, or says which limit the archive exceeds.
    """
    status = path.stat()
    with path.open("rb") as stream:
        start = stream.read(MIB)
    stamp = f"{path.resolve()}|{status.st_size}|{status.st_mtime_ns}|".encode("utf-8", "surrogateescape")
    target = entries.entry(_KIND, hashlib.blake2b(stamp + start, digest_size=16).hexdigest())
    folder = re.sub(r"[^\w.-]", "_", _SUFFIXES.sub("", path.name)).strip(".") or "archive"
    if target.is_dir():
        entries.used(target)
        return target / folder
    subject = printable(str(path))
    try:
        members = _checked(path, subject, status.st_size)
        entries.make_room()
        with entries.new_entry(target) as work:
            _unpack(path, members, work / folder)
    except _DAMAGE as error:
        raise InputError(subject, [f"the archive is damaged or of an unknown kind: {printable(str(error))}"]) from error
    except OSError as error:
        raise InputError(subject, [f"cannot be unpacked into {target.parent}: {error.strerror or error}"]) from error
    return target / folder


def unpack_into(path: Path, target: Path, *, subject: str, max_bytes: int = MAX_BYTES) -> Path:
    """Unpack an archive to the new folder `target`, which appears in one piece or not at all; as `unpacked`, but kept.

    Raises InputError with all offending members, or if the content is more than `max_bytes`. `subject` names the archive in it.
    """
    work = target.with_name(f".part-{target.name}-{secrets.token_hex(4)}")
    try:
        members = _checked(path, subject, path.stat().st_size)
        if (total_bytes := sum(member.size_bytes for member in members)) > max_bytes:
            raise InputError(
                subject, [f"holds {format_bytes(total_bytes)}, and there is room for {format_bytes(max(max_bytes, 0))}"]
            )
        _unpack(path, members, work)
        return work.rename(target)
    except _DAMAGE as error:
        raise InputError(subject, [f"the archive is damaged or of an unknown kind: {printable(str(error))}"]) from error
    except OSError as error:  # of the disk, or of a place in the file that a damaged archive names
        raise InputError(subject, [f"cannot be unpacked: {error.strerror or error}"]) from error
    finally:
        shutil.rmtree(work, ignore_errors=True)


def _checked(path: Path, subject: str, archive_bytes: int) -> list[_Member]:
    """The members, if all of them may be unpacked."""
    members: list[_Member] = []
    total_bytes = 0
    for member in _members(path):
        members.append(member)
        total_bytes += member.size_bytes
        if len(members) > MAX_MEMBERS:
            raise InputError(subject, [f"more than {MAX_MEMBERS} members; unpack it yourself and open the folder"])
        if total_bytes > MAX_BYTES:
            limit = format_bytes(MAX_BYTES)
            raise InputError(subject, [f"more than {limit} when unpacked; unpack it yourself and open the folder"])
        if total_bytes > _HARMLESS_BYTES and total_bytes > MAX_RATIO * archive_bytes:
            raise InputError(subject, [f"{printable(member.name)}: the content grows more than {MAX_RATIO}-fold, as in a zip bomb"])
    repeated = [
        name for name, count in Counter(_plain(member.name) for member in members if not member.is_folder).items() if count > 1
    ]
    problems = [f"{printable(member.name)}: {member.wrong}" for member in members if member.wrong]
    problems += [f"{printable(name)}: appears more than once" for name in repeated]
    if problems:
        more = [f"and {len(problems) - _LISTED} more"] if len(problems) > _LISTED else []
        raise InputError(subject, ["refused, nothing was unpacked", *problems[:_LISTED], *more])
    if not members:
        raise InputError(subject, ["the archive is empty"])
    return members


def _members(path: Path) -> Iterator[_Member]:
    if _is_zip(path):
        with zipfile.ZipFile(path) as archive:
            for info in archive.infolist():
                mode = info.external_attr >> 16
                special = stat.S_IFMT(mode) not in (0, stat.S_IFREG, stat.S_IFDIR)
                name = info.orig_filename.replace("\\", "/")  # some programs of Windows write its separators
                wrong = _wrong_name(name) or ("is a link or device" if special else None)
                wrong = wrong or ("is encrypted" if info.flag_bits & 1 else None)
                is_folder = name.endswith("/")
                yield _Member(name, info.file_size, _zip_time_s(info), is_folder, wrong, info)
    else:
        with _tar(path) as tar:
            for item in tar:
                wrong = _wrong_name(item.name) or (None if item.isreg() or item.isdir() else "is a link or device")
                mtime_s = min(max(int(item.mtime), 0), _LAST_S)
                yield _Member(item.name, item.size if item.isreg() else 0, mtime_s, item.isdir(), wrong, item)


def _zip_time_s(info: zipfile.ZipInfo) -> int:
    """The time of a member, read as UTC; 0 where there is none."""
    try:
        return calendar.timegm((*info.date_time, 0, 0, 0))
    except ValueError:
        return 0


def _wrong_name(name: str) -> str | None:
    if not name or "\0" in name:
        return "has no valid name"
    if "\\" in name:
        return "has a backslash in its name"
    if name.startswith("/") or _DRIVE.match(name):
        return "has an absolute path"
    return "leads out of the folder (..)" if ".." in PurePosixPath(name).parts else None


def _plain(name: str) -> str:
    return str(PurePosixPath(name))


def _unpack(path: Path, members: list[_Member], folder: Path) -> None:
    folder.mkdir()
    if _is_zip(path):
        with zipfile.ZipFile(path) as archive:
            for member in members:
                _write(member, folder, None if member.is_folder else archive.open(member.key))
        return
    with _tar(path) as tar:
        for member, item in zip(members, tar, strict=True):
            if _plain(item.name) != _plain(member.name) or item.type != member.key.type:
                raise tarfile.TarError("the file changed while it was read")
            _write(member, folder, tar.extractfile(item))


def _write(member: _Member, folder: Path, content: IO[bytes] | None) -> None:
    """Write one member; a folder has no content."""
    target = folder / _plain(member.name)
    (target if content is None else target.parent).mkdir(parents=True, exist_ok=True)
    if content is None:
        return
    with content, target.open("xb") as out:
        shutil.copyfileobj(content, out, MIB)
    if target.stat().st_size != member.size_bytes:
        raise EOFError(f"{member.name} is shorter or longer than it says")
    os.utime(target, (member.mtime_s, member.mtime_s))


def _is_zip(path: Path) -> bool:
    with path.open("rb") as stream:
        return stream.read(2) == b"PK"


@contextmanager
def _tar(path: Path) -> Iterator[tarfile.TarFile]:
    """A tar file as a stream; a compressed one is inflated only as far as the limits allow."""
    with path.open("rb") as raw:
        compressed = raw.read(2) == b"\x1f\x8b"
        raw.seek(0)
        limit = min(MAX_BYTES, max(MAX_RATIO * path.stat().st_size, _HARMLESS_BYTES)) + _HARMLESS_BYTES
        stream: Any = gzip.GzipFile(fileobj=raw) if compressed else raw
        with tarfile.open(fileobj=_Bounded(stream, limit), mode="r|", tarinfo=_Header) as tar:
            yield tar


class _Header(tarfile.TarInfo):
    """A header of a tar file; a name or attribute of more than a MiB, which would be read at once, is refused."""

    def _proc_member(self, tar: tarfile.TarFile) -> tarfile.TarInfo:
        if not self.isreg() and self.size > MIB:
            raise tarfile.HeaderError(f"a header of {format_bytes(self.size)}")
        return super()._proc_member(tar)  # type: ignore[misc,no-any-return]  # the hook that tarfile offers to subclasses


class _Bounded(io.RawIOBase):
    """A stream that ends with an error after `limit` bytes, whatever the headers in it say."""

    def __init__(self, stream: Any, limit: int) -> None:
        self._stream = stream
        self._left = limit

    def read(self, size: int = -1) -> bytes:
        content: bytes = self._stream.read(size if size >= 0 else self._left + 1)
        self._left -= len(content)
        if self._left < 0:
            raise tarfile.TarError(f"the content grows more than {MAX_RATIO}-fold or beyond {format_bytes(MAX_BYTES)}")
        return content
