"""Clocks that differ cost nothing, and are told."""

from dataclasses import replace

import pytest

from perfkit.core.clock import estimate
from perfkit.core.run import Run
from perfkit.explain.diagnose import diagnose
from perfkit.explain.diagnose.rules.clock_skew import RULE
from perfkit.record.format import Sink
from tests.explain.diagnose.made import Training, judged, run_of


def jumps(run: Run) -> list[int]:
    return [rank for rank, clock in estimate(run).items() if clock.jump is not None]


def test_a_clock_that_is_ahead_is_named_and_makes_no_rank_slow():
    run = Training(skew_us={2: 500.0}).run()
    (found,) = judged(RULE, run).findings
    assert found.subject["ranks"] == (2,)
    assert found.cost_ns is None
    assert found.severity == "low"
    assert found.evidence["largest_offset_ns"] == pytest.approx(500_000, rel=0.01)
    assert [other.rule for other in diagnose(run).findings] == ["clock-skew"]


def test_clocks_of_which_half_jump_are_said_to_jump_apart_by_all_of_it():
    run = Training(ranks=2, steps=8).run()
    rows = run.tables["collectives"]
    late = (rows["rank"] == 1) & (rows["step"] >= 5)
    shifted = rows.assign(start_ns=rows["start_ns"] + late.astype("int64") * 50_000_000)
    (finding,) = diagnose(replace(run, tables={**run.tables, "collectives": shifted}), only=[RULE]).findings
    assert finding.subject["ranks"] == (0, 1)
    assert finding.evidence["jump_ns"] == pytest.approx(50e6, rel=0.01)
    assert "jump apart by" in finding.title


def test_hosts_that_are_always_apart_do_not_jump_where_groups_take_turns():
    """Two hosts 4 ms apart: groups within a host, then groups across them, in every step."""
    sink = Sink()
    at = 0
    for step in range(4):
        for turn in range(25):
            at += 1_000_000
            for rank in range(4):
                group = f"tp{rank // 2}" if turn < 20 else f"dp{rank % 2}"
                sink.add(
                    "collectives",
                    rank=rank,
                    step=step,
                    name=f"all_reduce#{turn}",
                    operation="all_reduce",
                    group=group,
                    group_size=2,
                    start_ns=at + 4_000_000 * (rank // 2),
                    duration_ns=1_000,
                )
    assert jumps(run_of(sink)) == []


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


def set_by(run: Run, rank: int, jump_ms: float, step: int = 5) -> Run:
    """The run as a clock shows it that is set in the middle of a step."""
    moment = run.frame("kernels").query("rank == @rank and step == @step")["start_ns"].median()
    tables = dict(run.tables)
    for name in ("kernels", "collectives"):
        late = (tables[name]["rank"] == rank) & (tables[name]["start_ns"] >= moment)
        tables[name] = tables[name].assign(start_ns=tables[name]["start_ns"] + late.astype("int64") * round(jump_ms * 1e6))
    return replace(run, tables=tables)


@pytest.mark.parametrize("jump_ms", [50, 20, 5, 2, -1, -2])
@pytest.mark.parametrize("rank", [0, 2])
def test_a_slow_rank_costs_what_it_costs_with_clocks_that_are_not_set(rank: int, jump_ms: int):
    steady = Training(ranks=4, steps=8, factors={2: 1.3}).run()
    shown = diagnose(set_by(steady, rank, jump_ms))
    before, after = ({finding.rule: finding for finding in found.findings} for found in (diagnose(steady), shown))
    assert after["slow-rank"].subject["ranks"] == (2,)
    assert after["slow-rank"].cost_ns == pytest.approx(before["slow-rank"].cost_ns, rel=0.01)
    assert after.keys() - before.keys() == {RULE.name}
    assert "was corrected" in after[RULE.name].title
    assert any("judged: a clock was set" in note for note in shown.notes)


@pytest.mark.parametrize("rank", [0, 2])
def test_what_ranks_wait_is_unexplained_where_a_clock_was_set_back_beyond_what_can_be_followed(rank: int):
    shown = diagnose(set_by(Training(ranks=4, steps=8, factors={2: 1.3}).run(), rank, -1000))
    (clock,) = (finding for finding in shown.findings if finding.rule == RULE.name)
    assert "not known from there on" in clock.title
    entries = shown.ledger.entries
    assert not entries["cause"].str.startswith(("waiting", "transfer")).any()
    assert entries.loc[entries["cause"] == "unexplained", "ns"].sum() > 0


def test_a_clock_that_drifts_does_not_jump():
    run = Training(ranks=4, steps=8).run()
    rows = run.tables["collectives"]
    drifting = rows["start_ns"] + (rows["rank"] == 1).astype("int64") * (rows["start_ns"] // 10_000)
    assert jumps(replace(run, tables={**run.tables, "collectives": rows.assign(start_ns=drifting)})) == []


@pytest.mark.parametrize("who", [0, 1, 2, 3])
def test_of_clocks_that_are_apart_all_the_time_only_the_one_that_is_set_jumps(who: int):
    apart = Training(ranks=4, steps=8, skew_us={1: 10_000.0, 2: 20_000.0, 3: 30_000.0}).run()
    (finding,) = diagnose(set_by(apart, who, 25), only=[RULE]).findings
    assert finding.subject["ranks"] == (who,)
    assert finding.evidence["jump_ns"] == pytest.approx(25e6, rel=0.01)
    assert jumps(apart) == []


def test_a_clock_that_is_set_twice_is_followed_no_further_and_blames_nobody():
    steady = Training(ranks=4, steps=12, factors={2: 1.3}).run()
    found = {finding.rule: finding for finding in diagnose(set_by(set_by(steady, 1, 20, step=4), 1, 15, step=8)).findings}
    assert found[RULE.name].subject["ranks"] == (1,)
    assert "not known from there on" in found[RULE.name].title
    assert found["slow-rank"].subject["ranks"] == (2,)


def test_a_clock_that_is_set_by_less_than_is_told_is_neither_told_nor_are_its_steps_left_out():
    shown = diagnose(set_by(Training(ranks=4, steps=8).run(), 1, 0.6))
    assert not any("a clock was set" in note for note in shown.notes)


@pytest.mark.parametrize("jump_ms", [50, 20, -2])
def test_what_ranks_wait_in_judged_steps_is_what_it_is_with_clocks_that_are_not_set(jump_ms: int):
    steady = Training(ranks=4, steps=8, factors={2: 1.3}).run()
    shown = diagnose(set_by(steady, 0, jump_ms)).ledger.entries
    before = diagnose(steady).ledger.of(steps=shown["step"].unique()).entries
    sums = [rows.groupby(["rank", rows["cause"].astype(str)])["ns"].sum() for rows in (before, shown)]
    assert sums[1].reindex(sums[0].index).fillna(0).to_numpy() == pytest.approx(sums[0].to_numpy(), rel=0.01, abs=50_000)
