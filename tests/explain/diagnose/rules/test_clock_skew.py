"""Clocks that differ cost nothing, and are told."""

from dataclasses import replace

import pytest

from perfkit.core.clock import jumps
from perfkit.explain.diagnose import diagnose
from perfkit.explain.diagnose.rules.clock_skew import RULE
from tests.explain.diagnose.made import Training, judged


def test_a_clock_that_is_ahead_is_named_and_makes_no_rank_slow():
    run = Training(skew_us={2: 500.0}).run()
    (found,) = judged(RULE, run).findings
    assert found.subject["ranks"] == (2,)
    assert found.cost_ns is None
    assert found.severity == "low"
    assert found.evidence["largest_offset_ns"] == pytest.approx(500_000, rel=0.01)
    assert [other.rule for other in diagnose(run).findings] == ["clock-skew"]


@pytest.mark.parametrize("jump_ms", [50, -30, 5])
def test_a_clock_that_is_set_while_it_is_recorded_is_said_with_its_step(jump_ms: int):
    run = Training(ranks=4, steps=8).run()
    moment = run.frame("kernels").query("rank == 1 and step == 5")["start_ns"].median()
    tables = dict(run.tables)
    for name in ("kernels", "collectives"):
        rows = tables[name]
        late = (rows["rank"] == 1) & (rows["start_ns"] >= moment)
        tables[name] = rows.assign(start_ns=rows["start_ns"] + late.astype("int64") * jump_ms * 1_000_000)
    (finding,) = diagnose(replace(run, tables=tables), only=[RULE]).findings
    assert (finding.subject["ranks"], finding.subject["steps"]) == ((1,), (5,))
    assert finding.evidence["jump_ns"] == pytest.approx(jump_ms * 1e6, rel=0.01)
    assert jumps(run) == []


def test_a_clock_that_drifts_does_not_jump():
    run = Training(ranks=4, steps=8).run()
    rows = run.tables["collectives"]
    drifting = rows["start_ns"] + (rows["rank"] == 1).astype("int64") * (rows["start_ns"] // 10_000)
    assert jumps(replace(run, tables={**run.tables, "collectives": rows.assign(start_ns=drifting)})) == []
