"""Cgroup: the kernels of a server in a group of their own, where Linux has handed this server one (cgroup v2, "delegated").

`systemd-run --user --scope -p Delegate=yes perfkit serve ...`, a unit with `Delegate=yes` or a container that may write its
/sys/fs/cgroup do that. The server goes into one part of the group and the kernels into another, which has limits of memory, tasks
and processor for all of them together; every kernel with its workers has a part of that with its own limits, and ends as one.
Files and rules: https://docs.kernel.org/admin-guide/cgroup-v2.html.
"""

from __future__ import annotations

import os
from collections.abc import Collection
from contextlib import suppress
from pathlib import Path

import psutil
from traitlets.log import get_logger

from perfkit.core import settings
from perfkit.core.units import format_bytes, significant
from perfkit.face.app.bounds import MAX_PROCESSES, Bounds
from perfkit.face.app.room import PAGE_BYTES, RESERVED_BYTES

CONTROLLERS = ("cpu", "memory", "pids")
PERIOD_US = 100_000
SERVER_US = 20_000
"""Of each period, processor time that kernels leave to the server."""
_SERVER, _KERNELS = "perfkit-server", "perfkit-kernels"
_RLIMITS = "each process of a page is bounded by rlimits"


class NotGivenError(Exception):
    """Why there is no group for this server."""


class Group(Bounds):
    """The group of all kernels, at `folder`; every kernel has one of its own in it, and rlimits as well."""

    kind = "cgroup"

    def __init__(self, folder: Path, told: str) -> None:
        super().__init__(told)
        self._folder = folder

    def take(self, owner: str, pid: int) -> None:
        """Set the rlimits, and put the process into a group of its own; if that fails, the rlimits hold."""
        super().take(owner, pid)
        own = self._folder / owner
        try:
            own.mkdir(exist_ok=True)
            _write(own / "memory.max", settings.kernel_memory_bytes())
            _write(own / "memory.oom.group", 1)  # a kernel without its workers would wait for ever
            _write(own / "pids.max", MAX_PROCESSES * tasks_of_process())
            _write(own / "cgroup.procs", pid)
        except OSError as error:
            get_logger().warning("kernel %s has no group of its own: %s", owner, error.strerror)

    def ended_by(self, owner: str) -> str:
        """Say "memory" if the system ended something of the kernel for it."""
        return "memory" if _events(self._folder / owner / "memory.events").get("oom_kill", 0) else ""

    def release(self, owner: str) -> None:
        """End all that is in the kernel's group, in whichever session it hides."""
        with suppress(OSError):  # Linux before 5.14 has no such file
            _write(self._folder / owner / "cgroup.kill", 1)
        self._remove(owner)

    def sweep(self, owners: Collection[str]) -> None:
        """Remove groups that were not empty yet when their kernels ended."""
        for own in self._folder.iterdir():
            if own.is_dir() and own.name not in owners:
                self._remove(own.name)

    def _remove(self, owner: str) -> None:
        with suppress(OSError):  # ended processes are counted for a moment; `sweep` comes again
            (self._folder / owner).rmdir()


def bounds_here(num_kernels: int, root: Path = Path("/sys/fs/cgroup"), membership: Path = Path("/proc/self/cgroup")) -> Bounds:
    """What bounds the kernels of this server, at most `num_kernels`: a group if one is given to it, else rlimits.

    `root` is where groups are mounted, `membership` says in which this process is.
    """
    if Bounds.kind == "none":
        return Bounds("pages are bounded by the supervisor alone: this system has no rlimits of other processes")
    try:
        own = _given(root, membership)
        folder, told = _entered(own, num_kernels)
    except NotGivenError as why:
        return Bounds(f"{_RLIMITS}; no cgroup for all of them: {why}")
    except OSError as error:
        return Bounds(f"{_RLIMITS}; no cgroup for all of them: {error.strerror} ({error.filename})")
    return Group(folder, told)


def tasks_of_process() -> int:
    """Threads that a kernel or worker may have: tables are read with two a processor, and Jupyter has some of its own."""
    return 32 + 2 * (os.cpu_count() or 1)


def _given(root: Path, membership: Path) -> Path:
    """The group of this process, if it is its alone and may be divided."""
    lines = membership.read_text(encoding="utf-8").splitlines() if membership.exists() else []
    path = next((line.removeprefix("0::") for line in lines if line.startswith("0::")), None)
    own = root / path.lstrip("/") if path is not None else root
    if path is None or not (own / "cgroup.controllers").exists():
        raise NotGivenError("the system has no cgroup v2")
    missing = set(CONTROLLERS) - set((own / "cgroup.controllers").read_text(encoding="ascii").split())
    if missing:
        raise NotGivenError(f"the group of this process does not control {', '.join(sorted(missing))}")
    if not all(os.access(file, os.W_OK) for file in (own, own / "cgroup.procs", own / "cgroup.subtree_control")):
        raise NotGivenError("the group of this process is not delegated to this account")
    me = psutil.Process()
    family = {me.pid, *(child.pid for child in me.children(recursive=True))}
    if others := _members(own) - family:
        raise NotGivenError(f"{len(others)} other processes are in the group of this one")
    return own


def _entered(own: Path, num_kernels: int) -> tuple[Path, str]:
    """Divide the group; a group with members cannot hand on its controllers, so the server moves into a part first."""
    total_bytes = max(PAGE_BYTES, settings.free_memory_bytes() - RESERVED_BYTES)
    num_processors = len(os.sched_getaffinity(0))
    quota_us = max(PERIOD_US // 2, num_processors * PERIOD_US - SERVER_US)
    for name in (_SERVER, _KERNELS):
        (own / name).mkdir(exist_ok=True)
    for pid in _members(own):
        _write(own / _SERVER / "cgroup.procs", pid)
    _write(own / "cgroup.subtree_control", " ".join(f"+{name}" for name in CONTROLLERS))
    kernels = own / _KERNELS
    _write(kernels / "memory.max", total_bytes)
    _write(kernels / "pids.max", num_kernels * MAX_PROCESSES * tasks_of_process())
    _write(kernels / "cpu.max", f"{quota_us} {PERIOD_US}")
    _write(kernels / "cgroup.subtree_control", "+memory +pids")
    each, together = format_bytes(settings.kernel_memory_bytes()), format_bytes(total_bytes)
    processors = significant(quota_us / PERIOD_US)
    told = f"pages are bounded by a cgroup: {each} each, {together} and {processors} processors together, and by rlimits"
    return kernels, told


def _members(group: Path) -> set[int]:
    return {int(line) for line in (group / "cgroup.procs").read_text(encoding="ascii").split()}


def _events(file: Path) -> dict[str, int]:
    try:
        pairs = (line.split() for line in file.read_text(encoding="ascii").splitlines())
        return {name: int(count) for name, count in pairs}
    except (OSError, ValueError):
        return {}


def _write(file: Path, value: int | str) -> None:
    file.write_text(str(value), encoding="ascii")
