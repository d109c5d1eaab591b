"""Opening: what a path that somebody names is, by its content, which page it leads to, and the project that it is opened in.

A recording, a training log, a configuration, a dump of a compiler's graphs, a folder of several of them, or a project. Each is
recognised by the same readers that read it later; nothing is copied, a project names where things lie.
"""

from __future__ import annotations

import hashlib
import os
import re
import tempfile
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from perfkit.config.dialects import read_config
from perfkit.config.dialects.read import load_document
from perfkit.config.dialects.registry import recognised
from perfkit.config.presets import CONFIG_SUFFIXES
from perfkit.core import settings
from perfkit.core.errors import InputError
from perfkit.core.settings import PROJECT_FILE
from perfkit.explain.graph import read_graph
from perfkit.project import Project, create_project, open_project, save
from perfkit.record import archive
from perfkit.record.format import Format, Match
from perfkit.record.listing import File, Listing, list_files, printable
from perfkit.record.recognise import find

Kind = Literal["project", "recording", "log", "configuration", "graph"]

GRAPH_SUFFIX = ".ir"
ARGUMENT_SUFFIXES = CONFIG_SUFFIXES | {".args", ".conf"}
SOURCE_SUFFIX = ".py"
"""Python that makes the arguments of a training, where it is named itself: a folder of scripts is none of configurations."""
MOST_CONFIG_BYTES = 2**20
MOST_CONFIGS = 40
"""How many files of a folder are tried as configurations: a folder of profiles holds many files of JSON."""
RECENT = 12
_RECORDED = 2
"""The least detail of a format that is a recording; a log has less."""


@dataclass(frozen=True, slots=True)
class Given:
    """Something that was named: what it is, and where it lies."""

    kind: Kind
    path: Path


def recognise(path: str | Path) -> tuple[Given, ...]:
    """What lies at `path`, by content, the recordings first. A folder may hold several kinds, and recordings of several formats.

    Raises InputError where nothing is known: with what it looks like and where that belongs.
    """
    place = Path(os.path.abspath(Path(path).expanduser()))  # noqa: PTH100  links stay: they are the names that people know
    if (place / PROJECT_FILE).is_file():
        return (Given("project", place),)
    if place.is_file():
        packed = archive.is_archive(place)
        return (Given(_kind_of_file(list_files(archive.unpacked(place) if packed else place)), place),)
    listing = list_files(place)
    found = [*_recordings(listing), *_configurations(listing), *_graphs(listing)]
    if not found:
        find(listing)  # which says what these files look like and where they belong
    return tuple(found)


def recognise_all(paths: Iterable[str | Path]) -> tuple[Given, ...]:
    """What lies at several paths, each thing once. Raises one InputError with the problems of all that nothing can read."""
    found: list[Given] = []
    problems: list[str] = []
    for path in paths:
        try:
            found += recognise(path)
        except InputError as error:
            problems += [f"{error.subject}: {problem}" for problem in error.problems]
    if problems:
        raise InputError("open", problems)
    return tuple(dict.fromkeys(found))


def first_page(given: Sequence[Given], project: Project | None = None) -> tuple[str, dict[str, str]]:
    """The number of the page that these lead to, and what stands in its address beside what `project` has open.

    Two recordings are compared; one shows its verdict; a log its baseline, a configuration its cost, a graph its operators.
    """
    paths = {kind: [str(one.path) for one in given if one.kind == kind] for kind in ("recording", "log", "configuration", "graph")}
    runs = [*paths["recording"], *paths["log"]]
    if len(paths["recording"]) > 1 or (len(runs) > 1 and not paths["recording"]):
        return "21", {"a": runs[0], "b": runs[1]}
    if paths["recording"]:
        return "00", {} if _has(project, "open_run", runs[0]) else {"run": runs[0]}
    if paths["log"]:
        return "01", {} if _has(project, "open_run", runs[0]) else {"log": runs[0]}
    if configs := paths["configuration"]:
        return "02", {} if _has(project, "open_config", configs[0]) else {"config": configs[0]}
    return ("18", {"graph": paths["graph"][0]}) if paths["graph"] else ("00", {})


def _has(project: Project | None, name: str, path: str) -> bool:
    return project is not None and str(getattr(project, name)) == path


def opened_in(given: Sequence[Given]) -> Project:
    """The project in which these are opened: the one that was named or that holds the first of them, else one made for it.

    That one lies in the user's data folder, or in a temporary one where that cannot be written, always in the same place for the
    same things, so that what was noted is found again. Raises InputError if several projects were named.
    """
    named = [one.path for one in given if one.kind == "project"]
    if len(named) > 1:
        raise InputError("open", [f"{len(named)} projects were named ({', '.join(map(str, named))}); open one at a time"])
    things = [one for one in given if one.kind != "project"]
    own = named[0] if named else _project_around(things[0].path)
    project = open_project(own if own is not None else _made_for(things))
    return remembered(project, things) if things and not project.read_only else project


