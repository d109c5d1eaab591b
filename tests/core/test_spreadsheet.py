"""No table that leaves perfkit holds a cell that a spreadsheet would run."""

from __future__ import annotations

import io

import pandas as pd
import pytest

from perfkit.core.spreadsheet import safe_cell, safe_frame

HOSTILE = ("=cmd|' /C calc'!A0", "+SUM(1)", "-2+3", "@now", "\t=1", "\r=1")


@pytest.mark.parametrize("text", HOSTILE)
def test_text_that_would_be_run_is_quoted(text: str):
    assert safe_cell(text) == f"'{text}"


@pytest.mark.parametrize("value", [-1, 2.5, None, "-1.5", "+3e4", "plain", "a=b", ""])
def test_numbers_and_plain_text_stay(value: object):
    assert safe_cell(value) == value


def test_a_frame_is_safe_in_cells_and_names_and_keeps_its_numbers():
    frame = pd.DataFrame({"=x": ["=1+1", "ok"], "loss": [-1.0, 2.0], "kind": pd.Categorical(["@a", "b"])})
    text = io.StringIO()
    safe_frame(frame).to_csv(text, index=False)
    assert text.getvalue() == "'=x,loss,kind\n'=1+1,-1.0,'@a\nok,2.0,b\n"
