"""MindSpore Insight folders: real ranks, hand-made contradictions, and what damaged files leave."""

import json
import shutil
from pathlib import Path

import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from perfkit.core.errors import InputError
from perfkit.core.run import Run
from perfkit.record.load import load

DATA = Path(__file__).parents[2] / "data/traces/mindinsight"
HEADER = "step_num,start_point,end_point,total,fp_point,bp_point,iteration_interval,fp_and_bp,tail"


@pytest.fixture(scope="module")
def cluster() -> Run:
    return load(DATA / "cluster_propose")


def write_steps(folder: Path, *rows: str, rank: int = 0, end: str = "\n") -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"step_trace_raw_{rank}_detail_time.csv").write_text(end.join([HEADER, *rows, ""]))
    return folder


def step_row(number: object, start: int, interval: int, forward_backward: int, tail: int) -> str:
    total = interval + forward_backward + tail
    fp, end = start + interval, start + total
    return f"{number},{start},{end},{total},{fp},{end - tail},{interval},{forward_backward},{tail}"


def test_four_ranks_of_one_folder_stand_in_two_stages(cluster):
    assert cluster.format == "mindinsight"
    assert cluster.ranks == (0, 1, 2, 3)
    steps = cluster.steps()
    assert steps.groupby("rank")["pipeline_stage"].unique().map(list).to_dict() == {0: [0], 1: [0], 2: [1], 3: [1]}
    assert {rank: position.pipeline for rank, position in cluster.placement.items()} == {0: 0, 1: 0, 2: 1, 3: 1}
    facts = {name: fact.value for name, fact in cluster.facts.items()}
    flops = {name: facts.pop(name) for name in sorted(facts) if name.endswith("_step_flops")}
    assert facts == {"num_devices": 4, "pipeline_parallel_size": 2}
    assert list(flops.values()) == [107_146_763_000.0, 107_145_034_000.0, 329_608_369_000.0, 329_612_400_000.0]


def test_mean_rows_are_no_steps(cluster):
    assert cluster.steps().groupby("rank")["step"].agg(list).to_dict() == {rank: [1, 2, 3, 4, 5] for rank in range(4)}
    assert load(DATA / "run_2").steps()["step"].tolist() == [1]


def test_durations_are_ticks_of_10_ns(cluster):
    row = cluster.steps().iloc[0]
    assert (row["start_ns"], row["duration_ns"]) == (11_624_120_793_490, 178_186_600)


@pytest.mark.parametrize("folder", ["cluster_propose", "run_2", "run_3", "run_4", "mixed"])
def test_the_leaves_of_every_step_sum_to_its_duration(folder, cluster):
    run = cluster if folder == "cluster_propose" else load(DATA / folder)
    for row in run.steps().to_dict("records"):
        assert run.step_breakdown(row["rank"], row["step"]).total == row["duration_ns"]


def test_the_cluster_file_splits_a_step_into_computing_communication_and_waiting(cluster):
    parts = dict(cluster.step_breakdown(0, 1).parts)
    assert parts == {
        "computing": 13_820_200,
        "communication/exposed": 107_969_100,
        "bubble": 56_397_300,
        "free/data": 0,
        "free/other": 0,
    }
    assert 107_969_100 == 108_078_700 - (13_820_200 + 108_078_700 + 56_397_300 - 178_186_600)
    row = cluster.steps().iloc[0]
    assert (row["computing_ns"], row["bubble_ns"], row["free_ns"]) == (13_820_200, 56_397_300, 0)
    assert cluster.step_breakdown(0, 1).complete


def test_what_the_split_is_off_by_is_said(cluster):
    assert any("pipeline-parallel_2_4_2.csv" in note and "0.25%" in note for note in cluster.notes)


@pytest.mark.parametrize(("folder", "sum_text"), [("run_3", "1.95 s"), ("run_4", "1.25 s")])
def test_a_cluster_file_that_contradicts_the_step_trace_is_not_used_and_both_are_named(folder, sum_text):
    run = load(DATA / folder)
    assert any(f"gives {sum_text} for step 1, the step trace 23.7 ms" in note for note in run.notes)
    breakdown = run.step_breakdown(1, 1)
    assert dict(breakdown.parts) == {"free/data": 0, "computing/forward_backward": 23_668_080, "computing/tail": 40_970}
    assert breakdown.unmeasured == {"communication/exposed", "bubble"}
    assert run.steps()[["computing_ns", "bubble_ns", "free_ns"]].isna().all(axis=None)


