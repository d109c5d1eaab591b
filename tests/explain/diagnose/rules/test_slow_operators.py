"""Operators that became slow, by a baseline or among their own kind."""

from dataclasses import replace

import numpy as np
import pytest

from perfkit.explain.diagnose.rules.slow_operators import RULE
from tests.explain.diagnose.made import Training, healthy, judged, launched, stays_healthy, won_ns


def test_an_operator_slower_than_in_the_baseline_is_named_on_all_ranks():
    run = Training(slow={"MatMul": 1.3}).run()
    (found,) = judged(RULE, run, healthy()).findings
    assert found.subject["operators"] == ("MatMul",)
    assert found.evidence["largest_ratio_to_baseline"] == pytest.approx(1.3, rel=0.02)
    assert found.cost_ns == pytest.approx(won_ns(run), rel=0.15)


def test_an_equal_baseline_shows_nothing_and_a_faster_run_neither():
    assert judged(RULE, healthy(), healthy()).findings == ()
    assert judged(RULE, healthy(), Training(slow={"MatMul": 1.3}).run()).findings == ()


def test_executions_that_differ_in_the_shapes_that_the_host_states_are_not_equal():
    run = Training(ranks=1, steps=3, layers=60).run()
    rows = run.frame("kernels")
    large = rows.index.isin(rows.index[rows["name"].astype(str) == "Norm"][::60])
    rows["duration_ns"] = rows["duration_ns"].where(~large, rows["duration_ns"] * 40)
    slow = replace(run, tables={**run.tables, "kernels": rows})
    assert judged(RULE, slow).findings
    sizes = np.where(large, "8192,8192", "64")[(rows["kind"] == "computing").to_numpy()]
    assert stays_healthy(RULE, launched(slow, sizes.tolist()))["outliers_share"] == 0
    assert judged(RULE, launched(slow, ["64"] * len(sizes))).findings
