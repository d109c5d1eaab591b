"""A large recording is converted and arranged in another process; the kernel finds both done."""

import json
import threading
from pathlib import Path

import pytest

from perfkit.core.resources import data_folder
from perfkit.core.units import MIB
from perfkit.face.widgets import _aside, context
from perfkit.face.widgets.timelines import _aside as _timeline_aside
from perfkit.face.widgets.timelines import data as _timeline_data
from perfkit.face.widgets.timelines import view as timeline
from perfkit.face.widgets.timelines._aside import make_tiles
from perfkit.face.widgets.timelines.view import TimelineView
from perfkit.face.widgets.worker import Cancelled
from perfkit.record import tiles, workers
from perfkit.record.load import bytes_to_convert
from perfkit.record.tiles import _rank_tiles

KERNELS = 40_000


@pytest.fixture
def recording(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A recording of two ranks that is large enough to be kept, and taken for a large one; one of them is opened at first."""
    events = [
        {"ph": "X", "cat": "kernel", "name": "k", "pid": 0, "tid": 7, "ts": 10 * at, "dur": 5, "args": {"stream": 7, "device": 0}}
        for at in range(KERNELS)
    ]
    folder = tmp_path / "run"
    folder.mkdir()
    for rank in (0, 1):
        content = {"schemaVersion": 1, "distributedInfo": {"rank": rank, "world_size": 2}, "traceEvents": events}
        (folder / f"rank{rank}.json").write_text(json.dumps(content), encoding="ascii")
    monkeypatch.setenv("PERFKIT_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(_aside, "MIN_BYTES", MIB)
    monkeypatch.setattr(_timeline_aside, "MIN_EVENTS", 1000)
    for module in (timeline, _timeline_data):
        monkeypatch.setattr(module, "MAX_FIRST_RANKS", 1)
    monkeypatch.chdir(tmp_path)
    return folder


def test_neither_reading_nor_arranging_is_left_to_the_kernel(recording: Path, monkeypatch: pytest.MonkeyPatch):
    size = 2 * (recording / "rank0.json").stat().st_size
    told: list[tuple[object, ...]] = []
    assert bytes_to_convert(recording) == size
    run = context.read_run(str(recording), lambda *content: told.append(content))
    assert bytes_to_convert(recording) == 0
    assert ("rank1.json", size, size) in told
    assert not tiles.is_kept(run, 0)
    make_tiles(str(recording), run, [0], lambda *content: told.append(content))
    assert ("timeline of rank 0", KERNELS, KERNELS, "events") in told
    monkeypatch.setattr(_rank_tiles, "pyramid", lambda *_: pytest.fail("the kernel would do it itself"))
    with monkeypatch.context() as patch:
        patch.setattr(workers, "aside", lambda *_, **__: pytest.fail("it would be done again"))
        make_tiles(str(recording), run, [0], lambda *_: None)
        view = TimelineView(str(recording))
        units = view.wait().units
        assert [(unit.thread, unit.lanes[0].count) for unit in units if unit.process == "device"] == [("7", KERNELS)]
    _open_another_rank(view)


def _open_another_rank(view: TimelineView) -> None:
    """It is arranged aside too, and says how far it is."""
    seen: list[dict[str, dict]] = []
    view.observe(lambda change: seen.append(change["new"]), "pending")
    for _ in range(2):  # asked for twice
        view.on_message({"type": "open", "ranks": [1]})
    view.wait()
    assert seen[0] == {"1": {"text": "", "done": 0, "total": 0}}
    assert seen[-2]["1"]["done"] == seen[-2]["1"]["total"] >= KERNELS
    assert any("timeline of rank 1" in each["1"]["text"] for each in seen if each)
    assert view.pending == {}
    assert [rank["open"] for rank in view.setup["ranks"]] == [True, True]


def test_who_does_not_wait_for_a_rank_or_a_recording_is_not_made_to(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("PERFKIT_CACHE", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(_timeline_data, "MAX_FIRST_RANKS", 1)
    view = TimelineView()
    opened = view.wait().opened
    started, cancelled = threading.Event(), threading.Event()

    def slow(_path, _run, _ranks, report):
        started.set()
        assert cancelled.wait(30)
        report("the rest", 1, 2)

    monkeypatch.setattr(timeline, "make_tiles", slow)
    view.on_message({"type": "open", "ranks": [1]})
    assert started.wait(30)
    view.on_message({"type": "cancel", "rank": 1})
    cancelled.set()
    assert view.wait().opened == opened == {0}
    assert view.pending == {}
    for event in (started, cancelled):
        event.clear()
    view.on_message({"type": "run", "path": str(data_folder() / "traces" / "kineto_resnet")})
    assert started.wait(30)
    view.on_message({"type": "cancel"})
    cancelled.set()
    with pytest.raises(Cancelled):
        view.wait()
    assert (view.status["state"], view.status["retry"]) == ("empty", True)


def test_a_recording_is_given_up_when_another_one_is_asked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("PERFKIT_CACHE", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
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
