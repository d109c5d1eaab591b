"""Recomputation with memory to spare."""

from dataclasses import replace

import pytest

from perfkit.core.spec.memory_limit import MemoryLimit
from perfkit.core.spec.recompute import RecomputePlan
from perfkit.explain.diagnose.rules.recompute_with_headroom import RULE
from perfkit.predict.simulate import simulate
from tests.explain.diagnose.made import Training, added, healthy, judged, lacks, stays_healthy
from tests.predict.simulate.plans import plan_of

AGAIN = Training(recompute=True).run()


def report(run, peak_gib, budget_gib=58):
    row = {
        "rank": 0,
        "block": 0,
        "file": "log",
        "line": 1,
        "actual_peak_bytes": peak_gib * 2**30,
        "budget_bytes": budget_gib * 2**30,
    }
    return added(run, memory_reports=[row])


def test_recomputing_with_memory_to_spare_is_named_with_the_room_and_the_gain():
    (found,) = judged(RULE, report(AGAIN, 29)).findings
    assert found.evidence["headroom_bytes"] == 29 * 2**30
    assert found.evidence["layers_recomputed_ratio"] == 1.0
    assert found.evidence["recompute_cost_ns"] > 0
    assert found.cost_ns is None, "its time is that of recompute-cost"


def test_a_full_memory_and_a_run_that_recomputes_nothing_are_fine():
    assert stays_healthy(RULE, report(AGAIN, 57))["peak_over_limit"] == pytest.approx(57 / 58)
    stays_healthy(RULE, report(healthy(), 29))


def test_what_the_plan_recomputes_is_as_planned():
    plan = plan_of("gpt-7.5b", 8, dp=2, recompute=True)
    plan = replace(plan, model=replace(plan.model, num_layers=2))
    assert stays_healthy(RULE, simulate(plan, steps=2))["peak_over_limit"] < 0.9
    unplanned = replace(plan, recompute=RecomputePlan())
    assert judged(RULE, simulate(unplanned, ["full_recompute"], steps=2)).findings


def test_without_a_limit_it_is_not_measured():
    assert lacks(RULE, AGAIN) == "the peak of memory and what may be used"


def test_what_may_be_used_is_the_limit_of_the_plan_where_one_is_known():
    plan = plan_of("gpt-7.5b", 8, dp=2, recompute=True)
    plan = replace(plan, model=replace(plan.model, num_layers=2))
    for share in (0.5, 1.0):
        limit = MemoryLimit(limit_bytes=int(share * plan.hardware.memory_bytes), part="device", source="asked")
        evidence = stays_healthy(RULE, simulate(replace(plan, memory_limit=limit), steps=2))
        assert evidence["limit_bytes"] == share * plan.hardware.memory_bytes
