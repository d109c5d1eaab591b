"""Ascend timelines on their own: against the tables of the same recordings, and what bad input leaves."""

import gzip
import json
from pathlib import Path

import pytest

from perfkit.core.errors import InputError
from perfkit.explain.launches import launches, unlinked
from perfkit.record.listing import list_files
from perfkit.record.load import load
from perfkit.record.overlap import Timeline
from perfkit.record.recognise import formats

TRACES = Path(__file__).parents[2] / "data/traces/ascend_trace_view"
RANK_0 = TRACES / "rank0_ascend_pt"
COLUMNS = ["computing_ns", "communication_ns", "overlapped_ns"]
LEVEL_1_RANK_0 = {"computing_ns": 8_873_756, "communication_ns": 105_991_878, "overlapped_ns": 4_028_675}
"""Of the step_trace_time.csv that the profiler wrote beside the timeline of rank 0."""


def named(what, pid, name, tid=0):
    return {"ph": "M", "name": what, "pid": pid, "tid": tid, "args": {"name": name}}


PROCESSES = [
    named("process_name", 1, "Python"),
    named("process_name", 2, "Ascend Hardware"),
    named("thread_name", 2, "Stream 5", 5),
    named("process_name", 3, "HCCL"),
    named("thread_name", 3, "Group 0 Communication", 0),
    named("thread_name", 3, "Plane 0", 1),
]


def task(ts, dur, name="MatMul", kind="AI_CORE"):
    return {"ph": "X", "name": name, "pid": 2, "tid": 5, "ts": ts, "dur": dur, "args": {"Task Type": kind}}


def operation(ts, dur, tid=0, name="hcom_allReduce__868_0_1"):
    return {"ph": "X", "name": name, "pid": 3, "tid": tid, "ts": ts, "dur": dur, "args": {"data_type": "FP16", "count": 50}}


def step(number, ts, dur):
    return {"ph": "X", "name": f"ProfilerStep#{number}", "cat": "cpu_op", "pid": 1, "tid": 1, "ts": ts, "dur": dur}


def write(path, events):
    path.write_text(json.dumps(events), encoding="utf-8")
    return path


@pytest.fixture
def path(tmp_path):
    return tmp_path / "trace_view.json"


def test_a_timeline_gives_the_times_that_the_profiler_wrote_in_its_tables():
    run = load(RANK_0)
    assert run.format == "ascend-trace-view"
    assert run.ranks == (0,)
    step_row = run.steps().iloc[0]
    assert step_row["step"] == 50
    for column in COLUMNS:
        assert step_row[column] == pytest.approx(LEVEL_1_RANK_0[column], rel=1e-5)


def test_kernels_and_operations_are_those_of_the_tables():
    kinds = load(RANK_0).frame("kernels")["kind"].value_counts()
    assert (kinds["computing"], kinds["communication"]) == (187, 4)


def test_every_device_task_of_a_single_step_belongs_to_it():
    assert set(load(RANK_0).frame("kernels")["step"]) == {50}


def test_the_own_analysis_of_the_profiler_agrees_so_nothing_is_said():
    for folder in (RANK_0, TRACES / "single_npu"):
        assert not any("lane" in note for note in load(folder).notes)


def test_the_leaves_of_a_step_sum_to_its_duration():
    run = load(RANK_0)
    assert run.step_breakdown(0, 50).total == run.steps()["duration_ns"].item()


def test_collectives_carry_operation_group_and_bytes():
    rows = load(RANK_0).frame("collectives")
    assert rows["operation"].tolist() == ["all_reduce"] * 4
    assert rows["group"].tolist() == ["586"] * 4
    assert rows["bytes"].tolist() == [4 * count for count in (4_097_000, 16_781_312, 37_752_832, 2_469_696)]


