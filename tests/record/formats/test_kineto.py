"""Kineto traces: reference values of real files, steps, ranks, collectives, and what bad input leaves."""

import gzip
import json
import shutil
from collections import Counter
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from perfkit.core.errors import InputError
from perfkit.explain.collectives import collectives, waiting
from perfkit.record.events.graph import causal_graph
from perfkit.record.load import load
from perfkit.record.overlap import Timeline

ROOT = Path(__file__).parents[3]
TRACES = ROOT / "tests/data/traces"
SAMPLE = ROOT / "data/traces/kineto_resnet/resnet_act_checkpoint.json.gz"
EXPECTED = {
    name: values
    for name, values in json.loads((TRACES / "EXPECTED_kineto.json").read_text(encoding="utf-8")).items()
    if name != "_comment"
}
HOSTILE = "<img src=x onerror=alert(1)>"
BASE_NS = 1_700_000_000_000_000_000


def path_of(name):
    return SAMPLE if name.endswith(SAMPLE.name) else TRACES / name


def span(name, cat, ts, dur, **args):
    return {"ph": "X", "name": name, "cat": cat, "ts": ts, "dur": dur, "pid": 0, "tid": args.get("stream", 1), "args": args}


def launch(ts, correlation):
    return span("cudaLaunchKernel", "cuda_runtime", ts, 1, correlation=correlation)


def kernel(ts, dur, correlation=0, name="gemm", **args):
    return span(name, "kernel", ts, dur, correlation=correlation, stream=7, device=0, **args)


def step(number, ts, dur):
    return span(f"ProfilerStep#{number}", "user_annotation", ts, dur)


TWO_STEPS = [
    step(1, 0, 100),
    step(2, 100, 100),
    launch(10, 1),
    launch(90, 2),
    launch(110, 3),
    kernel(20, 50, 1),
    kernel(120, 30, 2),
    kernel(150, 40, 3),
]


def write(path, events, **head):
    content = json.dumps({"baseTimeNanoseconds": BASE_NS, **head, "traceEvents": events}).encode()
    path.write_bytes(gzip.compress(content) if path.suffix == ".gz" else content)
    return path


def measured(run):
    """The quantities of EXPECTED_kineto.json."""
    rows = run.frame("kernels")
    kernels = rows[rows["kind"] != "copy"]
    timeline = Timeline(rows)
    whole = timeline.whole()
    communication = rows["kind"] == "communication"
    return {
        "events": run.facts["num_events"].value,
        "kernels": len(kernels),
        "compute_kernels": int((rows["kind"] == "computing").sum()),
        "comm_kernels": int(communication.sum()),
        "mem_events": len(rows) - len(kernels),
        "computing_ns": whole.computing_ns,
        "communication_ns": whole.communication_ns,
        "overlapped_ns": whole.overlapped_ns,
        "exposed_ns": whole.exposed_ns,
        "memory_ns": timeline.of("copy").total_ns,
        "busy_ns": whole.busy_ns,
        "span_ns": whole.span_ns,
        "sum_comm_ns": int(rows.loc[communication, "duration_ns"].sum()),
        "streams": kernels["stream"].nunique(),
        "idle_ns": whole.idle_ns,
    }


@pytest.mark.parametrize("name", EXPECTED)
def test_the_reference_values_of_real_traces_are_reproduced(name):
    run = load(path_of(name))
    assert run.format == "kineto"
    assert measured(run) == EXPECTED[name]
    assert not run.dropped


@pytest.mark.parametrize("name", ["hta/nccl_parser_config/nccl_data.json.gz", "tracelens/mi300/resnet_act_checkpoint.json.gz"])
def test_the_leaves_of_every_step_sum_to_its_duration_and_the_steps_leave_no_gap(name):
    run = load(path_of(name))
    steps = run.steps()
    leaves = run.frame("step_parts").groupby("step")["amount_ns"].sum()
    assert steps.set_index("step")["duration_ns"].to_dict() == leaves.to_dict()
    assert (steps["start_ns"] + steps["duration_ns"]).tolist()[:-1] == steps["start_ns"].tolist()[1:]


