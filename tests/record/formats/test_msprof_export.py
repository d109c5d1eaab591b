"""Exports of msprof: a recorded run by iteration, slices, tables of kernels, clocks, and damaged or empty exports."""

import gzip
import json
import shutil
from decimal import Decimal
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from perfkit.core.errors import InputError
from perfkit.core.run import Run
from perfkit.record.formats.ascend.trace import read_recording
from perfkit.record.listing import list_files
from perfkit.record.load import load
from perfkit.record.overlap import Timeline

SAMPLES = Path(__file__).parents[2] / "data" / "traces" / "msprof_export"
ALEXNET = SAMPLES / "alexnet"
OUTPUT = "mindstudio_profiler_output"
sample = cache(load)

# Spans and ns of the profiler's lanes, computed independently from the same files: Computing, Communication, Free.
EXPECTED = {
    "msprof_0_2_1": ((107, 5914580), (1, 41534300), (107, 113630), 1108),
    "msprof_0_2_2": ((125, 5928100), (1, 9303050), (125, 114640), 1134),
    "msprof_0_2_3": ((123, 5946600), (1, 9213810), (123, 120800), 1135),
    "msprof_0_2_4": ((125, 5930850), (1, 9306280), (125, 114650), 1140),
    "msprof_1_0_1": ((113, 5927580), (1, 51464470), (113, 115110), 1119),
    "msprof_1_0_2": ((125, 5922860), (1, 10727540), (125, 118870), 1138),
    "msprof_1_0_3": ((125, 5951240), (1, 9560200), (125, 122020), 1139),
    "msprof_1_0_4": ((127, 5953870), (1, 9241340), (127, 118100), 1142),
}


def events_of(name: str) -> list[dict[str, Any]]:
    (path,) = ALEXNET.rglob(f"{name}.json.gz")
    events: list[dict[str, Any]] = json.loads(gzip.decompress(path.read_bytes()), parse_float=Decimal)
    return events


def write_json(path: Path, events: list[dict[str, Any]]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(events, default=float), encoding="utf-8")


def plain_tasks(name: str) -> list[tuple[str, int, int]]:
    """Name, start and duration of every task of a computing unit, on the monotonic clock, with the standard library alone."""
    tasks = [event for event in events_of(name) if event["ph"] == "X" and "AI_C" in str(event.get("args", {}).get("Task Type"))]
    return sorted((task["name"], int(task["ts"] * 1000), int(task["dur"] * 1000)) for task in tasks)


def states(run: Run, rank: int = 0) -> dict[str, str]:
    rows = run.frame("coverage", ranks=[rank])
    return dict(zip(rows["part"], rows["state"], strict=True))


# The recorded run


@pytest.mark.parametrize("name", EXPECTED)
def test_lanes_of_every_iteration_have_their_reference_counts_and_sums(name: str):
    (file,) = [file for file in list_files(ALEXNET) if file.name == f"{name}.json.gz"]
    recording = read_recording(file)
    computing, communication, free, events = EXPECTED[name]
    assert recording.num_events == events
    lanes = {lane: (recording.lane_spans[lane], recording.lanes[lane]) for lane in recording.lanes}
    assert lanes == {
        "Computing": computing,
        "Communication": communication,
        "Communication(Not Overlapped)": communication,
        "Free": free,
    }


@pytest.mark.parametrize("name", EXPECTED)
def test_the_kernels_of_every_iteration_cover_what_the_lanes_say_to_the_nanosecond(name: str):
    rank, _, step = (int(number) for number in name.split("_")[1:])
    rows = sample(ALEXNET).frame("kernels", ranks=[rank], steps=[step])
    timeline = Timeline(rows)
    computing, communication, _, _ = EXPECTED[name]
    assert timeline.of("computing").total_ns == computing[1]
    assert timeline.of("communication").total_ns == communication[1]
    found = rows[rows["kind"] == "computing"]
    plain = plain_tasks(name)
    assert sorted(zip(found["name"].astype(str), map(int, found["duration_ns"]), strict=True)) == sorted(
        (task, duration) for task, _, duration in plain
    )


