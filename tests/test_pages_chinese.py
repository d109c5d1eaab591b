"""A page in Chinese shows no English sentence: not in an answer, a note, a table, a control, a hint or a text that is narrated."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from perfkit.core.errors import PerfkitError
from perfkit.core.texts import catalogue, english_lines
from perfkit.face.widgets.page_state import page_state
from perfkit.face.widgets.step_view import StepView
from perfkit.project.sample import demo
from tests.notebook_format import FOLDER
from tests.page_cells import run_page, views, with_steps

WORD = re.compile(r"(?<![\w/.:=-])[a-z]{2,}(?![\w/.:(=-])")
"""A word of a language, and not a part of a path, a key, an option or a call."""


CLAUSE = re.compile(r"(?<![\w/.:=-])[a-z]{2,}(?: [a-z]{2,}){3,}(?![\w/.:(=-])")
"""Four words in a row, which is more than names have in a sentence that is told."""


def is_english(text: object) -> bool:
    """Whether a text is a sentence or clause in English, or has one; a single word may be a name."""
    if not isinstance(text, str):
        return False
    return bool(CLAUSE.search(text)) or (not re.search("[\u4e00-\u9fff]", text) and len(WORD.findall(text)) > 1)


def texts(view: StepView) -> Iterator[Any]:
    """All that a panel shows in words."""
    yield from (view.title, view.data.get("sentence"), *view.status.values(), *view.details.get("notes", ()))
    for chart in view.frame.get("charts", ()):
        yield chart["title"]
    for table in view.details.get("tables", ()):
        yield table["title"]
        for column in table["columns"]:
            yield from (column["label"], *column["text"])
    for control in view.controls:
        yield from (control.get(part) for part in ("label", "help", "placeholder", "prompt", "note"))
        for option in control.get("options") or ():
            yield option["label"] if isinstance(option, dict) else option
    for action in view.actions:
        yield from (action["label"], action["help"])


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return demo(tmp_path_factory.mktemp("chinese") / "demo").folder


@pytest.mark.parametrize("name", with_steps())
def test_a_page_shows_no_english_sentence_in_chinese(name: str, project: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("PERFKIT_LANGUAGE", "zh")
    monkeypatch.setenv("PERFKIT_PROJECT", str(project))
    page_state.cache_clear()
    shown = views(run_page(name))
    for view in shown.values():
        with suppress(PerfkitError):
            view.wait()
    found = {text for view in shown.values() for text in texts(view) if is_english(text)}
    assert found == set(), json.dumps(sorted(found), indent=1)


@pytest.mark.parametrize("name", with_steps())
def test_all_that_a_page_narrates_has_its_chinese(name: str):
    cells = [cell for cell in json.loads((FOLDER / f"{name}.ipynb").read_text())["cells"] if cell["cell_type"] == "markdown"]
    known = {english for section in catalogue("zh").values() for english in section}
    assert [line for cell in cells for line in english_lines("".join(cell["source"])) if line not in known] == []


def test_a_sentence_is_told_apart_from_names_paths_and_figures():
    for name in ("aten::mm", "a/b c.d", "--use-mcore x", "3.5 ms", "parallel_config.recompute: 4", "pretrain_llama2_13b.yaml"):
        assert not is_english(name)
    assert is_english("is read by")
    assert is_english("被: the file holds no lines")
    assert not is_english("被 torch.mm 读取 (flash attention)")
