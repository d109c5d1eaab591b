"""Counters of every format end as series of one shape, and any window of one holds all of its samples."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from perfkit.core.resources import data_folder
from perfkit.core.run import LazyTables
from perfkit.core.schema import TABLES
from perfkit.record import counters
from perfkit.record.counters import Series
from perfkit.record.load import load
from perfkit.record.readers.chrome_counters import Counter, counter_rows

TRACES = Path(__file__).parents[1] / "data" / "traces"
BASE_US = 1_700_000_000_000_000


def series_of(path: Path, rank: int = 0) -> dict[str, Series]:
    return {found.name: found for found in counters.series(load(path, cache=False), rank=rank)}


def made(values: list[float], times: list[int] | None = None) -> Series:
    moments = np.arange(len(values)) * 10 if times is None else np.array(times)
    return Series(rank=0, name="c", unit="", time_ns=moments.astype(np.int64), value=np.array(values, dtype=np.float64))


def test_a_timeline_of_ascend_has_the_counters_of_the_device():
    found = series_of(TRACES / "ascend_trace_view")
    assert (found["AI Core Freq"].unit, set(found["AI Core Freq"].value)) == ("MHz", {1800.0})
    assert (found["HBM 0/Read"].unit, len(found["HBM 0/Read"].value)) == ("MB/s", 13)
    assert found["HBM 0/Read"].value.max() == 22337.380907131293
    assert found["NPU MEM APP/HBM"].value[0] == 2160232.0
    assert len([name for name in found if name.startswith("Acc PMU read_bandwidth acc_id")]) == 28


def test_a_database_has_the_same_counters_by_the_same_names():
    found = series_of(TRACES / "torch_npu_db" / "level1")
    assert {name for name in found if name.startswith("HBM")} == {
        f"HBM {number}/{way}" for number in range(4) for way in ("Read", "Write")
    }
    assert (found["HBM 0/Read"].unit, found["HBM 0/Read"].value.max()) == ("B/s", 27005616970.0)
    assert found["NPU MEM APP/HBM"].value[0] == 2212077568.0
    assert list(found["memory PTA reserved"].value[:1]) == [1522532352.0]


def test_counters_that_stay_0_come_last_and_numbers_are_in_order():
    names = list(series_of(TRACES / "ascend_trace_view"))
    assert (
        names.index("QoS OTHERS") < names.index("Acc PMU read_bandwidth acc_id 2") < names.index("Acc PMU read_bandwidth acc_id 10")
    )


def kineto(tmp_path: Path, events: list[dict]) -> dict[str, Series]:
    kernel = {"ph": "X", "cat": "kernel", "name": "k", "ts": BASE_US, "dur": 5, "pid": 0, "tid": 7, "args": {"stream": 7}}
    trace = {"schemaVersion": 1, "distributedInfo": {"rank": 0}, "traceEvents": [kernel, *events]}
    (tmp_path / "rank0.json").write_text(json.dumps(trace))
    return series_of(tmp_path)


def test_kineto_counts_what_it_samples_and_what_its_allocator_holds(tmp_path):
    memory = {"Device Type": 1, "Device Id": 2, "Total Allocated": 4096, "Total Reserved": 8192, "Bytes": 512, "Addr": 1}
    found = kineto(
        tmp_path,
        [
            {"ph": "C", "name": "power", "pid": 0, "ts": BASE_US + 0.5, "args": {"W": 300.5}},
            {"ph": "C", "name": "power", "pid": 0, "ts": BASE_US + 3, "args": {"W": 250}},
            {"ph": "i", "name": "[memory]", "pid": 0, "ts": BASE_US + 1, "args": memory},
            {"ph": "i", "name": "other", "pid": 0, "ts": BASE_US + 1, "args": memory},
        ],
    )
    assert list(found["power"].time_ns) == [BASE_US * 1000 + 500, BASE_US * 1000 + 3000]
    assert (found["power"].unit, list(found["power"].value)) == ("W", [300.5, 250.0])
    assert {name: list(found[name].value) for name in found if name != "power"} == {
        "memory device 2 allocated": [4096.0],
        "memory device 2 reserved": [8192.0],
    }


@pytest.mark.parametrize("args", [None, [], "text", {"W": "text"}, {"W": True}, {"W": None}, {"W": {"a": 1}}, {}])
def test_a_counter_without_a_number_is_no_sample(args):
    assert counter_rows([Counter(name="power", ts=b"1.0", args=args)]).empty  # type: ignore[arg-type]


def test_every_key_is_a_series_and_its_unit_is_taken_off():
    rows = counter_rows([Counter(name="Link", ts=b"1.0", pid=3, args={"Tx(GB/s)": 1, "Rx(GB/s)": 2, "port id": 4})])  # type: ignore[arg-type]
    assert rows[["name", "unit", "value"]].to_numpy().tolist() == [
        ["Link Tx port id 4", "GB/s", 1.0],
        ["Link Rx port id 4", "GB/s", 2.0],
    ]


def test_the_bundled_profile_has_its_memory_as_counters():
    found = series_of(data_folder() / "traces" / "torch_npu_2rank")
    assert max(found["memory PTA+GE reserved"].value) == 1600913408.0
    assert not any("module" in name for name in found)


@given(
    times=st.lists(st.integers(0, 10_000), unique=True, max_size=60),
    start=st.integers(-500, 10_500),
    length=st.integers(1, 5000),
    pixels=st.integers(1, 700),
)
def test_a_window_holds_every_sample_once_within_its_range(times, start, length, pixels):
    moments = sorted(times)
    known = made([float((moment * 7919) % 101) for moment in moments], moments)
    steps = counters.window(known, start, start + length, pixels)
    inside = [float((moment * 7919) % 101) for moment in moments if start <= moment < start + length]
    before = [float((moment * 7919) % 101) for moment in moments if moment < start]
    assert len(steps.time_ns) <= pixels
    assert int(steps.count.sum()) == len(inside)
    assert [*inside, 0.0][: len(inside)][-1:] == list(steps.value[-1:])
    assert max(inside, default=0.0) == max(steps.high, default=0.0)
    assert min(inside, default=0.0) == min(steps.low, default=0.0)
    assert np.array_equal([steps.before], before[-1:] or [np.nan], equal_nan=True)


def test_an_empty_window_is_refused():
    with pytest.raises(ValueError, match="length"):
        counters.window(made([1.0]), 5, 5, 10)


def test_the_mean_counts_each_value_as_long_as_it_holds():
    known = made([1.0, 3.0], [0, 30])
    assert counters.mean(known, 0, 40) == pytest.approx((30 * 1 + 10 * 3) / 40)
    assert counters.mean(known, 30, 50) == 3.0
    assert counters.mean(known, -20, 0) is None


def test_of_samples_at_one_moment_the_last_counts(tmp_path):
    events = [{"ph": "C", "name": "power", "pid": 0, "ts": BASE_US, "args": {"W": value}} for value in (1, 2, 3)]
    assert list(kineto(tmp_path, events)["power"].value) == [3.0]


def test_a_kept_run_has_its_counters_in_the_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("PERFKIT_CACHE", str(tmp_path))
    run = load(TRACES / "ascend_trace_view", cache=False)
    assert isinstance(run.tables, LazyTables)
    first = counters.series(replace(run, cache_key="abc"), rank=0)
    gone = replace(run, tables=LazyTables({}), cache_key="abc")
    again = counters.series(gone, rank=0)
    assert [(each.name, each.unit, each.value.sum()) for each in again] == [
        (each.name, each.unit, each.value.sum()) for each in first
    ]


def test_the_table_says_what_its_columns_are():
    assert [column.name for column in TABLES["counters"].columns] == ["rank", "name", "unit", "time_ns", "value"]


def test_what_an_allocator_holds_is_a_curve_of_memory(tmp_path):
    def event(at, device, **sums):
        return {
            "ph": "i",
            "name": "[memory]",
            "pid": 0,
            "ts": BASE_US + at,
            "args": {"Device Type": 1, "Device Id": device, **sums},
        }

    kineto(tmp_path, [
        event(1, 0, **{"Total Allocated": 10, "Total Reserved": 20}),
        event(1, 1, **{"Total Reserved": 40}),
        event(2, 0, **{"Total Allocated": 12}),
    ])  # fmt: skip
    curve = load(tmp_path).frame("memory_curve")
    assert curve["component"].tolist() == ["device 0", "device 1", "device 0"]
    assert curve["allocated_bytes"].fillna(-1).tolist() == [10, -1, 12]
    assert curve["reserved_bytes"].fillna(-1).tolist() == [20, 40, -1]
