"""The interval of a predicted peak lies where the peak ends that must fit: with its gaps."""

import pytest

from perfkit.core.units import GIB
from perfkit.face.charts.dryrun import rank_bar_rows


def bar(**sizes: int | None) -> dict:
    return {"label": "rank 1", "predicted": True, "headroom_bytes": None, "actual_bytes": None, **sizes}


@pytest.mark.parametrize("actual", [None, 54 * GIB, 60 * GIB])
def test_the_interval_holds_the_end_of_its_bar_and_is_as_wide_for_its_size_as_without_gaps(actual: int | None):
    rows = rank_bar_rows([bar(used_bytes=54 * GIB, actual_bytes=actual, low_bytes=53 * GIB, high_bytes=56 * GIB)], None)["ranks"]
    end = max(row["end"] for row in rows)
    (low, high), *others = [(row["low"], row["high"]) for row in rows]
    assert low < end < high
    assert (low / end, high / end) == pytest.approx((53 / 54, 56 / 54))
    assert others in ([], [(None, None)])


def test_a_logged_peak_has_no_interval():
    rows = rank_bar_rows([bar(predicted=False, used_bytes=54 * GIB, low_bytes=None, high_bytes=None)], None)["ranks"]
    assert [(row["low"], row["high"]) for row in rows] == [(None, None)]
