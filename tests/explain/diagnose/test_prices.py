"""Prices: joint, shared among findings, and never above what is possible."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest

from perfkit.explain.diagnose import diagnose
from perfkit.explain.diagnose._prices import bounded
from perfkit.explain.diagnose.case import Case
from perfkit.explain.diagnose.rule import Finding, Loss
from perfkit.explain.diagnose.rules import data_feed, slow_rank
from perfkit.explain.diagnose.work import loss, price
from perfkit.record.load import load
from tests.explain.diagnose.made import Training, assert_possible

TRACES = Path(__file__).resolve().parents[2] / "data/traces"


def test_no_price_of_a_recording_that_no_other_test_judges_is_above_what_is_possible():
    run = load(TRACES / "kineto_h100/recompute.json.gz")
    found = diagnose(run)
    assert found.failed == ()
    assert_possible(found, Case(run))


def test_ranks_that_are_slow_together_are_priced_together():
    """Alone none of them wins anything: the others still hold up the step."""
    slow = {1: 1.12, 3: 1.12, 6: 1.12}
    run, fast = Training(ranks=8, factors=slow).run(), Training(ranks=8).run()
    found = diagnose(run, only=(slow_rank.RULE,)).findings
    assert {rank for finding in found for rank in finding.subject["ranks"]} == set(slow)
    lost = run.steps().groupby("step")["duration_ns"].max().mean() - fast.steps().groupby("step")["duration_ns"].max().mean()
    assert sum(finding.cost_ns or 0 for finding in found) == pytest.approx(lost, rel=0.15)
    assert {finding.severity for finding in found} <= {"high", "medium"}
    costs = [finding.cost_ns or 0 for finding in found]
    assert max(costs) <= 1.5 * min(costs)


@pytest.mark.parametrize("lead_us", [1_500, 2_500])
def test_causes_on_two_ranks_that_hide_each_other_are_both_told_with_what_they_win_together(lead_us: int):
    """While one rank computes longer, input that comes late to another wins nothing alone."""
    causes = {"factors": {2: 1.3}, "lead_us": {1: lead_us}}
    runs = [Training(**given).run() for given in ({}, *({name: value} for name, value in causes.items()), causes)]
    usual, *_, both = (float(run.steps().groupby("step")["duration_ns"].max().mean()) for run in runs)
    found = {finding.rule: finding for finding in diagnose(runs[-1], only=(slow_rank.RULE, data_feed.RULE)).findings}
    assert set(found) == {"slow-rank", "data-feed"}
    assert (found["slow-rank"].subject["ranks"], found["data-feed"].subject["ranks"]) == ((2,), (1,))
    assert sum(finding.cost_ns or 0 for finding in found.values()) == pytest.approx(both - usual, rel=0.15)


def test_what_two_causes_name_is_gone_once():
    case = Case(Training(ranks=4, factors={2: 1.2}).run())
    kernels = case.computing[case.computing["rank"] == 2][["rank", "start_ns", "duration_ns"]]
    one = Loss(kernels.assign(fraction=1 / 6))
    half = Loss(kernels.assign(fraction=1 / 12))
    assert price(case, [half, half]) == pytest.approx(price(case, [one]), rel=1e-6)
    assert price(case, [one]) > 0
    whole = Loss(kernels.assign(fraction=1.0))
    assert price(case, [whole, whole]) == price(case, [whole])


def test_two_streams_that_compute_at_once_pass_no_time_twice():
    case = Case(Training(ranks=4, factors={2: 1.2}).run())
    kernels = case.computing[case.computing["rank"] == 2]
    beside = kernels.assign(start_ns=kernels["start_ns"] + kernels["duration_ns"] // 2, duration_ns=kernels["duration_ns"] // 2)
    found = price(case, [loss(pd.concat([kernels, beside], ignore_index=True), fraction=1 / 6)])
    assert found == price(case, [loss(kernels, fraction=1 / 6)]) > 0


def test_a_price_above_its_bound_is_refused():
    case = Case(Training(ranks=4).run())
    asked = Finding(
        rule="exposed-communication",
        title="all of it",
        subject={},
        evidence={},
        actions=(),
        cost_ns=10 * (case.step_ns or 0),
        part="communication",
    )
    found = bounded(asked, case)
    assert found.cost_ns == found.evidence["bound_ns"] < (case.step_ns or 0)
    assert found.evidence["cost_refused_ns"] == asked.cost_ns


def test_losses_are_empty_without_any_time():
    case = Case(Training(ranks=4).run())
    nothing = pd.DataFrame({"rank": [], "start_ns": [], "duration_ns": [], "fraction": []}).astype("int64")
    assert price(case, [Loss(nothing), Loss(nothing)]) == 0
