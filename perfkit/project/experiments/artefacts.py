"""Artefacts: files that belong to a round; small ones are copied into the project, large ones only pointed at.

The sha256 of a copied file is that of its bytes. A file or folder that is only linked is identified by size and the hash of its
first and last MiB (a folder: names, sizes and these hashes of all files), so that terabytes need not be read.
"""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from perfkit.core.errors import InputError
from perfkit.core.units import MIB

LARGEST_COPY_BYTES = 64 * MIB
EDGE_BYTES = MIB


@dataclass(frozen=True, kw_only=True, slots=True)
class Stored:
    """Where an artefact is (`path` relative to the project if inside it), its size, hash, and whether it is a copy."""

    path: str
    num_bytes: int
    sha256: str
    is_copy: bool


def store(folder: Path, number: int, source: Path, name: str) -> Stored:
    """Copy `source` (file or folder, up to 64 MiB) to `rounds/NN/name`, or link it where it is if it is larger.

    A folder that lies in the project already is linked. A name that is taken gets a number. Raises InputError if `source`
    cannot be read or its path is not UTF-8.
    """
    if not source.exists():
        raise InputError(str(source), ["does not exist"])
    files = _files(source)
    num_bytes = sum(path.stat().st_size for path in files)
    inside = source.resolve().is_relative_to(folder.resolve())
    if num_bytes > LARGEST_COPY_BYTES or (source.is_dir() and inside):
        return Stored(path=_relative(folder, source), num_bytes=num_bytes, sha256=_edges_sha256(source, files), is_copy=False)
    parent = folder / "rounds" / f"{number:02d}"
    try:
        parent.mkdir(parents=True, exist_ok=True)
        target = _copy(source, files, parent, name)
    except OSError as error:
        raise InputError(str(source), [f"cannot be copied into {parent}: {error.strerror}"]) from error
    digest = _sha256(target) if source.is_file() else _edges_sha256(target, _files(target))
    return Stored(path=_relative(folder, target), num_bytes=num_bytes, sha256=digest, is_copy=True)


def discard(folder: Path, stored: Stored) -> None:
    """Remove a copy whose transaction failed."""
    if stored.is_copy:
        path = folder / stored.path
        shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)


def restore(folder: Path, path: str, sha256: str, target: Path, *, force: bool) -> Path:
    """Write a kept file to `target`, byte for byte; refuses a copy that was changed, and to replace a file without `force`."""
    try:
        data = (folder / path).read_bytes()
        if hashlib.sha256(data).hexdigest() != sha256:
            raise InputError(path, ["was changed after it was logged: its sha256 differs"])
        with target.open("wb" if force else "xb") as file:
            file.write(data)
    except FileExistsError as error:
        raise InputError(str(target), ["exists already; give another name or force=True"]) from error
    except OSError as error:
        raise InputError(str(error.filename or target), [f"cannot be restored: {error.strerror}"]) from error
    return target


def write_text(target: Path, text: str) -> Path:
    """Write `text` to `target` through a file beside it, so that a full disk leaves the old file whole."""
    fresh = target.with_name(f".{target.name}.{os.getpid()}")
    try:
        fresh.write_text(text, encoding="utf-8")
        fresh.replace(target)
    except OSError as error:
        raise InputError(str(target), [f"cannot be written: {error.strerror}"]) from error
    finally:
        fresh.unlink(missing_ok=True)
    return target


def state_of(folder: Path, path: str, num_bytes: int) -> str:
    """What became of an artefact: `present`, `changed` (another size) or `missing`."""
    found = folder / path
    if not found.exists():
        return "missing"
    return "present" if sum(file.stat().st_size for file in _files(found)) == num_bytes else "changed"


def found_now(folder: Path, item: Mapping[str, Any]) -> str:
    """What an export may say of an artefact: where a copy lies in the project, or the name of a linked file and what became of it.

    Never the path of a file outside of the project: a report leaves the machine, and its folders are nobody else's concern.
    """
    path = Path(item["path"])
    name = f"{path.name} (linked)" if path.is_absolute() else path.as_posix()
    state = state_of(folder, item["path"], item["bytes"])
    if state == "present":
        return name
    seen = datetime.fromtimestamp(item["added_ns"] / 1e9, tz=UTC).strftime("%Y-%m-%d")
    return f"{name}, {'not found' if state == 'missing' else 'changed since'}, last seen on {seen}"


def _files(source: Path) -> list[Path]:
    """Regular files of a folder in a fixed order; links are not followed."""
    if source.is_file():
        return [source]
    return sorted(Path(root) / name for root, _, names in os.walk(source) for name in names if not (Path(root) / name).is_symlink())


def _copy(source: Path, files: list[Path], parent: Path, name: str) -> Path:
    for attempt in range(1, 1000):
        stem, suffix = Path(name).stem, Path(name).suffix
        target = parent / (name if attempt == 1 else f"{stem}-{attempt}{suffix}")
        try:
            if source.is_file():
                with target.open("xb") as out, source.open("rb") as file:
                    shutil.copyfileobj(file, out)
            else:
                target.mkdir()
                for path in files:
                    (target / path.relative_to(source)).parent.mkdir(parents=True, exist_ok=True)
                    shutil.copyfile(path, target / path.relative_to(source))
        except FileExistsError:
            continue
        return target
    raise InputError(str(parent), [f"holds 999 files called {name!r} already"])


def _relative(folder: Path, path: Path) -> str:
    absolute, base = path.resolve(), folder.resolve()
    text = absolute.relative_to(base).as_posix() if absolute.is_relative_to(base) else str(absolute)
    try:
        text.encode("utf-8")
    except UnicodeEncodeError as error:
        raise InputError(repr(str(path)), ["the path is not UTF-8, so the log cannot name it; rename it"]) from error
    return text


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _edges_sha256(source: Path, files: list[Path]) -> str:
    digest = hashlib.sha256()
    for path in files:
        size = path.stat().st_size
        if source.is_dir():
            digest.update(os.fsencode(path.relative_to(source)) + b"\0")
        digest.update(f"{size}\0".encode())
        with path.open("rb") as file:
            digest.update(file.read(EDGE_BYTES))
            file.seek(max(EDGE_BYTES, size - EDGE_BYTES))
            digest.update(file.read(EDGE_BYTES))
    return digest.hexdigest()
