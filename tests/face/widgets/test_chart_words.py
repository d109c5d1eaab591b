"""Words of charts in the language of the page: titles, ticks and legends, while rows and structure stay those of the code."""

from __future__ import annotations

import json

import altair as alt
import pandas as pd
import pytest

from perfkit.core.texts import PATH_LABELS, path_words, t
from perfkit.face.charts import steps
from perfkit.face.charts.spec import split
from perfkit.face.widgets._chart_words import in_words


@pytest.fixture
def bars():
    parts = pd.DataFrame({"rank": ["0", "0"], "path": ["computing", "communication/exposed"], "amount_ms": [1.0, 2.0]})
    return split(steps.rank_bars(parts.assign(step="1", share=0.5, order=[0, 1]), unit="ms"))


def test_in_the_language_of_the_code_a_chart_without_paths_stays_as_it_is(monkeypatch):
    monkeypatch.setenv("PERFKIT_LANGUAGE", "en")
    rows = pd.DataFrame({"path": ["computing", "free"], "file": ["computing/forward", "a/b"], "ms": [1.0, 2.0]})
    plain = split(alt.Chart(rows).mark_bar().encode(x="ms:Q", y="path:N"))
    assert in_words(plain) is plain


def test_paths_of_parts_are_read_as_words_and_the_rows_and_all_else_stay(bars, monkeypatch):
    monkeypatch.setenv("PERFKIT_LANGUAGE", "en")
    read = in_words(bars)
    assert read.words == {"communication/exposed": "exposed communication"}
    assert read.spec["encoding"]["color"]["legend"]["labelExpr"] == PATH_LABELS
    assert "labelExpr" not in json.dumps(read.spec["encoding"]["y"])
    assert (read.datasets, read.headers, read.heads) == (bars.datasets, bars.headers, bars.heads)
    parts = pd.DataFrame(
        {"rank": ["0"], "path": ["computing/forward_backward"], "amount_ms": [1.0], "step": "1", "share": 0.5, "order": 0}
    )
    assert in_words(split(steps.rank_bars(parts, unit="ms"))).words == {
        "computing/forward_backward": "computing · forward backward"
    }


@pytest.mark.parametrize("text", ["computing", "a/b", "/static/app.js", "static/app.js", "samples/s", "computing/<img src=x>", ""])
def test_what_is_no_path_of_parts_stays(text):
    assert path_words(text) == text


def test_titles_ticks_and_legends_are_told_and_the_rows_are_not(bars, monkeypatch):
    monkeypatch.setenv("PERFKIT_LANGUAGE", "zh")
    told = in_words(bars)
    encoding = told.spec["encoding"]
    assert encoding["x"]["title"] == f"{t('time of the step', 'zh')} (ms)" != "time of the step (ms)"
    legend = encoding["color"]["legend"]["labelExpr"]
    assert f'"communication/exposed": "{t("communication/exposed", "zh")}"' in legend
    assert legend.endswith("[datum.label] || datum.label")
    assert told.datasets == bars.datasets
    assert told.headers == bars.headers
    assert told.digest != bars.digest
    assert bars.spec["encoding"]["x"]["title"] == "time of the step (ms)"


def test_marks_tooltips_and_the_table_of_a_chart_say_its_rows_in_the_language_of_the_page(monkeypatch):
    monkeypatch.setenv("PERFKIT_LANGUAGE", "zh")
    rows = pd.DataFrame({"cause": ["computing"], "wait_ms": [1.5]})
    chart = alt.Chart(rows).mark_text().encode(x="wait_ms:Q", text="cause:N", tooltip=["cause:N"])
    told = in_words(split(chart))
    chinese = t("computing", "zh")
    assert told.words == {"computing": chinese} != {"computing": "computing"}
    assert told.spec["encoding"]["text"]["value"]["expr"] == f'({{"computing": "{chinese}"}})[datum["cause"]] || datum["cause"]'
    assert told.heads.keys() == {"cause", "wait_ms"}
    assert told.heads["wait_ms"].endswith(" (ms)")


def test_names_of_somebody_else_and_legends_that_are_not_drawn_stay(monkeypatch):
    monkeypatch.setenv("PERFKIT_LANGUAGE", "zh")
    assert t("Copy", "zh") != "Copy"
    rows = pd.DataFrame({"name": ["Copy", "Open"], "label": ["Copy", "Open"], "total": [1, 2]})
    chart = alt.Chart(rows).mark_bar().encode(x="total:Q", y="label:N", color=alt.Color("name:N", legend=None))
    told = in_words(split(chart))
    assert "labelExpr" not in str(told.spec)
    assert told.spec["encoding"]["color"]["legend"] is None


def test_words_that_change_make_another_chart(bars, monkeypatch):
    monkeypatch.setenv("PERFKIT_LANGUAGE", "zh")
    other = split(
        steps.rank_bars(
            pd.DataFrame({"rank": ["0"], "path": ["bubble"], "amount_ms": [1.0], "step": "1", "share": 1.0, "order": 0}), unit="ms"
        )
    )
    assert in_words(bars).digest == in_words(bars).digest
    assert in_words(bars).digest != in_words(other).digest