def test_the_data_wait_of_a_step_is_its_iteration_interval():
    parts = load(DATA / "mixed").step_breakdown(0, 2).parts
    assert parts["free/data"] == 90_378_090
    assert parts["computing/forward_backward"] == 17_143_770
    assert parts["computing/tail"] == 23_003_440


def test_operations_of_a_step_cost_what_the_step_says(cluster):
    collectives = cluster.frame("collectives")
    cost = collectives.groupby(["rank", "step"])["transit_ns"].sum()
    assert cost[0, 1] == 2_600_180
    assert cost[2, 1] == 7_933_340
    assert not any("communication_cost says" in note for note in cluster.notes)


def test_an_operation_has_its_start_from_the_step_trace_and_its_wait_from_hccl_raw(cluster):
    rows = cluster.frame("collectives", ranks=[0], steps=[1])
    row = rows[rows["name"] == "stream_48_2_Receive-op925"].iloc[0]
    assert (row["operation"], row["duration_ns"], row["transit_ns"], row["wait_ns"]) == ("receive", 41_265_400, 575_560, 40_599_840)
    assert len(rows) == 97
    assert rows["operation"].value_counts().to_dict() == {"all_reduce": 89, "receive": 4, "send": 4}


def test_operations_that_hccl_raw_lacks_have_no_transit_and_no_zero(cluster):
    rows = cluster.frame("collectives", ranks=[2], steps=[2])
    assert (len(rows), int(rows["transit_ns"].notna().sum())) == (349, 151)


def test_a_step_of_hccl_raw_without_times_is_kept_and_named(cluster):
    assert len(cluster.frame("collectives", ranks=[0], steps=[6])) > 0
    assert any("operations of step(s) 6" in note for note in cluster.notes)


def test_the_ends_of_links_are_ranks_not_positions_in_a_group(cluster):
    links = cluster.frame("links")
    assert (links["target_rank"] == links["rank"]).all()
    receives = links[links["operation"].astype(str).str.contains("Receive")]
    assert receives.groupby("rank")["source_rank"].unique().map(list).to_dict() == {0: [2], 1: [3], 2: [0], 3: [1]}
    reduces = links[links["operation"].astype(str).str.contains("AllReduce")]
    assert reduces.groupby("rank")["source_rank"].unique().map(sorted).to_dict() == {0: [0, 1], 1: [0, 1], 2: [2, 3], 3: [2, 3]}


def test_sizes_of_links_are_whole_bytes_and_rates_follow_from_size_and_time(cluster):
    links = cluster.frame("links", ranks=[0], steps=[1])
    between = links[links["source_rank"] == 1]
    assert (links["bytes"] % 4 == 0).mean() > 0.9
    assert between["bytes"].sum() / between["transit_ns"].sum() < 32


def test_kernels_lie_in_the_step_that_they_start_in():
    run = load(DATA / "run_2")
    kernels, step = run.frame("kernels"), run.steps().iloc[0]
    inside = kernels["step"] == 1
    starts = kernels["start_ns"]
    end_ns = step["start_ns"] + step["duration_ns"]
    assert 0 < inside.sum() < len(kernels)
    assert starts[inside].between(step["start_ns"], end_ns).all()
    assert not ((starts[~inside] >= step["start_ns"]) & (starts[~inside] < end_ns)).any()


def test_kernels_have_type_shapes_and_the_unit_that_ran_them():
    kernels = load(DATA / "run_2").frame("kernels")
    row = kernels[kernels["name"] == "Default/TransData-op118"].iloc[0]
    assert (row["type"], row["core"], row["input_shapes"]) == ("TransData", "AI_CORE", "2,3,227,227")
    assert row["duration_ns"] == 46_640
    on_ai_cpu = kernels[kernels["core"] == "AI_CPU"]
    assert set(on_ai_cpu["name"]) == {"InitData", "GetNext", "EndOfSequence"}