def test_kernels_belong_to_the_step_that_launched_them(tmp_path):
    run = load(write(tmp_path / "trace.json", TWO_STEPS))
    assert run.frame("kernels")["step"].tolist() == [1, 1, 2]
    assert run.steps()[["start_ns", "duration_ns", "computing_ns", "free_ns"]].to_numpy(dtype=int).tolist() == [
        [BASE_NS, 150_000, 80_000, 70_000],
        [BASE_NS + 150_000, 50_000, 40_000, 10_000],
    ]


def test_the_order_of_events_does_not_matter(tmp_path):
    forward = load(write(tmp_path / "a.json", TWO_STEPS))
    backward = load(write(tmp_path / "b.json", TWO_STEPS[::-1]))
    pd.testing.assert_frame_equal(forward.steps(), backward.steps())


def test_ranks_without_metadata_are_grouped_by_leaving_together_if_the_whole_world_is_there():
    run = load(TRACES / "dlrm_8xV100", cache=False)
    rows = run.frame("collectives")
    assert set(rows["group_size"]) == {8}
    assert set(rows["operation"]) == {"all_to_all", "all_reduce"}
    table = collectives(run)
    assert (table["basis"] == "arrival").all()
    assert table["latest_rank"].tolist() == [7, 7, 7, 7, 7, 5, 5, 4]
    assert table["spread_ns"].iloc[0] == pytest.approx(7_600_000, abs=300_000)
    assert waiting(causal_graph(run).members())["rank"].iloc[0] == 7


def test_ranks_are_not_grouped_if_one_of_the_world_is_missing(tmp_path):
    for rank in range(7):
        shutil.copy(TRACES / f"dlrm_8xV100/worker{rank}.json.gz", tmp_path)
    assert load(tmp_path, cache=False).frame("collectives")["group_size"].isna().all()


def test_the_first_step_begins_when_earlier_work_has_ended():
    run = load(SAMPLE)
    durations_ns = run.steps()["duration_ns"]
    assert run.steps()["step"].tolist() == [15, 16, 17]
    assert durations_ns.max() < 1.03 * durations_ns.min()
    assert any("launched before the first recorded step" in note for note in run.notes)


def test_old_category_names_and_thread_texts_are_read():
    run = load(TRACES / "kineto_tb_samples/resnet50_num_workers_0/worker0.pt.trace.json.gz")
    assert run.steps()["step"].tolist() == [5, 6, 7, 8, 9, 10]
    assert "7" in set(run.frame("kernels")["stream"])


def test_a_trace_without_steps_is_one_step_from_the_first_to_the_last_device_event(tmp_path):
    run = load(write(tmp_path / "trace.json", [kernel(20, 5), kernel(40, 10)]))
    assert run.steps()[["step", "start_ns", "duration_ns"]].to_numpy().tolist() == [[0, BASE_NS + 20_000, 30_000]]


def test_spans_of_annotations_on_the_device_are_no_work(tmp_path):
    run = load(write(tmp_path / "trace.json", [kernel(20, 5), span("ProfilerStep#3", "gpu_user_annotation", 0, 1000, stream=7)]))
    assert run.frame("kernels")["name"].tolist() == ["gemm"]
    assert run.steps()["step"].tolist() == [0]


def test_a_trace_of_the_host_says_that_device_time_was_not_measured():
    run = load(TRACES / "hta/rank_non_gpu/rank_non_gpu.json.gz")
    steps = run.steps()
    assert steps["step"].tolist() == [1009]
    assert steps["computing_ns"].isna().all()
    assert not run.has("step_parts")
    assert run.frame("coverage").set_index("part")["state"].to_dict()["kernels"] == "missing"
    assert any("not measured" in note and "ProfilerActivity.CUDA" in note for note in run.notes)


def test_a_trace_of_the_host_alone_has_its_host_part():
    path = TRACES / "hta/rank_non_gpu/rank_non_gpu.json.gz"
    events = json.loads(gzip.decompress(path.read_bytes()))["traceEvents"]
    kinds = {
        "cpu_op": "operator",
        "user_annotation": "mark",
        "python_function": "python",
        "cuda_runtime": "call",
        "overhead": "call",
    }
    wanted = Counter(kinds[event["cat"]] for event in events if event.get("ph") == "X" and event.get("cat") in kinds)
    run = load(path, cache=False)
    assert Counter(run.frame("host")["kind"].astype(str)) == wanted
    assert wanted["operator"] > 0
    assert run.frame("launches").empty


