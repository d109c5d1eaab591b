"""Copies: bytes and rates by kind, and over time."""

from __future__ import annotations

from collections import Counter

import pytest

from perfkit.core.errors import NotMeasuredError
from perfkit.explain.copies import kind_of
from tests.explain.raw_events import ns, read, spans

SAMPLES = [
    "hta/ns_resolution_trace/rank-0.Apr_03_18_51_38.1102.pt.trace.json.gz",
    "hta/nccl_parser_config/nccl_data.json.gz",
    "hta/critical_path/simple_add/benchmark_result_493459_1694039959_trace.json.gz",
    "kineto_tb_samples/resnet50_num_workers_4/worker0.pt.trace.json.gz",
    "param/resnet_kineto.json.gz",
]
COPIES = ("gpu_memcpy", "gpu_memset", "Memcpy", "Memset")


@pytest.mark.parametrize("sample", SAMPLES)
def test_bytes_and_times_are_those_of_the_events(sample):
    events = [event for event in spans(sample) if event.get("cat") in COPIES]
    moved: Counter[str] = Counter()
    took: Counter[str] = Counter()
    for event in events:
        moved[event["name"]] += event["args"]["bytes"]
        took[event["name"]] += ns(event["dur"])
    table = read(sample).copies().set_index("name")
    assert table["bytes"].to_dict() == dict(moved)
    assert table["total_ns"].to_dict() == dict(took)
    assert table["count"].sum() == len(events)


@pytest.mark.parametrize("sample", SAMPLES)
def test_rates_over_time_sum_to_the_bytes_of_copies_that_took_time(sample):
    run = read(sample)
    table = run.copy_bandwidth()
    summed = (table["bytes_per_s"] * table["duration_ns"] / 1e9).groupby(table["kind"]).sum()
    rows = run.frame("launches")
    rows = rows[(rows["kind"] == "copy") & (rows["duration_ns"] > 0)]
    wanted = rows["bytes"].groupby(rows["name"].astype(str).map(kind_of)).sum()
    assert summed.to_dict() == pytest.approx(wanted.astype(float).to_dict(), rel=1e-9)
    for _, kind in table.groupby(["rank", "kind"]):
        assert (kind["time_ns"].to_numpy()[1:] == (kind["time_ns"] + kind["duration_ns"]).to_numpy()[:-1]).all()


@pytest.mark.parametrize("sample", SAMPLES[:2])
def test_the_rate_of_a_copy_is_the_one_that_the_profiler_states(sample):
    stated = [event for event in spans(sample) if event.get("cat") in COPIES and event["dur"] > 1]
    fastest = max(float(event["args"]["memory bandwidth (GB/s)"]) for event in stated)
    table = read(sample).copies()
    assert table["most_bytes_per_s"].max() / 1e9 == pytest.approx(fastest, rel=1e-3)


def test_a_size_that_was_not_recorded_is_null_and_a_run_without_copies_not_measured():
    table = read("hta/negative_queue_length").copies()
    assert table["bytes"].isna().all()
    assert table["bytes_per_s"].isna().all()
    assert (table["total_ns"] > 0).any()
    with pytest.raises(NotMeasuredError):
        read("torch_npu_level0").copies()


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("Memcpy HtoD (Pinned -> Device)", "HtoD"),
        ("Memcpy Device-to-Host", "DtoH"),
        ("CopyDeviceToDevice", "DtoD"),
        ("Memset (Device)", "Memset"),
        ("Memcpy PtoP (Device -> Device)", "PtoP"),
        ("Memcpy", "copy"),
    ],
)
def test_kinds_are_told_by_names(name, kind):
    assert kind_of(name) == kind
