"""Nsight Systems reports: databases made with the columns that NVIDIA documents, read against their own rows, and damaged ones."""

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from perfkit.core.errors import InputError
from perfkit.explain.launches import launches, unlinked
from perfkit.record.load import load
from perfkit.record.overlap import Timeline

BEGAN_NS = 1_760_000_000_000_000_000
PROCESS = 7 << 24
# The columns that are read, with the types and names of the schema that nsys 2024 and 2025 export.
SCHEMA = """
CREATE TABLE StringIds (id INTEGER NOT NULL PRIMARY KEY, value TEXT NOT NULL);
CREATE TABLE TARGET_INFO_SESSION_START_TIME (utcEpochNs INTEGER, utcTime TEXT, localTime TEXT);
CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL (start INTEGER NOT NULL, end INTEGER NOT NULL, deviceId INTEGER NOT NULL,
    contextId INTEGER NOT NULL, greenContextId INTEGER, streamId INTEGER NOT NULL, correlationId INTEGER, globalPid INTEGER,
    demangledName INTEGER NOT NULL, shortName INTEGER NOT NULL, mangledName INTEGER);
CREATE TABLE CUPTI_ACTIVITY_KIND_MEMCPY (start INTEGER NOT NULL, end INTEGER NOT NULL, deviceId INTEGER NOT NULL,
    streamId INTEGER NOT NULL, correlationId INTEGER, globalPid INTEGER, bytes INTEGER NOT NULL, copyKind INTEGER NOT NULL);
CREATE TABLE CUPTI_ACTIVITY_KIND_RUNTIME (start INTEGER NOT NULL, end INTEGER NOT NULL, eventClass INTEGER NOT NULL,
    globalTid INTEGER, correlationId INTEGER, nameId INTEGER NOT NULL, returnValue INTEGER NOT NULL);
CREATE TABLE NVTX_EVENTS (start INTEGER NOT NULL, end INTEGER, eventType INTEGER NOT NULL, text TEXT, globalTid INTEGER,
    textId INTEGER);
CREATE TABLE ENUM_CUDA_MEMCPY_OPER (id INTEGER NOT NULL PRIMARY KEY, name TEXT, label TEXT);
INSERT INTO TARGET_INFO_SESSION_START_TIME VALUES (1760000000000000000, '', '');
INSERT INTO ENUM_CUDA_MEMCPY_OPER VALUES (1, 'CUDA_MEMCPY_KIND_HTOD', 'Host-to-Device');
INSERT INTO StringIds VALUES (1, 'void gemm<float>(int)'), (2, 'ncclDevKernel_AllReduce_Sum_bf16_RING_LL(x)'),
    (3, 'cudaLaunchKernel'), (4, 'iteration 8');
"""
# start, end, name, launched at
KERNELS = [(1000, 3000, 1, 500), (2500, 4000, 2, 600), (9000, 9500, 1, 4900), (9600, 9700, 1, 5200)]


def report(path: Path, *, process: int = PROCESS, device: int = 0, ranges: bool = True, extra: str = "") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    with closing(sqlite3.connect(path)) as connection:
        if not path.stat().st_size:
            connection.executescript(SCHEMA)
        for number, (start, end, name, launch) in enumerate(KERNELS, 1):
            kernel = (start, end, device, 1, None, 7, number, process, name, name, None)
            connection.execute("INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES (?,?,?,?,?,?,?,?,?,?,?)", kernel)
            call = (launch, launch + 10, 0, process | 3, number, 3, 0)
            connection.execute("INSERT INTO CUPTI_ACTIVITY_KIND_RUNTIME VALUES (?,?,?,?,?,?,?)", call)
        connection.execute("INSERT INTO CUPTI_ACTIVITY_KIND_MEMCPY VALUES (4200,4300,?,7,NULL,?,64,1)", (device, process))
        if ranges:
            rows = [
                (400, 5000, 59, "step 7", process | 3, None),
                (5000, 9900, 59, None, process | 3, 4),
                (0, 99, 59, "x", process, None),
            ]
            connection.executemany("INSERT INTO NVTX_EVENTS VALUES (?,?,?,?,?,?)", rows)
        connection.executescript(extra)
        connection.commit()
    return path


def test_every_kernel_equals_the_rows_that_were_written(tmp_path: Path):
    run = load(report(tmp_path / "report.sqlite"))
    kernels = run.frame("kernels")
    computed = kernels[kernels["kind"] != "copy"]
    found = sorted(zip(map(int, computed["start_ns"] - BEGAN_NS), map(int, computed["duration_ns"]), strict=True))
    assert run.format == "nsight-systems"
    assert found == sorted((start, end - start) for start, end, _, _ in KERNELS)
    assert dict(kernels["kind"].value_counts()) == {"computing": 3, "communication": 1, "copy": 1}
    assert set(kernels.loc[kernels["kind"] == "copy", "name"]) == {"Memcpy Host-to-Device"}
    device = Timeline(computed).whole()
    assert (device.computing_ns, device.communication_ns, device.overlapped_ns) == (2000 + 500 + 100, 1500, 500)


def test_a_kernel_belongs_to_the_step_that_launched_it(tmp_path: Path):
    run = load(report(tmp_path / "report.sqlite"))
    kernels = run.frame("kernels").sort_values("start_ns")
    assert kernels["step"].tolist() == [7, 7, 7, 7, 8]
    steps = run.steps()
    assert steps["step"].tolist() == [7, 8]
    assert int(steps["start_ns"].iloc[0]) == BEGAN_NS + 400
    for row in steps.to_dict("records"):
        assert run.step_breakdown(row["rank"], row["step"]).total == row["duration_ns"]
    assert int(steps["computing_ns"].sum()) == 2600