def test_a_trace_of_the_host_without_steps_still_loads(tmp_path):
    run = load(write(tmp_path / "trace.json", [span("aten::add", "cpu_op", 5, 10), span("aten::mm", "cpu_op", 20, 10)]))
    assert run.steps()[["step", "duration_ns"]].to_numpy().tolist() == [[0, 25_000]]
    assert run.steps()["free_ns"].isna().all()


def test_times_are_absolute_whether_the_file_has_a_base_or_not(tmp_path):
    small = load(write(tmp_path / "small.json", [kernel("20.125", 5)]))
    large = load(write(tmp_path / "large.json", [kernel("1700000000000020.125", 5)]))
    after = tmp_path / "after.json"
    after.write_text(
        '{"traceEvents": [' + json.dumps(kernel(20.125, 5)) + f'], "baseTimeNanoseconds": {BASE_NS}}}', encoding="utf-8"
    )
    for run in (small, large, load(after)):
        assert run.frame("kernels")["start_ns"].tolist() == [BASE_NS + 20_125]


def test_a_bare_list_of_events_is_a_trace(tmp_path):
    path = tmp_path / "list.json"
    path.write_text(json.dumps(TWO_STEPS), encoding="utf-8")
    assert len(load(path).frame("kernels")) == 3


def test_facts_of_the_job_are_read_with_their_origin():
    facts = load(SAMPLE).facts
    assert (facts["num_devices"].value, facts["device_name"].value) == (8, "AMD Instinct MI300X")
    assert "distributedInfo.world_size" in facts["num_devices"].source.where


@pytest.mark.parametrize(
    ("name", "head", "rank"),
    [
        ("any.json", {"distributedInfo": {"rank": 3}}, 3),
        ("rank7.json", {"distributedInfo": {"rank": 3}}, 3),
        ("trace_rank_12.json", {}, 12),
        ("rank-4.2024.pt.trace.json", {}, 4),
        ("worker5.pt.trace.json", {}, 5),
        ("unknown.json", {}, 0),
        ("wrong.json", {"distributedInfo": {"rank": "three"}}, 0),
        ("rank2.json", {"distributedInfo": ["rank"]}, 2),
    ],
)
def test_the_rank_is_that_of_the_job_or_of_the_name(tmp_path, name, head, rank):
    run = load(write(tmp_path / name, TWO_STEPS, **head))
    assert run.ranks == (rank,)
    assert any("taken as rank 0" in note for note in run.notes) == (rank == 0)


def test_the_rank_may_be_the_name_of_a_folder(tmp_path):
    (tmp_path / "rank_6").mkdir()
    write(tmp_path / "rank_6/trace.json", TWO_STEPS)
    assert load(tmp_path).ranks == (6,)


def test_a_folder_of_ranks_is_one_run(tmp_path):
    for rank in (0, 1, 11):
        write(tmp_path / f"rank{rank}.json.gz", TWO_STEPS, distributedInfo={"rank": rank, "world_size": 16})
    run = load(tmp_path)
    assert run.ranks == (0, 1, 11)
    assert run.steps().groupby("rank").size().to_dict() == {0: 2, 1: 2, 11: 2}
    assert run.facts["num_events"].value == 3 * len(TWO_STEPS)


def test_of_two_files_of_one_rank_the_later_is_kept_and_the_other_named(tmp_path):
    write(tmp_path / "a.json", [kernel(500, 7)], distributedInfo={"rank": 1})
    write(tmp_path / "b.json", [kernel(20, 5)], distributedInfo={"rank": 1})
    run = load(tmp_path)
    assert run.frame("kernels")["duration_ns"].tolist() == [7000]
    assert any("a.json, is kept" in note and "b.json" in note for note in run.notes)


def test_metadata_before_the_events_does_not_hide_a_trace_beside_others():
    run = load(TRACES / "tracelens/h100")
    assert any("gaunernst" in note and "Qwen" in note for note in run.notes)


def collective(ts, name="ncclDevKernel_Generic", **metadata):
    stated = {"Collective name": "allreduce", "Group size": 8, "Process Group Name": "0", "dtype": "BFloat16"}
    return kernel(ts, 5, name=name, **{**stated, "In msg nelems": 1000, "Out msg nelems": 1000, **metadata})


