"""Settings: the environment variables that perfkit reads, each in one place.

Command-line options win over variables, variables over the project's perfkit.toml, that over the defaults here.
"""

from __future__ import annotations

import os
from pathlib import Path

from perfkit.core.errors import InputError
from perfkit.core.units import parse_bytes

_CGROUP_1 = ("memory.limit_in_bytes", "memory.usage_in_bytes")
PROJECT_FILE = "perfkit.toml"
"""The file that makes a folder a tuning project."""


def cache_folder() -> Path:
    """Where converted runs may be kept (`PERFKIT_CACHE`); safe to delete at any time."""
    if folder := os.environ.get("PERFKIT_CACHE"):
        return Path(folder)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "perfkit"


def projects_folder() -> Path:
    """Where projects are made for what was opened without one (`PERFKIT_PROJECTS`), by default in the user's data folder."""
    if folder := os.environ.get("PERFKIT_PROJECTS"):
        return Path(folder)
    return Path(os.environ.get("XDG_DATA_HOME") or Path.home() / ".local" / "share") / "perfkit" / "projects"


def cache_limit_bytes() -> int:
    """How much converted runs may take on the disk (`PERFKIT_CACHE_LIMIT`, for example `5GiB`), by default 20 GiB; 0 keeps none."""
    text = os.environ.get("PERFKIT_CACHE_LIMIT") or "20GiB"
    try:
        return parse_bytes(text)
    except ValueError as error:
        raise InputError("environment", [f"PERFKIT_CACHE_LIMIT: {error}"]) from error


def memory_limit_bytes() -> int:
    """Memory for reading runs and making tiles (`PERFKIT_MEMORY_LIMIT`, for example `4GiB`), by default half of what is free."""
    text = os.environ.get("PERFKIT_MEMORY_LIMIT")
    if not text:
        return free_memory_bytes() // 2
    try:
        limit_bytes = parse_bytes(text)
    except ValueError as error:
        raise InputError("environment", [f"PERFKIT_MEMORY_LIMIT: {error}"]) from error
    if limit_bytes <= 0:
        raise InputError("environment", [f"PERFKIT_MEMORY_LIMIT = {text!r} must be more than 0, for example 4GiB"])
    return limit_bytes


def free_memory_bytes() -> int:
    """Memory that processes can still get; 4 GiB where the system does not say."""
    machine_bytes = _memory_bytes("MemAvailable:") or parse_bytes("4GiB")
    return min([machine_bytes, *(max(0, limit - used) for limit, used in _container_memory())])


def kernel_memory_bytes() -> int:
    """Memory that one page may take (`PERFKIT_KERNEL_MEMORY`, for example `8GiB`), by default half of the machine's or 2 GiB."""
    text = os.environ.get("PERFKIT_KERNEL_MEMORY")
    if not text:
        return max(parse_bytes("2GiB"), (_memory_bytes("MemTotal:") or parse_bytes("8GiB")) // 2)
    try:
        return max(parse_bytes("512MiB"), parse_bytes(text))
    except ValueError as error:
        raise InputError("environment", [f"PERFKIT_KERNEL_MEMORY: {error}"]) from error


def _memory_bytes(name: str) -> int:
    """A line of /proc/meminfo in bytes; 0 where the system does not say."""
    try:
        lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
        return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(name))
    except (OSError, StopIteration, ValueError, IndexError):
        return 0


def _container_memory(root: Path = Path("/sys/fs/cgroup"), membership: Path = Path("/proc/self/cgroup")) -> list[tuple[int, int]]:
    """Limits and use of the container that this runs in and of the groups that it is in, as (bytes, bytes); empty without."""
    groups = [(folder, "memory.max", "memory.current") for folder in _own_groups(root, membership)]
    found = []
    for folder, limit, used in (*groups, (root / "memory", *_CGROUP_1)):
        try:
            most = int((folder / limit).read_text())
            stat = dict(line.split() for line in (folder / "memory.stat").read_text().splitlines())
            kept = int(stat.get("inactive_file", 0))  # of files that were read: given back when somebody needs it
            found.append((most, int((folder / used).read_text()) - kept))
        except (OSError, ValueError):  # absent, or "max"
            continue
    return found


def _own_groups(root: Path, membership: Path) -> list[Path]:
    """The groups of cgroup v2 in which this process is, each within the one before; as it sees them, `root` is the first."""
    try:
        lines = membership.read_text(encoding="utf-8").splitlines()
    except OSError:
        return [root]
    path = next((line.removeprefix("0::") for line in lines if line.startswith("0::")), "/")
    parts = path.strip("/").split("/") if ".." not in path else []
    return [root, *(root.joinpath(*parts[:count]) for count in range(1, len(parts) + 1) if parts[0])]


def dask_address() -> str | None:
    """The Dask scheduler on which ranks are read (`PERFKIT_DASK`), or None for processes of this machine."""
    return os.environ.get("PERFKIT_DASK") or None


def project_folder() -> Path | None:
    """The tuning project chosen by `perfkit serve FOLDER` (`PERFKIT_PROJECT`), or None."""
    folder = os.environ.get("PERFKIT_PROJECT")
    return Path(folder) if folder else None


