"""A page in Chinese shows no English sentence: not in an answer, a note, a table, a control, a hint or a text that is narrated."""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from perfkit.config import lint as checks
from perfkit.core.errors import InputError, PerfkitError
from perfkit.core.resources import data_folder
from perfkit.core.texts import catalogue, english_lines, told
from perfkit.explain.ledger import causes
from perfkit.face.widgets._chart_words import NAMED
from perfkit.face.widgets.step_view import StepView
from perfkit.face.widgets.table import NAMES
from perfkit.face.widgets.timelines.view import TimelineView
from perfkit.project.sample import demo
from perfkit.teach.capstone import rounds
from tests import words_sent
from tests.notebook_format import FOLDER
from tests.page_cells import opened_page, run_page, views, with_steps

WORD = re.compile(r"(?<![\w/.:=-])[a-z]{2,}(?![\w/:(=-]|\.\w)")
"""A word of a language, and not a part of a path, a key, an option or a call."""
TERMS = frozenset({"cp", "dp", "ep", "ms", "ns", "pp", "rank", "token", "tp", "us", "vpp"})
"""Short forms and terms that Chinese texts of the field keep."""


CLAUSE = re.compile(r"(?<![\w/.:=-])[a-z]{2,}(?: [a-z]{2,}){3,}(?![\w/.:(=-])")
"""Four words in a row, which is more than names have in a sentence that is told."""


QUOTED = re.compile(
    r"^(?:operator:)?(?:void )?(?:\(anonymous namespace\)|[^ (]*)(?:::|<)"
    r"|^\['|^<?\w*>?[\w/]*\.py[:(]|\.py:\d|[\ufffd{]|^mindspore synthetic$"
)
"""How a C++ kernel and a line of somebody's file begin, which are shown as they are, and what a recording calls itself."""


def is_english(text: object) -> bool:
    """Whether a text is a sentence or clause in English, or has one; a single word may be a name."""
    if not isinstance(text, str) or QUOTED.search(text):
        return False
    return bool(CLAUSE.search(text)) or (not re.search("[\u4e00-\u9fff]", text) and len(WORD.findall(text)) > 1)


def is_english_head(text: object) -> bool:
    """Whether a head, a unit or a title, all of which are written by perfkit and name nothing of somebody else, is in English."""
    if not isinstance(text, str) or re.search("[\u4e00-\u9fff]", text):
        return False
    return bool(set(re.findall(r"(?<![\w/.])[a-z]{2,}(?![\w/.])", text)) - TERMS)


def heads(view: StepView) -> Iterator[Any]:
    """Heads of columns, labels and units of controls, titles of code, and in charts of axes, legends and lines of tooltips."""
    for table in view.details.get("tables", ()):
        yield from (column["label"] for column in table["columns"])
    yield from (control.get(name) for control in view.controls for name in ("label", "unit"))
    yield from (part["title"] for part in view.details.get("code", ()))
    for chart in view.frame.get("charts", ()):
        yield from _titles(chart["spec"])


def _titles(node: Any) -> Iterator[Any]:
    if isinstance(node, list):
        for part in node:
            yield from _titles(part)
    elif isinstance(node, dict):
        yield node.get("title")
        lines = node.get("tooltip")
        yield from (line.get("title", line["field"]) for line in (lines if isinstance(lines, list) else ()))
        for part in node.values():
            yield from _titles(part)


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


def rows_of_charts(view: StepView) -> Iterator[Any]:
    """The rows of charts and their heads as tooltips, marks and tables of charts say them; names are somebody else's."""
    for chart in view.frame.get("charts", ()):
        yield from chart["heads"].values()
        for columns in view.data["datasets"].get(chart["name"], {}).values():
            for name in columns.keys() - NAMES - ({"label", *NAMED} if NAMED & columns.keys() else set()):
                yield from (chart["words"].get(value, value) for value in columns[name] if isinstance(value, str))


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
    assert _said_in_english(sent) == {}


def _said_in_english(sent: Mapping[str, str]) -> dict[str, str]:
    return {text: place for text, place in list(sent.items()) if is_english(text)}


def test_nor_does_the_class_for_somebody_with_a_name(project: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("PERFKIT_LANGUAGE", "zh")
    monkeypatch.setenv("PERFKIT_PROJECT", str(project))
    shown = views(run_page("40_class"))
    shown["who_is_here"].set({"student": "s01"})
    _hold(shown)
    assert shown["the_exercise"].data["sentence"]
    for one in rounds():
        shown["the_six_rounds"].set({"change": (one.change, *one.instead)[one.number % 4], "expected": "2000"})
        shown["the_six_rounds"].act("choose")
        _hold(shown)


def _hold(shown: Mapping[str, StepView]) -> None:
    """No panel says anything in English once all have answered."""
    found = _english(shown)
    assert found == set(), json.dumps(sorted(found), indent=1)


def _english(shown: Mapping[str, StepView]) -> set[str]:
    """What the panels of a page say in English once all have answered."""
    for view in shown.values():
        with suppress(PerfkitError):
            view.wait()
    found = {text for view in shown.values() for text in texts(view) if is_english(text)}
    return found | {text for view in shown.values() for text in heads(view) if is_english_head(text)}


OF_RUNS = ("10", "11", "12", "13", "14", "15", "16", "17", "20")
OPENED: Mapping[str, tuple[str, ...]] = {
    "data/traces/*/": OF_RUNS,
    "tests/data/traces/*/": OF_RUNS,
    "tests/data/traces/mindinsight/*/": OF_RUNS,
    "tests/data/traces/msprof_analyze/*/": OF_RUNS,
    "data/traces/logs/*.log": ("10", "01", "20"),
    "data/dryrun/*.log": ("10", "19"),
    "tests/data/traces/logs/*/": ("10", "01", "19", "20"),
    "tests/data/traces/logs/*/*.log": ("10", "01", "19", "20"),
    "tests/data/configs/**/*.yaml": ("02", "04", "23"),
    "data/case13b/*.yaml": ("02", "04", "23"),
    "tests/data/ir/**/*.ir": ("18",),
    "data/ir/*.ir": ("18",),
    "tests/data/plans/*plan*.json": ("06",),
    "data/plans/*stages*.json": ("06",),
}
"""What is opened, as a pattern below the repository, and on which pages."""
ROOT = Path(__file__).resolve().parents[1]


@pytest.mark.parametrize("pattern", OPENED)
def test_nor_does_a_page_with_anything_else_open(pattern: str, sent: dict[str, str]):
    """Recordings, logs, configurations, graphs and plans of all formats, each lacking something else, with rows chosen."""
    places = [place for place in sorted(ROOT.glob(pattern)) if place.is_dir() == pattern.endswith("/")]
    assert places
    found: dict[str, str] = {}
    for place in places:
        for name in (page for page in with_steps() if page.startswith(OPENED[pattern])):
            with suppress(InputError):  # one that a page cannot take is refused by its picker, or by the line of its code
                objects = opened_page(name, path=place)
                found |= dict.fromkeys(_english(views(objects)), f"{name} with {place.relative_to(ROOT)}")
                words_sent.choose_rows(words_sent.on_page(objects), most=2)
            found |= {text: f"{name} with {place.relative_to(ROOT)}, {where}" for text, where in _said_in_english(sent).items()}
            sent.clear()
    assert found == {}, json.dumps(found, indent=1, ensure_ascii=False)


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
