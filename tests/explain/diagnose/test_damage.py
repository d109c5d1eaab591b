"""Damaged recordings: what is left of them is judged, and no rule fails over the rest."""

from dataclasses import replace
from pathlib import Path

import pytest

from perfkit.core import catalog
from perfkit.core.run import LazyTable, LazyTables
from perfkit.core.spec.parallel import ParallelPlan
from perfkit.core.spec.plan import Plan
from perfkit.core.spec.workload import Workload
from perfkit.explain.diagnose import diagnose
from perfkit.explain.diagnose.rules import excess_casts
from perfkit.face.export.write import write
from perfkit.predict.simulate import simulate
from perfkit.record.format import Sink
from perfkit.record.load import load
from tests.explain.diagnose.made import Training, summaries


@pytest.fixture(scope="module")
def recorded(tmp_path_factory):
    plan = Plan(
        model=replace(catalog.model("gpt-7.5b"), num_layers=2),
        workload=Workload(seq_length=1024, micro_batch_size=1, global_batch_size=4),
        parallel=ParallelPlan(data_parallel_size=4),
        hardware=catalog.hardware_named("A100-80GB-SXM"),
    )
    run = simulate(plan, ("slow_rank:2:1.3",), seed=1, steps=3)
    return lambda: write(run, tmp_path_factory.mktemp("damage") / "run", format="ascend")


def slow_ranks(result):
    return [finding.subject["ranks"] for finding in result.findings if finding.rule == "slow-rank"]


def file_of(folder: Path, rank: int, name: str) -> Path:
    return sorted(folder.rglob(name))[rank]


def test_one_broken_rank_does_not_hide_the_slow_one(recorded):
    folder = recorded()
    for name, text in (
        ("kernel_details.csv", "\x00\x01 no table"),
        ("communication.json", '{"step1": {"collective": {"a'),
        ("step_trace_time.csv", ""),
    ):
        file_of(folder, 0, name).write_text(text)
    result = diagnose(load(folder, cache=False))
    assert result.failed == ()
    assert slow_ranks(result) == [(2,)]


def test_without_kernels_what_needs_them_is_not_measured_and_the_slow_rank_is_found(recorded):
    folder = recorded()
    for path in folder.rglob("kernel_details.csv"):
        path.unlink()
    result = diagnose(load(folder, cache=False))
    assert result.failed == ()
    assert slow_ranks(result) == [(2,)]
    missing = {entry.rule: entry.how_to_collect for entry in result.not_measured}
    assert {"jitter", "host-bound", "data-feed"} <= set(missing)
    assert all(missing.values())


def test_a_rank_whose_kernels_are_cut_off_neither_idles_nor_hides_what_the_others_say():
    whole = Training(gap_us=dict.fromkeys(range(4), 40.0)).run()
    rows = whole.tables["kernels"]
    cut = rows[(rows["rank"] != 2) | (rows.groupby("rank").cumcount() < 8)]
    torn = replace(whole, tables={**whole.tables, "kernels": cut})
    told, expected = ({finding.rule: finding for finding in diagnose(run).findings} for run in (torn, whole))
    assert 2 not in told["host-bound"].subject["ranks"]
    assert told["host-bound"].cost_ns == pytest.approx(expected["host-bound"].cost_ns, rel=0.1)
    assert any(note.startswith("kernels of rank 2 hold") for note in diagnose(torn).notes)


def test_a_fault_of_all_ranks_costs_as_much_where_kernels_of_some_are_known():
    whole = Training(ranks=6, extra=(("Cast", "AI_VECTOR_CORE", 60.0),)).run()
    rows = whole.tables["kernels"]
    some = replace(whole, tables={**whole.tables, "kernels": rows[rows["rank"] < 3]})
    (few,), (all_,) = (diagnose(run, only=[excess_casts.RULE]).findings for run in (some, whole))
    assert few.cost_ns == pytest.approx(all_.cost_ns, rel=0.1)


def test_kernels_of_the_first_steps_only_count_by_the_steps_that_have_them():
    whole = Training(steps=8, extra=(("Cast", "AI_VECTOR_CORE", 60.0),)).run()
    rows = whole.tables["kernels"]
    first = replace(whole, tables={**whole.tables, "kernels": rows[rows["step"] <= 2]})
    (few,), (all_,) = (diagnose(run, only=[excess_casts.RULE]).findings for run in (first, whole))
    assert few.evidence["casts_share"] == pytest.approx(all_.evidence["casts_share"], rel=0.05)


def test_a_table_that_cannot_be_read_fails_the_rules_that_need_it_and_no_other():
    def broken(ranks, columns):
        raise OSError("the disk is gone")

    run = summaries({rank: 110.0 if rank == 3 else 100.0 for rank in range(8)})
    tables = {name: LazyTable.of(frame) for name, frame in run.tables.items()}
    tables["kernels"] = LazyTable(ranks=frozenset(range(8)), num_rows=None, read=broken)
    result = diagnose(replace(run, tables=LazyTables(tables)))
    assert {entry.rule for entry in result.failed} >= {"jitter", "host-bound"}
    assert all("the disk is gone" in entry.error for entry in result.failed)
    assert "clock-skew" in {entry.rule for entry in result.not_measured}


def test_kernels_are_looked_at_where_some_of_many_ranks_have_them():
    run, sink = summaries({rank: 110.0 if rank == 70 else 100.0 for rank in range(100)}), Sink()
    for rank in (7, 70):
        sink.add("kernels", rank=rank, step=[1, 2, 3], name="MatMul", kind="computing", start_ns=[1, 2, 3], duration_ns=10**6)
    result = diagnose(replace(run, tables={**run.tables, **sink.tables()}))
    assert "kernels of 2 of 100 ranks were looked at" in result.notes
    assert result.failed == ()
    assert slow_ranks(result) == [(70,)]