def test_without_ranges_the_recording_is_one_step_0(tmp_path: Path):
    run = load(report(tmp_path / "report.sqlite", ranges=False))
    assert run.steps()[["step", "duration_ns"]].to_numpy().tolist() == [[0, 8700]]


def test_collectives_are_found_by_name(tmp_path: Path):
    collectives = load(report(tmp_path / "report.sqlite")).frame("collectives")
    assert collectives["operation"].tolist() == ["all_reduce"]
    assert collectives["bytes"].isna().all()


def test_launches_are_the_calls_of_equal_correlation_and_the_innermost_operator_around_them(tmp_path: Path):
    operators = "".join(
        f"INSERT INTO NVTX_EVENTS VALUES ({start}, {end}, 59, '{text}', {PROCESS | thread}, NULL);"
        for start, end, text, thread in (
            (450, 700, "aten::linear, op_id = 4", 3),
            (480, 520, "aten::mm, seq = 5, op_id = 5", 3),
            (490, 510, "forward", 3),
            (495, 505, "aten::other", 4),
        )
    )
    run = load(report(tmp_path / "report.sqlite", extra=operators))
    rows = launches(run, rank=0)
    rows = rows[rows["kind"] != "copy"]
    assert (rows["launch_ns"] - BEGAN_NS).tolist() == [launch for *_, launch in KERNELS]
    assert rows["delay_ns"].tolist() == [start - launch for start, _, _, launch in KERNELS]
    assert rows["call"].tolist() == ["cudaLaunchKernel"] * 4
    assert rows["operator"].astype("object").fillna("").tolist() == ["aten::mm", "aten::linear", "", ""]
    assert unlinked(run, rank=0) == 1
    kinds = run.frame("host").groupby("kind", observed=True)["name"].agg(set)
    assert kinds["mark"] == {"step 7", "iteration 8", "forward", "x"}
    assert kinds["operator"] == {"aten::linear", "aten::mm", "aten::other"}


def test_processes_and_devices_are_ranks_with_their_own_correlations(tmp_path: Path):
    path = report(tmp_path / "report.sqlite")
    report(path, process=9 << 24, device=1)
    run = load(path)
    assert run.ranks == (0, 1)
    assert any("rank 1 is device 1 of process 9" in note for note in run.notes)
    for rank in run.ranks:
        assert run.frame("kernels", ranks=[rank]).sort_values("start_ns")["step"].tolist() == [7, 7, 7, 7, 8]
        assert set(run.frame("launches", ranks=[rank])["thread"].dropna()) == {f"{(7, 9)[rank]}/3"}


def test_ranks_in_the_names_of_reports_count(tmp_path: Path):
    for rank in (2, 5):
        report(tmp_path / f"report_rank{rank}.sqlite")
    assert load(tmp_path).ranks == (2, 5)


def test_a_report_that_does_not_say_when_it_began_counts_from_there(tmp_path: Path):
    run = load(report(tmp_path / "report.sqlite", extra="DROP TABLE TARGET_INFO_SESSION_START_TIME;"))
    assert int(run.frame("kernels")["start_ns"].min()) == 1000
    assert any("does not say when its session began" in note for note in run.notes)


@pytest.mark.parametrize(
    "table", ["CUPTI_ACTIVITY_KIND_MEMCPY", "CUPTI_ACTIVITY_KIND_RUNTIME", "NVTX_EVENTS", "ENUM_CUDA_MEMCPY_OPER", "StringIds"]
)
def test_missing_tables_never_end_the_reading_in_another_error(tmp_path: Path, table: str):
    path = report(tmp_path / "report.sqlite", extra=f"DROP TABLE {table};")
    if table == "StringIds":
        with pytest.raises(InputError, match="no known format"):
            load(path)
    else:
        run = load(path)
        assert len(run.frame("kernels")) >= 4
        assert len(run.frame("launches")) == len(run.frame("kernels"))
        assert (unlinked(run, rank=0) == len(run.frame("kernels"))) == (table == "CUPTI_ACTIVITY_KIND_RUNTIME")


def test_rows_that_contradict_themselves_are_counted_and_hostile_names_stay_data(tmp_path: Path):
    hostile = "INSERT INTO StringIds VALUES (9, '<img src=x onerror=alert(1)>');"
    bad = (
        "INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES (10, 5, 0, 1, NULL, 7, 99, 117440512, 1, 1, NULL);"
        "INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES ('x', 5, 0, 1, NULL, 7, 99, 117440512, 1, 1, NULL);"
        "INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES (10, 15, 0, 1, NULL, 7, 99, 117440512, 777, 777, NULL);"
        "INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES (10, 15, 0, 1, NULL, 7, 99, 117440512, 9, 9, NULL);"
    )
    run = load(report(tmp_path / "report.sqlite", extra=hostile + bad))
    assert "<img src=x onerror=alert(1)>" in set(run.frame("kernels")["name"])
    assert sum(lost.count for lost in run.dropped if "reversed time" in lost.what) == 3


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(length=st.integers(0, 40_000))
def test_a_report_cut_at_any_byte_gives_no_more_than_the_whole(tmp_path: Path, length: int):
    path = tmp_path / "whole" / "report.sqlite"
    if not path.exists():
        report(path)
    cut = tmp_path / "cut.sqlite"
    cut.write_bytes(path.read_bytes()[:length])
    try:
        run = load(cut)
    except InputError:
        return
    assert len(run.frame("kernels")) <= 5