def remembered(project: Project, given: Sequence[Given]) -> Project:
    """`project` with these open: the first recording or log, the first configuration, and all of them among what was opened."""
    runs = [one.path for one in given if one.kind == "recording"] or [one.path for one in given if one.kind == "log"]
    configs = [one.path for one in given if one.kind == "configuration"]
    before = [path for path in project.recent if path.exists()]
    paths = tuple(dict.fromkeys([*(one.path for one in given), *before]))[:RECENT]
    return save(
        replace(
            project,
            open_run=runs[0] if runs else project.open_run,
            open_config=configs[0] if configs else project.open_config,
            recent=paths,
        )
    )


def told(given: Sequence[Given]) -> str:
    """What was opened, in words: "a recording and a configuration"."""
    names = {"recording": "recording", "log": "training log", "configuration": "configuration", "graph": "graph dump"}
    counts = {name: sum(one.kind == kind for one in given) for kind, name in names.items()}
    return " and ".join(f"a {name}" if count == 1 else f"{count} {name}s" for name, count in counts.items() if count)


def _kind_of_file(listing: Listing) -> Kind:
    """What one file is, or the archive that it is. Raises InputError with what it looks like and where that belongs."""
    file = listing.files[0]
    suffix = file.path.suffix.lower()
    if suffix == GRAPH_SUFFIX:
        read_graph(file.path)
        return "graph"
    named = suffix in ARGUMENT_SUFFIXES or (suffix == SOURCE_SUFFIX and _has_arguments(file))
    if named and file.size_bytes <= MOST_CONFIG_BYTES and not _formats(listing):
        read_config(file.path)
        return "configuration"
    return "recording" if find(listing)[0][0].detail >= _RECORDED else "log"


def _has_arguments(file: File) -> bool:
    """Whether Python is in the dialect that is Python; options of another, as a usage line shows them, are no settings."""
    if not 0 < file.size_bytes <= MOST_CONFIG_BYTES:
        return False
    try:
        return any(one.suffix == SOURCE_SUFFIX for one in recognised(load_document(file.path)))
    except InputError:
        return False


def _recordings(listing: Listing) -> list[Given]:
    """The recordings of a folder: one of all that one format takes; where formats lie in folders of their own, one of each."""
    matches = _formats(listing)
    detailed = [match for form, match in matches if form.detail >= _RECORDED]
    if not matches:
        return []
    if not detailed:
        return [Given("log", listing.root)]
    apart = {_child(listing.root, match) for match in detailed}
    if len(apart) > 1 and listing.root not in apart and len(apart) == len(detailed):
        return [Given("recording", _child(listing.root, match)) for match in detailed]
    return [Given("recording", listing.root)]


def _child(root: Path, match: Match) -> Path:
    """The entry of `root` that holds all files of a match, or `root` itself."""
    entries = {root / file.relative.parts[0] for file in match.files}
    return entries.pop() if len(entries) == 1 else root


def _configurations(listing: Listing) -> list[Given]:
    """The files that read as configurations: those at the top of a folder, at any depth where nothing else is in it."""
    named = [file for file in listing if file.path.suffix.lower() in ARGUMENT_SUFFIXES]
    near = [file for file in named if len(file.relative.parts) == 1]
    tried = near if near or _formats(listing) else named
    return [Given("configuration", file.path) for file in tried[:MOST_CONFIGS] if _reads_as_plan(file)]


def _reads_as_plan(file: File) -> bool:
    if not 0 < file.size_bytes <= MOST_CONFIG_BYTES:
        return False
    try:
        read_config(file.path)
    except InputError:
        return False
    return True


def _graphs(listing: Listing) -> list[Given]:
    return [Given("graph", listing.root)] if any(file.path.suffix.lower() == GRAPH_SUFFIX for file in listing) else []


def _formats(listing: Listing) -> list[tuple[Format, Match]]:
    try:
        return find(listing)
    except InputError:
        return []


def _project_around(path: Path) -> Path | None:
    """The project in whose folder something lies, if that can be written."""
    folder = next((folder for folder in path.parents if (folder / PROJECT_FILE).is_file()), None)
    return folder if folder is not None and os.access(folder, os.W_OK) else None


def _made_for(things: Sequence[Given]) -> Path:
    first = things[0].path
    digest = hashlib.sha256("\n".join(str(one.path) for one in things).encode("utf-8", "surrogateescape")).hexdigest()[:8]
    name = re.sub(r"[^\w.-]+", "_", printable(first.name)).strip("._")[:60] or "opened"
    folder = settings.projects_folder() / f"{name}-{digest}"
    if (folder / PROJECT_FILE).is_file():
        return folder
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError:  # a home that cannot be written, as in a container
        folder = Path(tempfile.mkdtemp(prefix=f"perfkit-{name}-"))
    return create_project(folder, printable(first.name)[:200] or "opened").folder
