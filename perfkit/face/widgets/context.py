"""Context: the project that the page belongs to, the runs and files it can open, and the run that is open.

Everything that pages share is on disk (perfkit.toml); a run that was read stays in memory while its page is open, so that a click
or a slider does not read it again.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import cache, lru_cache
from pathlib import Path
from threading import Lock

from perfkit.config.collect import FRAMEWORKS
from perfkit.config.presets import CONFIG_SUFFIXES
from perfkit.core import catalog, settings
from perfkit.core.errors import PerfkitError
from perfkit.core.resources import data_folder
from perfkit.core.roots import checked
from perfkit.core.run import Run
from perfkit.core.settings import PROJECT_FILE
from perfkit.explain.recording import framework_of
from perfkit.face.widgets import _aside
from perfkit.face.widgets.status import NothingYet
from perfkit.face.widgets.worker import running
from perfkit.project import Project, find_project, open_project, sample_paths, save
from perfkit.project import is_sample as of_sample
from perfkit.record.load import load

Progress = Callable[[str, int, int], None]

SAMPLES = {
    "Two-rank Ascend profile (torch_npu)": "traces/torch_npu_2rank",
    "Sixteen-rank cluster analysis": "traces/cluster_16card",
    "ResNet with checkpointing (Kineto)": "traces/kineto_resnet",
}
SAMPLE_LOGS = {
    "Llama2-13B, 8 cards (MindFormers log)": "traces/logs/llama2_13b_8card_worker_0.log",
    "GPT-2 TP4 PP4 (Megatron log)": "traces/logs/meg_gpt2_base_n4_dp1_tp4_pp4-1809579.log",
}
USUAL_PLAN = "llama2-13b"
_open_run: dict[tuple[str, int], Run] = {}
_lock = Lock()


def current_project() -> Project | None:
    """The project of this page as it is on disk; None if there is none or it cannot be read (the header says why)."""
    folder = find_project()
    if folder is None:
        return None
    try:
        written = (folder / PROJECT_FILE).stat()
        version = (written.st_mtime_ns, written.st_ino, written.st_size)
        return _project(folder, version, settings.read_only() or not os.access(folder, os.W_OK))
    except (PerfkitError, OSError):
        return None


@lru_cache(maxsize=4)
def _project(folder: Path, _version: tuple[int, ...], _read_only: bool) -> Project:
    # Controls ask several times while a slider moves; reading perfkit.toml takes 2 ms.
    return open_project(folder)


def run_options(_state: object = None, *, samples: Mapping[str, str] = SAMPLES) -> list[tuple[str, str, str]]:
    """Recordings to choose from: the project's, then the bundled samples, each marked as such."""
    return _options(samples, lambda path: path.is_dir())


def log_options(_state: object = None, *, samples: Mapping[str, str] = SAMPLE_LOGS) -> list[tuple[str, str, str]]:
    """Training logs to choose from: the project's, then the bundled samples."""
    return _options(samples, lambda path: path.suffix == ".log")


def plan_options(_state: object = None, *, samples: Mapping[str, str]) -> list[tuple[str, str, str]]:
    """Plans to choose from: the samples of a page, configurations, published models."""
    own = [(label, str(data_folder() / path), "Samples") for label, path in samples.items()]
    configs = [(label, path, f"Configuration ({group})") for label, path, group in config_options()]
    return [*own, *configs, *((name, name, "Published models on 16 devices") for name in catalog.models())]


def config_options(_state: object = None) -> list[tuple[str, str, str]]:
    """Configurations to choose from: the open one of the project, then those of its rounds and the bundled samples."""
    project = current_project()
    found: dict[str, tuple[str, str]] = {}
    if project is not None:
        paths = [*([project.open_config] if project.open_config else []), *sorted(project.folder.glob("rounds/*/config.yaml"))]
        found |= {str(path): (_relative(project.folder, path), "Project") for path in paths}
        found |= {str(path): (path.name, "Uploads") for path in _uploads(project) if path.suffix in CONFIG_SUFFIXES}
        before = [path for path in project.recent if str(path) not in found and path.suffix in CONFIG_SUFFIXES and path.is_file()]
        found |= {str(path): (path.name, "Opened before") for path in before}
    found |= {path: (label, "Samples") for path, label in _sample_configs()}
    return [(label, path, group) for path, (label, group) in found.items()]


@cache
def _sample_configs() -> tuple[tuple[str, str], ...]:
    return tuple((str(path), path.name) for path in sorted((data_folder() / "configs").glob("*.*")) if path.suffix != ".md")


