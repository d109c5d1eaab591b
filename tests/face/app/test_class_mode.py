"""Starting a class: seed, token, room, and what is refused."""

from __future__ import annotations

import os
from hashlib import sha256

import pytest

from perfkit.core.errors import InputError
from perfkit.face.app.class_mode import capacity, start_class
from perfkit.face.app.server import serve
from perfkit.face.cli import main
from perfkit.project import create_project, open_project


@pytest.fixture
def project(tmp_path, monkeypatch):
    for name in ("PERFKIT_CLASS", "PERFKIT_CLASS_ADMIN", "PERFKIT_READ_ONLY", "PERFKIT_MAX_KERNELS"):
        monkeypatch.setenv(name, "")
    create_project(tmp_path, "class")
    return tmp_path


def test_a_class_sets_seed_and_token_and_only_reads_the_project(project):
    lines = start_class(project, seed=7, token="open sesame")
    assert os.environ["PERFKIT_CLASS"] == "7"
    assert os.environ["PERFKIT_CLASS_ADMIN"] == sha256(b"open sesame").hexdigest()
    assert open_project(project).read_only
    assert "open sesame" not in "".join(lines)
    assert (project / "class.sqlite").is_file()


def test_without_a_token_one_is_made_and_printed(project):
    lines = start_class(project)
    made = lines[1].rsplit(" ", 1)[-1]
    assert os.environ["PERFKIT_CLASS_ADMIN"] == sha256(made.encode()).hexdigest()


def test_a_restarted_server_goes_on_with_the_same_numbers(project):
    start_class(project, seed=31, token="a long one")
    start_class(project, token="a long one")
    assert os.environ["PERFKIT_CLASS"] == "31"


def test_the_first_class_has_the_seed_of_the_printed_lesson(project):
    start_class(project, token="a long one")
    assert os.environ["PERFKIT_CLASS"] == "2024"


def test_a_token_that_students_could_guess_is_refused(project):
    with pytest.raises(InputError, match="has 7 characters; at least 8"):
        start_class(project, token="1234567")


def test_a_folder_that_is_no_project_is_refused(tmp_path):
    with pytest.raises(InputError, match=r"perfkit\.toml"):
        start_class(tmp_path)


def test_the_room_follows_from_free_memory(project):
    assert capacity(16_000_000_000)[0] == "65 pages fit at once"
    assert len(capacity(16_000_000_000)) == 1
    assert capacity(5_000_000_000)[0] == "5 pages fit at once"
    assert capacity(5_000_000_000)[1].startswith("warning")


def test_a_cap_on_pages_counts_if_it_is_smaller(project, monkeypatch):
    monkeypatch.setenv("PERFKIT_MAX_KERNELS", "10")
    assert capacity(16_000_000_000)[0] == "10 pages fit at once"


def test_a_class_in_jupyterlab_is_refused(project):
    with pytest.raises(InputError, match="students could read all answers"):
        serve(project, port=18867, lab=True, classroom=True)


def test_a_token_without_a_class_is_refused(project, capsys):
    assert main(["serve", str(project), "--class-admin", "x"]) == 2
    assert "--class-admin needs --class" in capsys.readouterr().err
