"""A page in Chinese shows no English sentence, whatever is open: recordings, logs, configurations, graphs, plans of any format."""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

import pytest

from perfkit.core.errors import InputError
from perfkit.project.sample import demo
from tests import words_sent
from tests.english import in_english, said_in_english
from tests.page_cells import opened_page, views, with_steps

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
MANY = 8
"""Of places: of more each is opened on half of the pages."""
ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return demo(tmp_path_factory.mktemp("chinese") / "demo").folder


@pytest.mark.parametrize("pattern", OPENED)
def test_a_page_with_anything_open_shows_no_english_sentence(pattern: str, project: Path, monkeypatch: pytest.MonkeyPatch):
    """Each lacks something else; with rows chosen."""
    monkeypatch.setenv("PERFKIT_LANGUAGE", "zh")
    monkeypatch.setenv("PERFKIT_PROJECT", str(project))
    sent = words_sent.record(monkeypatch)
    places = [place for place in sorted(ROOT.glob(pattern)) if place.is_dir() == pattern.endswith("/")]
    assert places
    found: dict[str, str] = {}
    names = [page for page in with_steps() if page.startswith(OPENED[pattern])]
    for number, place in enumerate(places):
        # Of many places each is opened on every other page: a page has half of them, and each kind of loss is in several.
        for name in names[number % 2 :: 2] if len(places) > MANY and len(names) > 1 else names:
            with suppress(InputError):  # one that a page cannot take is refused by its picker, or by the line of its code
                objects = opened_page(name, path=place)
                found |= dict.fromkeys(in_english(views(objects)), f"{name} with {place.relative_to(ROOT)}")
                words_sent.choose_rows(words_sent.on_page(objects), most=2)
            found |= {text: f"{name} with {place.relative_to(ROOT)}, {where}" for text, where in said_in_english(sent).items()}
            sent.clear()
    assert found == {}, json.dumps(found, indent=1, ensure_ascii=False)
