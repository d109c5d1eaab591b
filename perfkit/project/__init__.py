"""Project: the folder of one tuning effort, its goal and limits, and what was open when the user left.

Everything stands in perfkit.toml, which people may edit by hand. A write merges with what others wrote since it was read: only
a key that both changed is refused, with both values. Paths inside the folder are stored relative to it, so that the folder can
be moved. Amounts are SI: FLOP/s and bytes.
"""

from __future__ import annotations

import os
import tempfile
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal

import tomli_w

from perfkit.core import settings
from perfkit.core.errors import InputError, PerfkitError
from perfkit.core.resources import data_folder
from perfkit.core.settings import PROJECT_FILE
from perfkit.core.settings import find_project as find_project
from perfkit.project._document import KEYS, Document, changed, is_scalar, is_text, lookup, merge, problems_of, unknown_keys
from perfkit.project._lock import locked

FOLDERS = ("rounds", "uploads", "reports")

GoalMetric = Literal["tokens_per_s_per_device", "step_time_ns", "mfu"]
Attention = Literal["full", "causal"]
CycleOrder = Literal["newer", "classic"]
"""In which order pages lead through the cycle: strategy, memory, time (the newer guides), or a profile first, then operators,
communication, memory and recomputation (the classic ones). What a round has to show is the same."""
Scalar = str | int | float | bool


@dataclass(frozen=True, kw_only=True, slots=True)
class Project:
    """A tuning project as it was read; change it with `dataclasses.replace` and `save` it.

    `attention` and `count_head` are the counting convention of all MFU figures. `usable_limit_bytes` is the part of the device
    memory that a plan may fill. `recent` is what was opened, the newest first; `pages` holds what pages remember. `document` is the
    file as it was read.
    """

    folder: Path
    name: str
    goal_metric: GoalMetric = "tokens_per_s_per_device"
    goal_op: Literal[">=", "<="] = ">="
    goal_value: float | None = None
    peak_flops_per_s: float | None = None
    device_memory_bytes: int | None = None
    usable_limit_bytes: int | None = None
    attention: Attention = "full"
    count_head: bool = True
    cycle_order: CycleOrder = "newer"
    open_run: Path | None = None
    open_config: Path | None = None
    open_round: int | None = None
    recent: tuple[Path, ...] = ()
    sample_case: str | None = None
    pages: Mapping[str, Scalar] = field(default_factory=dict)
    read_only: bool = False
    warnings: tuple[str, ...] = ()
    document: Mapping[str, Any] = field(default_factory=dict, repr=False, compare=False)

    def __post_init__(self) -> None:
        for name in ("pages", "document"):
            object.__setattr__(self, name, MappingProxyType(dict(getattr(self, name))))
        problems = problems_of(_written(self))
        if problems:
            raise InputError(f"Project {self.folder}", problems)


def open_project(folder: Path | str) -> Project:
    """Read the project in `folder`. Raises InputError that lists every value of perfkit.toml that cannot be used.

    A folder that cannot be written, or `PERFKIT_READ_ONLY`, opens it read-only and says so in `warnings`.
    """
    folder = Path(folder).resolve()
    document = _read(folder)
    warnings = [f"{key} is no key of perfkit; it is kept as it is" for key in unknown_keys(document)]
    read_only = True
    if settings.read_only():
        warnings.append("read-only: perfkit was started with PERFKIT_READ_ONLY; nothing is saved")
    elif not os.access(folder, os.W_OK):
        warnings.append(f"read-only: {folder} cannot be written by this user; nothing is saved")
    else:
        read_only = False
    values = {name: value for key, (name, _, _) in KEYS.items() if (value := lookup(document, key)) is not None}
    for name in ("open_run", "open_config"):
        if name in values:
            values[name] = folder / values[name]
            if not values[name].exists():
                warnings.append(f"{name.replace('_', '.')}: {values[name]} does not exist; was it moved?")
    values["recent"] = tuple(folder / path for path in values.get("recent", ()))
    values.setdefault("name", folder.name or "project")
    return Project(
        folder=folder,
        pages=document.get("pages", {}),
        read_only=read_only,
        warnings=tuple(warnings),
        document=document,
        **values,
    )


def project_here() -> Project | None:
    """The project that the settings or this folder name; None where there is none, or where it cannot be read."""
    folder = find_project()
    try:
        return None if folder is None else open_project(folder)
    except PerfkitError:
        return None


def create_project(folder: Path | str, name: str, **fields: Any) -> Project:
    """Make a tuning project in `folder` (made if needed) with any fields of `Project`, and open it.

    Raises InputError if the folder holds a project already or a value cannot be used; then nothing is written.
    """
    folder = Path(folder).resolve()
    if (folder / PROJECT_FILE).exists():
        raise InputError(str(folder), [f"holds a project already; open it, or remove {PROJECT_FILE} to start again"])
    if settings.read_only():
        raise InputError(str(folder), ["perfkit was started with PERFKIT_READ_ONLY; no project can be made"])
    project = Project(folder=folder, name=name, **fields)
    try:
        for child in FOLDERS:
            (folder / child).mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(str(folder), [f"cannot be written: {error.strerror}"]) from error
    with locked(folder):
        if (folder / PROJECT_FILE).exists():
            raise InputError(str(folder), ["another process has just made a project here; open it"])
        _write(folder, _written(project))
    return open_project(folder)


