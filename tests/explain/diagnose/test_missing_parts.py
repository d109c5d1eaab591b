"""A part that is missing, or that fails, takes nothing else with it and makes nobody else guilty."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import pytest

from perfkit.core.run import Run
from perfkit.core.schema import TABLES
from perfkit.explain.diagnose import accounted, case, diagnose, launching
from perfkit.explain.diagnose.case import Case
from perfkit.explain.diagnose.rule import Finding, Rule, Verdict
from perfkit.explain.diagnose.rules import host_bound, host_pause, slow_link, slow_rank, stage_imbalance
from perfkit.explain.ledger import NOBODY, ledger
from perfkit.record.format import Sink
from tests.explain.diagnose.made import MS, Training, changed, run_of, summaries

SMALL = Training(ranks=3, steps=4, factors={2: 1.3}).run()
NULLABLE = [
    (table, column.name)
    for table in ("steps", "kernels", "collectives")
    for column in next(one for name, one in TABLES.items() if name == table).columns
    if column.nullable and SMALL.tables[table][column.name].notna().any()
]


@pytest.mark.parametrize(("table", "column"), NULLABLE)
def test_no_rule_fails_over_a_column_that_was_not_measured(table: str, column: str):
    empty = pd.Series(pd.NA, index=SMALL.tables[table].index, dtype=SMALL.tables[table][column].dtype)
    assert diagnose(changed(SMALL, table, **{column: empty})).failed == ()


def test_of_a_pipeline_with_a_stage_that_computes_nothing_the_rest_is_told():
    run = summaries({0: 100.0, 1: 0.0, 2: 90.0}, stages={0: 0, 1: 1, 2: 2}, steps=4)
    waiting = run.tables["steps"]["exposed_communication_ns"]
    result = diagnose(changed(run, "steps", bubble_ns=waiting, exposed_communication_ns=0 * waiting))
    assert result.failed == ()
    assert result.ledger.total_ns == run.steps()["duration_ns"].sum()
    assert not any("summaries of the steps" in note for note in result.notes)


def test_receives_outside_of_steps_tell_no_micro_batches():
    run = summaries({0: 100.0, 1: 60.0}, stages={0: 0, 1: 1}, steps=4)
    waiting, sink = run.tables["steps"]["exposed_communication_ns"], Sink()
    sink.add("collectives", rank=[0, 1], step=None, name=["s", "r"], operation=["send", "receive"], group="pp", group_size=2,
             start_ns=[5, 6], duration_ns=10)  # fmt: skip
    run = changed(run, "steps", bubble_ns=waiting, exposed_communication_ns=0 * waiting)
    found = ledger(replace(run, tables={**run.tables, **sink.tables()}))
    assert found.total_ns == run.steps()["duration_ns"].sum()


@pytest.mark.parametrize("failures", [1, 2, 3])
def test_what_rules_find_does_not_go_with_a_ledger_that_fails(monkeypatch: pytest.MonkeyPatch, failures: int):
    found, calls = case.ledger, []

    def broken(*args: Any, **options: Any) -> Any:
        calls.append(args)
        if len(calls) <= failures:
            raise KeyError("a stage")
        return found(*args, **options)

    expected = diagnose(SMALL)
    monkeypatch.setattr(case, "ledger", broken)
    result = diagnose(SMALL)
    assert {finding.rule for finding in result.findings} == {finding.rule for finding in expected.findings}
    assert all((finding.cost_ns or 0) > 0 for finding in result.findings if finding.rule == "slow-rank")
    assert any("KeyError: 'a stage'" in note for note in result.notes)


@pytest.mark.parametrize("computing", [[0, 100, 100], [0, 0, 0, 100, 100, 100]])
def test_ranks_that_compute_nothing_in_some_steps_fail_no_rule(computing: list[float]):
    result = diagnose(summaries(dict.fromkeys(range(4), computing), steps=len(computing)), only=[slow_rank.RULE])
    assert result.failed == ()


@pytest.mark.parametrize(("computing", "num_found"), [([110, 100], 0), ([110, 100, 100, 100], 1)])
def test_two_steps_do_not_say_which_of_them_is_usual(computing: list[float], num_found: int):
    run = summaries({rank: np.array(computing) for rank in range(4)}, steps=len(computing))
    run = changed(run, "steps", duration_ns=run.tables["steps"]["computing_ns"] + 20 * MS)
    assert len(diagnose(run, only=[slow_rank.RULE]).findings) == num_found


def kept(run: Run, steps: int) -> Run:
    """A run whose profiler recorded kernels and operations of its first steps only."""
    some = {name: run.tables[name][(run.tables[name]["step"] <= steps).to_numpy(dtype=bool)] for name in ("kernels", "collectives")}
    return replace(run, tables={**run.tables, **some})


@pytest.mark.parametrize(
    ("rule", "fault"), [(host_bound.RULE, {"gap_us": dict.fromkeys(range(4), 60.0)}), (host_pause.RULE, {"stop_us": {1: 4000.0}})]
)
def test_what_kernels_of_some_steps_show_is_found_as_with_those_of_all(rule: Rule, fault: dict[str, Any]):
    run = Training(steps=8, **fault).run()
    (whole,), (some,) = (diagnose(one, only=[rule]).findings for one in (run, kept(run, 3)))
    assert some.subject["ranks"] == whole.subject["ranks"]
    assert some.cost_ns == pytest.approx(whole.cost_ns, rel=0.2)


def test_ranks_of_an_unknown_stage_are_no_stage():
    run = summaries({0: 100, 1: 101, 2: 100, 3: 160}, stages={0: 0, 1: 0, 2: 1}, steps=6)
    result = diagnose(run, only=[stage_imbalance.RULE])
    assert result.failed == result.findings == ()


def stated(waits_ms: dict[int, float], group_size: int) -> Run:
    run, sink = summaries(dict.fromkeys(waits_ms, 50.0), steps=3), Sink()
    for rank, wait_ms in waits_ms.items():
        sink.add("collectives", rank=rank, step=[1, 2, 3], name=["a", "b", "c"], operation="all_reduce", group="dp",
                 group_size=group_size, duration_ns=150 * MS, wait_ns=round(wait_ms * MS), transit_ns=50 * MS)  # fmt: skip
    return replace(run, tables={**run.tables, **sink.tables()})


@pytest.mark.parametrize(
    ("waits_ms", "group_size", "whom"),
    [({0: 100, 1: 99}, 8, {NOBODY}), ({0: 100, 1: 1}, 8, {1}), ({0: 100, 1: 99}, 2, {1}), ({0: 90, 1: 60, 2: 80}, 8, {NOBODY})],
)
def test_who_came_last_is_told_where_all_were_read_or_one_hardly_waited(
    waits_ms: dict[int, float], group_size: int, whom: set[int]
):
    entries = ledger(stated(waits_ms, group_size)).entries
    waits = entries[entries["cause"].str.startswith("waiting/").to_numpy() & (entries["rank"] == 0).to_numpy()]
    assert set(waits["who"]) == whom


def finding(rule: str, *ranks: int, cost_ns: int = MS) -> Finding:
    return Finding(rule=rule, title=rule, subject={"ranks": ranks}, evidence={}, actions=(), cost_ns=cost_ns)


def test_each_finding_of_a_rule_stands_for_the_time_of_its_own_ranks():
    found = [finding("slow-rank", 1), finding("slow-rank", 5)]
    assert [accounted.finding_of("waiting/kernels", rank, found) for rank in (1, 5, 3)] == ["slow-rank", "slow-rank", None]


def rule(name: str, cost_ns: int, *explains: str) -> Rule:
    """A rule with one finding."""
    return Rule(
        name=name, title=name, needs=frozenset(), how_to_collect="", thresholds=(), explains=frozenset(explains),
        check=lambda _: Verdict((finding(name, 0, cost_ns=cost_ns),), {}),
    )  # fmt: skip


def test_what_is_explained_through_another_finding_is_named_by_the_last_cause():
    rules = [rule("idle", MS), rule("jitter", 2 * MS, "idle"), rule("host", 3 * MS, "jitter")]
    (cause,) = diagnose(SMALL, only=rules).findings
    assert (cause.rule, set(cause.next)) == ("host", {"idle", "jitter"})


def test_no_finding_goes_unmentioned_where_findings_explain_one_another():
    left = diagnose(SMALL, only=[rule("a", MS, "b", "x"), rule("b", MS, "c", "y"), rule("c", MS, "a", "z")]).findings
    assert {one.rule for one in left}.union(*(one.next for one in left)) == {"a", "b", "c"}


def slower(ranks: range, *, transit: bool) -> Run:
    """A run in which operations of a group of eight take three times as long in its last steps."""
    sink = Sink()
    for rank in ranks:
        for step in range(1, 9):
            length = (10 if step < 6 else 30) * MS
            sink.add("steps", rank=rank, step=step, duration_ns=8 * length + 100 * MS, computing_ns=100 * MS,
                     communication_ns=8 * length, overlapped_ns=0, exposed_communication_ns=8 * length, free_ns=0)  # fmt: skip
            sink.add("collectives", rank=rank, step=step, name=[f"a{at}" for at in range(8)], operation="all_reduce", group="dp",
                     group_size=8, duration_ns=length, transit_ns=length if transit else None)  # fmt: skip
    return run_of(sink)


def test_one_rank_of_a_group_does_not_show_that_the_network_was_slow():
    (alone,) = (one for one in diagnose(slower(range(1), transit=False), only=[slow_link.RULE]).findings if "steps" in one.subject)
    assert alone.title.startswith("Operations among ranks (waiting included) take")
    assert alone.severity == "medium"
    (told,) = (one for one in diagnose(slower(range(8), transit=True), only=[slow_link.RULE]).findings if "steps" in one.subject)
    assert told.title.startswith("Transfers take")
    assert told.severity == "high"


def test_transfers_that_are_slow_in_some_steps_are_found_where_none_is_stated_as_exposed():
    run = slower(range(8), transit=True)
    unknown = pd.array([pd.NA] * len(run.tables["steps"]), dtype="Int64")
    result = diagnose(changed(run, "steps", exposed_communication_ns=unknown), only=[slow_link.RULE])
    assert result.failed == ()
    assert [one.subject["steps"] for one in result.findings] == [(6, 7, 8)]


def drifting(run: Run, drift: float) -> Case:
    """A run whose rank 1 has a clock that is fast by a share; kernels are launched shortly before they start."""
    tables = dict(run.tables)
    for name in ("kernels", "collectives"):
        at = tables[name]["start_ns"].to_numpy(dtype=np.int64)
        gained = np.rint(at * drift).astype(np.int64) * (tables[name]["rank"] == 1).to_numpy()
        tables[name] = tables[name].assign(start_ns=at + gained)
    sink, rows = Sink(), tables["kernels"]
    columns = {name: rows[name].to_numpy() for name in ("rank", "step", "name", "kind", "start_ns", "duration_ns")}
    sink.add("launches", **columns, launch_ns=rows["start_ns"].to_numpy() - 10)
    return Case(replace(run, tables={**tables, **sink.tables()}))


def test_a_clock_that_drifts_changes_nothing_of_what_a_device_idles_for_its_own_host():
    run = Training(ranks=3, steps=6, factors={2: 1.3}).run()
    plain, fast = (drifting(run, drift) for drift in (0.0, 2e-5))
    assert fast.clocks[1].drift != 0
    assert launching.own_idle_ns(fast, 1) == pytest.approx(launching.own_idle_ns(plain, 1), rel=0.01)