def test_tasks_that_compute_nothing_are_no_kernels(path):
    control = [task(ts, 1, name, kind) for ts, (name, kind) in enumerate([("EVENT_WAIT", "EVENT_WAIT_SQE"), ("SDMA", "SDMA")])]
    copies = [task(50, 5, "MEMCPY_ASYNC", "SDMA_SQE"), task(60, 5, "MEMCPY_ASYNC", "Other")]
    run = load(write(path, [*PROCESSES, *control, *copies, task(10, 5), task(20, 5, "Cast", "AI_CPU")]))
    assert sorted(run.frame("kernels")["kind"]) == ["computing", "computing", "copy", "copy"]


def test_planes_repeat_their_operation_and_are_not_counted(path):
    run = load(write(path, [*PROCESSES, operation(0, 10), operation(1, 3, tid=1, name="Memcpy"), task(0, 5)]))
    assert Timeline(run.frame("kernels")).of("communication").total_ns == 10_000
    assert run.frame("collectives")["bytes"].tolist() == [100]


def test_names_of_processes_may_follow_the_events(path):
    assert len(load(write(path, [task(0, 5), operation(2, 3), *PROCESSES])).frame("kernels")) == 2


def test_a_task_belongs_to_the_step_of_its_flow_or_else_of_its_start(path):
    flow = {"ph": "s", "cat": "async_npu", "name": "torch_to_npu", "id": 120_000, "pid": 1, "tid": 1, "ts": 50}
    events = [*PROCESSES, step(1, 0, 100), step(2, 100, 100), flow, task("120.000", 10), task(150, 10)]
    run = load(write(path, events))
    assert run.frame("kernels")["step"].tolist() == [1, 2]
    assert run.steps()["duration_ns"].tolist() == [130_000, 70_000]


def test_a_timeline_without_steps_is_one_step_over_the_device(path):
    assert load(write(path, [*PROCESSES, task(10, 5), task(20, 5)])).steps()["duration_ns"].tolist() == [15_000]


def test_a_timeline_without_device_tasks_says_that_they_were_not_measured(path):
    run = load(write(path, [*PROCESSES, step(3, 0, 100)]))
    assert run.steps()["duration_ns"].tolist() == [100_000]
    assert run.steps()["computing_ns"].isna().all()
    assert any("not measured" in note for note in run.notes)


def test_a_difference_to_the_own_analysis_of_the_profiler_is_told(path):
    lane = {"ph": "X", "name": "Computing", "pid": 4, "tid": 0, "ts": 0, "dur": 20}
    run = load(write(path, [*PROCESSES, named("process_name", 4, "Overlap Analysis"), lane, task(0, 10)]))
    assert any("lane Computing" in note and "20.0 µs" in note for note in run.notes)


def test_tables_beside_a_timeline_are_left_to_their_own_format(tmp_path):
    write(tmp_path / "trace_view.json", [*PROCESSES, task(0, 5)])
    (tmp_path / "kernel_details.csv").write_text("Name,Duration(us)\n", encoding="utf-8")
    claimed = {known.name for known in formats() if known.detect(list_files(tmp_path))}
    assert "ascend-trace-view" not in claimed
    assert "kineto" not in claimed


def test_a_timeline_is_no_kineto_trace():
    kineto = next(known for known in formats() if known.name == "kineto")
    assert kineto.detect(list_files(TRACES)) is None


@pytest.mark.parametrize(("folder", "rank"), [("rank3_ascend_pt", 3), ("host_ascend_pt", 0)])
def test_the_rank_is_that_of_the_folder(tmp_path, folder, rank):
    (tmp_path / folder).mkdir()
    write(tmp_path / folder / "trace_view.json", [*PROCESSES, task(0, 5)])
    assert load(tmp_path).ranks == (rank,)


def test_the_rank_of_the_profiler_info_counts_before_the_name(tmp_path):
    (tmp_path / "rank3_ascend_pt/ASCEND_PROFILER_OUTPUT").mkdir(parents=True)
    (tmp_path / "rank3_ascend_pt/profiler_info_9.json").write_text("{}", encoding="utf-8")
    write(tmp_path / "rank3_ascend_pt/ASCEND_PROFILER_OUTPUT/trace_view.json", [*PROCESSES, task(0, 5)])
    assert load(tmp_path).ranks == (9,)


