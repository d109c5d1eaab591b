"""Regressions beside a baseline: host, feed, transfer and waiting apart, on all ranks or on some."""

from __future__ import annotations

from dataclasses import replace

import pandas as pd
import pytest

from perfkit.core.run import Run
from perfkit.explain.diagnose import diagnose
from perfkit.explain.diagnose.rule import Finding
from perfkit.explain.diagnose.rules.slower_than_before import RULE
from perfkit.explain.ledger import growth
from perfkit.predict.simulate import simulate
from tests.explain.diagnose.made import Training, summaries
from tests.predict.simulate.plans import plan_of


def simulated(*faults: str) -> Run:
    plan = plan_of("gpt-7.5b", 32, dp=4)
    return simulate(replace(plan, model=replace(plan.model, num_layers=4)), faults=faults, steps=3, seed=2)


def found(fault: str) -> tuple[tuple[Finding, ...], float]:
    now, then = simulated(fault), simulated()
    lost = now.steps()["duration_ns"].mean() - then.steps()["duration_ns"].mean()
    result = diagnose(now, then, only=(RULE,))
    assert result.failed == ()
    return result.findings, lost


@pytest.mark.parametrize(
    ("fault", "cause", "ranks"),
    [
        ("slow_link:1-2:4", "transfer/", (0, 1, 2, 3)),
        ("host_bound:all:8", "host/launching", (0, 1, 2, 3)),
        ("data_stall:2:60", "feed", (2,)),
    ],
)
def test_what_grew_is_named_with_its_cost_its_cause_and_its_ranks(fault: str, cause: str, ranks: tuple[int, ...]):
    findings, lost = found(fault)
    assert findings[0].subject["causes"][0].startswith(cause)
    assert findings[0].subject["ranks"] == ranks
    assert sum(finding.cost_ns or 0 for finding in findings) == pytest.approx(lost, rel=0.15)


def test_the_same_run_again_is_healthy():
    result = diagnose(simulated(), simulated(), only=(RULE,))
    assert result.findings == ()
    assert result.healthy[0].rule == RULE.name


def test_without_kernels_computing_and_communication_are_compared():
    then, now = summaries({0: 100, 1: 100}, step_ms=120.0), summaries({0: 100, 1: 100}, step_ms=150.0)
    findings = diagnose(now, then, only=(RULE,)).findings
    assert [finding.part for finding in findings] == ["communication"]
    assert findings[0].cost_ns == 30_000_000


@pytest.mark.parametrize(("step_ms", "told"), [(101.5, 0), (104.0, 1)])
def test_what_doubled_and_is_still_small_in_the_step_is_not_told(step_ms: float, told: int):
    then, now = summaries({0: 100, 1: 100}, step_ms=100.5), summaries({0: 100, 1: 100}, step_ms=step_ms)
    assert len(diagnose(now, then, only=(RULE,)).findings) == told


def hosts_of(run: Run, *ranks: int) -> Run:
    tables = {name: run.tables[name] for name in ("host", "launches")}
    kept = {name: frame[frame["rank"].isin(ranks).to_numpy(dtype=bool)] for name, frame in tables.items()}
    return replace(run, tables={**run.tables, **kept})


@pytest.mark.parametrize(("then_read", "now_read"), [((0, 1, 2, 3), ()), ((), (0, 1, 2, 3)), ((0, 2), (1, 2))])
def test_hosts_that_only_one_of_both_recordings_tells_of_are_not_blamed(then_read: tuple[int, ...], now_read: tuple[int, ...]):
    then = hosts_of(simulated("host_bound:all:8"), *then_read)
    now = hosts_of(simulated("host_bound:all:8", "slow_rank:1:1.5"), *now_read)
    assert [finding for finding in diagnose(now, then, only=(RULE,)).findings if finding.part == "free"] == []
    longer = hosts_of(simulated("host_bound:all:16"), *now_read)
    titles = [finding.title for finding in diagnose(longer, then, only=(RULE,)).findings if finding.part == "free"]
    assert any("does nothing" in title for title in titles)


def test_without_an_earlier_run_there_is_nothing_to_compare():
    result = diagnose(simulated(), only=(RULE,))
    assert result.not_measured[0].rule == RULE.name


@pytest.mark.parametrize(
    ("late", "transfer_us", "causes"), [(True, 300, {"feed"}), (False, 300, {"transfer"}), (True, 600, {"feed", "transfer"})]
)
def test_transfers_that_only_lie_bare_are_a_regression_where_nothing_else_is(
    monkeypatch: pytest.MonkeyPatch, late: bool, transfer_us: float, causes: set[str]
):
    """Data move with nothing else beside a late rank, though they move as long as before; or longer, which is its own."""
    grown = [{"rank": rank, "kind": growth.TRANSFER, "then_ns": 1e6, "now_ns": 1.5e6, "cause": "transfer"} for rank in range(4)]
    if late:
        grown.append({"rank": 1, "kind": growth.FEED, "then_ns": 0.0, "now_ns": 3e6, "cause": "feed"})
    table = pd.DataFrame(grown)
    monkeypatch.setattr(growth, "growth", lambda now, then: table.assign(grown_ns=table["now_ns"] - table["then_ns"]))
    now, then = Training(transfer_us=float(transfer_us), lead_us={1: 3_000}).run(), Training().run()
    assert {finding.subject["causes"][0] for finding in diagnose(now, then, only=(RULE,)).findings} == causes