def test_steps_reach_from_iteration_to_iteration_and_their_leaves_sum_to_them():
    run = sample(ALEXNET)
    steps = run.steps()
    assert list(steps["step"]) == [1, 2, 3, 4] * 2
    for row in steps.to_dict("records"):
        assert run.step_breakdown(row["rank"], row["step"]).total == row["duration_ns"]
    first = steps.iloc[0]
    assert first["duration_ns"] == 47587810  # Iteration Time(ns) as recorded
    second = steps.iloc[1]
    assert second["start_ns"] == first["start_ns"] + first["duration_ns"]
    assert second["free_ns"] > 32134950  # it begins with the recorded Data_aug Bound


def test_monotonic_times_become_the_time_of_day():
    run = sample(ALEXNET)
    monotonic_ns = 56635864652490  # start of iteration 1 of device 0, rounded by its writer: ...652.490005 us
    assert int(run.steps()["start_ns"].iloc[0]) == monotonic_ns + 1692340024324979000 - 56579931060630
    ends = (
        run.steps()
        .groupby("step")[["start_ns", "duration_ns"]]
        .apply(lambda rows: (rows["start_ns"] + rows["duration_ns"]).tolist())
    )
    assert all(abs(end[0] - end[1]) < 2_000_000 for end in ends)  # the devices of one host end an all-reduce together


def test_collectives_are_named_and_no_part_of_them_is_counted_twice():
    collectives = sample(ALEXNET).frame("collectives")
    assert len(collectives) == 8
    assert set(collectives["operation"]) == {"all_reduce"}
    assert int(collectives["duration_ns"].sum()) == sum(values[1][1] for values in EXPECTED.values())


def test_coverage_says_that_kernels_come_from_the_timeline():
    assert states(sample(ALEXNET)) == {"timeline": "present", "kernels": "partial", "step times": "present"}


# New layout, slices and tables


def test_slices_give_the_same_kernels_as_one_file(tmp_path: Path):
    events = events_of("msprof_0_2_1")
    named = sorted(events, key=lambda event: event["ph"] != "M")
    middle = len(named) // 2
    write_json(tmp_path / "whole" / "PROF_1" / OUTPUT / "msprof_20230919172304.json", events)
    write_json(tmp_path / "sliced" / "PROF_1" / OUTPUT / "msprof_slice_0_20230919172304.json", named[:middle])
    write_json(tmp_path / "sliced" / "PROF_1" / OUTPUT / "msprof_slice_1_20230919172305.json", named[middle:])
    whole, sliced = load(tmp_path / "whole"), load(tmp_path / "sliced")
    columns = ["name", "kind", "start_ns", "duration_ns"]
    one, other = (
        run.frame("kernels")[columns].astype({"name": str}).sort_values(columns).reset_index(drop=True) for run in (whole, sliced)
    )
    assert len(one) > 100
    assert one.astype({"kind": str}).equals(other.astype({"kind": str}))
    assert sliced.steps()["computing_ns"].tolist() == [5914580]