def test_collectives_carry_group_size_and_bytes(tmp_path):
    events = [
        collective(10),
        collective(20, **{"Collective name": "_allgather_base", "Out msg nelems": 8000, "dtype": "Float"}),
        collective(30, **{"Collective name": "reduce_scatter_tensor", "In msg nelems": 8000, "dtype": "Float"}),
    ]
    rows = load(write(tmp_path / "trace.json", events)).frame("collectives")
    assert rows["operation"].tolist() == ["all_reduce", "all_gather", "reduce_scatter"]
    assert rows["bytes"].tolist() == [2000, 32_000, 32_000]
    assert rows["group_size"].tolist() == [8, 8, 8]
    assert rows["name"].tolist() == ["allreduce#0", "_allgather_base#1", "reduce_scatter_tensor#2"]


def test_metadata_makes_a_kernel_of_any_name_communication(tmp_path):
    run = load(write(tmp_path / "trace.json", [collective(10, name="my_kernel"), kernel(20, 5)]))
    assert run.frame("kernels")["kind"].tolist() == ["communication", "computing"]


def test_what_metadata_does_not_say_is_null_and_not_zero(tmp_path):
    events = [kernel(10, 5, name="ncclKernel_AllReduce_RING"), collective(20, dtype="Strange", **{"Group size": "many"})]
    rows = load(write(tmp_path / "trace.json", events)).frame("collectives")
    assert rows["operation"].tolist() == ["all_reduce", "all_reduce"]
    assert rows["bytes"].isna().all()
    assert rows["group_size"].isna().all()


def test_equal_operations_of_one_group_and_step_have_equal_names_on_every_rank(tmp_path):
    for rank in (0, 1):
        write(tmp_path / f"rank{rank}.json", [collective(10 + rank), collective(20 + 3 * rank)], distributedInfo={"rank": rank})
    names = load(tmp_path).frame("collectives").groupby("rank")["name"].apply(list)
    assert names[0] == names[1]
    assert names[0][0] != names[0][1]


def test_a_cut_trace_keeps_what_is_complete_and_says_so(tmp_path):
    content = write(tmp_path / "trace.json", TWO_STEPS).read_bytes()
    (tmp_path / "trace.json").write_bytes(content[: content.rfind(b'"name"') + 9])
    run = load(tmp_path / "trace.json")
    assert len(run.frame("kernels")) == 2
    assert any("inside an event" in dropped.what and dropped.count > 0 for dropped in run.dropped)
    assert any("is damaged" in note for note in run.notes)
    assert "partial" in set(run.frame("coverage")["state"])


