"""Names of two runs: what was added and removed, counted apart from the package."""

from __future__ import annotations

from collections import Counter

import pytest

from perfkit.core.errors import InputError
from perfkit.core.run import Run
from perfkit.explain.compare.names import compare_names
from perfkit.record.load import load
from tests.explain.raw_events import TRACES, ns, spans

CONTROL, TEST = "hta/trace_diff/control.json.gz", "hta/trace_diff/test.json.gz"
HOST = {"cpu_op", "cuda_runtime", "cuda_driver", "user_annotation", "overhead"}


def calls(path: str, step: int) -> tuple[Counter[str], Counter[str]]:
    """Calls and time by name of what the host began in a step, event by event."""
    events = [event for event in spans(path) if event.get("cat") in HOST]
    mark = next(event for event in events if event["name"] == f"ProfilerStep#{step}")
    later = [event["ts"] for event in events if event["name"].startswith("ProfilerStep#") and event["ts"] > mark["ts"]]
    end = min(later, default=mark["ts"] + mark["dur"])
    counts: Counter[str] = Counter()
    times: Counter[str] = Counter()
    for event in events:
        if mark["ts"] <= event["ts"] < end and not event["name"].startswith("ProfilerStep#"):
            counts[event["name"]] += 1
            times[event["name"]] += ns(event["dur"])
    return counts, times


@pytest.fixture(scope="module")
def runs() -> tuple[Run, Run]:
    return load(TRACES / CONTROL, cache=False), load(TRACES / TEST, cache=False)


def test_added_and_removed_operators_are_those_of_the_events(runs):
    table = compare_names(*runs, steps=([1009], [1009]))
    host = table[table["where"] == "host"].set_index("name")
    (a, time_a), (b, time_b) = calls(CONTROL, 1009), calls(TEST, 1009)
    assert set(host.index[host["change"] == "added"]) == set(b) - set(a)
    assert set(host.index[host["change"] == "removed"]) == set(a) - set(b)
    assert set(host.index[host["change"] == "more"]) == {name for name in set(a) & set(b) if b[name] > a[name]}
    assert host["count_a"].to_dict() == {name: a[name] for name in {*a, *b}}
    assert host["total_b_ns"].to_dict() == {name: time_b[name] for name in {*a, *b}}
    assert host["total_a_ns"].sum() == time_a.total()


def test_amounts_of_a_step_are_those_that_holistic_trace_analysis_publishes():
    """Figures of test_get_ops_summary in tests/test_trace_diff.py of facebookresearch/HolisticTraceAnalysis, in us."""
    run = load(TRACES / "hta/trace_compare/base.json.gz", cache=False)
    table = compare_names(run, run, steps=([1010], [1010]))
    host = table[table["where"] == "host"].set_index("name")
    published = {"aten::as_strided": 0, "aten::empty": 0, "cudaEventQuery": 4, "cudaLaunchKernel": 4, "nccl:all_reduce": 67}
    assert (host["total_a_ns"] / 1_000).to_dict() == published
    assert set(host["count_a"]) == {1.0}
    assert set(table["change"]) == {"same"}


def test_a_comparison_turned_round_swaps_added_and_removed(runs):
    there, back = compare_names(*runs), compare_names(*runs[::-1])
    key = ["where", "name"]
    turned = {"added": "removed", "removed": "added", "more": "fewer", "fewer": "more", "same": "same"}
    assert there.set_index(key)["change"].map(turned).to_dict() == back.set_index(key)["change"].to_dict()
    assert there.set_index(key)["count_a"].to_dict() == back.set_index(key)["count_b"].to_dict()


def test_counts_of_the_device_are_those_of_its_steps(runs):
    table = compare_names(*runs)
    device = table[table["where"] == "device"]
    kernels = runs[1].frame("kernels")
    kernels = kernels[kernels["step"].notna()]
    visits = len(kernels[["rank", "step"]].drop_duplicates())
    assert device["count_b"].sum() * visits == len(kernels)
    with pytest.raises(InputError, match="no kernels and no operators"):
        compare_names(*runs, steps=([1], [1009]))
