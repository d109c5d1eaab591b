"""The titles of the pages in a folder are read once, and anew when a page was changed."""

import json
import os
from pathlib import Path

from perfkit.core.resources import notebooks_folder, pages


def _write(path: Path, title: str) -> None:
    path.write_text(json.dumps({"cells": [{"cell_type": "markdown", "source": [f"# {title}\n", "words"]}]}), encoding="utf-8")


def test_a_page_that_was_changed_is_read_anew_and_others_are_not(tmp_path: Path, monkeypatch):
    one, other = tmp_path / "11_one.ipynb", tmp_path / "12_other.ipynb"
    _write(one, "Which?")
    _write(other, "Why?")
    assert [page.title for page in pages(tmp_path)] == ["Which?", "Why?"]
    _write(one, "Where?")
    os.utime(one, ns=(1, 1))
    reads = []
    read_text = Path.read_text
    monkeypatch.setattr(Path, "read_text", lambda path, **named: (reads.append(path.name), read_text(path, **named))[1])
    assert [page.title for page in pages(tmp_path)] == ["Where?", "Why?"]
    assert [page.title for page in pages(tmp_path)] == ["Where?", "Why?"]
    assert reads == ["11_one.ipynb"]


def test_every_bundled_page_has_a_question_for_its_title():
    assert [page.name for page in pages() if not page.title] == []
    assert len(pages()) == len(list(notebooks_folder().glob("[0-9][0-9]_*.ipynb")))