def test_the_text_timeline_and_the_json_timeline_of_one_run_agree(tmp_path):
    exact = load(DATA / "run_2").frame("kernels")
    shutil.copytree(DATA / "run_2", tmp_path / "run")
    (tmp_path / "run/output_timeline_data_1.txt").unlink()
    run = load(tmp_path / "run")
    shown = run.frame("kernels")
    assert shown["step"].isna().all()
    assert any("belong to no step" in note for note in run.notes)
    assert len(shown) == len(exact)
    totals = [kernels.groupby("name", observed=True)["duration_ns"].sum() for kernels in (exact, shown)]
    assert totals[0].index.tolist() == totals[1].index.tolist()
    assert (totals[0] - totals[1]).abs().max() <= 1


def test_sums_by_operator_are_no_kernels():
    run = load(DATA / "mixed")
    assert len(run.frame("kernels", ranks=[1])) == 0
    assert any(note.startswith("rank 1 has only sums by operator") for note in run.notes)


def test_a_gpu_timeline_gives_its_kernels_without_the_operators_of_the_host():
    run = load(DATA / "mixed")
    kernels = run.frame("kernels", ranks=[2])
    assert len(kernels) == 1
    assert kernels.iloc[0]["name"].startswith("void MomentumUpdateVariableKernel")
    assert kernels.iloc[0]["start_ns"] == 1_600_695_897_737_724_800
    assert run.step_breakdown(2, 0).total == 5_792


def test_coverage_says_what_is_there_and_what_is_missing(cluster):
    coverage = cluster.frame("coverage", ranks=[0])
    states = dict(zip(coverage["part"], coverage["state"], strict=True))
    assert states["step times"] == "present"
    assert states["collectives"] == "present"
    assert states["kernels"] == "missing"


def test_phases_that_do_not_add_up_are_counted_and_the_step_keeps_its_length(tmp_path):
    row = step_row(1, 1000, 10, 20, 5).replace(",20,5", ",21,5")
    run = load(write_steps(tmp_path, row, step_row(2, 2000, 10, 20, 5)))
    assert run.steps()["duration_ns"].tolist() == [350, 350]
    assert run.frame("step_parts")["step"].unique().tolist() == [2]
    assert [(lost.what, lost.count) for lost in run.dropped] == [("phases of a step that do not add up to its total", 1)]
    assert any("first of step 1" in note for note in run.notes)


@settings(max_examples=25, deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 10**9), st.integers(0, 10**9), st.integers(0, 10**9)), min_size=1, max_size=5),
    st.sampled_from(["\n", "\r\n"]),
)
def test_any_phases_that_add_up_are_read_back(tmp_path_factory, phases, end):
    rows = [step_row(number, 10**9 * number, *parts) for number, parts in enumerate(phases, 1)]
    run = load(write_steps(tmp_path_factory.mktemp("steps"), *rows, step_row("-", 5, 1, 1, 1), end=end))
    assert run.steps()["duration_ns"].tolist() == [10 * sum(parts) for parts in phases]
    for number, parts in enumerate(phases, 1):
        assert tuple(run.step_breakdown(0, number).parts.values()) == tuple(10 * part for part in parts)


