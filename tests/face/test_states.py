"""Nan, infinite, not measured and zero are four things, from a frame to the screen, its CSV, JSON and the terminal."""

from __future__ import annotations

import csv
import io
import json
import math

import numpy as np
import pandas as pd
import pytest

from perfkit.core import quantity
from perfkit.face.cli._answers import print_answer
from perfkit.face.widgets.table import Table, table_content

NAMES = ["loss", "duration_ns", "step_time_s", "peak_bytes", "bytes_per_s", "exposed_ratio", "mfu", "tokens_per_s_per_device"]
STATES = [math.nan, math.inf, -math.inf, None, 0.0, 0.25]


def frames(name: str) -> list[pd.DataFrame]:
    """The six states as a column that can hold them: of objects, and of the type of pandas that knows missing beside nan."""
    nullable = pd.arrays.FloatingArray(
        np.array([0.0 if value is None else value for value in STATES]), np.array([value is None for value in STATES])
    )
    return [pd.DataFrame({name: pd.Series(STATES, dtype=object)}), pd.DataFrame({name: nullable})]


def printed(frame: pd.DataFrame, form: str) -> str:
    out = io.StringIO()
    print_answer(frame, out, run="run", question="question", form=form, top=None)
    return out.getvalue()


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("kind", [0, 1], ids=["objects", "nullable"])
def test_the_states_stay_apart_on_every_surface(name: str, kind: int):
    frame = frames(name)[kind]
    column = table_content("t", Table(frame))["columns"][0]
    json.dumps(column, allow_nan=False)
    terminal = [" ".join(line.split()) for line in printed(frame, "text").splitlines()[1 : len(STATES) + 1]]
    document = [row[name] for row in json.loads(printed(frame, "json"))["rows"]]
    saved = [row[0] if row else "" for row in csv.reader(io.StringIO(printed(frame, "csv")))][1:]
    for shown in (column["text"], column["values"], terminal, document, saved):
        assert len({str(value) for value in shown}) == len(STATES), shown
    assert column["text"][:4] == ["nan", "inf", "-inf", "–"]
    assert column["values"][:5] == ["nan", "inf", "-inf", None, 0]
    assert document[:5] == ["nan", "inf", "-inf", None, 0]
    assert [text.split()[0] for text in terminal[:5]] == ["nan", "inf", "-inf", "-", "0"]
    assert [text.lower() for text in saved[:4]] == ["nan", "inf", "-inf", ""]


def test_a_column_of_floats_has_nothing_where_pandas_has_nan():
    column = table_content("t", Table(pd.DataFrame({"duration_ns": [1.5e6, math.nan, math.inf]})))["columns"][0]
    assert column["values"] == [1.5, None, "inf"]


@pytest.mark.parametrize("name", NAMES)
def test_one_value_alone_says_which_it_is(name: str):
    texts = [quantity.text(name, value) for value in STATES]
    assert len(set(texts)) == len(STATES)
    assert texts[3] == quantity.NOT_MEASURED