def test_a_gzip_trace_cut_in_half_keeps_what_is_complete(tmp_path):
    packed = SAMPLE.read_bytes()
    (tmp_path / "rank0.json.gz").write_bytes(packed[: len(packed) // 2])
    run = load(tmp_path)
    assert 0 < run.facts["num_events"].value < EXPECTED["tracelens/mi300/resnet_act_checkpoint.json.gz"]["events"]
    assert any("gzip data ends early" in note for note in run.notes)


@pytest.mark.parametrize("content", [b"", b"not json at all", b'{"hello": "world"}', b"[1, 2, 3]", b"\x1f\x8bbroken"])
def test_what_is_no_trace_is_refused_with_what_was_looked_for(tmp_path, content):
    (tmp_path / "trace.json").write_bytes(content)
    with pytest.raises(InputError, match="looked for Kineto trace"):
        load(tmp_path)


def test_an_empty_list_of_events_is_an_error_that_names_the_file(tmp_path):
    with pytest.raises(InputError, match=r"nothing in it can be read.*\n.*trace\.json"):
        load(write(tmp_path / "trace.json", []))


def test_an_empty_file_beside_a_trace_does_no_harm(tmp_path):
    write(tmp_path / "rank0.json", TWO_STEPS)
    (tmp_path / "rank1.json").touch()
    assert load(tmp_path).ranks == (0,)


@pytest.mark.parametrize("duration", ["NaN", "-5", "null", '"soon"', "[]", "1e999", '{"us": 5}'])
def test_a_kernel_without_a_sane_duration_is_dropped_and_counted(tmp_path, duration):
    path = tmp_path / "trace.json"
    write(path, [*TWO_STEPS, kernel(300, 123456789)])
    path.write_text(path.read_text(encoding="utf-8").replace("123456789", duration), encoding="utf-8")
    run = load(path)
    assert len(run.frame("kernels")) == 3
    assert [(dropped.what, dropped.count) for dropped in run.dropped] == [("kernels.duration_ns: value missing or negative", 1)]
    assert run.steps()["computing_ns"].tolist() == [80_000, 40_000]


@pytest.mark.parametrize("start", ["later", None, "NaN", "1e30"])
def test_a_kernel_without_a_sane_start_is_a_lost_row_and_in_no_sum(tmp_path, start):
    run = load(write(tmp_path / "trace.json", [*TWO_STEPS, kernel(start, 5)]))
    assert [(lost.table, lost.count) for lost in run.dropped] == [("kernels", 1)]
    assert run.frame("accounts")["lost"].tolist() == [1]
    assert len(run.frame("kernels")) == 3
    assert run.steps()["computing_ns"].sum() == 120_000


def test_a_hostile_name_is_kept_as_data(tmp_path):
    run = load(write(tmp_path / "trace.json", [kernel(1, 2, name=HOSTILE), collective(9, **{"Process Group Name": HOSTILE})]))
    assert run.frame("kernels")["name"].tolist()[0] == HOSTILE
    assert run.frame("collectives")["group"].tolist() == [HOSTILE]


@pytest.mark.parametrize("wrong", [None, "text", -1, 1.5, True, [1, [2]], {"a": 1}, 10**30])
@pytest.mark.parametrize("key", ["correlation", "stream", "device", "Collective name", "In msg nelems", "Group size", "dtype"])
def test_arguments_of_any_type_do_no_harm(tmp_path, key, wrong):
    events = [*TWO_STEPS, collective(300)]
    events[-1]["args"][key] = wrong
    run = load(write(tmp_path / "trace.json", events))
    assert len(run.frame("kernels")) == 4
    assert not run.dropped


@pytest.mark.parametrize("arguments", [None, "text", 7, [1, 2], {}])
def test_args_that_are_no_object_do_no_harm(tmp_path, arguments):
    run = load(write(tmp_path / "trace.json", [{**kernel(5, 5), "args": arguments}, kernel(20, 5)]))
    assert len(run.frame("kernels")) == 2


def test_an_event_without_a_phase_is_counted(tmp_path):
    run = load(write(tmp_path / "trace.json", [kernel(5, 5), {"name": "x"}, kernel(20, 5)]))
    assert len(run.frame("kernels")) == 2
    assert [dropped.count for dropped in run.dropped] == [1]


def test_progress_ends_at_the_size_of_the_files(tmp_path):
    seen = []
    write(tmp_path / "rank0.json", TWO_STEPS)
    load(tmp_path, progress=lambda what, done, total: seen.append((done, total)))
    assert seen[-1][0] == seen[-1][1] > 0


def test_a_file_that_ends_inside_a_step_has_the_steps_before_it(tmp_path: Path):
    events = [event for step in range(4) for event in marked_step(step)]
    whole = json.dumps({"traceEvents": events})
    (tmp_path / "rank0.json").write_text(whole[: whole.index('"name": "kernel 3.4"')])
    run = load(tmp_path, cache=False)
    assert run.frame("steps")["step"].tolist() == [0, 1, 2]
    assert any("ends before step(s) 3 of rank 0 do" in note for note in run.notes)
    (tmp_path / "rank0.json").write_text(whole[: -len("]}")])  # as a profiler leaves it that was killed after its last step
    assert load(tmp_path, cache=False).frame("steps")["step"].tolist() == [0, 1, 2, 3]


def marked_step(step: int) -> list[dict[str, Any]]:
    """The mark of a step and ten kernels that fill it."""
    since = 1_000.0 * step
    mark = {"ph": "X", "cat": "user_annotation", "name": f"ProfilerStep#{step}", "pid": 1, "tid": 1, "ts": since, "dur": 990.0}
    return [mark] + [
        {"ph": "X", "cat": "kernel", "name": f"kernel {step}.{at}", "pid": 0, "tid": 7, "ts": since + 100 * at, "dur": 90.0}
        | {"args": {"stream": 7, "correlation": 100 * step + at}}
        for at in range(10)
    ]