def test_of_two_timelines_of_one_rank_the_later_is_kept(tmp_path):
    for folder, ts in (("a", 100), ("b", 0)):
        (tmp_path / folder).mkdir()
        write(tmp_path / folder / "trace_view.json", [*PROCESSES, task(ts, 5, name=folder)])
    run = load(tmp_path)
    assert run.frame("kernels")["name"].tolist() == ["a"]
    assert any("later and kept" in note for note in run.notes)


def test_a_cut_timeline_keeps_what_is_complete_and_says_so(tmp_path):
    packed = (RANK_0 / "ASCEND_PROFILER_OUTPUT/trace_view.json.gz").read_bytes()
    content = gzip.decompress(packed)
    (tmp_path / "trace_view.json").write_bytes(content[: len(content) * 4 // 5 + 17])
    run = load(tmp_path)
    assert len(run.frame("kernels")) > 0
    assert any("is damaged" in note for note in run.notes)
    assert run.dropped[0].count > 0


@pytest.mark.parametrize("wrong", [None, "NaN", -5, [], {"a": 1}, "soon"])
def test_a_task_without_a_sane_duration_is_dropped_and_counted(path, wrong):
    run = load(write(path, [*PROCESSES, task(0, 5), task(10, wrong)]))
    assert len(run.frame("kernels")) == 1
    assert [dropped.count for dropped in run.dropped] == [1]


def test_a_hostile_name_is_kept_as_data(path):
    name = "<img src=x onerror=alert(1)>"
    assert load(write(path, [*PROCESSES, task(0, 5, name=name)])).frame("kernels")["name"].tolist() == [name]


@pytest.mark.parametrize("wrong", [None, "text", 1.5, [1], {"a": 1}])
def test_arguments_of_any_type_do_no_harm(path, wrong):
    odd = {**task(10, 5), "tid": wrong, "args": {"Task Type": wrong, "count": wrong, "data_type": wrong}}
    run = load(write(path, [*PROCESSES, task(0, 5), odd, {**named("thread_name", 2, wrong, wrong)}]))
    assert 1 <= len(run.frame("kernels")) <= 2


def test_a_list_without_any_event_of_a_device_or_step_is_an_error(path):
    with pytest.raises(InputError, match="nothing in it can be read"):
        load(write(path, PROCESSES))


def test_flows_link_the_tasks_of_a_timeline_to_their_operators():
    run = load(RANK_0)
    rows = launches(run, rank=0)
    assert len(rows) == len(run.frame("kernels"))
    assert unlinked(run, rank=0) == 0
    first = rows[rows["name"] == "Conv2D1"].iloc[0]
    # The flow 1736408883704903918 of the file: async_npu, from the operator Conv2D at ts 1736408883702792.080.
    assert (first["operator"], first["launch_ns"], first["start_ns"]) == ("Conv2D", 1736408883702792080, 1736408883704903918)


@pytest.mark.parametrize("category", ["async_npu", "HostToDevice"])
def test_a_task_belongs_to_the_step_of_its_launch_by_either_flow(path, category):
    # Launched in step 1 at 150 us, run in step 2 at 350 us.
    flow = {"cat": category, "id": 350000 if category == "async_npu" else "77", "pid": 1, "tid": 1, "name": "flow"}
    events = [
        *PROCESSES,
        *(step(1, 100, 100), step(2, 300, 100)),
        task("350.000", 10),
        task("380.000", 10),
        {**flow, "ph": "s", "ts": "150.000"},
        {**flow, "ph": "f", "ts": "350.000", "pid": 2, "tid": 5, "bp": "e"},
    ]
    run = load(write(path, events))
    assert run.frame("kernels").sort_values("start_ns")["step"].tolist() == [1, 2]
    assert launches(run, rank=0)["launch_ns"].fillna(0).tolist() == [150_000, 0]
