"""The header's opener without a browser: what it answers, where it leads, what it refuses, and what it never lists."""

from __future__ import annotations

import os
from dataclasses import replace
from types import SimpleNamespace

import pytest

from perfkit.config.dialects import read_config
from perfkit.core.resources import data_folder
from perfkit.explain.fragments import explain_fragment
from perfkit.face.widgets import context, opener, placed
from perfkit.face.widgets._files import completions
from perfkit.face.widgets.header_view import header
from perfkit.face.widgets.page_state import page_state
from perfkit.face.widgets.pickers import choose_configuration, choose_log, choose_recording
from perfkit.project import open_project, save
from perfkit.project.sample import demo

TRACE = data_folder() / "traces" / "kineto_resnet"


@pytest.fixture
def project(tmp_path, monkeypatch):
    folder = demo(tmp_path / "demo").folder
    monkeypatch.setenv("PERFKIT_PROJECT", str(folder))
    return folder


@pytest.fixture
def said():
    return []


def test_a_recording_becomes_the_open_one_and_leads_to_the_first_page(project, said):
    assert opener.Opener(said.append, "12_operators").open(str(TRACE))
    assert said == [{"type": "go", "href": "00_start_here.ipynb"}]
    assert open_project(project).open_run == TRACE
    switches = {switch["name"]: switch for switch in opener.what_is_open()["switches"]}
    assert (switches["run"]["value"], switches["run"]["sample"]) == (str(TRACE), True)
    assert [row["path"] for row in opener.what_is_open()["recent"]] == [str(TRACE)]


def test_a_project_that_is_only_read_is_not_written_and_the_address_names_it(project, said, monkeypatch):
    monkeypatch.setenv("PERFKIT_READ_ONLY", "1")
    before = (project / "perfkit.toml").read_bytes()
    assert opener.Opener(said.append, "12_operators").open(str(TRACE))
    assert said == [{"type": "go", "href": f"00_start_here.ipynb#run={TRACE}"}]
    said.clear()
    opener.Opener(said.append, "12_operators").answer({"type": "switch", "name": "run", "path": str(TRACE)})
    assert said == [{"type": "go", "href": f"12_operators.ipynb#run={TRACE}"}]
    assert (project / "perfkit.toml").read_bytes() == before


def test_another_round_is_opened_and_an_unknown_kind_of_switch_is_no_message(project, said):
    opener.Opener(said.append, "12_operators").answer({"type": "switch", "name": "round", "path": "3"})
    assert open_project(project).open_round == 3
    with pytest.raises(KeyError):
        opener.Opener(said.append, "12_operators").answer({"type": "switch", "name": "folder", "path": str(TRACE)})


def test_what_lies_outside_of_the_roots_is_neither_opened_nor_completed(project, said, tmp_path, monkeypatch):
    (tmp_path / "secret" / "profile").mkdir(parents=True)
    monkeypatch.setenv("PERFKIT_ROOTS", str(project))
    assert not opener.Opener(said.append, "12_operators").open(str(tmp_path / "secret" / "profile"))
    assert "outside of the folders" in said[0]["problems"][0]
    assert completions(f"{tmp_path}/sec") == []
    assert completions(f"{project}/sam") == [f"{project}/samples/"]


def test_a_path_in_an_address_stays_one_value(project, said, tmp_path, monkeypatch):
    monkeypatch.setenv("PERFKIT_READ_ONLY", "1")
    graph = tmp_path / "a&b=c#d <img>.ir"
    graph.write_bytes((data_folder() / "ir" / "column_row.ir").read_bytes())
    opener.Opener(said.append, "12_operators").open(str(graph))
    assert said[0]["href"].endswith("/a%26b%3Dc%23d%20%3Cimg%3E.ir")


@pytest.mark.parametrize("has", ["a configuration", "none", "no project"])
def test_the_header_shows_the_configuration_that_pages_start_with(has, project, monkeypatch):
    if has == "none":
        save(replace(open_project(project), open_config=None))
    elif has == "no project":
        monkeypatch.delenv("PERFKIT_PROJECT")
    (config,) = (switch for switch in opener.what_is_open()["switches"] if switch["name"] == "config")
    assert config["value"] == choose_configuration().path
    assert config["value"] in [option["value"] for option in config["options"]]
    assert config["sample"] is (has != "a configuration"), "the round of a project is no sample"


