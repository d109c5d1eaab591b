"""The cycle above every page: where the round stands, and which evidence is missing."""

from __future__ import annotations

import sqlite3

from perfkit.face import widgets
from perfkit.face.widgets.header_view import CYCLE
from perfkit.project import create_project
from perfkit.project.experiments import ExperimentLog
from perfkit.project.sample import demo


def chips(page: str = "40_none") -> dict[str, dict[str, str]]:
    return {chip["id"]: chip for chip in widgets.header(page).content["chips"]}


def test_a_new_round_lacks_everything_and_says_what(tmp_path, monkeypatch):
    folder = create_project(tmp_path / "p", "new").folder
    ExperimentLog(folder).start("pp 2", "short")
    monkeypatch.setenv("PERFKIT_PROJECT", str(folder))
    found = chips()
    assert found["S0"]["state"] == "next"
    assert "Missing: " in found["S0"]["why"]
    assert (found["S4"]["state"], found["S4"]["why"].split(". ", 1)[1]) == ("blocked", "Missing: run (after goal)")


def test_evidence_makes_a_state_done_and_the_page_shown_is_current(tmp_path, monkeypatch):
    folder = demo(tmp_path / "d").folder
    monkeypatch.setenv("PERFKIT_PROJECT", str(folder))
    found = chips("10_load_run")
    assert {id_ for id_, chip in found.items() if chip["state"] == "done"} == {"S1", "S3", "S6", "S7"}
    assert found["S4"]["state"] == "current"
    assert found["S0"]["why"] == "State the goal and measure the start. Missing: accuracy rule"
    assert not {"next", "blocked"} & {chip["state"] for chip in found.values()}, "it is decided: nothing comes next"


def test_a_page_of_two_states_shows_one(tmp_path, monkeypatch):
    monkeypatch.setenv("PERFKIT_PROJECT", str(demo(tmp_path / "d").folder))
    shown = {
        page: [id_ for id_, chip in chips(f"{page}_page").items() if chip["state"] == "current"]
        for _, _, _, own in CYCLE
        for page in own
    }
    assert {page: len(ids) for page, ids in shown.items()} == dict.fromkeys(shown, 1)


def test_the_open_round_counts_and_not_the_last_decided_one(tmp_path, monkeypatch):
    folder = demo(tmp_path / "d").folder
    ExperimentLog(folder).start("one more", "a hypothesis that is long enough")
    monkeypatch.setenv("PERFKIT_PROJECT", str(folder))
    assert "prediction of the goal metric" in chips()["S3"]["why"]


def test_a_log_that_cannot_be_read_does_not_keep_a_page_from_opening(tmp_path, monkeypatch):
    folder = demo(tmp_path / "d").folder
    with sqlite3.connect(folder / "perfkit.sqlite") as connection:
        connection.execute("PRAGMA user_version = 99")
    monkeypatch.setenv("PERFKIT_PROJECT", str(folder))
    assert chips()["S7"]["state"] == "open"
