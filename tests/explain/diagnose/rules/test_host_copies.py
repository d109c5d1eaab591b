"""Copies between host and device that nothing hides."""

import pytest

from perfkit.explain.diagnose import diagnose
from perfkit.explain.diagnose.rules.host_copies import RULE, USUAL_SET_SHARE
from tests.explain.diagnose.made import MS, Training, added, healthy, judged, lacks, stays_healthy

PAGEABLE, PINNED = "Memcpy HtoD (Pageable -> Device)", "Memcpy HtoD (Pinned -> Device)"
INSIDE = "Memcpy DtoD (Device -> Device)"


def copied(run, name, length_ns, *, beside=False):
    """A run with one copy a step on every rank: in the time that its host stops, or beside its first kernels."""
    rows = run.frame("kernels")
    rows = rows[rows["kind"] == "computing"].sort_values("start_ns")
    new = []
    for (rank, step), mine in rows.groupby(["rank", "step"]):
        ends = mine["start_ns"] + mine["duration_ns"]
        gap = (mine["start_ns"].shift(-1) - ends).idxmax()
        start = int(mine["start_ns"].iloc[0]) if beside else int(ends.loc[gap])
        new.append(
            {"rank": rank, "step": step, "name": name, "kind": "copy", "stream": "9", "start_ns": start, "duration_ns": length_ns}
        )
    return added(run, kernels=new)


def test_a_copy_that_the_device_waits_for_is_named_with_its_time_and_its_memory():
    run = Training(stop_us=dict.fromkeys(range(4), 1000.0)).run()
    (found,) = judged(RULE, copied(run, PAGEABLE, MS)).findings
    assert found.evidence["exposed_copies_ns"] == pytest.approx(MS, rel=0.01)
    assert found.cost_ns == pytest.approx(MS, rel=0.01)
    assert found.evidence["pageable_share"] == 1.0
    assert found.subject["ranks"] == (0, 1, 2, 3)


def test_a_copy_beside_kernels_and_a_short_one_cost_nothing():
    assert stays_healthy(RULE, copied(healthy(), PINNED, MS, beside=True))["exposed_copies_host_share"] < 0.02
    assert stays_healthy(RULE, copied(Training(stop_us={0: 1000.0}).run(), PAGEABLE, 20_000))["exposed_copies_host_share"] < 0.02


def test_copies_inside_the_device_are_named_where_they_are_more_than_a_step_has_anyway():
    run = Training(stop_us=dict.fromkeys(range(4), 1000.0)).run()
    (found,) = judged(RULE, copied(run, INSIDE, MS)).findings
    assert found.cost_ns == pytest.approx(MS, rel=0.01)
    assert "inside its own memory" in found.title
    assert "pageable_share" not in found.evidence
    few = stays_healthy(RULE, copied(run, INSIDE, run.steps()["duration_ns"].max() // 25))
    assert 0.03 < few["exposed_copies_inside_share"] < 0.05


def test_copies_whose_name_says_nothing_of_their_way_are_told_where_they_are_more_than_a_step_has_anyway():
    run = Training(stop_us=dict.fromkeys(range(4), 1000.0)).run()
    (found,) = judged(RULE, copied(run, "MEMCPY_ASYNC", MS)).findings
    assert found.cost_ns == pytest.approx(MS, rel=0.01)
    assert "which way was not recorded" in found.title
    few = stays_healthy(RULE, copied(run, "MEMCPY_ASYNC", run.steps()["duration_ns"].max() // 25))
    assert 0.03 < few["exposed_copies_unnamed_share"] < 0.05


def test_memory_that_is_set_is_told_where_it_takes_more_than_a_step_has_anyway():
    run = Training(stop_us=dict.fromkeys(range(4), 1000.0)).run()
    (found,) = judged(RULE, copied(run, "Memset (Device)", MS)).findings
    usual_ns = USUAL_SET_SHARE * run.steps()["duration_ns"].max()
    assert found.cost_ns == pytest.approx(MS - usual_ns, rel=0.01)
    assert "sets memory" in found.title
    few = stays_healthy(RULE, copied(run, "Memset (Device)", run.steps()["duration_ns"].max() // 100))
    assert 0.005 < few["exposed_copies_set_share"] < 0.02


def test_what_every_step_sets_is_worth_nothing_however_little_is_asked_for():
    run = Training(stop_us=dict.fromkeys(range(4), 1000.0)).run()
    few = copied(run, "Memset (Device)", run.steps()["duration_ns"].max() // 250)
    (found,) = diagnose(few, only=[RULE], limits={"memory-set-share": 0.001}).findings
    assert found.cost_ns == 0


def test_without_copies_it_is_not_measured():
    assert lacks(RULE, healthy()) == lacks(RULE, copied(healthy(), "Copy kernel", MS)) == "copies by name"
