"""The room of a table beside its charts: known before the charts are drawn, steady while numbers change."""

from __future__ import annotations

from typing import Any

import altair as alt
import pandas as pd
import pytest

from perfkit.core.texts import told
from perfkit.face import widgets
from perfkit.face.widgets._beside import LEAST_ROWS, MOST_CH, MOST_COLUMNS, Beside
from perfkit.face.widgets.chart import Figure
from perfkit.face.widgets.panel import Panel, PanelView
from perfkit.face.widgets.table import Table

BARS = alt.Chart(pd.DataFrame({"x": [1]})).mark_bar().encode(x="x:Q")
CHARTS = {"chart": Figure(chart=BARS)}


def _frame(rows: int = LEAST_ROWS, **columns: Any) -> pd.DataFrame:
    return pd.DataFrame({"part": ["computing/forward"] * rows, "duration_ns": [1_200_000] * rows} | columns)


def test_the_widest_line_of_each_column_has_room() -> None:
    frame = _frame()
    short, long = (
        Beside().room_ch(CHARTS, {"t": frame}),
        Beside().room_ch(CHARTS, {"t": frame.assign(part="computing/forward/matmul")}),
    )
    assert len("computing/forward") + len("duration ms") < short < MOST_CH
    assert long - short == len(" · matmul")


def test_words_of_the_language_are_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    table = Table(frame=_frame(part=["-"] * LEAST_ROWS), labels={"part": "Where the parameters are"})
    english = Beside().room_ch(CHARTS, {"t": table})
    monkeypatch.setenv("PERFKIT_LANGUAGE", "zh")
    heading = told(table.labels["part"])
    assert heading != table.labels["part"]
    assert Beside().room_ch(CHARTS, {"t": table}) < english


@pytest.mark.parametrize(
    "tables",
    [
        {},
        {"one": _frame(), "other": _frame()},
        {"tiles": Table(frame=_frame(), look="tiles")},
        {"wide": _frame(**{f"column of a long name {at}": "a long word" for at in range(MOST_COLUMNS - 2)})},
        {"many": _frame(**{str(at): at for at in range(MOST_COLUMNS)})},
        lambda: {"later": _frame()},
    ],
)
def test_what_does_not_fit_stands_below(tables: Any) -> None:
    assert Beside().room_ch(CHARTS, tables) == 0


def test_a_short_table_stands_beside_one_chart_and_below_several() -> None:
    short = {"short": _frame(rows=LEAST_ROWS - 1)}
    assert Beside().room_ch(CHARTS, short) > 0
    assert Beside().room_ch(CHARTS | {"another": Figure(chart=BARS)}, short) == 0


def test_beside_a_chart_that_is_narrow_itself_there_is_room_for_a_short_one() -> None:
    narrow = {"chart": Figure(chart=BARS.properties(width={"step": 64}))}
    assert Beside().room_ch(narrow, {"short": _frame(rows=1)}) > 0
    assert Beside().room_ch(narrow | CHARTS, {"short": _frame(rows=1)}) == 0


def test_a_table_alone_has_the_line_to_itself() -> None:
    assert Beside().room_ch({}, {"t": _frame()}) == 0


def test_the_room_stays_while_numbers_change_and_is_told_with_the_charts() -> None:
    def answer(result: int) -> tuple[Any, ...]:
        return CHARTS, {"t": _frame(duration_ns=[result] * LEAST_ROWS)}, ""

    view = PanelView(Panel(start={"size": 1}, compute=lambda state: 10 ** state["size"], view=answer, shared=("size",)))
    view.wait()
    first = view.frame
    view.set({"size": 12})
    view.wait()
    assert view.frame == first
    assert first["beside_ch"] > 0
    assert view.data["version"] == 2


def test_what_a_step_returns_stands_beside_its_chart_from_the_first_answer_on() -> None:
    @widgets.step(n=widgets.Slider(1, 9, default=LEAST_ROWS))
    def by_part(n: int) -> Any:
        return BARS, _frame(rows=n)

    by_part.wait()
    room_ch = by_part.view.frame["beside_ch"]
    assert room_ch == Beside().room_ch(CHARTS, {"table": _frame()}) > 0
    by_part.set(n=LEAST_ROWS + 1)
    by_part.wait()
    assert by_part.view.frame["beside_ch"] == room_ch
