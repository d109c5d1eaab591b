"""The Chinese catalogue has what pages say, and nothing that they no longer say."""

from __future__ import annotations

import ast
import pickle
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from perfkit.core.resources import data_folder
from perfkit.core.texts import catalogue, english_lines, for_browser, markdown, say, t, told, within
from perfkit.core.texts._sentences import Sentences
from perfkit.explain.diagnose import all_rules, diagnose
from perfkit.face import widgets
from perfkit.record.load import load
from tests.core.texts_used import texts_of, untranslated, used

SECTIONS = catalogue("zh")
KNOWN = {english: text for section in SECTIONS.values() for english, text in section.items()}


@pytest.fixture(scope="module")
def wanted():
    return used()


def test_a_text_without_a_chinese_one_is_listed_and_shown_in_english(monkeypatch):
    assert t("A page that is new today", "zh") == "A page that is new today"
    missed, place = next((text, place) for text, place in {**_of_section("titles")}.items())
    known = {name: {english: text for english, text in section.items() if english != missed} for name, section in SECTIONS.items()}
    monkeypatch.setattr("tests.core.texts_used.catalogue", lambda language: known)
    assert untranslated()[missed] == place


def _of_section(name: str) -> dict[str, str]:
    return {text: place for text, place in used()[name].items() if text in SECTIONS[name]}


def test_scripts_find_theirs_in_their_own_section(wanted):
    assert set(for_browser("zh")) == set(wanted["browser"])


def test_the_catalogue_holds_nothing_that_no_page_says(wanted):
    assert set(KNOWN) - {text for section in wanted.values() for text in section} == set()


def test_places_for_values_are_kept():
    for english, text in KNOWN.items():
        assert sorted(re.findall(r"\{\w+\}", english)) == sorted(re.findall(r"\{\w+\}", text)), english


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

    @widgets.step()
    def the_round():
        return "A round."

    assert the_round.view.title == KNOWN["The round"]
    monkeypatch.setenv("PERFKIT_LANGUAGE", "en")
    assert t("Start the round") == "Start the round"


def test_no_text_of_a_script_is_built_at_run_time():
    for path in (Path(__file__).resolve().parents[2] / "js" / "src").glob("*.js"):
        if path.name != "texts.js":
            assert not re.findall(r"(?<![\w.])t\((?!\")", path.read_text()), path.name


def test_a_sentence_keeps_its_figures_and_the_names_that_somebody_chose():
    clause, sentence = "The device of rank {0} {1}", "{0} {1} ms a step {2}"
    told_of = Sentences({"waits": "等待", clause: "rank {0} 的设备{1}", sentence: "{0} {1} ms，{2}"}, [sentence], [clause])
    assert told_of.told("The device of rank 3 waits 1.5 ms a step <img src=x>") == "rank 3 的设备等待 1.5 ms，<img src=x>"
    assert told_of.told("The device of rank 3") == "The device of rank 3"
    assert told_of.told("{0} {1}") == "{0} {1}"
    assert told_of.told("x " * 20_000 + " ms a step") == "x " * 20_000 + " ms a step"


def test_a_problem_that_begins_with_its_file_is_told_as_by_itself():
    whole = {text for text in KNOWN if "{" not in text and "\n" not in text}
    assert len(whole) > 1000
    for text in whole:
        assert told(f"plans/own.toml: {text}", "zh") == f"plans/own.toml: {told(text, 'zh')}"


def test_what_is_said_has_the_digits_of_tables_and_its_form_is_translated_whatever_stands_in_it():
    who = say("The device of rank {rank} {does}", rank="3", does="waits")
    said = say("{who} {idle_ns} of the mean step for launches", who=who, idle_ns=np.float64(1.5e6), more=2.0)
    assert said == "The device of rank 3 waits 1.50 ms of the mean step for launches"
    assert told(said, "en") == said
    assert told(said, "zh") == "rank 3 的设备等待下发，平均每步 1.50 ms"
    assert said.figures() == {"idle_ns": 1.5e6}
    assert told(pickle.loads(pickle.dumps(said)), "zh") == told(said, "zh")
    hostile = say("{name} <img src=x>", name="{idle_ns}")
    assert told(hostile, "zh") == hostile == "{idle_ns} <img src=x>"
    with pytest.raises(KeyError):
        say("{idle_ns}")


def test_a_sentence_within_another_loses_its_capital_unless_a_name_begins_it():
    ranks = say("Rank {rank} waits", rank="5")
    for sentence, inside in (
        (say("The others wait for rank {rank}", rank="5"), "the others wait for rank 5"),
        (say("{who} for {what}", who=ranks, what="data"), "rank 5 waits for data"),
        (say("A rank ran out of memory"), "a rank ran out of memory"),
        (say("{operator} is slow", operator="Matmul"), "Matmul is slow"),
        (say("HCCL waits"), "HCCL waits"),
        (say("AllReduce waits"), "AllReduce waits"),
        ("The words of somebody", "The words of somebody"),
    ):
        assert within(sentence) == inside
    assert told(say("{step}. Begin with {share} of it: {title}.", step="x", share=0.5, title=within(ranks)), "zh") == told(
        say("{step}. Begin with {share} of it: {title}.", step="x", share=0.5, title=ranks), "zh"
    )


def test_every_finding_of_a_rule_is_told_in_chinese_and_a_rule_without_a_title_is_missed(wanted, monkeypatch):
    title, *_ = texts_of(ast.parse('f\'{x:.0f} launches{" too" if y else ""} of {z}\'', mode="eval").body, ast.parse(""))
    assert title == "{0} launches too of {1}"
    new = replace(all_rules()[0], name="new-rule", title="A title that nobody translated")
    rules = (*all_rules(), new)
    monkeypatch.setattr("perfkit.core.discover.constants", lambda *_: rules)
    assert {text for section in used().values() for text in section if text not in KNOWN} >= {new.title}
    monkeypatch.undo()
    findings = diagnose(load(data_folder() / "traces" / "torch_npu_2rank")).findings
    assert findings
    for finding in findings:
        for text in (finding.title, *finding.actions):
            assert re.search(r"[\u4e00-\u9fff]", told(text, "zh")), text
            assert told(text, "en") == text
