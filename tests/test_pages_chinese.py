"""A page in Chinese shows no English sentence: not in an answer, a note, a table, a control, a hint or a text that is narrated."""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Mapping
from pathlib import Path

import pytest

from perfkit.config import lint as checks
from perfkit.core.resources import data_folder
from perfkit.core.texts import catalogue, english_lines, told
from perfkit.explain.ledger import causes
from perfkit.face.widgets.step_view import StepView
from perfkit.face.widgets.timelines.view import TimelineView
from perfkit.project.sample import demo
from perfkit.teach.capstone import rounds
from perfkit.teach.game import pack
from tests import words_sent
from tests.english import in_english, is_english, is_english_head, rows_of_charts, said_in_english
from tests.notebook_format import FOLDER
from tests.page_cells import opened_page, run_page, views, with_steps


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return demo(tmp_path_factory.mktemp("chinese") / "demo").folder


@pytest.fixture
def sent(project: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """What pages send from now on, in Chinese and with the sample project."""
    monkeypatch.setenv("PERFKIT_LANGUAGE", "zh")
    monkeypatch.setenv("PERFKIT_PROJECT", str(project))
    return words_sent.record(monkeypatch)


@pytest.mark.parametrize("name", with_steps())
def test_a_page_shows_no_english_sentence_in_chinese(name: str, sent: dict[str, str]):
    """As it opens, with every row chosen, every control set to all that it takes and refuses, and every button pressed."""
    objects = run_page(name)
    _hold(views(objects))
    assert {text for view in views(objects).values() for text in rows_of_charts(view) if is_english(text)} == set()
    shown = words_sent.on_page(objects)
    words_sent.choose_rows(shown)
    words_sent.use(shown)
    for timeline in (view for view in shown.values() if isinstance(view, TimelineView)):
        words_sent.ask(timeline)
    assert said_in_english(sent) == {}


def test_nor_does_the_class_for_somebody_with_a_name(project: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("PERFKIT_LANGUAGE", "zh")
    monkeypatch.setenv("PERFKIT_PROJECT", str(project))
    shown = views(run_page("40_class"))
    shown["choose_name"].set({"student": "s01"})
    _hold(shown)
    assert shown["the_exercise"].data["sentence"]
    for typed in ("", "many", "2,5", "1e999", "2500 MB", "2500"):
        shown["the_exercise"].set({"E01": typed})
        shown["the_exercise"].act("check")
        assert not is_english(shown["the_exercise"].outcome["text"]), typed
    for number, view in enumerate(pack()["views"]):
        shown["what_you_see"].set({"level": str(1 + number % len(pack()["levels"])), "view": view})
        shown["what_you_see"].act("look")
        _hold(shown)
    for one in rounds():
        shown["the_six_rounds"].set({"change": (one.change, *one.instead)[one.number % 4], "expected": "2000"})
        shown["the_six_rounds"].act("choose")
        _hold(shown)


def _hold(shown: Mapping[str, StepView]) -> None:
    """No panel says anything in English once all have answered."""
    found = in_english(shown)
    assert found == set(), json.dumps(sorted(found), indent=1)


ROOT = Path(__file__).resolve().parents[1]
COMPARED = (
    ("tests/data/traces/dlrm_8xV100", "tests/data/traces/hta/timeline_analysis"),
    ("tests/data/traces/mindinsight/run_2", "tests/data/traces/mindinsight/run_3"),
    ("data/ir/silu_mul_without.ir", "data/ir/silu_mul_in_effect.ir"),
    ("data/losses/reference.csv", "data/losses/drift.csv"),
    ("data/configs/pretrain_llama2_7b.yaml", "data/configs/pretrain_mixtral-8x7b.yaml"),
    ("data/traces/logs", "data/traces/torch_npu_2rank"),
)


@pytest.mark.parametrize(("old", "new"), COMPARED)
def test_nor_does_a_comparison_of_others(old: str, new: str, project: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("PERFKIT_LANGUAGE", "zh")
    monkeypatch.setenv("PERFKIT_PROJECT", str(project))
    _hold(views(opened_page("21_compare", old_path=ROOT / old, path=ROOT / new)))


@pytest.mark.parametrize("rank", ["", " (rank 3)"])
def test_every_cause_has_its_chinese(rank: str):
    others = {causes.why(cause) for cause in {*causes.WORDS, *causes.OF_LAYERS} - {"work", "waiting"}}
    waits = {*others, causes.FILLING, causes.LATE_SENDS, causes.STAGE_LOAD, causes.OTHER_STAGE, causes.HEAD}
    work = () if rank else (*causes.WORDS, *causes.OF_LAYERS, causes.ALL_WORK, causes.OPTIMIZER, causes.ELEMENT_WISE, causes.AI_CPU)
    for cause in (*waits, *work):
        assert re.search("[\u4e00-\u9fff]", told(causes.words_of(cause) + rank, "zh")), cause


def test_every_check_of_configurations_has_its_chinese_and_so_has_what_a_key_decides():
    said = {text for one in checks.all_checks() for text in (one.title, one.why, one.fix)}
    tables = tomllib.loads((data_folder() / "key_effects.toml").read_text(encoding="utf-8"))
    said |= {group["why"] for dialect in tables.values() for group in dialect.get("some", ())}
    assert {text for text in said if not re.search("[\u4e00-\u9fff]", told(text, "zh"))} == set()


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
    assert is_english("a.yaml: 16 devices, 40 layers.")
    assert all(map(is_english_head, ("peak", "ms a step")))
    assert not any(map(is_english_head, ("MFU", "ms", "rank", "峰值", "GiB", "步/s")))
