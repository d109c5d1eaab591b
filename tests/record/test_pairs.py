"""Spans written as a beginning and an end: nested, asynchronous, out of order and without a partner."""

import json
import random

import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from perfkit.record.load import load
from perfkit.record.readers.pairs import NO_BEGINNING, NO_END, NO_TIME

BASE_NS = 1_700_000_000_000_000_000


def event(phase, ts, name="aten::mm", cat="cpu_op", tid=1, **more):
    return {"ph": phase, "name": name, "cat": cat, "ts": ts, "pid": 0, "tid": tid, **more}


def kernel(ts, dur, correlation=1):
    args = {"correlation": correlation, "stream": 7, "device": 0}
    return {"ph": "X", "name": "gemm", "cat": "kernel", "ts": ts, "dur": dur, "pid": 0, "tid": 7, "args": args}


def read(tmp_path, events):
    path = tmp_path / "rank0.json"
    path.write_text(json.dumps({"schemaVersion": 1, "baseTimeNanoseconds": BASE_NS, "traceEvents": events}))
    return load(path, cache=False)


def host(run):
    rows = run.frame("host")
    names, starts, durations = rows["name"], rows["start_ns"] - BASE_NS, rows["duration_ns"]
    return sorted(zip(map(str, names), map(int, starts), map(int, durations), strict=True))


def lost(run):
    return {each.what: each.count for each in run.dropped}


def test_a_beginning_and_an_end_are_one_span_exact_to_the_nanosecond(tmp_path):
    run = read(tmp_path, [event("B", 0.001), event("E", 10.004), kernel(2, 3)])
    assert host(run) == [("aten::mm", 1, 10_003)]


def test_device_work_in_pairs_gives_the_same_run_as_whole_spans(tmp_path):
    marks = [event("B", 0, "ProfilerStep#4", "user_annotation"), event("E", 100, "ProfilerStep#4", "user_annotation")]
    call = event("X", 1, "cudaLaunchKernel", "cuda_runtime", dur=1, args={"correlation": 1})
    whole = kernel(20, 50)
    begin = {**whole, "ph": "B"}
    del begin["dur"]
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    pairs = read(tmp_path / "a", [*marks, call, begin, {"ph": "E", "ts": 70, "pid": 0, "tid": 7}])
    spans = read(tmp_path / "b", [event("X", 0, "ProfilerStep#4", "user_annotation", dur=100), call, whole])
    for table in ("kernels", "steps", "launches"):
        pd.testing.assert_frame_equal(pairs.frame(table), spans.frame(table))
    assert not pairs.dropped


def test_an_end_without_a_name_closes_the_innermost_beginning_of_its_thread(tmp_path):
    end = {"ph": "E", "pid": 0, "tid": 1}
    other = event("B", 1, "aten::add", tid=2)
    events = [event("B", 0, "outer"), other, event("B", 2, "inner"), {**end, "ts": 3}, {**end, "ts": 9}, {**end, "ts": 5, "tid": 2}]
    run = read(tmp_path, [*events, kernel(1, 1)])
    assert host(run) == [("aten::add", 1000, 4000), ("inner", 2000, 1000), ("outer", 0, 9000)]


def test_what_has_no_partner_is_counted(tmp_path):
    events = [
        event("E", 0, "a"),
        event("B", 1, "b"),
        event("B", 2, "c"),
        event("E", 3, "b"),
        event("B", "?", "d"),
        event("B", 4, "e"),
    ]
    run = read(tmp_path, [*events, kernel(1, 1)])
    assert host(run) == [("b", 1000, 2000)]
    assert {name: lost(run)[name] for name in (NO_BEGINNING, NO_END, NO_TIME)} == {NO_BEGINNING: 1, NO_END: 2, NO_TIME: 1}


def test_asynchronous_events_of_one_id_belong_together_although_they_overlap(tmp_path):
    events = [event("b", 0, id=1), event("b", 1, id=2), event("e", 5, id=1), event("e", 8, id=2), event("e", 9, id=3)]
    run = read(tmp_path, [*events, kernel(1, 1)])
    assert host(run) == [("aten::mm", 0, 5000), ("aten::mm", 1000, 7000)]
    assert lost(run) == {NO_BEGINNING: 1}
    assert run.frame("host")["thread"].nunique() == 2


@pytest.mark.parametrize("order", ["beginnings first", "each with its end", "backwards"])
def test_the_order_in_the_file_does_not_matter(tmp_path, order):
    begins = [event("B", 10 * index) for index in range(5)]
    ends = [event("E", 10 * index + 10) for index in range(5)]
    events = {
        "beginnings first": begins + ends,
        "each with its end": [each for pair in zip(begins, ends, strict=True) for each in pair],
        "backwards": [each for pair in zip(begins[::-1], ends[::-1], strict=True) for each in pair],
    }[order]
    run = read(tmp_path, [*events, kernel(1, 1)])
    assert host(run) == [("aten::mm", 10_000 * index, 10_000) for index in range(5)]
    assert not run.dropped


@settings(max_examples=12, deadline=None)
@given(st.recursive(st.just([]), lambda inner: st.lists(inner, max_size=4), max_leaves=25), st.integers())
def test_any_nesting_comes_back_whole_in_order_and_shuffled(tmp_path_factory, tree, seed):
    events, expected, clock = [], [], iter(range(1, 10_000))

    def visit(children, depth):
        start = next(clock)
        events.append(event("B", start, f"depth{depth}"))
        for child in children:
            visit(child, depth + 1)
        end = next(clock)
        events.append(event("E", end, f"depth{depth}"))
        expected.append((f"depth{depth}", 1000 * start, 1000 * (end - start)))

    visit(tree, 0)
    in_order = read(tmp_path_factory.mktemp("in_order"), [*events, kernel(1, 1)])
    assert host(in_order) == sorted(expected)
    assert not in_order.dropped
    random.Random(seed).shuffle(events)
    events.sort(key=lambda each: each["ph"])
    assert host(read(tmp_path_factory.mktemp("by_phase"), [*events, kernel(1, 1)])) == sorted(expected)
