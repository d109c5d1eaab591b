"""`perfkit class`: answers for instructors, and removing what a class has left."""

from __future__ import annotations

import csv
import html
import json

import pytest

from perfkit.face.cli import main
from perfkit.project import create_project
from perfkit.teach import class_store, question
from perfkit.teach.lesson import blocks


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


def test_notes_are_one_page_with_every_block_and_no_address(capsys, tmp_path):
    out = tmp_path / "notes.html"
    assert main(["class", "notes", "--out", str(out)]) == 0
    page = out.read_text(encoding="utf-8")
    assert page.count("<section") == len(blocks())
    assert all(html.escape(line) in page for block in blocks() for line in block.say)
    assert not any(mark in page for mark in ("src=", "href=", "<script"))


def test_results_are_a_page_or_rows_and_hide_names_on_demand(capsys, tmp_path):
    create_project(tmp_path, "class")
    store = class_store(tmp_path)
    store.set_control("seed", 7)
    asked = question("E01", 7, "<b>Ann</b>")
    store.answer(asked, repr(asked.answer))
    store.join("<b>Ann</b>", "red")
    page, rows = tmp_path / "results.html", tmp_path / "results.csv"
    assert main(["class", "results", "--folder", str(tmp_path), "--out", str(page)]) == 0
    text = page.read_text(encoding="utf-8")
    assert "&lt;b&gt;Ann&lt;/b&gt;" in text
    assert "<b>Ann" not in text.split("<script", 1)[0]
    assert main(["class", "results", "--folder", str(tmp_path), "--anonymous", "--out", str(page)]) == 0
    assert "Ann" not in page.read_text(encoding="utf-8")
    assert main(["class", "results", "--folder", str(tmp_path), "--anonymous", "--out", str(rows)]) == 0
    assert [row["student"] for row in csv.DictReader(rows.open(encoding="utf-8"))] == ["s01"]


def test_results_without_a_class_or_answers_are_refused_and_make_no_file(capsys, tmp_path):
    create_project(tmp_path, "class")
    out = tmp_path / "results.html"
    assert main(["class", "results", "--folder", str(tmp_path), "--out", str(out)]) == 2
    assert "no class was held" in capsys.readouterr().err
    assert not (tmp_path / "class.sqlite").exists()
    class_store(tmp_path)
    assert main(["class", "results", "--folder", str(tmp_path), "--seed", "3", "--out", str(out)]) == 2
    assert "nobody has answered in the class 3" in capsys.readouterr().err
    assert not out.exists()


def test_the_game_on_paper_is_sheets_or_solutions(capsys, tmp_path):
    out = tmp_path / "sheets.html"
    given = ["class", "paper", "--seed", "2024", "--student", "s01", "--student", "s13", "--rounds", "1", "--out", str(out)]
    assert main(given) == 0
    assert "s13, round G01" in out.read_text(encoding="utf-8")
    assert main([*given, "--solutions"]) == 0
    assert "54.3 ms a step" in out.read_text(encoding="utf-8")
    assert main(["class", "paper", "--seed", "1", "--student", "a", "--rounds", "0", "--out", str(out)]) == 2
    assert "must be 1 to 99" in capsys.readouterr().err