def test_flows_from_slice_to_slice_link_kernels_to_calls_on_the_clock_of_the_day(tmp_path: Path):
    names = [
        {"ph": "M", "name": "process_name", "pid": pid, "tid": 0, "args": {"name": name}}
        for pid, name in ((1, "CANN"), (2, "Ascend Hardware"))
    ]
    call = {"ph": "X", "name": "Node@launch", "pid": 1, "tid": 5, "ts": "90.000", "dur": 20}
    flow = {"cat": "HostToDevice", "name": "HostToDevice1", "id": "1"}
    start = {**flow, "ph": "s", "pid": 1, "tid": 5, "ts": "95.000"}
    end = {**flow, "ph": "f", "pid": 2, "tid": 3, "ts": "200.000"}
    task = {"ph": "X", "name": "MatMul", "pid": 2, "tid": 3, "ts": "200.000", "dur": 7, "args": {"Task Type": "AI_CORE"}}
    prof = tmp_path / "PROF_1"
    write_json(prof / OUTPUT / "msprof_slice_0_20240101000000.json", [*names, call, start])
    write_json(prof / OUTPUT / "msprof_slice_1_20240101000000.json", [end, task])
    (prof / "device_0").mkdir()
    (prof / "device_0" / "info.json.0").write_text("{}")
    began = {"collectionTimeBegin": "1700000000000000", "clockMonotonicRaw": "0"}
    (prof / "device_0" / "start_info.0").write_text(json.dumps(began))
    row = load(tmp_path).frame("launches").iloc[0]
    day_ns = 1_700_000_000_000_000_000
    assert (row["start_ns"] - day_ns, row["launch_ns"] - day_ns, row["call"]) == (200_000, 95_000, "Node@launch")


def test_of_two_exports_of_one_folder_the_later_is_read(tmp_path: Path):
    folder = tmp_path / "PROF_1" / OUTPUT
    write_json(folder / "msprof_20230919172304.json", events_of("msprof_0_2_1"))
    write_json(folder / "msprof_20230920000000.json", events_of("msprof_0_2_2"))
    assert load(tmp_path).steps()["computing_ns"].tolist() == [5928100]


def test_a_table_of_kernels_has_types_shapes_and_steps():
    run = sample(SAMPLES / "op_summary" / "op_summary_1.csv")
    kernels = run.frame("kernels")
    assert len(kernels) == 20
    first = kernels.iloc[0]
    assert (first["name"], first["type"], first["start_ns"], first["duration_ns"]) == (
        "ZerosLike",
        "ZerosLike",
        1695115378713661000,
        496851,
    )
    assert first["input_shapes"] == "232138240"
    assert list(run.steps()["step"]) == [2]
    assert set(run.frame("collectives")["operation"]) == {"broadcast", "all_reduce", "all_gather"}
    assert sum(lost.count for lost in run.dropped) == 1


def table(folder: Path, *rows: str, device_column: bool = False) -> None:
    header = ("Device_id," if device_column else "") + "Op Name,OP Type,Task Type,Task Start Time(us),Task Duration(us)"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "op_summary_20230919172304.csv").write_text("\n".join((header, *rows)), encoding="utf-8")


def test_the_table_is_preferred_to_the_timeline_beside_it(tmp_path: Path):
    folder = tmp_path / "PROF_1" / OUTPUT
    table(
        folder, "a,A,AI_CORE,1695115378713661.123\t,2.5", "hcom_allReduce__483_0_1,hcom_allReduce_,COMMUNICATION,1695115378713664,1"
    )
    write_json(folder / "msprof_20230919172304.json", events_of("msprof_0_2_1"))
    kernels = load(tmp_path).frame("kernels")
    assert kernels["duration_ns"].tolist() == [2500, 1000]
    assert kernels["kind"].tolist() == ["computing", "communication"]
    assert kernels["start_ns"].iloc[0] == 1695115378713661123


def test_devices_of_one_export_become_ranks_and_a_note_says_what_is_left_out(tmp_path: Path):
    prof = tmp_path / "PROF_1"
    table(prof / OUTPUT, "0,a,A,AI_CORE,1695115378713661,2", "1,b,B,AI_CORE,1695115378713662,3", device_column=True)
    for device, rank in ((0, 4), (1, 5)):
        (prof / f"device_{device}").mkdir()
        (prof / f"device_{device}" / f"info.json.{device}").write_text(json.dumps({"rank_id": rank}))
    run = load(tmp_path)
    assert {int(row["rank"]): row["name"] for row in run.frame("kernels").to_dict("records")} == {4: "a", 5: "b"}
    assert any("holds 2 devices" in note for note in run.notes)


