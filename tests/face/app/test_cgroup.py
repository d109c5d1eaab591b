"""Bounds by groups of processes: what is written where, on files like the system's; a real group where one is given."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from perfkit.core.units import GIB, MIB
from perfkit.face.app.bounds import MAX_PROCESSES, Bounds
from perfkit.face.app.cgroup import PERIOD_US, SERVER_US, Group, bounds_here, tasks_of_process

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="cgroups are Linux's")


class Tree:
    """A tree of plain files as the system shows one: the group of this process is /user/app."""

    def __init__(self, root: Path) -> None:
        self.root, self.own = root / "cgroup", root / "cgroup" / "user" / "app"
        self.membership = root / "membership"
        self.own.mkdir(parents=True)
        self.membership.write_text("12:cpuset:/\n0::/user/app\n")
        self.set(self.own, **{"cgroup.controllers": "cpuset cpu io memory pids", "cgroup.procs": f"{os.getpid()}\n"})
        self.set(self.own, **{"cgroup.subtree_control": ""})

    @staticmethod
    def set(folder: Path, **texts: str) -> None:
        for name, text in texts.items():
            (folder / name).write_text(text)

    def bounds(self) -> Bounds:
        return bounds_here(5, self.root, self.membership)


@pytest.fixture
def tree(tmp_path, monkeypatch) -> Tree:
    monkeypatch.setenv("PERFKIT_KERNEL_MEMORY", "1GiB")
    monkeypatch.setattr("perfkit.core.settings.free_memory_bytes", lambda: 8 * GIB)
    return Tree(tmp_path)


@pytest.fixture
def sleeper():
    process = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    yield process
    process.kill()
    process.wait()
    process.stdin.close()


def test_a_delegated_group_is_divided_into_the_server_and_its_kernels(tree):
    bounds = tree.bounds()
    assert bounds.kind == "cgroup"
    assert "1.00 GiB each, 7.75 GiB" in bounds.told
    kernels = tree.own / "perfkit-kernels"
    assert int((tree.own / "perfkit-server" / "cgroup.procs").read_text()) == os.getpid()
    assert (tree.own / "cgroup.subtree_control").read_text() == "+cpu +memory +pids"
    assert int((kernels / "memory.max").read_text()) == 8 * GIB - 256 * MIB
    assert int((kernels / "pids.max").read_text()) == 5 * MAX_PROCESSES * tasks_of_process()
    quota_us, period_us = map(int, (kernels / "cpu.max").read_text().split())
    assert (quota_us, period_us) == (max(PERIOD_US // 2, len(os.sched_getaffinity(0)) * PERIOD_US - SERVER_US), PERIOD_US)


def test_each_kernel_has_a_group_that_ends_as_one_and_is_removed(tree, sleeper):
    bounds = tree.bounds()
    bounds.take("k1", sleeper.pid)
    own = tree.own / "perfkit-kernels" / "k1"
    written = {name: (own / name).read_text() for name in ("memory.max", "memory.oom.group", "pids.max", "cgroup.procs")}
    assert written == {
        "memory.max": str(GIB),
        "memory.oom.group": "1",
        "pids.max": str(MAX_PROCESSES * tasks_of_process()),
        "cgroup.procs": str(sleeper.pid),
    }
    bounds.release("k1")
    assert (own / "cgroup.kill").read_text() == "1"
    for file in own.iterdir():  # the system's files need no removing
        file.unlink()
    bounds.sweep({"k1"})
    assert own.exists()
    bounds.sweep(set())
    assert not own.exists()


def test_a_kernel_that_the_system_ended_for_its_memory_is_told_apart(tree, sleeper):
    bounds = tree.bounds()
    bounds.take("k1", sleeper.pid)
    events = tree.own / "perfkit-kernels" / "k1" / "memory.events"
    assert bounds.ended_by("k1") == ""
    events.write_text("low 0\nmax 3\noom 0\noom_kill 0\n")
    assert bounds.ended_by("k1") == ""
    events.write_text("low 0\nmax 3\noom 1\noom_kill 2\n")
    assert bounds.ended_by("k1") == "memory"


NOT_GIVEN = {
    "no cgroup v2": lambda tree: tree.membership.write_text("3:memory:/user\n"),
    "does not control memory, pids": lambda tree: tree.set(tree.own, **{"cgroup.controllers": "cpu io"}),
    "1 other processes are in the group": lambda tree: tree.set(tree.own, **{"cgroup.procs": f"1\n{os.getpid()}\n"}),
    "not delegated to this account": lambda tree: (tree.own / "cgroup.subtree_control").unlink(),
    "No space left on device": lambda tree: None,
}


@pytest.mark.parametrize("why", NOT_GIVEN)
def test_without_a_group_of_its_own_the_server_says_why_and_rlimits_hold(tree, sleeper, monkeypatch, why):
    import resource

    NOT_GIVEN[why](tree)
    if why.startswith("No space"):  # as the system answers where there are too many groups

        def full(*_: object, **__: object) -> None:
            raise OSError(28, "No space left on device", "perfkit-server")

        monkeypatch.setattr(Path, "mkdir", full)
    bounds = tree.bounds()
    assert (bounds.kind, isinstance(bounds, Group)) == ("rlimits", False)
    assert why in bounds.told
    bounds.take("k1", sleeper.pid)
    assert resource.prlimit(sleeper.pid, resource.RLIMIT_DATA) == (GIB, GIB)
    assert not (tree.own / "perfkit-kernels").exists()


REAL = """
import subprocess, sys, time
from perfkit.face.app.cgroup import bounds_here
bounds = bounds_here(2)
if bounds.kind != "cgroup":
    sys.exit(f"no group: {bounds.told}")
take = "input(); kept = bytearray(900 * 2**20); input()"
child = subprocess.Popen([sys.executable, "-c", take], stdin=subprocess.PIPE, text=True)
bounds.take("k1", child.pid)
child.stdin.write("\\n"); child.stdin.flush()
print(child.wait(timeout=60), bounds.ended_by("k1"))
bounds.release("k1")
for _ in range(100):
    bounds.sweep(set())
    time.sleep(0.05)
print("left", [path.name for path in bounds._folder.iterdir() if path.is_dir()])
"""


def test_a_real_group_ends_a_kernel_for_its_memory(monkeypatch):
    """As systemd gives one; the rlimit of data is lifted here, so that the group's limit is the one that is met."""
    if shutil.which("systemd-run") is None:
        pytest.skip("no systemd-run, so nobody gives this process a group")
    scope = ["systemd-run", "--quiet", "--scope", "-p", "Delegate=yes", *([] if os.geteuid() == 0 else ["--user"])]
    if subprocess.run([*scope, "true"], capture_output=True, check=False).returncode:
        pytest.skip("systemd gives no scope here")
    lifted = REAL.replace(
        "bounds = bounds_here(2)", "bounds = bounds_here(2)\nimport perfkit.face.app.bounds as b\nb.Bounds.take = lambda *_: None"
    )
    done = subprocess.run(
        [*scope, sys.executable, "-c", lifted],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
        env=os.environ | {"PERFKIT_KERNEL_MEMORY": "512MiB"},
    )
    if "no group" in done.stderr:
        pytest.skip(done.stderr.strip())
    assert done.stdout.split() == ["-9", "memory", "left", "[]"], done.stdout + done.stderr