def save(project: Project) -> Project:
    """Write the changed fields of `project` and give the project as it is on disk now.

    Raises InputError with both values of every key that was changed here and on disk since the project was read.
    """
    if project.read_only:
        raise InputError(str(project.folder), ["the project is read-only; nothing was saved"])
    with locked(project.folder):
        merged, conflicts = merge(project.document, _written(project), _read(project.folder))
        conflicts = conflicts or problems_of(merged)
        if conflicts:
            raise InputError(str(project.folder / PROJECT_FILE), conflicts)
        _write(project.folder, merged)
    return open_project(project.folder)


def remember(project: Project, key: str, value: Scalar | None) -> Project:
    """Keep a page's state: `value` (None forgets) under `key` in the table `pages`; other edits of the file stay.

    The last writer of a key wins. In a read-only project the value lives in the returned `Project` only. Raises InputError for
    a value that is no text, flag, 64-bit int or finite float.
    """
    problems = []
    if not is_text(key) or not key:
        problems.append(f"key {key!r} must be a text that is not empty")
    if value is not None and not is_scalar(value):
        problems.append(f"{key} = {value!r} must be one text, number or flag")
    if problems:
        raise InputError("remember", problems)
    edit: dict[tuple[str, ...], Any] = {("pages", key): value}
    if not project.read_only:
        with locked(project.folder):
            _write(project.folder, changed(_read(project.folder), edit))
    pages = changed({"pages": dict(project.pages)}, edit)["pages"]
    return replace(project, pages=pages, document=changed(project.document, edit))


def sample_paths(project: Project) -> dict[str, Path]:
    """Bundled runs and logs that came with a sample project: name to path."""
    paths = lookup(project.document, "samples.paths")
    return {key: project.folder / value for key, value in paths.items() if is_text(value)} if isinstance(paths, Mapping) else {}


def is_sample(path: Path, folder: Path | None) -> bool:
    """Whether a path is one of the samples that come with perfkit, also where a project in `folder` holds a copy."""
    samples = folder / "samples" if folder is not None else None
    place = path.expanduser().resolve()
    return place.is_relative_to(data_folder().resolve()) or (samples is not None and place.is_relative_to(samples))


def _written(project: Project) -> Document:
    """The document with the fields of `project`; what equals the default and was not in the file stays out of it."""
    defaults = {name: info.default for name, info in Project.__dataclass_fields__.items()}
    values: dict[tuple[str, ...], Any] = {}
    for key, (name, _, _) in KEYS.items():
        value = getattr(project, name)
        if value != defaults[name] or lookup(project.document, key) is not None:
            values[tuple(key.split("."))] = _stored(project.folder, value)
    document = changed(project.document, values)
    if project.pages or "pages" in document:
        document["pages"] = dict(project.pages)
    return document


def _stored(folder: Path, value: Any) -> Any:
    if isinstance(value, tuple):
        return [_stored_path(folder, path) for path in value]
    return _stored_path(folder, value) if isinstance(value, Path) else value


def _stored_path(folder: Path, path: Path) -> str:
    absolute = (folder / path).resolve()
    return absolute.relative_to(folder).as_posix() if absolute.is_relative_to(folder) else str(absolute)


def _read(folder: Path) -> Document:
    path = folder / PROJECT_FILE
    try:
        document = tomllib.loads(path.read_bytes().decode("utf-8-sig"))
    except FileNotFoundError as error:
        raise InputError(str(folder), [f"holds no {PROJECT_FILE}, so it is no tuning project"]) from error
    except UnicodeDecodeError as error:
        raise InputError(str(path), [f"byte {error.start} is not UTF-8; save the file as UTF-8"]) from error
    except tomllib.TOMLDecodeError as error:
        raise InputError(str(path), [f"is not TOML: {error}"]) from error
    except OSError as error:
        raise InputError(str(path), [f"cannot be read: {error.strerror}"]) from error
    problems = problems_of(document)
    if problems:
        raise InputError(str(path), problems)
    return document


def _write(folder: Path, document: Mapping[str, Any]) -> None:
    """Replace perfkit.toml in one step, so that no reader sees half of it."""
    temporary = None
    try:
        descriptor, temporary = tempfile.mkstemp(dir=folder, prefix=".perfkit-", suffix=".toml")
        with os.fdopen(descriptor, "wb") as file:
            tomli_w.dump(document, file)
            file.flush()
            os.fsync(file.fileno())
        Path(temporary).chmod(0o644)
        Path(temporary).replace(folder / PROJECT_FILE)
    except OSError as error:
        raise InputError(str(folder / PROJECT_FILE), [f"cannot be written: {error.strerror}"]) from error
    finally:
        if temporary is not None:
            Path(temporary).unlink(missing_ok=True)
