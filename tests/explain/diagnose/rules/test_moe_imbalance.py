"""Experts with more tokens than others, and slow ranks that are none."""

import pytest

from perfkit.explain.diagnose import diagnose
from perfkit.explain.diagnose.rules import slow_rank
from perfkit.explain.diagnose.rules.moe_imbalance import RULE
from perfkit.record.format import Sink
from tests.explain.diagnose.made import Training, run_of


def judged(run, rules=(RULE,)):
    return diagnose(run, only=rules)


def experts(loads, factors=None):
    """Four ranks that compute one after another: products of equal size, and of experts that get loads."""
    sink = Sink()
    for rank, load in enumerate(loads):
        for step in (1, 2, 3):
            factor = (factors or {}).get(rank, 1.0)
            ops = ["MatMul", "GroupedMatmul"] * 4
            lengths = [round(factor * (400_000 if op == "MatMul" else 600_000 * load)) for op in ops]
            starts = [step * 20_000_000 + sum(lengths[:at]) for at in range(len(ops))]
            sink.add("kernels", rank=rank, step=step, name=ops, type=ops, kind="computing", start_ns=starts, duration_ns=lengths)
            sink.add("steps", rank=rank, step=step, duration_ns=20_000_000, computing_ns=sum(lengths), free_ns=0)
    return run_of(sink)


def test_equal_experts_are_healthy_with_their_numbers():
    result = judged(experts([1.0, 1.02, 0.98, 1.0]))
    assert result.findings == ()
    assert result.healthy[0].evidence["largest_expert_load_over_mean"] == pytest.approx(1.02, abs=0.01)


def test_the_rank_with_busy_experts_is_named_and_costs_what_is_over_the_mean():
    (found,) = judged(experts([2.0, 1.0, 1.0, 1.0])).findings
    assert found.subject["ranks"] == (0,)
    assert found.cost_ns == pytest.approx(4 * 600_000 * (2.0 - 1.25), rel=0.01)


def test_a_rank_that_is_slow_in_everything_has_no_busy_experts():
    assert judged(experts([1.0] * 4, {2: 1.5})).findings == ()


def test_busy_experts_are_told_instead_of_a_slow_rank():
    told = judged(experts([2.0, 1.0, 1.0, 1.0]), (RULE, slow_rank.RULE)).findings
    assert [finding.rule for finding in told] == [RULE.name]
    assert "slow-rank" in told[0].next


def test_a_model_without_experts_is_not_measured():
    assert judged(Training().run()).not_measured
