"""What a page shows is what its CSV holds: a chart has the rows that it draws, a table's cells are its values in its unit."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import nbformat
import pytest

from perfkit.core.errors import PerfkitError
from perfkit.face.widgets.page_state import page_state
from perfkit.face.widgets.panel import PanelView
from perfkit.project.sample import demo
from tests import notebook_format

PAGES = [
    path for path in notebook_format.pages() if path.stem not in ("14_timeline", "40_class")
]  # views of their own; names first
HALF_A_DIGIT = 0.006
"""Three significant digits are within 0.5 % of the value."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return demo(tmp_path_factory.mktemp("project") / "d").folder


@pytest.fixture
def answered(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Runs the cells of a page here and gives its views that have an answer."""
    monkeypatch.setenv("PERFKIT_PROJECT", str(folder))
    monkeypatch.setenv("PERFKIT_WAIT_FOR_PANELS", "1")
    made: list[PanelView] = []
    begin = PanelView.__init__

    def noted(view: PanelView, *arguments: Any, **named: Any) -> None:
        made.append(view)
        begin(view, *arguments, **named)

    monkeypatch.setattr(PanelView, "__init__", noted)

    def run(page: Path) -> list[PanelView]:
        page_state.cache_clear()
        space: dict[str, Any] = {}
        for cell in nbformat.read(page, as_version=4).cells:
            if cell.cell_type == "code":
                exec(cell.source, space)
        found = []
        for view in made:
            try:
                view.wait()
            except PerfkitError:
                continue
            found.append(view)
        return found

    return run


def number(text: str) -> float | None:
    """The number that a cell shows; None if it is no plain number."""
    try:
        return float(text.replace("\u2009", "").replace("\u202f", "").replace(" ", "").replace("−", "-"))
    except ValueError:
        return None


@pytest.mark.slow
@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.stem)
def test_what_a_page_shows_is_what_its_files_hold(path: Path, answered: Any):
    views = answered(path)
    assert views
    for view in views:
        for chart in view.frame["charts"]:
            sets = view.data["datasets"][chart["name"]]
            rows = sets[chart.get("table") or next(iter(sets))]
            assert {len(column) for column in rows.values()} not in (set(), {0}), (view.name, chart["name"], "has an empty CSV")
        for table in view.details["tables"]:
            for column in table["columns"]:
                where = (view.name, table["name"], column["label"])
                assert len(column["text"]) == len(column["values"]), where
                for text, value in zip(column["text"], column["values"], strict=True):
                    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
                        continue
                    if text.startswith(("< ", "> ")):  # a share that nobody reads
                        least = number(text[2:])
                        assert least is not None, (*where, text)
                        assert 0 < value / least < 1, (*where, text, value)
                        continue
                    shown = number(text)
                    assert shown is not None, (*where, text, value)
                    assert shown == pytest.approx(value, rel=HALF_A_DIGIT, abs=1e-9), (*where, text, value)