@settings(max_examples=25, deadline=None)
@given(st.tuples(*[st.integers(0, 10_000_000)] * 3), st.integers(0, 10_000_000), st.integers(-20, 20))
def test_a_split_always_sums_to_its_step_or_is_not_used(tmp_path_factory, parts_us, interval_us, permille):
    folder = tmp_path_factory.mktemp("split")
    whole_us = sum(parts_us) + interval_us
    total = max(100 * interval_us, 100 * whole_us * (1000 + permille) // 1000)
    write_steps(folder, step_row(1, 1000, 100 * interval_us, total - 100 * interval_us, 0))
    computing, receive, collective = (f"{part / 1000:.3f}" for part in parts_us)
    (folder / "ascend_cluster_analyse_pipeline-parallel_2_4_0.csv").write_text(
        "computation_time,communication_alone_time,stage_time,receive_alone_time,collective_communication_alone_time\n"
        f"{computing},0,0,{receive},{collective}\n"
    )
    run = load(folder)
    breakdown = run.step_breakdown(0, 1)
    assert breakdown.total == run.steps()["duration_ns"].iloc[0]
    assert breakdown.complete == (1000 * whole_us - breakdown.total <= 0.01 * breakdown.total)


def test_a_cluster_file_with_another_number_of_rows_is_not_guessed_at(tmp_path):
    write_steps(tmp_path, *(step_row(number, 1000 * number, 1, 2, 3) for number in (1, 2, 3)))
    (tmp_path / "ascend_cluster_analyse_model-parallel_1_2_0.csv").write_text("computation,communication_alone_time\n1,1\n")
    run = load(tmp_path)
    assert [lost.what for lost in run.dropped] == ["1 rows cannot be told to belong to the 3 steps of the step trace"]
    assert run.step_breakdown(0, 1).unmeasured


def test_a_zero_step_that_is_no_mean_is_a_step(tmp_path):
    run = load(write_steps(tmp_path, step_row(0, 1000, 1, 2, 3), step_row(1, 2000, 1, 2, 3)))
    assert run.steps()["step"].tolist() == [0, 1]


def test_a_truncated_step_trace_keeps_its_whole_rows(tmp_path):
    run = load(write_steps(tmp_path, step_row(1, 1000, 1, 2, 3), step_row(2, 2000, 1, 2, 3)[:20]))
    assert run.steps()["step"].tolist() == [1]
    assert sum(lost.count for lost in run.dropped) == 1


def test_steps_that_end_before_they_start_are_counted(tmp_path):
    run = load(write_steps(tmp_path, "1,2000,1000,-1000,2000,1000,0,-1000,0", step_row(2, 2000, 1, 2, 3)))
    assert run.steps()["step"].tolist() == [2]
    assert [(lost.what, lost.count) for lost in run.dropped] == [("step row without a start before its end", 1)]


def test_an_empty_file_is_named_and_the_other_ranks_are_read(tmp_path):
    write_steps(tmp_path, step_row(1, 1000, 1, 2, 3))
    (tmp_path / "step_trace_raw_1_detail_time.csv").touch()
    run = load(tmp_path)
    coverage = run.frame("coverage", ranks=[1])
    assert coverage.loc[coverage["part"] == "step times", "state"].tolist() == ["empty"]
    assert run.steps()["rank"].tolist() == [0]


def test_a_folder_with_nothing_readable_is_an_error_that_names_the_column(tmp_path):
    (tmp_path / "step_trace_raw_0_detail_time.csv").write_text("step,begin\n1,2\n")
    with pytest.raises(InputError, match="column 'step_num' is missing"):
        load(tmp_path)


@pytest.mark.parametrize(
    "cell",
    [
        "not json",
        '{"AllReduce-op1": [1]}',
        '{"AllReduce-op1": ["1", null, 2, {}]}',
        '{"AllReduce-op1": ["1", 1e300, 2, {}]}',
        "[1]",
    ],
)
def test_communication_that_cannot_be_read_is_counted(tmp_path, cell):
    write_steps(tmp_path, step_row(1, 1000, 1, 2, 3))
    quoted = '"' + cell.replace('"', '""') + '"'
    (tmp_path / "hccl_raw_0.csv").write_text(
        f"step_num,communication_cost,wait_cost,link_info,communication_operator_cost\n1,1,1,{{}},{quoted}\n"
    )
    run = load(tmp_path)
    assert len(run.frame("collectives")) == 0
    lost = sum(dropped.count for dropped in run.dropped)
    assert lost == (0 if "null" in cell else 1)


def test_a_header_broken_by_a_lone_carriage_return_is_an_error_of_that_file_only(tmp_path):
    write_steps(tmp_path, step_row(1, 1000, 1, 2, 3))
    (tmp_path / "step_trace_raw_1_detail_time.csv").write_bytes(b"step_num,start_\rpoint,end_point\n1,2,3\n")
    run = load(tmp_path)
    assert run.steps()["rank"].tolist() == [0]
    assert ["header line cannot be read" in lost.what for lost in run.dropped] == [True]


def test_links_of_a_group_that_is_not_described_say_so(tmp_path):
    write_steps(tmp_path, step_row(1, 1000, 1, 2, 3))
    costs = json.dumps({"AllReduce-op1": ["1", 0.5, 0.25, {"3-0": {"RDMA": [0.5, 2.048, 4.096]}}]}).replace('"', '""')
    (tmp_path / "hccl_raw_0.csv").write_text(
        f'step_num,communication_cost,wait_cost,link_info,communication_operator_cost\n1,0.5,0.25,{{}},"{costs}"\n'
    )
    run = load(tmp_path)
    link = run.frame("links").iloc[0]
    assert (link["source_rank"], link["target_rank"], link["bytes"], link["transit_ns"]) == (3, 0, 2048, 500_000)
    assert run.frame("collectives").iloc[0]["duration_ns"] == 750_000
    assert any("positions inside a group" in note for note in run.notes)


def test_a_timeline_that_was_cut_keeps_its_whole_events(tmp_path):
    text = (DATA / "run_2/ascend_timeline_display_1.json").read_text()
    (tmp_path / "ascend_timeline_display_0.json").write_text(text[: len(text) // 2])
    run = load(tmp_path)
    assert 0 < len(run.frame("kernels")) < 112
    assert any("cut file" in lost.what for lost in run.dropped)
    assert run.step_breakdown(0, 0).total == run.steps()["duration_ns"].iloc[0]


def test_of_two_folders_that_share_a_rank_one_is_read_as_a_whole(tmp_path):
    shutil.copytree(DATA / "mixed", tmp_path / "a")
    shutil.copytree(DATA / "run_2", tmp_path / "b")
    run = load(tmp_path)
    assert run.ranks == (0, 1, 2, 10)
    assert any(note.startswith("b was not read: rank 1 is also in a") for note in run.notes)


def test_folders_of_one_rank_each_are_one_run(tmp_path):
    for rank in (0, 1):
        write_steps(tmp_path / f"rank_{rank}/profiler", step_row(1, 1000, 1, 2, 3), rank=rank)
    assert load(tmp_path).ranks == (0, 1)


def test_files_inside_a_newer_profiler_folder_are_left_to_its_format(tmp_path):
    write_steps(tmp_path / "ASCEND_PROFILER_OUTPUT", step_row(1, 1000, 1, 2, 3))
    with pytest.raises(InputError, match="no known format"):
        load(tmp_path)


def test_hostile_operator_names_stay_data(tmp_path):
    name = "<img src=x onerror=alert(1)>"
    (tmp_path / "output_timeline_data_0.txt").write_text(f"op_name, stream_id, start_time(ms), duration(ms)\n{name},1,1.0,2.0\n")
    assert load(tmp_path).frame("kernels")["name"].astype(object).tolist() == [name]


def test_start_times_beyond_float_precision_stay_exact(tmp_path):
    start = 2**53 + 1
    run = load(write_steps(tmp_path, step_row(1, start, 1, 2, 3)))
    assert run.steps()["start_ns"].tolist() == [start * 10]
    assert run.frame("steps")["start_ns"].dtype == pd.Int64Dtype()


def test_strategies_alone_state_ranks_stages_and_how_operators_are_cut(tmp_path):
    run = load(DATA / "parallel_strategy")
    assert run.format == "mindinsight"
    assert run.ranks == (0, 1)
    assert {name: run.facts[name].value for name in ("num_devices", "pipeline_parallel_size", "parallel_mode")} == {
        "num_devices": 2,
        "pipeline_parallel_size": 1,
        "parallel_mode": "auto_parallel",
    }
    assert {rank: place.pipeline for rank, place in run.placement.items()} == {0: 0, 1: 0}
    assert run.facts["operator_strategies"].value == "Conv2D (2,1,1,1) (1,1,1,1) x 1"
    assert run.steps().empty
    (tmp_path / "parallel_strategy_0.json").write_text('{"config": {"rankId": 0}, "graph": []}')
    shutil.copy(DATA / "parallel_strategy" / "parallel_strategy_1.json", tmp_path)
    broken = load(tmp_path)
    assert "stageDevices" in broken.dropped[0].what
    assert broken.placement[1].pipeline == 0
