"""What two causes name is gone once: time that both remove is counted to the larger share, at most all of it."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from perfkit.explain.diagnose import _moments_order

spans = st.lists(
    st.tuples(st.integers(0, 2), st.integers(0, 30), st.integers(0, 12), st.sampled_from([0.1, 0.5, 0.75, 1.0])),
    min_size=1,
    max_size=12,
)


@given(spans)
def test_each_moment_of_a_rank_loses_what_all_that_name_it_remove_and_at_most_all(rows):
    frame = pd.DataFrame(rows, columns=["rank", "start_ns", "duration_ns", "fraction"])
    removed = np.zeros((3, 60))
    for rank, start, length, fraction in rows:
        removed[rank, start : start + length] += fraction
    once = _moments_order.once(frame)
    found = np.zeros((3, 60))
    for row in once.itertuples():
        assert row.duration_ns > 0
        found[row.rank, row.start_ns : row.start_ns + row.duration_ns] += row.fraction
    assert found == pytest.approx(np.minimum(removed, 1.0), abs=1e-8)