def test_the_address_of_the_page_says_what_is_open(project):
    page_state().set({"run": str(TRACE)})
    assert opener.what_is_open()["switches"][0]["value"] == str(TRACE)


def test_the_header_follows_the_address_that_comes_once_it_is_drawn(project, monkeypatch, tmp_path):
    other = tmp_path / "other.yaml"
    other.write_text("parallel_config:\n  data_parallel: 2\n")
    monkeypatch.setenv("PERFKIT_ROOTS", f"{tmp_path}{os.pathsep}{TRACE.parent}")
    shown = header("02_model_cost")
    choose_recording(), choose_configuration()
    monkeypatch.setenv("PERFKIT_APP", "1")
    shown.on_message({"type": "hash", "values": {"run": str(TRACE), "config": str(other)}})
    assert [switch["value"] for switch in shown.places["switches"]][:2] == [str(TRACE), str(other)]
    first = opener.what_is_open()["switches"]
    for refused in (str(tmp_path / "none"), "/etc", "no model of that name"):
        shown.on_message({"type": "hash", "values": {"run": refused, "config": refused}})
        assert refused not in [switch["value"] for switch in shown.places["switches"]], "pages keep what they have"
    assert first != shown.places["switches"]


def test_the_bar_names_what_the_page_reads_and_nothing_else(project, monkeypatch):
    def named(page):
        monkeypatch.setattr(placed, "_known", {})
        page_state().set(dict.fromkeys(("run", "config", "log")))
        shown = header(page)
        yield shown
        yield [switch["name"] for switch in shown.places["switches"]]

    monkeypatch.setenv("PERFKIT_APP", "1")
    shown, switches = named("18_graph_ir")
    assert switches == ["round"], "a graph is no recording"
    choose_recording()
    assert [switch["name"] for switch in shown.places["switches"]] == ["run", "round"]
    assert list(named("00_start_here"))[1] == ["run", "config", "round"], "the first page is of all that is open"
    assert list(named("40_class"))[1] == []
    shown, _ = named("01_baseline")
    choose_log()
    assert [switch["name"] for switch in shown.places["switches"]] == ["round"], "it reads a sample, not the open recording"
    log = data_folder() / context.SAMPLE_LOGS["GPT-2 TP4 PP4 (Megatron log)"]
    save(replace(open_project(project), open_run=log))
    shown, _ = named("01_baseline")
    choose_log()
    assert shown.places["switches"][0]["value"] == str(log)


PIECE = (
    "recompute: [4, 0]\npipeline_stage: 2\nexport HF_TOKEN=hf_abcdefghijklmnopqrstuvwxyz0123456789\n<img src=x onerror=alert(1)>\n"
)


def test_a_pasted_piece_is_explained_as_on_the_command_line_and_kept_nowhere(project, said, monkeypatch):
    # A page of an earlier test may be reading the database: for as long as it does there are an empty log and its shared memory.
    kept = lambda: {path: path.stat().st_mtime_ns for path in project.rglob("*") if not path.name.endswith(("-wal", "-shm"))}  # noqa: E731
    log, before = project / "perfkit.sqlite-wal", kept()
    monkeypatch.setattr(opener.threading, "Thread", lambda target, args, **_: SimpleNamespace(start=lambda: target(*args)))
    opener.Opener(said.append, "12_operators").answer({"type": "explain", "text": PIECE})
    [message] = said
    found = explain_fragment(PIECE, read_config(open_project(project).open_config)).to_dict()
    assert message["light"] == open_project(project).open_config.name
    assert [part["title"] for part in message["parts"]] == [part["title"] for part in found["parts"]]
    assert [part["corrected"] or None for part in message["parts"]] == [part["corrected"] for part in found["parts"]]
    assert [len(part["problems"]) for part in message["parts"]] == [len(part["problems"]) for part in found["parts"]]
    assert "hf_abc" not in str(message)
    assert kept() == before
    assert not log.exists() or not log.read_bytes()
    assert not any(b"hf_abc" in path.read_bytes() for path in before if path.is_file())
    assert "onerror" not in str(page_state().values)


def test_an_empty_paste_is_refused_in_words(project, said, monkeypatch):
    monkeypatch.setattr(opener.threading, "Thread", lambda target, args, **_: SimpleNamespace(start=lambda: target(*args)))
    opener.Opener(said.append, "12_operators").answer({"type": "explain", "text": " "})
    assert said == [{"type": "not-explained", "problems": ["pasted text: there is nothing in it"]}]
