"""A full disk: clear words, nothing that was there is lost, no halves remain, and work goes on once there is room again.

The disk is full for files of this process: a write beyond a limit of zero bytes fails in the kernel, as on a disk without room.
"""

from __future__ import annotations

import dataclasses
import resource
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import perfkit
from perfkit.core.errors import InputError
from perfkit.core.resources import data_folder
from perfkit.face.widgets._upload import Upload
from perfkit.project import create_project, open_project, save
from perfkit.project.experiments import ExperimentLog

HYPOTHESIS = "a longer sentence about what should become better"


@contextmanager
def full_disk() -> Iterator[None]:
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def files(folder: Path) -> dict[str, bytes]:
    """What lies in a folder, without what SQLite keeps beside an open log."""
    found = {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}
    return {name: content for name, content in found.items() if not name.endswith(("-wal", "-shm"))}


WRITES: dict[str, Callable[[ExperimentLog, Path], object]] = {
    "predict": lambda log, _: log.predict(0, "mfu", 0.4, method="made up"),
    "decide": lambda log, _: log.decide(0, "revert", HYPOTHESIS),
    "attach": lambda log, sample: log.attach(0, sample, as_="config"),
}


@pytest.mark.parametrize("write", WRITES.values(), ids=WRITES)
def test_the_log_keeps_what_it_has_and_goes_on_afterwards(tmp_path, write):
    sample = data_folder() / "case13b" / "round1.yaml"
    log = ExperimentLog(tmp_path / "project", author="me")
    log.folder.mkdir(exist_ok=True)
    log.start("first round", HYPOTHESIS)
    before, kept = log.show("json"), files(log.folder)
    with full_disk():
        with pytest.raises(InputError, match="cannot be written"):
            write(log, sample)
        assert log.show("json") == before
    assert set(files(log.folder)) == set(kept)
    write(log, sample)


def test_a_log_that_could_not_be_made_leaves_nothing(tmp_path):
    with full_disk(), pytest.raises(InputError, match="cannot be written"):
        ExperimentLog(tmp_path).start("first round", HYPOTHESIS)
    assert list(tmp_path.iterdir()) == []


def test_a_project_stays_as_it_was_and_is_not_locked(tmp_path):
    project = create_project(tmp_path / "p", "before")
    kept = files(project.folder)
    with full_disk(), pytest.raises(InputError, match="cannot be written"):
        save(dataclasses.replace(project, name="after"))
    assert files(project.folder) == kept
    assert open_project(project.folder).name == "before"
    assert save(dataclasses.replace(open_project(project.folder), name="after")).name == "after"


def test_an_upload_is_refused_and_leaves_no_part(tmp_path, monkeypatch):
    monkeypatch.setenv("PERFKIT_PROJECT", str(create_project(tmp_path / "p", "p").folder))
    upload = Upload("log.txt", 100_000)
    with full_disk(), pytest.raises(InputError, match="cannot be written"):
        upload.receive(b"x" * 100_000)  # more than any buffer holds
    assert [path for path in (tmp_path / "p" / "uploads").rglob("*") if path.is_file()] == []


def test_a_recording_opens_without_room_for_the_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("PERFKIT_CACHE", str(tmp_path / "cache"))
    sample = data_folder() / "traces" / "torch_npu_2rank"
    with full_disk():
        run = perfkit.load(sample)
        shown = run.steps()
    assert shown.equals(perfkit.load(sample, cache=False).steps())
