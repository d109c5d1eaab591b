"""A large recording is converted and arranged in another process; the kernel finds both done."""

import json
import threading
from pathlib import Path

import pytest

from perfkit._resources import data_folder
from perfkit.panels import _aside, _timeline_aside
from perfkit.panels import _context as context
from perfkit.panels._page_state import page_state
from perfkit.panels._timeline_aside import make_tiles
from perfkit.panels._timeline_data import open_timeline
from perfkit.panels.timeline import TimelineView
from perfkit.trace import _rank_tiles, _workers, tiles
from perfkit.trace.load import bytes_to_convert
from perfkit.units import MIB

KERNELS = 40_000


@pytest.fixture
def recording(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A recording that is large enough to be kept, and taken for a large one."""
    events = [
        {"ph": "X", "cat": "kernel", "name": "k", "pid": 0, "tid": 7, "ts": 10 * at, "dur": 5, "args": {"stream": 7, "device": 0}}
        for at in range(KERNELS)
    ]
    folder = tmp_path / "run"
    folder.mkdir()
    content = {"schemaVersion": 1, "distributedInfo": {"rank": 0, "world_size": 1}, "traceEvents": events}
    (folder / "rank0.json").write_text(json.dumps(content), encoding="ascii")
    monkeypatch.setenv("PERFKIT_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(_aside, "MIN_BYTES", MIB)
    monkeypatch.setattr(_timeline_aside, "MIN_EVENTS", 1000)
    return folder


def test_neither_reading_nor_arranging_is_left_to_the_kernel(recording: Path, monkeypatch: pytest.MonkeyPatch):
    size = (recording / "rank0.json").stat().st_size
    told: list[tuple[object, ...]] = []
    assert bytes_to_convert(recording) == size
    run = context.read_run(str(recording), lambda *content: told.append(content))
    assert bytes_to_convert(recording) == 0
    assert ("rank0.json", size, size) in told
    assert not tiles.is_kept(run, 0)
    make_tiles(str(recording), run, lambda *content: told.append(content))
    assert ("timeline of rank 0", 0, 2, "parts") in told
    for module, name in ((_workers, "aside"), (_rank_tiles, "pyramid")):
        monkeypatch.setattr(module, name, lambda *_, **__: pytest.fail("the kernel would do it again"))
    make_tiles(str(recording), run, lambda *_: None)
    units = open_timeline(run).units
    assert [(unit.thread, unit.lanes[0].count) for unit in units if unit.process == "device"] == [("7", KERNELS)]


def test_a_recording_is_given_up_when_another_one_is_asked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("PERFKIT_CACHE", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    page_state.cache_clear()
    other = data_folder() / "traces" / "kineto_resnet"
    asked = threading.Event()
    read_run, opened = context.read_run, []

    def slow(path, tell):
        opened.append(path)
        if len(opened) == 1:
            assert asked.wait(30)
            tell("the rest", 1, 2)
        return read_run(path, tell)

    monkeypatch.setattr(context, "read_run", slow)
    view = TimelineView()
    view.on_message({"type": "run", "path": str(other)})
    asked.set()
    assert view.wait().run.name == "kineto_resnet"
    assert opened[1:] == [str(other)]
    assert view.status == {"state": "result"}
    page_state.cache_clear()
