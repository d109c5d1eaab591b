"""Graph: what led to what in a made recording, and what holds of every edge of the samples."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from perfkit.core.run import Run
from perfkit.record.events.graph import CALLS, DEVICE_WAIT, HANDOVER, KINDS, LAUNCH, NONE, OTHER_STREAM, STREAM, causal_graph
from perfkit.record.events.meetings import arrivals
from perfkit.record.format import Sink
from perfkit.record.load import load

ROOT = Path(__file__).parents[3]
SAMPLES = ("data/traces/kineto_resnet", "data/traces/torch_npu_2rank", "tests/data/traces/dlrm_8xV100")


def made() -> Run:
    """The main thread launches "a" and "b"; the autograd thread launches "c" on a stream of its own, and then "b" is waited for."""
    sink = Sink()
    device = {"name": ["a", "b", "c"], "kind": "computing", "stream": ["7", "7", "8"], "start_ns": [10, 40, 75]}
    sink.add("kernels", rank=0, step=1, duration_ns=[20, 30, 5], **device)
    calls = {"call": "launch", "thread": ["main", "main", "autograd"], "launch_ns": [5, 12, 60], "launch_duration_ns": 2}
    sink.add("launches", rank=0, step=1, duration_ns=[20, 30, 5], **device, **calls)
    sink.add(
        "host",
        rank=0,
        name=["aten::mm", "launch", "launch", "backward", "cudaDeviceSynchronize"],
        kind=["operator", "call", "call", "operator", "call"],
        thread=["main", "main", "main", "autograd", "autograd"],
        start_ns=[4, 5, 12, 58, 65],
        duration_ns=[12, 2, 2, 4, 7],
    )
    return Run(name="made", kind="measured", format="test", tables=sink.tables())


def edges(run: Run, kind: str) -> list[tuple[str, str]]:
    events = causal_graph(run).rank(0)
    names = (events.nodes["name"] + "@" + events.nodes["start_ns"].astype(str)).tolist()
    found = events.edges(kind)
    return [(names[source], names[target]) for source, target in zip(found.sources, found.targets, strict=True)]


def test_every_kind_of_edge_of_a_made_recording():
    assert edges(made(), LAUNCH) == [("launch@5", "a@10"), ("launch@12", "b@40"), ("launch@60", "c@75")]
    assert edges(made(), STREAM) == [("a@10", "b@40")]
    assert edges(made(), OTHER_STREAM) == [("b@40", "c@75")]
    assert edges(made(), CALLS) == [("launch@5", "launch@12"), ("launch@60", "cudaDeviceSynchronize@65")]
    assert edges(made(), HANDOVER) == [("aten::mm@4", "backward@58")]
    assert edges(made(), DEVICE_WAIT) == [("b@40", "cudaDeviceSynchronize@65")]


def test_a_call_that_only_its_launch_tells_of_is_a_node():
    events = causal_graph(made()).rank(0)
    assert events.nodes["name"].tolist()[len(events.device) + len(events.host.rows) :] == ["launch"]
    assert events.host.parents.tolist() == [NONE, 0, 0, NONE, NONE]


def test_a_part_has_the_edges_between_its_own_events():
    part = causal_graph(made()).rank(0).part(np.array([0, 2]))
    assert len(part.edges(STREAM).sources) == 0
    assert len(part.edges(LAUNCH).sources) == 2


def test_the_graph_stays_with_its_run_and_not_with_a_copy():
    run = made()
    assert causal_graph(run) is causal_graph(run)
    assert causal_graph(replace(run, notes=("changed",))) is not causal_graph(run)


def test_members_are_the_same_whatever_was_made_of_them_before():
    graph = causal_graph(load(ROOT / SAMPLES[1]))
    first = graph.members()
    before = first.copy()
    first["wait_ns"] = 0
    first.loc[:, "duration_ns"] = 1
    for again in (graph.members(), graph.members(clocks=graph.clocks), graph.members(clocks=dict(graph.clocks))):
        assert again.equals(before)
    assert len(before)
    assert not graph.members(clocks={}).equals(before)


@cache
def sample(name: str) -> Run:
    return load(ROOT / name, cache=False)


@pytest.mark.parametrize("name", SAMPLES)
def test_every_edge_of_a_sample_leads_onwards(name):
    run = sample(name)
    for rank in run.ranks:
        events = causal_graph(run).rank(rank)
        starts = events.nodes["start_ns"].to_numpy()
        ends = starts + events.nodes["duration_ns"].to_numpy()
        for kind in KINDS:
            found = events.edges(kind)
            before, after = (ends, ends) if kind == DEVICE_WAIT else (starts, starts)
            assert (before[found.sources] <= after[found.targets]).all(), kind
        over = [events.edges(kind) for kind in (OTHER_STREAM, HANDOVER)]
        assert all((ends[found.sources] <= starts[found.targets]).all() for found in over)


@pytest.mark.parametrize("name", SAMPLES)
def test_predecessors_and_successors_are_one_graph_with_every_edge(name):
    events = causal_graph(sample(name)).rank(0)
    count = sum(len(events.edges(kind).sources) for kind in KINDS)
    assert count > 0
    assert len(events.predecessors.nodes) == len(events.successors.nodes) == count
    targets = np.repeat(np.arange(len(events.nodes)), np.diff(events.predecessors.offsets))
    sources = np.repeat(np.arange(len(events.nodes)), np.diff(events.successors.offsets))
    there = set(zip(events.predecessors.nodes.tolist(), targets.tolist(), events.predecessors.kinds.tolist(), strict=True))
    back = set(zip(sources.tolist(), events.successors.nodes.tolist(), events.successors.kinds.tolist(), strict=True))
    assert there == back
    assert events.successors.of(int(sources[0])).tolist() == events.successors.nodes[: (sources == sources[0]).sum()].tolist()


def test_the_late_rank_of_a_whole_world_is_named_and_its_members_are_executions():
    graph = causal_graph(sample("tests/data/traces/dlrm_8xV100"))
    rows = graph.members()
    latest = arrivals(rows)
    assert latest.loc[latest["late_ns"].idxmax(), "latest_rank"] == 7
    nodes = graph.member_nodes(rows)
    assert (nodes != NONE).all()
    lengths = [int(graph.rank(rank).device["duration_ns"][node]) for rank, node in zip(rows["rank"], nodes, strict=True)]
    assert lengths == rows["duration_ns"].tolist()