def read_run(path: str, progress: Progress | None = None) -> Run:
    """The run at `path`; read once as long as the folder does not change. Raises NothingYet for an empty path."""
    if not path:
        raise NothingYet("No recording is open yet. Choose a folder of profiles, a trace file or a training log.")
    place = checked(path)
    key = (str(place), place.stat().st_mtime_ns if place.exists() else 0)
    with _lock:
        if key not in _open_run:
            progress = progress or running()
            _aside.convert(place, progress or (lambda *_: None))
            run = load(place, progress=progress)
            _open_run.clear()
            _open_run[key] = run
        return _open_run[key]


def framework_at(place: str) -> str:
    """The framework that recorded what lies at `place`, for the lines that record more of it; the first where nothing tells."""
    try:
        return framework_of(read_run(place)) or FRAMEWORKS[0]
    except (PerfkitError, OSError):  # told where it is opened
        return FRAMEWORKS[0]


def remember_run(path: str) -> bool:
    """Keep `path` as the open run of the project, so that the next page starts with it; whether it was another one."""
    project = current_project()
    place = Path(path).expanduser()
    if project is None or project.read_only or project.open_run == place or is_sample(place):
        return False
    save(replace(project, open_run=place))
    return True


def first_run(samples: Mapping[str, str]) -> str:
    """The path that a page opens with: the project's open run, else the first bundled sample.

    A page with samples of its own takes no other sample, which would lack what it shows.
    """
    project = current_project()
    own = project.open_run if project is not None else None
    if own is not None and own.exists() and (samples in (SAMPLES, SAMPLE_LOGS) or not is_sample(own)):
        return str(own)
    return str(data_folder() / next(iter(samples.values())))


def first_log() -> str:
    """The log that a page opens with: the project's if it has one open, else the first that there is."""
    first = first_run(SAMPLE_LOGS)
    return first if Path(first).is_file() else next((path for _, path, _ in log_options()), "")


def first_config() -> str:
    """The plan that a page opens with: the project's open configuration, else the model of the guides."""
    project = current_project()
    own = project.open_config if project is not None else None
    return str(own) if own is not None and own.exists() else USUAL_PLAN


def first_files(samples: Mapping[str, str]) -> str:
    """The scripts that a page opens with: the project's uploads if there are any, else the first sample."""
    return file_options(samples=samples)[0][1]


def file_options(_state: object = None, *, samples: Mapping[str, str]) -> list[tuple[str, str, str]]:
    """Scripts to choose from: uploads of the project, then samples."""
    project = current_project()
    uploads = None if project is None else project.folder / "uploads"
    own = [uploads] if uploads is not None and any(uploads.glob("**/*.py")) else []
    return [
        *((path.name, str(path), "Project") for path in own),
        *((label, str(data_folder() / path), "Samples") for label, path in samples.items()),
    ]


def _options(samples: Mapping[str, str], wanted: Callable[[Path], bool]) -> list[tuple[str, str, str]]:
    project = current_project()
    found: dict[str, tuple[str, str]] = {}
    if project is not None:
        own = {name: path for name, path in sample_paths(project).items() if path.exists() and wanted(path)}
        found |= {str(path): (_relative(project.folder, path), "Project") for path in own.values()}
        if project.open_run is not None and project.open_run.exists() and wanted(project.open_run):
            found[str(project.open_run)] = (_relative(project.folder, project.open_run), "Project")
        found |= {str(path): (path.name, "Uploads") for path in _uploads(project) if wanted(path)}
        before = [path for path in project.recent if str(path) not in found and path.exists() and wanted(path)]
        found |= {str(path): (path.name, "Opened before") for path in before}
    found |= {str(data_folder() / path): (label, "Samples") for label, path in samples.items() if (data_folder() / path).exists()}
    return [(label, path, group) for path, (label, group) in found.items()]


def _uploads(project: Project) -> list[Path]:
    """What was sent by a page or copied into the folder."""
    folder = project.folder / "uploads"
    return sorted(path for path in folder.iterdir() if not path.name.startswith(".")) if folder.is_dir() else []


def _relative(folder: Path, path: Path) -> str:
    return str(path.relative_to(folder)) if path.is_relative_to(folder) else path.name


def is_sample(path: Path) -> bool:
    """Whether a path is a bundled sample, also as a copy in the sample project of this page."""
    project = current_project()
    return of_sample(path, project.folder if project is not None else None)