def test_an_export_below_a_rank_folder_with_output_of_its_own_is_left_to_it(tmp_path: Path):
    source = Path(__file__).parents[2] / "data" / "traces" / "torch_npu_level0" / "rank0_ascend_pt"
    rank = Path(shutil.copytree(source, tmp_path / "rank0_ascend_pt"))
    for number in range(6):
        write_json(rank / "PROF_1" / OUTPUT / f"msprof_slice_{number}_20230919172304.json", events_of("msprof_0_2_1"))
    run = load(tmp_path)
    assert run.format == "ascend-text"
    assert not [note for note in run.notes if "msprof" in note]


def test_two_exports_that_state_one_rank_leave_the_later(tmp_path: Path):
    run_copy = Path(shutil.copytree(ALEXNET, tmp_path / "run"))
    (info,) = run_copy.rglob("info.json.1")
    info.write_text(json.dumps({"rank_id": 0}))
    run = load(run_copy)
    assert run.ranks == (0,)
    assert any("another export of rank 0" in lost.what for lost in run.dropped)


# Damaged exports


@pytest.mark.parametrize("layout", ["normal", "slice"])
def test_exports_of_zero_bytes_are_named_as_empty(layout: str):
    with pytest.raises(InputError) as error:
        load(SAMPLES / "empty" / layout)
    problems = " ".join(error.value.problems)
    assert "msprof" in problems
    assert "op_summary" in problems
    assert "empty (0 bytes)" in problems


def test_one_empty_iteration_is_counted_and_the_others_are_read(tmp_path: Path):
    run_copy = Path(shutil.copytree(ALEXNET, tmp_path / "run"))
    (path,) = run_copy.rglob("msprof_0_2_3.json.gz")
    path.with_name("msprof_0_2_3.json").write_bytes(b"")
    path.unlink()
    run = load(run_copy)
    assert run.steps()[run.steps()["rank"] == 0]["step"].tolist() == [1, 2, 4]
    assert any("empty (0 bytes)" in lost.what and "msprof_0_2_3" in lost.file for lost in run.dropped)


def test_the_step_after_a_missing_iteration_does_not_reach_into_it(tmp_path: Path):
    run_copy = Path(shutil.copytree(ALEXNET, tmp_path / "run"))
    for path in [*run_copy.rglob("step_trace*"), *run_copy.rglob("msprof_0_2_3*")]:
        path.unlink()
    steps = load(run_copy).steps()
    times = steps[steps["rank"] == 0].set_index("step")["duration_ns"]
    assert times[4] < times[2]  # without the wait for data before it, which no file tells


def test_hostile_names_stay_data(tmp_path: Path):
    folder = tmp_path / "PROF_<img src=x onerror=alert(1)>" / OUTPUT
    table(folder, "<img src=x onerror=alert(1)>,<b>,AI_CORE,1695115378713661,2")
    run = load(tmp_path)
    assert list(run.frame("kernels")["name"]) == ["<img src=x onerror=alert(1)>"]


def test_a_table_without_its_columns_says_which_are_missing(tmp_path: Path):
    folder = tmp_path / "PROF_1" / OUTPUT
    folder.mkdir(parents=True)
    (folder / "op_summary_20230919172304.csv").write_text("Op Name,OP Type\na,A\n")
    with pytest.raises(InputError, match=r"Task Duration\(us\)"):
        load(tmp_path)


@settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(length=st.integers(min_value=2, max_value=270_000))
def test_a_timeline_cut_at_any_byte_gives_its_complete_events(tmp_path: Path, length: int):
    whole = json.dumps(events_of("msprof_0_2_1"), default=float)
    path = tmp_path / "PROF_1" / OUTPUT / "msprof_20230919172304.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(whole[:length])
    try:
        run = load(tmp_path)
    except InputError:
        return
    assert int((run.frame("kernels")["kind"] == "computing").sum()) <= 139
    assert run.notes or run.dropped or length >= len(whole)
