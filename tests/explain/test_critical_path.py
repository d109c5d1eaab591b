"""Critical path and the graph below it: sums, identity of timing anew, and waiting that becomes the late rank's work."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import pytest

from perfkit.core.run import Run
from perfkit.explain.critical_path import GRAPH_LEAST, critical_path, path_of, path_operators
from perfkit.explain.dependencies import Dependencies, dependencies, retime
from perfkit.record.format import Sink
from perfkit.record.steps import Window, add_window_steps
from tests.explain.raw_events import read


def _two_ranks(slow_ns: int = 400, rest_ns: tuple[int, int] = (0, 0)) -> Run:
    """Three rounds of computing and an all-reduce of 50 ns on two ranks; rank 1 computes `slow_ns`, rank 0 100 ns.

    After them each rank computes for its `rest_ns`.
    """
    sink = Sink()
    for rank, work in ((0, 100), (1, slow_ns)):
        at, kernels = 0, []
        for k in range(3):
            arrived = max(100, slow_ns)
            kernels.append((f"work{k}", "computing", "7", at, work))
            kernels.append((f"reduce{k}", "communication", "8", at + work, arrived - work + 50))
            at += arrived + 50
        if rest_ns[rank]:
            kernels.append(("rest", "computing", "7", at, rest_ns[rank]))
            at += rest_ns[rank]
        names, kinds, streams, starts, durations = (list(column) for column in zip(*kernels, strict=True))
        columns: dict[str, Any] = {"rank": rank, "step": 1, "name": names, "start_ns": starts, "duration_ns": durations}
        sink.add("kernels", **columns, kind=kinds, stream=streams)
        of_group = {name: values[1:6:2] for name, values in columns.items() if isinstance(values, list)}
        sink.add("collectives", rank=rank, step=1, operation="all_reduce", group="g", group_size=2, **of_group)
        rows = sink.tables()["kernels"]
        add_window_steps(sink, rank=rank, windows=[Window(1, 0, at)], kernels=rows[rows["rank"] == rank])
    return Run(name="made", kind="measured", format="test", tables=sink.tables())


def test_waiting_for_a_slow_rank_is_its_work_on_the_path():
    path = critical_path(_two_ranks(), step=1)
    assert path["duration_ns"].sum() == 3 * 450
    assert path.groupby("kind")["duration_ns"].sum().to_dict() == {"computing": 3 * 400, "communication": 3 * 50}
    assert path.loc[path["kind"] == "computing", "rank"].unique().tolist() == [1]


def test_one_rank_alone_cannot_tell_waiting_from_communication():
    path = critical_path(_two_ranks(), step=1, ranks=[0])
    assert path.groupby("kind")["duration_ns"].sum().to_dict() == {"computing": 300, "communication": 3 * 350}


@pytest.mark.parametrize("rest_ns", [(70, 20), (20, 70)])
def test_the_path_ends_where_the_rank_does_that_ends_last(rest_ns: tuple[int, int]):
    path = critical_path(_two_ranks(rest_ns=rest_ns), step=1)
    assert path["duration_ns"].sum() == 3 * 450 + 70
    assert path.iloc[-1]["name"] == "rest"
    assert path.iloc[-1]["rank"] == rest_ns.index(70)


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
    run = read(sample)
    path = critical_path(run, step=int(run.steps()["step"].iloc[0]))
    unlinked = path.loc[path["kind"] == "unlinked", "duration_ns"].sum()
    assert unlinked <= 0.05 * path["duration_ns"].sum()


def test_the_backward_pass_is_led_to_by_the_thread_that_asked_for_it():
    run = read("kineto_tb_samples/resnet50_num_workers_0")
    nodes = dependencies(run, step=6).nodes
    host = nodes[nodes["kind"] == "host"]
    assert host["stream"].nunique() == 2
    assert "hand over to another thread" in set(host["name"])


@pytest.mark.parametrize("sample", ["hta/nccl_parser_config", "hta/critical_path/simple_add"])
def test_the_path_of_a_real_step_sums_to_it_to_the_nanosecond(sample: str):
    run = read(sample)
    row = run.steps().iloc[0]
    graph = dependencies(run, step=int(row["step"]))
    path = path_of(graph)
    assert path["duration_ns"].sum() == row["duration_ns"]
    assert "host" in set(path["kind"])
    again = retime(graph, graph.nodes["duration_ns"].to_numpy(dtype=np.int64))
    assert (again.nodes["start_ns"] == graph.nodes["start_ns"]).all()


def graph_of(rows: list[tuple[int, str, str, int, int]], edges: list[tuple[int, int]], window: tuple[int, int]) -> Dependencies:
    """A graph by hand: `rank`, `name`, `kind`, start and duration of every node; edges without lag."""
    nodes = pd.DataFrame(rows, columns=["rank", "name", "kind", "start_ns", "duration_ns"]).assign(stream="7")
    sources, targets = (np.array([edge[side] for edge in edges], dtype=np.int64) for side in (0, 1))
    nothing = np.zeros(len(edges), dtype=np.int64)
    return Dependencies(
        nodes=nodes, sources=sources, targets=targets, lag_ns=nothing, edge_ranks=nothing, due_ns=nothing,
        roots=pd.DataFrame(), start_ns=window[0], end_ns=window[1], begins_ns={},
    )  # fmt: skip


def told(graph: Dependencies) -> list[tuple[object, ...]]:
    return list(path_of(graph).itertuples(index=False, name=None))


CHAIN = [(0, "a", "host", 100, 20), (0, "b", "computing", 130, 50), (3, "c", "communication", 180, 40), (0, "d", "copy", 150, 10)]


def test_every_segment_of_a_path_by_hand():
    # From 90 nothing is known, b starts 10 after its launch, c at once behind b, and 5 after c until the step ends.
    graph = graph_of(CHAIN, [(0, 1), (1, 2), (0, 3)], (90, 225))
    assert told(graph) == [
        (0, "", "unlinked", 90, 10),
        (0, "a", "host", 100, 20),
        (0, "b", "launch", 120, 10),
        (0, "b", "computing", 130, 50),
        (3, "c", "communication", 180, 40),
        (3, "c", "unlinked", 220, 5),
    ]


def test_what_rounding_left_of_two_times_is_no_gap():
    # The step ends 1 behind its last piece, and c begins 1 behind b, on a clock that counts by 1.
    rows = [(0, "a", "host", 100, 20), (0, "b", "computing", 130, 49), (3, "c", "communication", 180, 40)]
    assert told(graph_of(rows, [(0, 1), (1, 2)], (100, 221))) == [
        (0, "a", "host", 100, 20),
        (0, "b", "launch", 120, 10),
        (0, "b", "computing", 130, 50),
        (3, "c", "communication", 180, 41),
    ]


def test_of_two_predecessors_the_later_one_binds_and_what_ends_after_the_step_is_not_of_it():
    nodes = [(0, "early", "computing", 0, 30), (1, "late", "computing", 0, 60), (0, "last", "computing", 60, 10)]
    beyond = [*nodes, (0, "next step", "computing", 70, 100)]
    for rows in (nodes, beyond):
        for edges in ([(0, 2), (1, 2)], [(1, 2), (0, 2)]):
            assert told(graph_of(rows, edges, (0, 70))) == [(1, "late", "computing", 0, 60), (0, "last", "computing", 60, 10)]


def test_a_lag_may_make_the_earlier_end_the_binding_one():
    nodes = [(0, "early", "computing", 0, 30), (1, "late", "computing", 0, 35), (0, "last", "computing", 60, 10)]
    graph = replace(graph_of(nodes, [(0, 2), (1, 2)], (0, 70)), lag_ns=np.array([30, 10]))
    assert [name for _, name, *_ in told(graph)] == ["early", "last", "last"]


def test_a_pause_between_what_one_call_launched_is_of_its_graph_and_any_other_a_delay():
    nodes = [(0, "h", "host", 0, 10), (0, "b", "computing", 15, 25), (0, "c", "computing", 50, 20), (0, "d", "computing", 90, 10)]
    path = told(graph_of(nodes, [(0, 1), (0, 2), (1, 2), (2, 3)], (0, 100)))
    assert [(kind, length) for _, _, kind, _, length in path if kind not in ("host", "computing")] == [
        ("launch", 5),
        ("graph", 10),
        ("delay", 20),
    ]


def test_the_time_that_a_launched_graph_takes_to_start_is_of_the_graph():
    for count, kind in ((GRAPH_LEAST, "graph"), (GRAPH_LEAST - 1, "delay")):
        nodes = [(0, "h", "host", 0, 1), (0, "before", "computing", 2, 18)]
        nodes += [(0, f"{at}", "computing", 100 + 10 * at, 10) for at in range(count)]
        edges = [(0, at) for at in range(2, count + 2)] + [(at, at + 1) for at in range(1, count + 1)]
        path = told(graph_of(nodes, edges, (2, 100 + 10 * count)))
        assert (0, "0", kind, 20, 80) in path


def test_a_meeting_takes_no_time_and_leads_to_the_rank_that_came_last():
    nodes = [
        (0, "a", "computing", 0, 50),
        (1, "b", "computing", 0, 80),
        (0, "", "meeting", 80, 0),
        (0, "c", "communication", 80, 20),
    ]
    graph = graph_of(nodes, [(0, 2), (1, 2), (2, 3)], (0, 100))
    assert told(graph) == [(1, "b", "computing", 0, 80), (0, "c", "communication", 80, 20)]


def test_what_began_before_the_step_counts_from_its_begin():
    graph = graph_of([(2, "a", "computing", 0, 50), (2, "b", "computing", 60, 40)], [(0, 1)], (20, 100))
    assert told(graph) == [(2, "a", "computing", 20, 30), (2, "b", "delay", 50, 10), (2, "b", "computing", 60, 40)]
    late = graph_of([(2, "a", "computing", 0, 10), (2, "b", "computing", 60, 40)], [(0, 1)], (20, 100))
    assert told(late) == [(2, "b", "delay", 20, 40), (2, "b", "computing", 60, 40)]


def test_a_step_without_any_node_is_not_linked():
    assert told(graph_of([], [], (5, 25))) == [(-1, "", "unlinked", 5, 20)]
    assert told(graph_of([], [], (5, 5))) == []


def test_operators_of_a_path_by_hand():
    rows = path_operators(path_of(graph_of(CHAIN, [(0, 1), (1, 2), (0, 3)], (90, 225))))
    assert rows["name"].tolist() == ["b", "c", "a", "", "b", "c"]
    assert rows["total_ns"].tolist() == [50, 40, 20, 10, 10, 5]
    assert rows["kind"].tolist() == ["computing", "communication", "host", "unlinked", "launch", "unlinked"]
    assert rows["share"].tolist() == pytest.approx([part / 135 for part in (50, 40, 20, 10, 10, 5)])
    assert rows["num_ranks"].tolist() == rows["count"].tolist() == [1] * 6
    empty = path_operators(path_of(graph_of([], [], (5, 5))))
    assert empty["share"].tolist() == []


def test_timed_anew_by_hand():
    graph = graph_of(CHAIN, [(0, 1), (1, 2), (0, 3)], (90, 225))
    graph = replace(graph, lag_ns=np.array([10, 0, 30]))
    faster = retime(graph, np.array([5, 50, 40, 10]))
    assert faster.nodes["start_ns"].tolist() == [100, 115, 165, 135]
    assert faster.end_ns == 225 - 15
    nothing = graph_of([], [], (5, 25))
    assert retime(nothing, np.array([], dtype=np.int64)).end_ns == 25
