"""Graphs: a picker for graphs that the compiler saved, and the last one read."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from threading import Lock

from perfkit.core.errors import PerfkitError
from perfkit.core.resources import data_folder
from perfkit.core.roots import checked
from perfkit.explain.graph import GraphReport, read_graph
from perfkit.face.widgets import context
from perfkit.face.widgets.entries import Choice, Folder
from perfkit.face.widgets.pickers import Picker, make_picker
from perfkit.face.widgets.status import NothingYet
from perfkit.face.widgets.worker import running

_open: dict[tuple[str, int], GraphReport] = {}
_lock = Lock()


def choose_graph(path: str | Path = "", *, samples: Mapping[str, str]) -> Picker:
    """A graph that the compiler saved: `.value` is its `GraphReport`; of a folder one file is chosen. It starts with a sample."""
    entry = Folder(
        str(path) or str(data_folder() / next(iter(samples.values()))),
        partial(_options, samples=samples),
        label="Graph",
        help="a .ir file that save_graphs wrote, or a folder of them",
    )
    files = Choice(_files, label="File", shared=True, visible=lambda graph: len(_files(graph)) > 1)

    def read(graph: str, file: str) -> GraphReport:
        return _read(graph).of(file)

    return make_picker("graph", "Graph", entry, read, lambda report: f"{report.name}.", samples=samples, more={"file": files})


def _options(_state: object = None, *, samples: Mapping[str, str]) -> list[tuple[str, str, str]]:
    """Graphs of the project, then samples."""
    project = context.current_project()
    own = sorted(project.folder.glob("uploads/**/*.ir")) if project is not None else []
    return [
        *((path.name, str(path), "Project") for path in own),
        *((label, str(data_folder() / path), "Samples") for label, path in samples.items()),
    ]


def _read(path: str) -> GraphReport:
    """The graphs at `path`, read once as long as nothing there changes."""
    if not path:
        raise NothingYet("No graph is open yet. Choose a .ir file that save_graphs wrote, or a folder of them.")
    place = checked(path)
    key = (str(place), place.stat().st_mtime_ns if place.exists() else 0)
    with _lock:
        if key not in _open:
            report = read_graph(place, progress=running())
            _open.clear()
            _open[key] = report
        return _open[key]


def _files(graph: str) -> list[str]:
    """The names of the graphs at a path; what is wrong with it is said by the picker, which has no names then."""
    try:
        return list(_read(graph).files)
    except PerfkitError:
        return [""]
