"""The waterfall of a ledger: bars that follow one another and end with the step."""

from __future__ import annotations

import itertools

import pytest

from perfkit.core.units import format_ratio
from perfkit.explain.ledger import ledger
from perfkit.face.charts.ledger import waterfall, waterfall_rows
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
    found = ledger(Training(factors={1: 1.2}).run())
    assert found.told().endswith("of all steps.")
    assert format_ratio(found.explained_share) in found.told()
    assert found.of(ranks=()).told() == "No step was recorded."
