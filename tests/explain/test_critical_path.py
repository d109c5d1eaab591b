"""Critical path and the graph below it: sums, identity of timing anew, and waiting that becomes the late rank's work."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from perfkit.core.run import Run
from perfkit.explain.critical_path import critical_path, path_breakdown, path_of, path_operators
from perfkit.explain.dependencies import dependencies, retime
from perfkit.record.format import Sink
from perfkit.record.load import load
from perfkit.record.steps import Window, add_window_steps

DATA = Path(__file__).parents[1] / "data" / "traces"


def _two_ranks(slow_ns: int = 400) -> Run:
    """Three rounds of computing and an all-reduce of 50 ns on two ranks; rank 1 computes `slow_ns`, rank 0 100 ns."""
    sink = Sink()
    for rank, work in ((0, 100), (1, slow_ns)):
        at, kernels = 0, []
        for k in range(3):
            arrived = max(100, slow_ns)
            kernels.append((f"work{k}", "computing", "7", at, work))
            kernels.append((f"reduce{k}", "communication", "8", at + work, arrived - work + 50))
            at += arrived + 50
        names, kinds, streams, starts, durations = (list(column) for column in zip(*kernels, strict=True))
        columns: dict[str, Any] = {"rank": rank, "step": 1, "name": names, "start_ns": starts, "duration_ns": durations}
        sink.add("kernels", **columns, kind=kinds, stream=streams)
        of_group = {name: values[1::2] for name, values in columns.items() if isinstance(values, list)}
        sink.add("collectives", rank=rank, step=1, operation="all_reduce", group="g", group_size=2, **of_group)
        rows = sink.tables()["kernels"]
        add_window_steps(sink, rank=rank, windows=[Window(1, 0, at)], kernels=rows[rows["rank"] == rank])
    return Run(name="made", kind="measured", format="test", tables=sink.tables())


def test_waiting_for_a_slow_rank_is_its_work_on_the_path():
    path = critical_path(_two_ranks(), step=1)
    assert path["duration_ns"].sum() == 3 * 450
    assert dict(path_breakdown(path, "made").parts) == {"computing": 3 * 400, "communication": 3 * 50}
    assert path.loc[path["kind"] == "computing", "rank"].unique().tolist() == [1]


def test_one_rank_alone_cannot_tell_waiting_from_communication():
    path = critical_path(_two_ranks(), step=1, ranks=[0])
    assert dict(path_breakdown(path, "made").parts) == {"computing": 300, "communication": 3 * 350}


def test_segments_follow_one_another_without_a_gap():
    path = critical_path(_two_ranks(), step=1)
    ends = (path["start_ns"] + path["duration_ns"]).tolist()
    assert path["start_ns"].tolist()[1:] == ends[:-1]


def test_unchanged_durations_give_the_recorded_starts():
    graph = dependencies(_two_ranks(), step=1)
    again = retime(graph, graph.nodes["duration_ns"].to_numpy(dtype=np.int64))
    assert again.nodes["start_ns"].tolist() == graph.nodes["start_ns"].tolist()
    assert again.end_ns == graph.end_ns


def test_a_healed_rank_shortens_the_step_by_what_it_was_slower():
    graph = dependencies(_two_ranks(), step=1)
    nodes = graph.nodes
    slow = ((nodes["kind"] == "computing") & (nodes["rank"] == 1)).to_numpy(dtype=bool)
    faster = retime(graph, np.where(slow, 100, nodes["duration_ns"].to_numpy(dtype=np.int64)))
    assert faster.end_ns - faster.start_ns == 3 * 150
    assert path_of(faster)["duration_ns"].sum() == 3 * 150


def test_a_faster_rank_that_waits_anyway_shortens_nothing():
    graph = dependencies(_two_ranks(), step=1)
    nodes = graph.nodes
    fast = ((nodes["kind"] == "computing") & (nodes["rank"] == 0)).to_numpy(dtype=bool)
    assert retime(graph, np.where(fast, 1, nodes["duration_ns"].to_numpy(dtype=np.int64))).end_ns == graph.end_ns


def test_operators_of_the_path_share_it_all():
    table = path_operators(critical_path(_two_ranks(), step=1))
    assert table["share"].sum() == pytest.approx(1.0)
    assert table["total_ns"].tolist()[:3] == [400, 400, 400]


TRAINING = [
    "dlrm_8xV100",
    "hta/nccl_parser_config",
    "hta/negative_queue_length",
    "hta/ns_resolution_trace",
    "hta/trace_diff/control.json.gz",
    "hta/trace_diff/test.json.gz",
    "kineto_tb_samples/resnet50_num_workers_0",
    "kineto_tb_samples/resnet50_num_workers_4",
    "tracelens/h100/gaunernst_bert-small-uncased__1016001.json.gz",
]


@pytest.mark.parametrize("sample", TRAINING)
def test_the_path_of_a_training_step_crosses_from_thread_to_thread(sample: str):
    """The autograd thread begins where the main thread ends, and the step with it: nothing of note is left unexplained."""
    run = load(DATA / sample, cache=False)
    path = critical_path(run, step=int(run.steps()["step"].iloc[0]))
    unlinked = path.loc[path["kind"] == "unlinked", "duration_ns"].sum()
    assert unlinked <= 0.05 * path["duration_ns"].sum()


def test_the_backward_pass_is_led_to_by_the_thread_that_asked_for_it():
    run = load(DATA / "kineto_tb_samples/resnet50_num_workers_0", cache=False)
    nodes = dependencies(run, step=6).nodes
    host = nodes[nodes["kind"] == "host"]
    assert host["stream"].nunique() == 2
    assert "hand over to another thread" in set(host["name"])


@pytest.mark.parametrize("sample", ["hta/nccl_parser_config", "hta/critical_path/simple_add"])
def test_the_path_of_a_real_step_sums_to_it_to_the_nanosecond(sample: str):
    run = load(DATA / sample, cache=False)
    row = run.steps().iloc[0]
    graph = dependencies(run, step=int(row["step"]))
    path = path_of(graph)
    assert path["duration_ns"].sum() == row["duration_ns"]
    assert "host" in set(path["kind"])
    again = retime(graph, graph.nodes["duration_ns"].to_numpy(dtype=np.int64))
    assert (again.nodes["start_ns"] == graph.nodes["start_ns"]).all()
