"""Groups keep their rows in order, in memory or in a file."""

from __future__ import annotations

import tempfile

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from perfkit.record.tiles._scatter import Scatter

pieces = st.lists(st.lists(st.tuples(st.integers(0, 3), st.integers(-(2**63), 2**63 - 1)), min_size=1, max_size=9), max_size=9)


def added(scatter: Scatter, content: list[list[tuple[int, int]]]) -> Scatter:
    none = np.array([], dtype=np.int64)
    scatter.add(none, [none, none])
    for piece in content:
        groups, values = (np.array(column, dtype=np.int64) for column in zip(*piece, strict=True))
        scatter.add(groups, [values, groups])
    return scatter


@pytest.mark.parametrize("limit", ["1GiB", "1KiB"])
@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(content=pieces)
def test_every_group_has_its_rows_in_the_order_in_which_they_came(monkeypatch: pytest.MonkeyPatch, limit: str, content):
    monkeypatch.setenv("PERFKIT_MEMORY_LIMIT", limit)
    scatter = added(Scatter(2), content)
    for group in range(5):
        for _ in range(2):
            pieces = [np.zeros((2, 0), dtype=np.int64), *scatter.pieces(group)]
            values, groups = np.concatenate(pieces, axis=1)
            assert values.tolist() == [value for piece in content for own, value in piece if own == group]
            assert (groups == group).all()
    assert scatter.groups() == sorted({own for piece in content for own, _ in piece})


def test_without_a_disk_the_rows_stay_in_memory(monkeypatch: pytest.MonkeyPatch):
    def full(**_: object) -> None:
        raise OSError("no space left on device")

    monkeypatch.setenv("PERFKIT_MEMORY_LIMIT", "1KiB")
    monkeypatch.setattr(tempfile, "TemporaryFile", full)
    scatter = added(Scatter(2), [[(1, at) for at in range(100)]] * 3)
    assert [value for piece in scatter.pieces(1) for value in piece[0].tolist()] == list(range(100)) * 3
