"""What is exported in the form of a profiler loads with equal totals."""

from __future__ import annotations

import json

import pytest

from perfkit.face.export.write import write
from perfkit.predict.simulate import simulate
from perfkit.record.load import load
from tests.predict.simulate.plans import TINY

TOTALS = ["duration_ns", "computing_ns", "communication_ns", "overlapped_ns", "free_ns"]


@pytest.fixture(scope="module")
def run():
    return simulate(TINY, ["slow_rank:5:1.3", "frequent_sync:3", "gc_pause:2:40"], steps=2, ranks=[0, 2, 5, 6])


@pytest.fixture(scope="module")
def kineto(run, tmp_path_factory):
    return load(write(run, tmp_path_factory.mktemp("out") / "kineto", format="kineto", truth={"faults": []}), cache=False)


@pytest.fixture(scope="module")
def ascend(run, tmp_path_factory):
    return load(write(run, tmp_path_factory.mktemp("out") / "ascend", format="ascend", truth={"faults": []}), cache=False)


def steps_of(run):
    return run.steps().set_index(["rank", "step"])


def totals(run, table, key):
    rows = run.frame(table)
    return rows.assign(key=rows[key].astype(str)).groupby(["rank", "step", "key"])["duration_ns"].agg(["size", "sum"])


def test_the_ascend_form_has_equal_steps_and_the_bubble(run, ascend):
    assert ascend.format == "ascend-text"
    columns = [*TOTALS, "bubble_ns", "exposed_communication_ns"]
    assert steps_of(ascend)[columns].astype("int64").equals(steps_of(run)[columns].astype("int64"))
    assert not ascend.dropped


def test_the_kineto_form_has_equal_steps(run, kineto):
    assert kineto.format == "kineto"
    ours, theirs = steps_of(run), steps_of(kineto)
    for column in ("computing_ns", "communication_ns", "overlapped_ns"):
        assert ours[column].astype("int64").equals(theirs[column].astype("int64")), column
    # Steps begin on the device where the one before has ended, which is where they begin here too.
    assert ours["duration_ns"].astype("int64").equals(theirs["duration_ns"].astype("int64"))
    assert not kineto.dropped


def test_both_have_every_kernel_and_collective(run, kineto, ascend):
    ours = run.frame("kernels")
    for other in (kineto, ascend):
        theirs = other.frame("kernels")
        for kind in ("computing", "communication"):
            mine = ours[ours["kind"] == kind].groupby("rank")["duration_ns"].agg(["size", "sum"])
            yours = theirs[theirs["kind"] == kind].groupby("rank")["duration_ns"].agg(["size", "sum"])
            assert mine.equals(yours), kind
        counted = [found.frame("collectives").groupby("rank")["duration_ns"].agg(["size", "sum"]) for found in (run, other)]
        assert counted[0].equals(counted[1])


def test_the_ascend_form_keeps_types_transits_waits_and_the_layout(run, ascend):
    assert totals(run, "kernels", "core").drop("SDMA", level="key").equals(totals(ascend, "kernels", "core"))
    sums = [found.frame("collectives")[["transit_ns", "wait_ns"]].sum() for found in (run, ascend)]
    assert sums[0].equals(sums[1])
    assert {rank: position.pipeline for rank, position in ascend.placement.items()} == {0: 0, 2: 0, 5: 1, 6: 1}
    peak = [found.frame("memory_curve").groupby("rank")["allocated_bytes"].max() for found in (run, ascend)]
    assert ((peak[0] - peak[1]).abs() <= 2).all()


def test_kineto_links_kernels_to_their_launches_and_names_the_groups(run, kineto):
    ours, theirs = (
        found.frame("launches").sort_values(["rank", "start_ns"])["launch_ns"].to_numpy(dtype="int64") for found in (run, kineto)
    )
    assert sorted(ours) == sorted(theirs)
    groups = kineto.frame("groups")
    assert "tp" in set(groups["label"].astype(str))
    marks = kineto.frame("host")["name"].astype(str)
    assert {"gc: collect generation 2", "cudaStreamSynchronize", "ProfilerStep#1"} <= set(marks)


@pytest.mark.parametrize("format", ["kineto", "ascend"])
def test_the_truth_lies_beside_and_is_not_read(run, tmp_path, format):
    target = write(run, tmp_path / "run", format=format, truth={"faults": [{"kind": "slow_rank"}]})
    assert json.loads((target / "faults.json").read_text())["faults"][0]["kind"] == "slow_rank"
    assert all("slow_rank" not in note for note in load(target, cache=False).notes)


@pytest.mark.parametrize("format", ["kineto", "ascend"])
def test_an_interrupted_export_leaves_nothing(run, tmp_path, format, monkeypatch):
    from perfkit.face.export import ascend, kineto

    def stop(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(kineto, "groups_of", stop)
    monkeypatch.setattr(ascend, "groups_of", stop)
    with pytest.raises(Exception, match="No space left"):
        write(run, tmp_path / "run", format=format)
    assert list(tmp_path.iterdir()) == []
