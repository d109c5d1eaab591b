"""Sequences of kernels: what each call of an operator launched, counted."""

from __future__ import annotations

from collections import Counter

import pytest

from perfkit.core.errors import InputError
from perfkit.core.run import Run
from perfkit.explain.kernel_sequences import BETWEEN
from perfkit.record.load import load
from tests.explain.raw_events import TRACES, ns, spans

SAMPLE = "hta/ns_resolution_trace/rank-0.Apr_03_18_51_38.1102.pt.trace.json.gz"


@pytest.fixture(scope="module")
def resnet() -> Run:
    return load(TRACES / SAMPLE, cache=False)


def sequences(path: str, operator: str, least: int) -> tuple[Counter[str], Counter[str]]:
    """Calls and device time by sequence: every call of an operator of that name, event by event."""
    events = spans(path)
    device = {e["args"]["correlation"]: e for e in events if e.get("cat") in ("kernel", "gpu_memcpy", "gpu_memset")}
    roots = [e for e in events if e.get("cat") == "cpu_op" and e["name"] == operator]
    calls = [e for e in events if e.get("cat") == "cuda_runtime" and e["args"].get("correlation") in device]
    counts: Counter[str] = Counter()
    times: Counter[str] = Counter()
    for root in roots:
        end = root["ts"] + root["dur"]
        inside = [c for c in calls if c["tid"] == root["tid"] and root["ts"] <= c["ts"] < end]
        kernels = sorted((device[c["args"]["correlation"]] for c in inside), key=lambda e: e["ts"])
        if len(kernels) >= least:
            name = BETWEEN.join(kernel["name"] for kernel in kernels)
            counts[name] += 1
            times[name] += sum(ns(kernel["dur"]) for kernel in kernels)
    return counts, times


@pytest.mark.parametrize(("operator", "least"), [("aten::conv2d", 3), ("aten::linear", 1), ("aten::addmm", 2)])
def test_sequences_are_those_of_the_events(resnet, operator, least):
    table = resnet.kernel_sequences(operator=operator, least=least)
    counts, times = sequences(SAMPLE, operator, least)
    assert len(counts)
    assert table.set_index("sequence")["count"].to_dict() == dict(counts)
    assert table.set_index("sequence")["device_ns"].to_dict() == dict(times)
    assert table["count"].is_monotonic_decreasing


def test_outermost_operators_together_launch_everything_that_an_operator_launched(resnet):
    table = resnet.kernel_sequences(least=1)
    launches = resnet.frame("launches")
    assert (table["count"] * table["num_kernels"]).sum() == launches["operator"].notna().sum()
    assert table["device_ns"].sum() == launches.loc[launches["operator"].notna(), "duration_ns"].sum()


def test_a_step_has_a_part_of_the_calls_and_a_wrong_name_is_answered_with_near_ones(resnet):
    steps = sorted(resnet.steps()["step"])
    found = [int(resnet.kernel_sequences(step=step)["count"].sum()) for step in steps]
    assert 0 < sum(found) <= resnet.kernel_sequences()["count"].sum()
    with pytest.raises(InputError, match="do you mean 'aten::conv2d'"):
        resnet.kernel_sequences(operator="aten::conv2dd")
