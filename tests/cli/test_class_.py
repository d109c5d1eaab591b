"""`perfkit class`: answers for instructors, and removing what a class has left."""

from __future__ import annotations

import json

import pytest

from perfkit.classroom import class_store, question
from perfkit.cli import main
from perfkit.project import create_project


def test_answers_are_one_json_document(capsys):
    assert main(["class", "answers", "--seed", "2024", "--student", "s01", "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)["answers"]
    assert len(rows) == 41
    assert rows[0] == {
        "exercise": "E01", "params": {"seq": 8192, "sps": 0.625}, "answer": 5120, "unit": "tok/s/p", "tolerance": 0.005,
    }  # fmt: skip


def test_answers_are_a_table_without_json(capsys):
    assert main(["class", "answers", "--seed", "2024", "--student", "s01"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 41
    assert "5120 tok/s/p" in lines[0]


def test_an_empty_name_is_refused_in_words(capsys):
    assert main(["class", "answers", "--seed", "1", "--student", " "]) == 2
    assert "type your name" in capsys.readouterr().err


def test_purge_removes_the_class_and_leaves_the_project(capsys, tmp_path):
    create_project(tmp_path, "class")
    class_store(tmp_path).answer(question("E01", 1, "a"), "1")
    assert main(["class", "purge", "--folder", str(tmp_path)]) == 0
    assert "class.sqlite" in capsys.readouterr().out
    assert not (tmp_path / "class.sqlite").exists()
    assert (tmp_path / "perfkit.toml").exists()


def test_purge_without_a_class_says_so(capsys, tmp_path):
    create_project(tmp_path, "class")
    assert main(["class", "purge", "--folder", str(tmp_path)]) == 0
    assert "no class has left anything" in capsys.readouterr().out


@pytest.mark.parametrize("action", ["purge"])
def test_purge_needs_a_project(capsys, tmp_path, monkeypatch, action):
    monkeypatch.delenv("PERFKIT_PROJECT", raising=False)
    assert main(["class", action, "--folder", str(tmp_path)]) == 2
    assert "no project here" in capsys.readouterr().err
