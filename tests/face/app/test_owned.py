"""The table of what is open: everything ends with its owner, in whatever order things happen."""

from __future__ import annotations

import ast
import asyncio
import errno
import subprocess
import sys
import time
from pathlib import Path

import pytest
import zmq
from hypothesis import given
from hypothesis import strategies as st
from jupyter_client.provisioning.factory import KernelProvisionerFactory

from perfkit.core.settings import _container_memory
from perfkit.face.app.kernels import PageKernels
from perfkit.face.app.owned import Owned, OwnedTable, TooLate
from perfkit.face.app.provisioner import NAME, register
from perfkit.face.app.room import CONNECTION_RESERVE, PAGE_BYTES, RESERVED_BYTES, Room

TAKES_A_GIBIBYTE = """
import resource
input()
try:
    bytearray(2**30 + 2**20)
except MemoryError:
    print("refused", resource.getrlimit(resource.RLIMIT_DATA)[1] == 2**30)
"""


class Thing:
    def __init__(self) -> None:
        self.open = True

    def close(self) -> None:
        assert self.open, "closed twice"
        self.open = False

    def entry(self) -> Owned:
        return Owned(kind="socket", close=self.close, is_open=lambda: self.open)


@given(st.lists(st.tuples(st.sampled_from(["open", "end", "close"]), st.integers(0, 3)), max_size=60))
def test_whatever_the_order_nothing_is_open_for_an_owner_that_has_ended(steps):
    table, things, ended = OwnedTable(), {}, set()
    for step, number in steps:
        owner = f"kernel {number}"
        if step == "open":
            thing = Thing()
            things.setdefault(owner, []).append(thing)
            try:
                table.own(owner, thing.entry())
            except TooLate:
                assert owner in ended
        elif step == "end":
            table.end(owner)
            ended.add(owner)
        elif left := [thing for thing in things.get(owner, []) if thing.open]:
            left[0].close()
    still = {owner for owner, own in things.items() if any(thing.open for thing in own)}
    assert still == table.owners()
    assert not still & ended
    assert table.counts()["socket"] == sum(thing.open for own in things.values() for thing in own)


def test_one_thing_that_does_not_close_keeps_no_other_open():
    table, thing = OwnedTable(), Thing()
    table.own("k", thing.entry())
    table.own("k", Owned(kind="file", close=lambda: 1 / 0, is_open=lambda: True))
    assert table.end("k") == 2
    assert not thing.open


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="counts the descriptors of /proc")
def test_a_start_that_fails_halfway_leaves_no_process_no_socket_and_no_file(tmp_path, monkeypatch):
    """The control socket cannot be had: the process runs by then, and Jupyter forgets it."""
    register()
    monkeypatch.setattr(KernelProvisionerFactory.instance(), "default_provisioner_name", NAME)

    async def starts() -> tuple[int, int]:
        kernels = PageKernels(kernel_manager_class="perfkit.face.app.page_kernel.PageKernel", connection_dir=str(tmp_path))
        kernels.num_warm = 0
        real, processes = zmq.Context.socket, []

        def scarce(self: zmq.Context, kind: int, *rest: object, **kwargs: object) -> zmq.Socket:
            processes.extend(kernels.owned.processes())
            raise zmq.ZMQError(errno.EMFILE)

        zmq.Context.socket = scarce
        try:
            for _ in range(3):
                with pytest.raises(zmq.ZMQError):
                    await kernels.start_kernel(kernel_name="python3")
        finally:
            zmq.Context.socket = real
        assert len(set(processes)) == 3, "a process had been started each time"
        assert kernels.num_pages == 0
        assert kernels.owned.counts().total() == 0
        end = time.monotonic() + 20
        while any(alive(pid) for pid in processes) and time.monotonic() < end:
            await asyncio.sleep(0.1)
        kernels.preloaded.end()
        return sum(alive(pid) for pid in set(processes)), len([path for path in tmp_path.iterdir() if path.is_file()])

    assert asyncio.run(starts()) == (0, 0)


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_a_kernel_that_nobody_owns_is_found_and_ended(monkeypatch):
    monkeypatch.setattr("perfkit.face.app.supervisor.GRACE_S", 0.0)
    wait = "import sys, time; print('up', flush=True); time.sleep(60)"
    stray = subprocess.Popen([sys.executable, "-c", wait, "ipykernel_launcher"], start_new_session=True, stdout=subprocess.PIPE)
    other = subprocess.Popen([sys.executable, "-c", wait], start_new_session=True, stdout=subprocess.PIPE)
    try:
        for process in (stray, other):
            process.stdout.readline()

        async def look() -> int:
            kernels = PageKernels()
            await kernels.supervisor.look()
            await kernels.supervisor.look()
            return kernels.supervisor.mended

        assert asyncio.run(look()) >= 1
        assert stray.wait(10) != 0
        assert other.poll() is None, "a browser that the server opened is no kernel"
    finally:
        for process in (stray, other):
            process.kill()
            process.wait()
            process.stdout.close()


def test_room_is_refused_before_it_fails():
    plenty = 2**40
    assert Room(plenty, 100, 1024).shortage == ""
    assert Room(PAGE_BYTES + RESERVED_BYTES - 1, 100, 1024).shortage == "memory"
    assert Room(plenty, 1000, 1024).shortage == "descriptors"
    assert not Room(plenty, 1024 - CONNECTION_RESERVE, 1024).accepts_connections


def test_a_containers_limit_counts_and_what_files_left_in_memory_does_not(tmp_path):
    assert _container_memory(tmp_path) == []
    for name, text in {"memory.max": "1000", "memory.current": "600", "memory.stat": "anon 1\ninactive_file 100"}.items():
        (tmp_path / name).write_text(text)
    assert _container_memory(tmp_path) == [(1000, 500)]
    (tmp_path / "memory.max").write_text("max")
    assert _container_memory(tmp_path) == []


@pytest.mark.skipif(sys.platform != "linux", reason="rlimits of another process are Linux's")
def test_a_page_is_bounded_and_cannot_lift_its_bounds(monkeypatch):
    import resource

    from perfkit.face.app.bounds import CPU_S, Bounds

    monkeypatch.setenv("PERFKIT_KERNEL_MEMORY", "1GiB")
    process = subprocess.Popen([sys.executable, "-c", TAKES_A_GIBIBYTE], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    Bounds().take("a", process.pid)
    assert resource.prlimit(process.pid, resource.RLIMIT_CPU) == (CPU_S, CPU_S)
    assert process.communicate("\n")[0].strip() == "refused True"


def test_a_clock_that_is_set_ends_nothing_and_keeps_nothing():
    """Spans are measured by the clock that cannot be set: no module of the app asks for the time of day."""
    for path in (Path(__file__).resolve().parents[3] / "perfkit" / "face" / "app").glob("*.py"):
        asked = [ast.unparse(node) for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Attribute)]
        assert set(asked) & {"time.time", "time.time_ns", "datetime.now", "datetime.utcnow", "datetime.today"} == set(), path.name
