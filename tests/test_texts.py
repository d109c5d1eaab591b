"""The Chinese catalogue has what pages say, and nothing that they no longer say."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from perfkit.panels import open_panel
from perfkit.panels.one_round import PANEL
from perfkit.texts import catalogue, english_lines, for_browser, markdown, t
from tests.texts_used import used

SECTIONS = catalogue("zh")
KNOWN = {english: text for section in SECTIONS.values() for english, text in section.items()}


@pytest.fixture(scope="module")
def wanted():
    return used()


def test_every_text_of_the_pages_has_a_chinese_one(wanted):
    missing = {text: place for section in wanted.values() for text, place in section.items() if text not in KNOWN}
    assert missing == {}, "add them to perfkit/texts/zh.toml"


def test_scripts_find_theirs_in_their_own_section(wanted):
    assert set(for_browser("zh")) == set(wanted["browser"])


def test_the_catalogue_holds_nothing_that_no_page_says(wanted):
    assert set(KNOWN) - {text for section in wanted.values() for text in section} == set()


def test_places_for_values_are_kept():
    for english, text in KNOWN.items():
        assert sorted(re.findall(r"\{\d\}", english)) == sorted(re.findall(r"\{\d\}", text)), english


def test_titles_and_leads_are_chinese():
    for english, text in SECTIONS["pages"].items():
        assert re.search(r"[\u4e00-\u9fff]", text), english


def test_a_cell_keeps_its_marks_and_what_is_not_translated():
    source = "# Where did the step go?\n\nunknown words\n- Why rounds?\n<details><summary>How to read it</summary>"
    assert markdown(source, "en") == source
    assert markdown(source, "zh").split("\n") == [
        f"# {KNOWN['Where did the step go?']}",
        "",
        "unknown words",
        f"- {KNOWN['Why rounds?']}",
        f"<details><summary>{KNOWN['How to read it']}</summary>",
    ]
    assert english_lines(source) == ["Where did the step go?", "unknown words", "Why rounds?", "How to read it"]


def test_a_panel_speaks_the_language_of_its_process(monkeypatch):
    monkeypatch.setenv("PERFKIT_LANGUAGE", "zh_CN.UTF-8")
    assert t("Start the round") == "开始这一轮"
    assert open_panel(PANEL).title == KNOWN["The round"]
    monkeypatch.setenv("PERFKIT_LANGUAGE", "en")
    assert t("Start the round") == "Start the round"


def test_no_text_of_a_script_is_built_at_run_time():
    for path in (Path(__file__).resolve().parents[1] / "js" / "src").glob("*.js"):
        if path.name != "texts.js":
            assert not re.findall(r"(?<![\w.])t\((?!\")", path.read_text()), path.name
