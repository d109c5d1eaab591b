"""Start: what `perfkit serve` was given, the project in which that is opened, its first page, and what visitors may open."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

from perfkit.core.errors import InputError
from perfkit.core.resources import pages
from perfkit.core.settings import PROJECT_FILE, pages_folder
from perfkit.core.texts import say
from perfkit.face.app.navigation import ROOT_PAGE
from perfkit.project import Project, open_project


@dataclass(frozen=True, kw_only=True, slots=True)
class Start:
    """The folder of the project, the first page with its address after #, and `roots`: what was named, wherever it lies.

    `told` are lines for the terminal.
    """

    project: Path
    first_page: str = ROOT_PAGE
    roots: tuple[Path, ...] = ()
    told: tuple[str, ...] = ()


def start_with(paths: Sequence[str | Path], *, classroom: bool = False) -> Start:
    """Open what lies at `paths`, by default in this folder. Raises InputError for what does not exist or nothing can read.

    A folder of which nothing is known, such as an empty one, and this one, are served as the project that they may become.
    """
    places = [Path(path).expanduser().resolve() for path in paths or ["."]]
    missing = [str(path) for path, place in zip(paths, places, strict=False) if not place.exists()]
    if missing:
        raise InputError(", ".join(missing), ["no such file or folder; `perfkit demo FOLDER` writes a sample project"])
    here = places[0] if len(places) == 1 and places[0].is_dir() else None
    if here is not None and (classroom or (here / PROJECT_FILE).is_file() or not any(here.iterdir())):
        return Start(project=here, roots=_opened_by(here))
    if classroom:
        raise InputError("--class", ["a class is held in one project; `perfkit demo FOLDER` writes one"])
    try:
        return _opened(places)
    except InputError:
        if here is None or (paths and _is_of_other_tools(here)):
            raise
        return Start(
            project=here,
            told=(say("nothing in {folder} can be opened; it is served as a project without a recording", folder=str(here)),),
        )


def _is_of_other_tools(folder: Path) -> bool:
    from perfkit.record.listing import list_files  # noqa: PLC0415
    from perfkit.record.recognise import looks_like  # noqa: PLC0415

    return bool(looks_like(list_files(folder)))


def _opened(places: Sequence[Path]) -> Start:
    from perfkit.project.opening import first_page, opened_in, recognise_all, told  # noqa: PLC0415  readers of all formats

    given = recognise_all(places)
    project = opened_in(given)
    form = "opened {what} where it lies, in the project {folder}"
    number, values = first_page(given, project)
    name = next((page.name for page in pages(pages_folder()) if page.number == number), ROOT_PAGE)
    address = "&".join(f"{key}={quote(value)}" for key, value in values.items())
    return Start(
        project=project.folder,
        first_page=f"{name}#{address}" if address else name,
        roots=tuple(dict.fromkeys([*places, *_roots(project)])),
        told=(say(form, what=told(given), folder=str(project.folder)),) if told(given) else (),
    )


def _opened_by(folder: Path) -> tuple[Path, ...]:
    """The recording and the configuration that a project's own file opens, wherever they lie."""
    try:
        return _roots(open_project(folder)) if (folder / PROJECT_FILE).is_file() else ()
    except InputError:  # the pages say what is wrong with the file
        return ()


def _roots(project: Project) -> tuple[Path, ...]:
    return tuple(path for path in (project.open_run, project.open_config) if path is not None)
