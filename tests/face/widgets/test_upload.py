"""Uploads: what arrives in parts is placed in the project in one piece, and what is refused leaves nothing behind."""

from __future__ import annotations

import io
import sys
import tarfile
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from perfkit.core.errors import InputError
from perfkit.core.resources import data_folder
from perfkit.face.widgets import _upload, choose_recording
from perfkit.face.widgets._upload import Upload
from perfkit.project import create_project

SAMPLE = data_folder() / "traces" / "torch_npu_2rank"


@pytest.fixture
def uploads(tmp_path, monkeypatch) -> Path:
    project = tmp_path / "project"
    create_project(project, "uploads")
    monkeypatch.setenv("PERFKIT_PROJECT", str(project))
    monkeypatch.setenv("PERFKIT_CACHE", str(tmp_path / "cache"))
    return project / "uploads"


@contextmanager
def disk_full_from(num_bytes: int) -> Iterator[None]:
    """Let no file of this process grow beyond so much."""
    import resource

    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (num_bytes, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def send(name: str, content: bytes, part_bytes: int = 1000) -> Path:
    upload = Upload(name, len(content))
    for start in range(0, len(content), part_bytes):
        upload.receive(content[start : start + part_bytes])
    assert upload.is_complete
    return upload.finish()


def send_zeros(upload: Upload) -> Path:
    while not upload.is_complete:
        upload.receive(bytes(1000))
    return upload.finish()


def zip_of(**members: bytes) -> bytes:
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w") as archive:
        for name, text in members.items():
            archive.writestr(name.replace("__", "/"), text)
    return content.getvalue()


def test_a_file_comes_in_parts_and_lies_in_the_project(uploads):
    content = bytes(range(256)) * 40
    assert send("worker_0.log", content) == uploads / "worker_0.log"
    assert (uploads / "worker_0.log").read_bytes() == content
    assert send("worker_0.log", b"other") == uploads / "worker_0-2.log"
    assert (uploads / "worker_0.log").read_bytes() == content


@pytest.mark.parametrize("name", ["../../evil.sh", "C:\\Users\\x\\evil.sh", "/etc/evil.sh", ".evil.sh", "a/b/evil.sh"])
def test_a_name_that_leads_elsewhere_loses_its_folders(uploads, name):
    assert send(name, b"x") == uploads / "evil.sh"


@pytest.mark.skipif(sys.platform != "linux", reason="a limit of what a file may take stands for a full disk")
@pytest.mark.parametrize("full_from", [0, 2_000], ids=["when it is announced", "while it comes"])
def test_a_disk_that_is_full_is_told_and_nothing_is_left(uploads, full_from):
    upload = Upload("run.log", 20_000) if full_from else None
    with disk_full_from(full_from), pytest.raises(InputError, match=r"cannot be written to uploads of the project"):
        send_zeros(upload or Upload("run.log", 20_000))
    assert list(uploads.iterdir()) == []


def test_names_of_nothing_but_signs_get_one(uploads):
    assert send("...", b"x").name == "upload"


def test_a_zip_is_unpacked_and_the_archive_is_gone(uploads):
    folder = send("profile.zip", zip_of(rank0__a=b"1", rank1__a=b"22"))
    assert folder == uploads / "profile"
    assert (folder / "rank1" / "a").read_bytes() == b"22"
    assert [path.name for path in uploads.iterdir()] == ["profile"]


def test_a_hostile_archive_is_refused_with_every_member_and_nothing_remains(uploads):
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w:gz") as archive:
        link = tarfile.TarInfo("link")
        link.type, link.linkname = tarfile.SYMTYPE, "/etc/passwd"
        archive.addfile(link)
        archive.addfile(tarfile.TarInfo("../../evil.txt"))
    with pytest.raises(InputError) as error:
        send("hostile.tar.gz", content.getvalue())
    assert "hostile.tar.gz" in str(error.value)
    assert "link: is a link or device" in str(error.value)
    assert "../../evil.txt: leads out of the folder" in str(error.value)
    assert list(uploads.iterdir()) == []
    assert not (uploads.parent.parent / "evil.txt").exists()


def test_a_file_beyond_the_limit_is_refused_with_the_other_ways(uploads):
    with pytest.raises(InputError) as error:
        Upload("trace.zip", _upload.MAX_BYTES + 1)
    assert "200 MiB" in str(error.value)
    assert tuple(error.value.problems[1:]) == _upload.OTHER_WAYS
    assert list(uploads.iterdir()) == []


def test_more_bytes_than_announced_are_refused(uploads):
    upload = Upload("a.log", 10)
    with pytest.raises(InputError, match="10 bytes that were announced"):
        upload.receive(b"x" * 11)
    assert list(uploads.iterdir()) == []


def test_the_quota_of_a_project_counts_what_an_archive_holds(uploads, monkeypatch):
    monkeypatch.setattr(_upload, "QUOTA_BYTES", 10_000)
    with pytest.raises(InputError, match="would exceed"):
        Upload("a.log", 10_001)
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("zeros", bytes(100_000))
    with pytest.raises(InputError, match="and there is room for"):
        send("a.zip", content.getvalue())
    assert list(uploads.iterdir()) == []


def test_nothing_is_offered_where_nothing_may_be_written(uploads, monkeypatch):
    assert _upload.offer()["max_bytes"] == 200 * 2**20
    monkeypatch.setenv("PERFKIT_READ_ONLY", "1")
    assert _upload.offer() == {}
    with pytest.raises(InputError, match="only read"):
        Upload("a.log", 1)


def test_a_panel_opens_what_was_sent_to_it(uploads):
    view = choose_recording(logs=True).view
    sent = []
    view.send = sent.append
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w") as archive:
        for path in SAMPLE.rglob("*"):
            if path.is_file():
                archive.write(path, path.relative_to(SAMPLE))
    packed = content.getvalue()
    view.on_upload({"step": "begin", "name": "run", "file": "two ranks.zip", "bytes": len(packed)}, [])
    assert sent[-1] == {"type": "upload", "name": "run", "received": 0}
    view.on_upload({"step": "part", "name": "run"}, [memoryview(packed)])
    view.wait()
    assert view.state["run"] == str(uploads / "two_ranks")
    assert "2 ranks" in view.answer.text


def test_a_panel_says_why_a_file_was_not_taken(uploads):
    view = choose_recording(logs=True).view
    sent = []
    view.send = sent.append
    view.on_upload({"step": "begin", "name": "run", "file": "big.zip", "bytes": 2**40}, [])
    assert "200 MiB" in sent[-1]["problems"][0]
    view.on_upload({"step": "begin", "name": "run", "file": "a.log", "bytes": 5}, [])
    view.on_upload({"step": "cancel", "name": "run"}, [])
    view.on_upload({"step": "part", "name": "run"}, [memoryview(b"late")])
    assert list(uploads.iterdir()) == []


def test_the_quota_is_taken_when_a_file_is_announced(uploads, monkeypatch):
    """Two pages announce at the same time: both would fit alone."""
    monkeypatch.setattr(_upload, "QUOTA_BYTES", 1000)
    first = Upload("a.log", 600)
    with pytest.raises(InputError, match="would exceed"):
        Upload("b.log", 600)
    first.cancel()
    Upload("b.log", 600).cancel()
