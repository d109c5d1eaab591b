"""`perfkit log`: a whole round by hand, and what it refuses."""

from __future__ import annotations

import json

import pytest

from perfkit.face.cli import main
from perfkit.project import find_project
from perfkit.project.sample import demo


@pytest.fixture
def folder(tmp_path):
    return str(demo(tmp_path / "d").folder)


def log(folder: str, *words: str) -> int:
    return main(["log", "--folder", folder, *words])


def test_a_whole_round_by_hand(folder, capsys):
    assert log(folder, "start", "pp 4", "--hypothesis", "four stages free more memory") == 0
    predict = ("predict", "tokens_per_s_per_device", "2700", "--low", "2600", "--high", "2800", "--method", "by hand")
    assert log(folder, *predict) == 0
    assert log(folder, "measure", "tokens_per_s_per_device", "2650", "--source", "log of the run") == 0
    assert log(folder, *predict) == 2
    assert log(folder, "decide", "keep", "--reason", "faster than everything before") == 2
    assert "accuracy" in capsys.readouterr().err
    assert log(folder, "accuracy", "not_checked", "--note", "only timed") == 0
    assert log(folder, "decide", "keep", "--reason", "faster than everything before", "--confirm", "not checked") == 0
    capsys.readouterr()
    assert log(folder, "show", "--json") == 0
    last = json.loads(capsys.readouterr().out)["rounds"][-1]
    assert (last["number"], last["verdict"], last["value"]) == (6, "keep", 2650.0)
    assert last["error_ratio"] == pytest.approx(2700 / 2650 - 1)


def test_rounds_are_compared_and_restored_byte_for_byte(folder, tmp_path, capsys):
    assert log(folder, "diff", "0", "1", "--json") == 0
    assert {"key": "parallel_config.pipeline_stage", "old": 1, "new": 2} in json.loads(capsys.readouterr().out)
    out = tmp_path / "config.yaml"
    assert log(folder, "restore", "4", "--out", str(out)) == 0
    assert out.read_bytes() == (tmp_path / "d" / "rounds" / "04" / "config.yaml").read_bytes()
    assert log(folder, "restore", "4", "--out", str(out)) == 2


def test_the_suffix_chooses_the_form_of_an_export(folder, tmp_path):
    assert log(folder, "export", "--out", str(tmp_path / "a.html")) == 0
    assert (tmp_path / "a.html").read_text(encoding="utf-8").startswith("<!doctype html>")
    assert log(folder, "export", "--out", str(tmp_path / "a.md")) == 0
    assert (tmp_path / "a.md").read_text(encoding="utf-8").startswith("# Llama2-13B")


def test_a_folder_that_is_no_project_is_said_to_be_none(tmp_path, monkeypatch, capsys):
    monkeypatch.delenv("PERFKIT_PROJECT", raising=False)
    monkeypatch.chdir(tmp_path)
    assert main(["log", "show"]) == 2
    assert "no tuning project" in capsys.readouterr().err


def test_a_first_round_makes_a_folder_the_project_that_later_calls_find(tmp_path, monkeypatch, capsys):
    monkeypatch.delenv("PERFKIT_PROJECT", raising=False)
    monkeypatch.chdir(tmp_path)
    assert main(["log", "start", "pp 2", "--hypothesis", "two stages free memory"]) == 0
    assert "is a tuning project now" in capsys.readouterr().out
    (tmp_path / "below").mkdir()
    monkeypatch.chdir(tmp_path / "below")
    assert main(["log", "show"]) == 0
    assert "pp 2" in capsys.readouterr().out
    assert main(["log", "start", "pp 4", "--hypothesis", "four free more", "--abandon", "not worth its run"]) == 0
    assert "is a tuning project now" not in capsys.readouterr().out
    assert find_project() == tmp_path
