"""State: a name for the state that files are in, by which what was made of them is found again as long as they do not change.

It is a hash over the place, names, sizes, times and first and last MiB of the files, and over the code that reads them.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from functools import cache
from pathlib import Path

from perfkit.core.units import MIB
from perfkit.record.listing import File

MIN_BYTES = MIB // 4
"""Smaller runs are read as soon as the libraries that read them are imported, so keeping them does not pay."""
MANY_FILES = 1000
_OUTPUT = "ASCEND_PROFILER_OUTPUT"


def worth_keeping(files: Iterable[File]) -> bool:
    """Whether reading these files takes longer than opening a kept run."""
    return sum(file.size_bytes for file in files) >= MIN_BYTES


def files_key(root: Path, files: Sequence[File]) -> str:
    """A name for the state of `files` below `root` and settings above it; it changes with any of them and the code that reads.

    Of many files the names, sizes and times tell it: to read the ends of thousands takes longer than to open what is kept.
    """
    above = settings_above(root)
    if len(files) <= MANY_FILES:
        return state_key([readers(), str(root.resolve())], [*files, *above])
    states = [f"{file.relative}|{file.size_bytes}|{file.mtime_ns}" for file in files]
    return state_key([readers(), str(root.resolve()), *states], above)


def settings_above(root: Path) -> list[File]:
    """The settings above an output folder of a profiler, `root` or that of the file `root`: all that formats need beside it."""
    output = next((place for place in (root, root.parent) if place.name == _OUTPUT), None)
    found = () if output is None else (path for path in sorted(output.parent.glob("profiler_*.json")) if path.is_file())
    return [File(path, Path(path.name), path.stat().st_size) for path in found]


def state_key(words: Iterable[str], files: Iterable[File]) -> str:
    digest = hashlib.blake2b(digest_size=16)
    digest.update("|".join(words).encode("utf-8", "surrogateescape"))
    for file in files:
        status = file.path.stat()
        digest.update(f"|{file.relative}|{status.st_size}|{status.st_mtime_ns}|".encode("utf-8", "surrogateescape"))
        digest.update(_ends(file.path, status.st_size))
    return digest.hexdigest()


@cache
def readers() -> str:
    """A hash over the code that reads traces: its version, which nobody can forget to change."""
    record = Path(__file__).parent
    core = record.parent / "core"
    shared = (core / f"{name}.py" for name in ("clock", "placement", "schema", "units"))
    code = [*shared, *sorted(record.rglob("*.py"))]
    return hashlib.blake2b(b"".join(path.read_bytes() for path in code), digest_size=16).hexdigest()


def _ends(path: Path, size_bytes: int) -> bytes:
    """The first and the last MiB of a file as a hash; nothing of one that may not be read, which its format tells."""
    try:
        with path.open("rb") as stream:
            digest = hashlib.blake2b(stream.read(MIB))
            if size_bytes > MIB:
                stream.seek(max(MIB, size_bytes - MIB))
                digest.update(stream.read(MIB))
    except OSError:
        return b""
    return digest.digest()
