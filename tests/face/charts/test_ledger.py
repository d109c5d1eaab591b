"""The waterfall of a ledger: bars that follow one another and end with the step."""

from __future__ import annotations

import itertools

import pytest

from perfkit.explain.ledger import ledger
from perfkit.face.charts.ledger import sentence, waterfall, waterfall_rows
from tests.explain.diagnose.made import Training


def test_bars_follow_one_another_and_end_with_the_step():
    found = ledger(Training(factors={1: 1.2}).run())
    table = found.waterfall()
    rows = waterfall_rows(table)
    assert rows[0]["from_ms"] == 0
    for above, below in itertools.pairwise(rows):
        assert below["from_ms"] == above["to_ms"]
    assert rows[-1]["to_ms"] == pytest.approx(table["ns"].sum() / 1e6)
    assert waterfall({"ledger": rows}).to_dict()["layer"]


def test_what_is_not_known_is_said():
    assert sentence(0.987) == "Explained 98.7 %, unexplained 1.30 % of all steps."
    assert sentence(None) == "No step was recorded."
