"""What two causes name is gone once: time that both remove is counted to the larger share, at most all of it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from perfkit.explain.diagnose import _moments_order, work
from perfkit.explain.diagnose.case import Case
from perfkit.predict.simulate import simulate
from tests.predict.simulate.plans import TINY

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


@pytest.mark.parametrize(("data", "tensor", "pipeline"), [(2, 1, 1), (1, 2, 1), (1, 1, 2), (1, 2, 2)])
def test_shorter_kernels_of_a_simulated_run_win_what_a_simulation_with_shorter_ones_takes_less(data, tensor, pipeline):
    """Kernels of rank 1 that take 1.5 times as long: a third less of them is the run without that."""
    sizes = {"data_parallel_size": data, "tensor_parallel_size": tensor, "pipeline_parallel_size": pipeline}
    plan = replace(TINY, parallel=replace(TINY.parallel, **sizes))
    slow, usual = (Case(simulate(plan, faults, seed=3, steps=3)) for faults in (("slow_rank:1:1.5",), ()))
    mine = slow.computing[(slow.computing["rank"] == 1).to_numpy(dtype=bool)]
    assert work.won_ns(slow, mine, fraction=1 / 3) == pytest.approx(slow.step_ns - usual.step_ns, rel=0.15)
