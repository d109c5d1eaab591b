"""Start: what `perfkit serve` was given decides the project, the first page, and what visitors may open."""

from __future__ import annotations

from pathlib import Path

import pytest

from perfkit.core.errors import InputError
from perfkit.core.resources import data_folder
from perfkit.face.app.start import start_with
from perfkit.project.sample import demo

TRACE = data_folder() / "traces" / "torch_npu_2rank"


@pytest.fixture(autouse=True)
def _own_projects(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PERFKIT_PROJECTS", str(tmp_path / "projects"))


def test_a_recording_is_a_root_and_leads_to_its_verdict(tmp_path: Path):
    start = start_with([TRACE])
    assert start.first_page == "00_start_here"
    assert TRACE in start.roots
    assert start.project.is_relative_to(tmp_path / "projects")
    assert start.told == (f"opened a recording where it lies, in the project {start.project}",)


def test_a_graph_leads_to_its_page_with_its_path_in_the_address(tmp_path: Path):
    graph = tmp_path / "a & b#1.ir"
    graph.write_bytes((data_folder() / "ir" / "column_row.ir").read_bytes())
    assert start_with([graph]).first_page.startswith("18_graph_ir#graph=")
    assert start_with([graph]).first_page.endswith("/a%20%26%20b%231.ir")


def test_a_project_and_an_empty_folder_are_served_as_they_are(tmp_path: Path):
    folder = demo(tmp_path / "demo").folder
    assert (start_with([folder]).project, start_with([folder]).first_page) == (folder, "00_start_here")
    (tmp_path / "empty").mkdir()
    assert start_with([tmp_path / "empty"]).project == tmp_path / "empty"


def test_what_nothing_reads_is_said_with_what_it_looks_like_unless_nothing_was_named(tmp_path: Path, monkeypatch):
    (tmp_path / "weights.ckpt").write_bytes(b"\0" * 100)
    with pytest.raises(InputError, match="weights or a checkpoint"):
        start_with([tmp_path])
    monkeypatch.chdir(tmp_path)
    assert start_with([]).project == tmp_path


def test_a_folder_of_which_nothing_is_known_is_served_and_that_is_said(tmp_path: Path):
    (tmp_path / "notes.dat").write_bytes(b"whatever")
    start = start_with([tmp_path])
    assert (start.project, start.first_page) == (tmp_path, "00_start_here")
    assert "nothing in" in start.told[0]


def test_this_folder_is_opened_without_naming_it(monkeypatch):
    monkeypatch.chdir(TRACE)
    assert start_with([]).told[0].startswith("opened a recording")
