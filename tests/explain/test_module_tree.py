"""Time by module: own times are what is left of a module without those inside, and never less than nothing."""

from __future__ import annotations

import numpy as np
import pytest

from perfkit.explain.module_tree import module_tree
from perfkit.record.format import Sink
from tests.explain.diagnose.made import run_of


@pytest.mark.parametrize("seed", range(5))
def test_own_times_sum_to_those_of_the_outermost_modules_also_where_inner_ones_outlive_them(seed: int):
    random = np.random.default_rng(seed)
    starts, lengths = random.integers(0, 1000, 60), random.integers(1, 300, 60)
    names = [f"nn.Module: M_{at}" for at in range(60)]
    sink = Sink()
    sink.add("host", rank=0, name=names, kind="python", thread="1", start_ns=starts, duration_ns=lengths)
    sink.add("kernels", rank=0, step=0, name="k", kind="computing", start_ns=[1], duration_ns=1)
    tree = module_tree(run_of(sink), 0)
    assert (tree["own_host_ns"] >= 0).all()
    assert tree["own_host_ns"].sum() == tree.loc[tree["depth"] == 0, "host_ns"].sum()