def find_project(start: Path | str | None = None) -> Path | None:
    """The folder of the project: `PERFKIT_PROJECT`, else the nearest of `start` (here) and its parents with a perfkit.toml.

    None if there is no perfkit.toml; a folder in `PERFKIT_PROJECT` without one is not left for its parents.
    """
    chosen = project_folder()
    here = Path(os.path.realpath(chosen or start or ""))
    folders = (here,) if chosen is not None else (here, *here.parents)
    return next((folder for folder in folders if (folder / PROJECT_FILE).is_file()), None)


def read_only() -> bool:
    """Whether the app may write to the project (`PERFKIT_READ_ONLY`)."""
    return os.environ.get("PERFKIT_READ_ONLY", "") not in ("", "0")


def author() -> str:
    """Who writes to the log (`PERFKIT_AUTHOR`, in the app the name that the visitor gave); empty: the user of the process."""
    return os.environ.get("PERFKIT_AUTHOR", "").strip()[:60]


def hub_user() -> str:
    """Whose server this is where JupyterHub started it (`JUPYTERHUB_USER`, which the Hub sets); empty elsewhere."""
    return os.environ.get("JUPYTERHUB_USER", "").strip()


def student() -> str:
    """Whose page this is where a code or a proxy says so (`PERFKIT_STUDENT`, which the server sets); empty: whoever is typed."""
    return os.environ.get("PERFKIT_STUDENT", "").strip()


def language() -> str:
    """The language of pages (`PERFKIT_LANGUAGE`): `en`, or `zh` for Chinese."""
    return "zh" if os.environ.get("PERFKIT_LANGUAGE", "").lower().startswith("zh") else "en"


def in_app() -> bool:
    """Whether pages are shown by `perfkit serve` (`PERFKIT_APP`), whose links differ from those of JupyterLab."""
    return os.environ.get("PERFKIT_APP", "") not in ("", "0")


def pages_folder() -> Path | None:
    """A folder with other pages than the bundled ones (`PERFKIT_PAGES`), or None."""
    folder = os.environ.get("PERFKIT_PAGES")
    return Path(folder) if folder else None


def allowed_roots() -> tuple[Path, ...]:
    """Folders that pages may open besides the project and the samples (`PERFKIT_ROOTS`, separated as in PATH)."""
    return _paths("PERFKIT_ROOTS")


def named_at_start() -> tuple[Path, ...]:
    """What the project's own file opened when `perfkit serve` started (`PERFKIT_NAMED`, which the server sets)."""
    return _paths("PERFKIT_NAMED")


def _paths(variable: str) -> tuple[Path, ...]:
    return tuple(Path(part).expanduser().resolve() for part in os.environ.get(variable, "").split(os.pathsep) if part)


def wait_for_panels() -> bool:
    """Whether a panel computes before its cell ends and raises its errors (`PERFKIT_WAIT_FOR_PANELS`), as tests of pages need."""
    return os.environ.get("PERFKIT_WAIT_FOR_PANELS", "") not in ("", "0")


def publish_steps() -> bool:
    """Whether steps put what they show into the notebook as data (`PERFKIT_PUBLISH_STEPS`), for a run without a browser."""
    return os.environ.get("PERFKIT_PUBLISH_STEPS", "") not in ("", "0")


def class_seed() -> int | None:
    """The seed of the class that `perfkit serve --class` holds (`PERFKIT_CLASS`), or None: whoever is here learns alone."""
    text = os.environ.get("PERFKIT_CLASS", "")
    if not text:
        return None
    if not text.isascii() or not text.isdigit():
        raise InputError("environment", [f"PERFKIT_CLASS = {text!r} must be a whole number, the seed of the class"])
    return int(text)


def class_admin_digest() -> str:
    """SHA-256 of the instructor's token as hex (`PERFKIT_CLASS_ADMIN`); pages never hold the token itself."""
    return os.environ.get("PERFKIT_CLASS_ADMIN", "")


def num_threads() -> int:
    """Workers and engine threads (`PERFKIT_THREADS`), by default the number of processors."""
    return _positive_int("PERFKIT_THREADS") or os.cpu_count() or 1


def max_kernels(free_memory_bytes: int) -> int:
    """How many visitors the app takes at once (`PERFKIT_MAX_KERNELS`), by default one per 256 MiB of free memory."""
    return _positive_int("PERFKIT_MAX_KERNELS") or max(2, free_memory_bytes // parse_bytes("256MiB"))


def max_kernels_per_visitor(*, shared: bool) -> int:
    """How many pages one visitor may have open (`PERFKIT_MAX_KERNELS_PER_VISITOR`), by default 6 where others share, else 24."""
    return _positive_int("PERFKIT_MAX_KERNELS_PER_VISITOR") or (6 if shared else 24)


def warm_kernels() -> int:
    """How many kernels wait for the next pages (`PERFKIT_WARM_KERNELS`), by default 2; 0: every page starts its own."""
    return 0 if os.environ.get("PERFKIT_WARM_KERNELS") == "0" else _positive_int("PERFKIT_WARM_KERNELS") or 2


def _positive_int(variable: str) -> int | None:
    text = os.environ.get(variable)
    if not text:
        return None
    if not text.isascii() or not text.isdigit() or int(text) == 0:
        raise InputError("environment", [f"{variable} = {text!r} must be a positive whole number"])
    return int(text)
