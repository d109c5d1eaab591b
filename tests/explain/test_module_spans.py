"""Module spans: each module ran on its thread as recorded, and on the device from the first to the last of what it launched."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from perfkit.explain.module_spans import module_spans
from perfkit.record.format import Sink
from perfkit.record.load import load
from tests.explain.diagnose.made import run_of

DATA = Path(__file__).parents[1] / "data" / "traces"


@pytest.mark.parametrize("name", ["dlrm_8xV100", "tracelens/h100", "hta/timeline_analysis", "param/resnet_kineto.json.gz"])
def test_every_module_ran_as_often_as_the_tree_of_modules_counts_and_its_spans_begin_and_end_with_executions(name: str):
    run = load(DATA / name, cache=False)
    rank = run.ranks[0]
    spans, tree = module_spans(run, rank), run.modules(rank=rank)
    on_host = spans[spans["place"].str.startswith("thread ")]
    last = tree["path"].astype(str).str.split(" / ").str[-1].str.removeprefix("nn.Module: ")
    assert on_host.groupby("name").size().to_dict() == tree.groupby(last)["count"].sum().to_dict()
    on_device, kernels = spans.drop(on_host.index), run.frame("kernels", ranks=[rank])
    assert len(on_device)
    begins = set(kernels["start_ns"].dropna())
    ends = set((kernels["start_ns"] + kernels["duration_ns"]).dropna())
    assert set(on_device["start_ns"]) <= begins
    assert set(on_device["start_ns"] + on_device["duration_ns"]) <= ends


def test_what_runs_for_an_inner_module_lies_inside_of_the_span_of_the_outer_one():
    random = np.random.default_rng(3)
    sink = Sink()
    bounds = np.sort(random.integers(1, 999, 20)).reshape(10, 2)
    names = ["nn.Module: Net_0", *(f"nn.Module: Layer_{at}" for at in range(10))]
    lengths = [1000, *(bounds[:, 1] - bounds[:, 0])]
    sink.add("host", rank=0, name=names, kind="python", thread="1", start_ns=[0, *bounds[:, 0]], duration_ns=lengths)
    launch = random.integers(0, 1000, 200)
    start = np.sort(launch)[random.permutation(200)] + random.integers(0, 500, 200)
    rows = {"rank": 0, "step": 0, "name": "k", "kind": "computing", "stream": "7", "start_ns": start, "duration_ns": 5}
    sink.add("kernels", **rows)
    sink.add("launches", **rows, call="launch", thread="1", launch_ns=launch, launch_duration_ns=1)
    spans = module_spans(run_of(sink), 0)
    found = spans[spans["place"] == "stream 7, forward"].set_index("name")
    assert (found.loc["Net_0", "start_ns"], found["duration_ns"].max()) == (start.min(), found.loc["Net_0", "duration_ns"])
    for (begin, end), name in zip(bounds, names[1:], strict=True):
        mine = start[(launch >= begin) & (launch < end)]
        if not len(mine):
            assert name.removeprefix("nn.Module: ") not in found.index
            continue
        row = found.loc[name.removeprefix("nn.Module: ")]
        assert (row["start_ns"], row["start_ns"] + row["duration_ns"]) == (mine.min(), mine.max() + 5)


def test_where_no_module_was_recorded_there_is_no_span():
    sink = Sink()
    sink.add("host", rank=0, name="ProfilerStep#1", kind="mark", thread="1", start_ns=[0], duration_ns=9)
    spans = module_spans(run_of(sink), 0)
    assert list(spans) == ["name", "place", "start_ns", "duration_ns"]
    assert spans.empty


@pytest.mark.parametrize("name", ["hta/rank_unavailable", "hta/rank_non_gpu", "mindinsight/run_2", "ascend_memory"])
def test_a_recording_that_lacks_a_rank_a_device_or_a_host_has_no_span_and_no_error(name: str):
    run = load(DATA / name, cache=False)
    for rank in run.ranks:
        assert set(module_spans(run, rank)["place"].str.split(" ").str[0]) <= {"thread", "stream", "no"}
