"""Ascend profiler folders (text): recorded runs, damaged ones, and where they may lie."""

import gzip
import json
import os
import shutil
from functools import cache
from pathlib import Path

import pandas as pd
import pytest

from perfkit.core.errors import InputError
from perfkit.core.resources import data_folder
from perfkit.core.run import Run
from perfkit.record.formats.ascend import _recording
from perfkit.record.load import load
from perfkit.record.overlap import Timeline
from tests import two_ranks

TWO_RANKS = data_folder() / "traces" / "torch_npu_2rank"
SAMPLES = Path(__file__).parents[2] / "data" / "traces"
LEVEL_0 = SAMPLES / "torch_npu_level0"
TRIMMED = SAMPLES / "msinsight_trimmed"
SYNTHETIC_MS = SAMPLES / "synthetic_ms"
OUTPUT = "ASCEND_PROFILER_OUTPUT"

# Reference values computed independently from the same files: union of kernel intervals, and the vendor's own summary; ns.
EXPECTED = {
    (LEVEL_0, 0): ((8827454, 85516886, 4001271, 25908114), (8827473, 85516889, 4001282, 25908102)),
    (LEVEL_0, 1): ((8813154, 68605708, 3989589, 27172956), (8813173, 68605710, 3989596, 27172943)),
    (TWO_RANKS, 0): ((8873737, 105991876, 4028673, 25744069), (8873756, 105991878, 4028675, 25744050)),
    (TWO_RANKS, 1): ((8878275, 100375284, 4016231, 26675287), (8878295, 100375286, 4016239, 26675274)),
}
HEADER = "Step Id,Name,Type,Accelerator Core,Start Time(us),Duration(us),Wait Time(us),Block Dim"
STEP_HEADER = "Step,Computing,Communication(Not Overlapped),Overlapped,Communication,Free,Stage,Bubble"


sample = cache(load)
"""A sample, read once; what a test may change is read with `load`."""


def kernels(run: Run, rank: int) -> pd.DataFrame:
    return run.frame("kernels", ranks=[rank])


def state(run: Run, part: str, rank: int = 0) -> str:
    rows = run.frame("coverage", ranks=[rank])
    return str(rows.loc[rows["part"] == part, "state"].iloc[0])


def dropped(run: Run, words: str) -> int:
    return sum(lost.count for lost in run.dropped if words in lost.what)


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """A copy of the two-rank sample that a test may damage."""
    return Path(shutil.copytree(TWO_RANKS, tmp_path / "run", ignore=shutil.ignore_patterns("PROVENANCE.md")))


def output_of(run: Path, rank: int = 0) -> Path:
    return run / f"rank{rank}_ascend_pt" / OUTPUT


def rank_folder(parent: Path, rank: int, *, kernel_rows: str = "", step_rows: str = "", info: object = None) -> Path:
    folder = parent / f"rank{rank}_ascend_pt"
    (folder / OUTPUT).mkdir(parents=True)
    if kernel_rows:
        (folder / OUTPUT / "kernel_details.csv").write_text(f"{HEADER}\n{kernel_rows}", encoding="utf-8")
    if step_rows:
        (folder / OUTPUT / "step_trace_time.csv").write_text(f"{STEP_HEADER}\n{step_rows}", encoding="utf-8")
    if info is not None:
        (folder / f"profiler_info_{rank}.json").write_text(json.dumps(info), encoding="utf-8")
    return folder


# Recorded runs


@pytest.mark.parametrize(("folder", "rank"), EXPECTED, ids=lambda value: str(getattr(value, "name", value)))
def test_kernels_and_steps_of_recorded_runs_have_their_reference_values(folder: Path, rank: int):
    run = sample(folder)
    rows = kernels(run, rank)
    assert (len(rows), int((rows["kind"] == "computing").sum()), int((rows["kind"] == "communication").sum())) == (191, 187, 4)
    events, summary = EXPECTED[folder, rank]
    device = Timeline(rows).whole()
    found = (device.computing_ns, device.communication_ns, device.overlapped_ns, device.free_ns)
    assert found == events
    step = run.steps().set_index("rank").loc[rank]
    assert tuple(step[["computing_ns", "communication_ns", "overlapped_ns", "free_ns"]]) == summary


def test_the_types_that_take_most_time_have_their_reference_values():
    rows = kernels(sample(TWO_RANKS), 0)
    totals = rows[rows["kind"] == "computing"].groupby("type", observed=True)["duration_ns"].sum().nlargest(3)
    assert totals.to_dict() == {"ForeachAddList": 1959079, "TransData": 1423202, "MatMulV2": 921498}


@pytest.mark.parametrize("folder", [TWO_RANKS, LEVEL_0, TRIMMED, SYNTHETIC_MS], ids=lambda folder: folder.name)
def test_the_leaves_of_every_step_sum_to_its_duration_exactly(folder: Path):
    run = sample(folder)
    for row in run.steps().itertuples():
        assert run.step_breakdown(row.rank, row.step).total == row.duration_ns
    assert len(run.steps()) >= 2


@pytest.mark.parametrize("folder", [TWO_RANKS, LEVEL_0], ids=lambda folder: folder.name)
def test_a_summary_that_agrees_with_its_kernels_raises_no_doubt(folder: Path):
    assert not any("differs" in note or "add up" in note for note in sample(folder).notes)


def test_a_summary_that_the_kernels_contradict_is_noted_with_both_numbers():
    notes = " ".join(sample(TRIMMED).notes)  # its kernel_details.csv holds a few rows of the step only
    assert "computing time differs by more than 0.1 % in 2 of 2 steps" in notes
    assert "worst is rank 1, step 2: 2.02 ms from kernel_details.csv, 75.4 ms in step_trace_time.csv" in notes


def test_parts_that_do_not_add_up_are_noted_with_both_numbers(tmp_path: Path):
    rank_folder(tmp_path, 0, step_rows="1,100,50,10,60,30,180,0.4\n2,100,50,10,60,30,170,3\n")
    (note,) = load(tmp_path).notes
    assert "1 of 2 steps; worst is rank 0, step 2" in note
    assert note.endswith("Communication(Not Overlapped) + Free = 180 µs, Stage + Bubble = 173 µs, 7.00 µs apart")


def test_collectives_join_the_exact_kernel_times_with_the_sizes_of_the_json():
    rows = sample(TWO_RANKS).frame("collectives", ranks=[0]).reset_index(drop=True)
    assert list(rows["name"]) == [f"hcom_allReduce__586_{index}_1" for index in range(4)]
    first = rows.iloc[0]
    assert (first["operation"], first["group"], first["step"]) == ("all_reduce", "17522688603477080586", 50)
    assert (first["start_ns"], first["duration_ns"]) == (1736408883732241563, 79089520)
    assert (first["transit_ns"], first["wait_ns"], first["bytes"]) == (239185, 5646633, 28647232)
    assert first["group_size"] is pd.NA  # the run names no process groups


def test_level_0_has_collectives_without_sizes_and_says_so():
    run = sample(LEVEL_0)
    rows = run.frame("collectives")
    assert len(rows) == 8
    assert rows["bytes"].isna().all()
    assert set(rows["group"]) == {"868"}
    assert state(run, "collectives") == "partial"
    assert state(run, "kernels") == "partial"
    assert kernels(run, 0).loc[lambda rows: rows["kind"] == "computing", "type"].isna().all()


def test_links_carry_ranks_bytes_and_transport():
    rows = sample(TWO_RANKS).frame("links", ranks=[0])
    total = rows[rows["operation"].astype(str).str.startswith("allreduce-total@")].set_index("target_rank")
    assert set(total.index) == set(range(8))
    assert total.loc[1, "transport"] == "HCCS"
    assert total.loc[0, "transport"] == "LOCAL"
    content = json.loads((output_of(TWO_RANKS) / "communication_matrix.json").read_text())
    recorded = content["step50"]["collective"]["allreduce-total@17522688603477080586"]["0-1"]
    assert total.loc[1, "bytes"] == round(recorded["Transit Size(MB)"] * 1e6)
    assert total.loc[1, "transit_ns"] == round(recorded["Transit Time(ms)"] * 1e6)


def test_peers_without_a_folder_are_named():
    (note,) = sample(TWO_RANKS).notes
    assert note == "no folder of ranks 2 to 7 was found, though communication_matrix.json names peers there; read: ranks 0, 1"


def test_coverage_says_what_answers_what():
    run = sample(two_ranks.by_tables())
    rows = run.frame("coverage", ranks=[1]).set_index("part")
    timed = sample(TWO_RANKS).frame("coverage", ranks=[1]).set_index("part")["state"].to_dict()
    assert timed == {**rows["state"].to_dict(), "timeline": "present"}
    assert rows["state"].to_dict() == {
        "step times": "present",
        "kernels": "present",
        "collectives": "present",
        "links": "present",
        "timeline": "missing",
        "operator statistics": "present",
        "host calls": "present",
        "memory curve": "present",
        "memory blocks": "present",
        "memory of modules": "present",
        "layout": "empty",
        "profiler settings": "present",
    }
    assert rows.loc["kernels", "file"] == f"rank1_ascend_pt/{OUTPUT}/kernel_details.csv"
    assert rows.loc["kernels", "rows"] == 191


def test_settings_are_facts_with_their_file():
    facts = sample(TWO_RANKS).facts
    assert facts["profiler_level"].value == "Level1"
    assert facts["profiler_level"].source.where.startswith("rank0_ascend_pt/profiler_info_0.json")


# MindSpore folders, layout and groups


def test_a_mindspore_folder_reads_like_a_pytorch_one():
    run = sample(SYNTHETIC_MS)
    assert run.ranks == (0, 1)
    assert [run.placement[rank].pipeline for rank in run.ranks] == [0, 1]
    assert list(run.steps()["pipeline_stage"]) == [0, 0, 1, 1]
    assert run.facts["pipeline_parallel_size"].value == 2
    assert run.facts["num_devices"].value == 2
    rows = run.frame("collectives")
    assert set(rows["operation"]) == {"send", "receive", "all_reduce"}
    assert set(rows["group_size"]) == {2}


def test_links_numbered_inside_their_group_become_global(tmp_path: Path):
    groups = {"a": {"group_name": "pp", "global_ranks": [3, 7]}, "b": {"group_name": "default_group", "global_ranks": [*range(8)]}}
    for rank, position in ((3, 0), (7, 1)):
        folder = rank_folder(tmp_path, rank, kernel_rows="1,MatMul,N/A,N/A,10,5,0,1\n", info={"rank_id": rank})
        (folder / "profiler_metadata.json").write_text(json.dumps({"parallel_group_info": groups}))
        sent = {f"{position}-{position}": {}, f"{position}-{1 - position}": {"Transit Size(MB)": 2, "Transit Time(ms)": 1}}
        content = {"step1": {"p2p": {"send-total@111": sent}, "collective": {}}}
        (folder / OUTPUT / "communication_matrix.json").write_text(json.dumps(content))
    rows = load(tmp_path).frame("links")
    assert list(zip(rows["source_rank"], rows["target_rank"], strict=True)) == [(3, 3), (3, 7), (7, 7), (7, 3)]


def test_a_link_whose_end_cannot_be_told_is_counted_and_not_guessed():
    run = sample(TRIMMED)  # rank 1 is number 0 of a group whose number 1 has no folder
    assert dropped(run, "link between ranks that are numbered inside an unknown group") == 26
    rows = run.frame("links", ranks=[1])
    assert {int(rank) for rank in rows["source_rank"]} == {1}


def test_groups_of_equal_names_keep_their_operations_apart(tmp_path: Path):
    folder = rank_folder(
        tmp_path, 0, kernel_rows="1,hcom_send__586_0_1,N/A,HCCL,10,5,0,0\n1,hcom_send__586_0_1,N/A,HCCL,20,7,0,0\n"
    )
    times = {"Transit Time(ms)": 0.001, "Wait Time(ms)": 0}
    content = {
        "step1": {
            "p2p": {
                "hcom_send__586_0_1@2586": {
                    "Communication Time Info": {"Start Timestamp(us)": 20, "Elapse Time(ms)": 0.007, **times}
                },
                "hcom_send__586_0_1@1586": {
                    "Communication Time Info": {"Start Timestamp(us)": 10, "Elapse Time(ms)": 0.005, **times}
                },
            }
        }
    }
    (folder / OUTPUT / "communication.json").write_text(json.dumps(content))
    rows = load(tmp_path).frame("collectives")
    assert list(zip(rows["group"], rows["duration_ns"], strict=True)) == [("1586", 5000), ("2586", 7000)]


def test_zero_sizes_and_transit_times_are_unknown_not_zero(tmp_path: Path):
    folder = rank_folder(tmp_path, 0, kernel_rows="1,hcom_allReduce__001_0_1,N/A,HCCL,10,5,0,0\n")
    blocks = {
        "Communication Time Info": {"Elapse Time(ms)": 0.005, "Transit Time(ms)": 0, "Wait Time(ms)": 0},
        "Communication Bandwidth Info": {"SDMA": {"Transit Size(MB)": 0}},
    }
    content = {"step1": {"collective": {"hcom_allReduce__001_0_1@9001": blocks}}}
    (folder / OUTPUT / "communication.json").write_text(json.dumps(content))
    row = load(tmp_path).frame("collectives").iloc[0]
    assert (row["duration_ns"], row["transit_ns"], row["bytes"]) == (5000, pd.NA, pd.NA)


# Where a run may lie


@pytest.mark.parametrize(
    "inside", ["", "rank1_ascend_pt", f"rank1_ascend_pt/{OUTPUT}", f"rank1_ascend_pt/{OUTPUT}/kernel_details.csv"]
)
def test_any_part_of_a_run_can_be_opened(inside: str):
    run = load(TWO_RANKS / inside)
    assert run.format == "ascend-text"
    assert 1 in run.ranks
    assert run.has("kernels")
    assert run.has("steps")


def test_a_single_file_is_recognised_by_its_header(tmp_path: Path):
    shutil.copy(output_of(TWO_RANKS) / "kernel_details.csv", tmp_path / "kernels of monday.csv")
    shutil.copy(output_of(TWO_RANKS) / "step_trace_time.csv", tmp_path / "steps of monday.csv")
    assert len(load(tmp_path / "kernels of monday.csv").frame("kernels")) == 191
    assert load(tmp_path / "steps of monday.csv").steps()["computing_ns"].tolist() == [8873756]


def test_folders_are_found_at_any_depth_whatever_their_names(copy: Path):
    deep = copy / "a" / "b" / "c"
    deep.parent.mkdir(parents=True)
    (copy / "rank1_ascend_pt").rename(deep)
    (deep / OUTPUT).rename(deep / "results")
    assert load(copy).ranks == (0, 1)


def test_the_rank_comes_from_the_settings_before_the_name(copy: Path):
    (copy / "rank1_ascend_pt").rename(copy / "rank7_ascend_pt")
    assert load(copy).ranks == (0, 1)
    (copy / "rank7_ascend_pt" / "profiler_info_1.json").unlink()
    assert load(copy).ranks == (0, 7)


def test_a_single_device_is_rank_0(tmp_path: Path):
    folder = rank_folder(tmp_path, 5, kernel_rows="1,MatMul,N/A,N/A,10,5,0,1\n")
    (folder / "profiler_info.json").write_text(json.dumps({"rank_id": -1}))
    assert load(tmp_path).ranks == (0,)


def test_a_rank_missing_between_others_is_named(tmp_path: Path):
    for rank in (0, 1, 3):
        rank_folder(tmp_path, rank, kernel_rows="1,MatMul,N/A,N/A,10,5,0,1\n")
    assert "no folder of rank 2 was found, though a higher rank has one; read: ranks 0, 1, 3" in load(tmp_path).notes


def test_ranks_missing_from_the_stated_number_of_devices_are_named(copy: Path):
    metadata = {"distributed_args": {"world_size": 16, "rank": 0}}
    (copy / "rank0_ascend_pt" / "profiler_metadata.json").write_text(json.dumps(metadata))
    (note,) = load(copy).notes
    assert note == "no folder of ranks 2 to 15 was found, though the job had 16 devices; read: ranks 0, 1"


def test_of_two_jobs_in_one_folder_the_later_is_read_and_the_other_reported(tmp_path: Path):
    shutil.copytree(TWO_RANKS, tmp_path / "monday")
    shutil.copytree(LEVEL_0, tmp_path / "sunday")
    run = load(tmp_path)
    assert run.ranks == (0, 1)
    assert run.facts["profiler_level"].value == "Level1"
    assert [(lost.file, lost.count) for lost in run.dropped] == [("sunday", 2)]
    assert run.notes[0].startswith("monday, sunday hold recordings of the same ranks")


def test_of_two_recordings_of_a_rank_beside_each_other_the_later_is_read_and_the_other_reported(tmp_path: Path):
    for source, when in ((TWO_RANKS, "monday"), (LEVEL_0, "sunday")):
        for rank in (0, 1):
            shutil.copytree(source / f"rank{rank}_ascend_pt", tmp_path / f"{when}_rank{rank}_ascend_pt")
    run = load(tmp_path)
    assert run.ranks == (0, 1)
    assert run.facts["profiler_level"].value == "Level1"
    assert [lost.file for lost in run.dropped] == ["sunday_rank0_ascend_pt", "sunday_rank1_ascend_pt"]
    assert run.notes[0].startswith("2 of 4 folders hold a rank that another folder recorded later")


def test_a_folder_that_was_never_analysed_is_shown_as_missing(copy: Path):
    shutil.rmtree(output_of(copy, 1))
    run = load(copy)
    assert run.ranks == (0, 1)
    assert state(run, "step times", rank=1) == "missing"
    assert state(run, "profiler settings", rank=1) == "present"


# Damage


def test_a_cut_communication_file_keeps_its_whole_operations(copy: Path):
    path = output_of(copy) / "communication.json"
    text = path.read_text()
    third = text.index("hcom_allReduce__586_2_1")
    path.write_text(text[: third + 200])
    run = load(copy)
    rows = run.frame("collectives", ranks=[0])
    assert list(rows["bytes"].notna()) == [True, True, False, False]  # the kernels still tell all four
    assert dropped(run, "bytes after the break") == len(text[: third + 200]) - (third - 3)
    assert state(run, "collectives") == "partial"


def test_a_communication_file_that_is_no_json_is_named(copy: Path):
    (output_of(copy) / "communication.json").write_text("<html>404</html>")
    run = load(copy)
    assert dropped(run, "is no JSON: Expecting value at line 1, column 1") == 1
    assert state(run, "collectives") == "partial"


def test_without_step_times_the_steps_are_computed_from_kernels(copy: Path):
    vendor = load(copy).steps()
    for rank in (0, 1):
        (output_of(copy, rank) / "step_trace_time.csv").unlink()
    run = load(copy)
    computed = run.steps()
    for name in ("duration_ns", "computing_ns", "exposed_communication_ns", "free_ns"):
        assert computed[name].tolist() == pytest.approx(vendor[name].tolist(), rel=1e-3)
    assert computed["bubble_ns"].isna().all()
    assert "steps that step_trace_time.csv does not tell were computed" in " ".join(run.notes)


def test_a_step_that_the_summary_lacks_is_computed_from_its_kernels(tmp_path: Path):
    rows = "1,MatMul,N/A,N/A,100,10,0,1\n1,MatMul,N/A,N/A,120,10,0,1\n2,MatMul,N/A,N/A,150,10,0,1\n"
    rank_folder(tmp_path, 0, kernel_rows=rows, step_rows="1,20,0,0,0,10,30,0\n2,nan,0,0,0,10,20,0\n")
    run = load(tmp_path)
    steps = run.steps().set_index("step")
    assert steps["duration_ns"].to_dict() == {1: 30_000, 2: 10_000}
    assert steps["start_ns"].to_dict() == {1: 100_000, 2: 150_000}
    assert state(run, "step times") == "partial"


def test_missing_columns_are_named_and_the_other_files_are_read(copy: Path):
    path = output_of(copy) / "kernel_details.csv"
    path.write_text(path.read_text().replace("Duration(us)", "Span(us)", 1))
    run = load(copy)
    assert dropped(run, "column 'Duration(us)' is missing; the file has 'Step Id', 'Model ID'") == 1
    assert kernels(run, 0).empty
    assert len(kernels(run, 1)) == 191
    assert state(run, "kernels") == "partial"


def test_values_that_make_no_sense_are_counted(tmp_path: Path):
    rows = (
        "1,Good,MatMulV2,AI_CORE,10,5,0,1\n"
        "1,NotANumber,N/A,AI_CORE,20,NaN,0,1\n"
        "1,Negative,N/A,AI_CORE,30,-5,0,1\n"
        "1,Text,N/A,AI_CORE,40,five,0,1\n"
        "1,Huge,N/A,AI_CORE,50,1e400,0,1\n"
        "1,WaitsBackwards,N/A,AI_CORE,60,5,-1,1\n"
        "-1,OfNoStep,N/A,AI_CORE,55,1,0,1\n"
        "1,Short,N/A\n"
    )
    rank_folder(tmp_path, 0, kernel_rows=rows)
    run = load(tmp_path)
    assert list(kernels(run, 0)["name"]) == ["Good", "WaitsBackwards", "OfNoStep"]
    assert list(kernels(run, 0)["step"]) == [1, 1, 1]
    assert list(kernels(run, 0)["wait_ns"]) == [0, pd.NA, 0]
    assert dropped(run, "kernels.duration_ns") == 4
    assert dropped(run, "Duration(us): not a number") == 2
    assert dropped(run, "Wait Time(us): negative") == 1
    assert dropped(run, "Step Id: negative") == 1
    assert dropped(run, "more or fewer cells") == 1
    assert state(run, "kernels") == "partial"


@pytest.mark.parametrize("name", ["kernel_details.csv", "step_trace_time.csv", "communication.json", "communication_matrix.json"])
def test_an_empty_file_is_called_empty_and_the_run_is_kept(copy: Path, name: str):
    (output_of(copy) / name).write_bytes(b"")
    run = load(copy)
    parts = {"kernel_details.csv": "kernels", "step_trace_time.csv": "step times", "communication.json": "collectives"}
    assert state(run, parts.get(name, "links")) == "empty"
    assert dropped(run, "the file is empty (0 bytes)") == 1
    assert run.has("steps")


def test_nothing_but_empty_files_is_an_error_that_lists_them(tmp_path: Path):
    for name in ("kernel_details.csv", "step_trace_time.csv"):
        (tmp_path / name).write_bytes(b"")
    with pytest.raises(InputError) as error:
        load(tmp_path)
    assert "recognised as Ascend profiler folders (text), but nothing in it can be read" in str(error.value)
    assert "kernel_details.csv: the file is empty (0 bytes)" in str(error.value)


@pytest.mark.parametrize("settings", ["", "{", "[1]", '{"rank_id": "x"}', "null"])
def test_broken_settings_leave_the_rank_to_the_name(copy: Path, settings: str):
    (copy / "rank1_ascend_pt" / "profiler_info_1.json").write_text(settings)
    (copy / "rank1_ascend_pt" / "profiler_metadata.json").write_text(settings)
    assert load(copy).ranks == (0, 1)


@pytest.mark.parametrize("content", ['{"step1": 5}', '{"step1": {"p2p": [1]}}', '{"step1": {"p2p": {"x": null}}}', "[]", "7"])
def test_json_of_another_shape_is_counted(copy: Path, content: str):
    for name in ("communication.json", "communication_matrix.json"):
        (output_of(copy) / name).write_text(content)
    run = load(copy)
    assert dropped(run, "no JSON object") + dropped(run, "without a duration") == 2
    assert len(run.frame("collectives", ranks=[0])) == 4


def test_hostile_names_stay_data(tmp_path: Path):
    name = "<img src=x onerror=alert(1)>"
    rank_folder(tmp_path, 0, kernel_rows=f"1,{name},\"=cmd|' /C calc'!A0\",AI_CORE,10,5,0,1\n")
    row = kernels(load(tmp_path), 0).iloc[0]
    assert (row["name"], row["type"]) == (name, "=cmd|' /C calc'!A0")


def test_a_call_stack_behind_a_name_is_cut(tmp_path: Path):
    rank_folder(tmp_path, 0, kernel_rows='1,"Default/MatMul-op1;\r\nnet.py(12): forward",N/A,N/A,10,5,0,1\n')
    assert kernels(load(tmp_path), 0)["name"].tolist() == ["Default/MatMul-op1"]


def test_bytes_that_are_no_utf8_in_names_and_text_do_not_end_the_reading(copy: Path):
    strange = os.fsencode(copy) + b"/\xff\xferank1"
    (copy / "rank1_ascend_pt").rename(os.fsdecode(strange))
    path = Path(os.fsdecode(strange)) / OUTPUT / "kernel_details.csv"
    path.write_bytes(path.read_bytes().replace(b"trans_TransData_0", b"trans\xff_0", 1))
    run = load(copy)
    assert run.ranks == (0, 1)
    assert kernels(run, 1)["name"].iloc[0] == "trans�_0"
    files = run.frame("coverage", ranks=[1])["file"].dropna().astype(str)
    assert files.str.startswith(r"\udcff\udcferank1/").all()


def test_line_ends_tabs_and_byte_order_marks_change_nothing(copy: Path):
    before = load(copy)
    for path in output_of(copy).glob("*.csv"):
        lines = path.read_bytes().replace(b"\t", b"").replace(b"\r\n", b"\n")
        path.write_bytes(b"\xef\xbb\xbf" + lines)
    for path in output_of(copy).glob("comm*.json"):
        path.write_bytes(b"\xef\xbb\xbf" + path.read_bytes())
    after = load(copy)
    for table in ("kernels", "steps", "collectives", "links"):
        pd.testing.assert_frame_equal(before.frame(table), after.frame(table))


def test_a_recording_without_steps_is_one_step(tmp_path: Path):
    rows = ",MatMul,N/A,N/A,100,10,0,1\n,hcom_send__001_0_1,N/A,HCCL,110,10,0,1\n"
    rank_folder(tmp_path, 0, kernel_rows=rows, step_rows=",10,10,0,10,0,20,0\n")
    run = load(tmp_path)
    assert run.steps()[["step", "duration_ns", "start_ns"]].to_numpy().tolist() == [[0, 20_000, 100_000]]
    assert set(kernels(run, 0)["step"]) == {0}


def test_copies_are_neither_computing_nor_communication(tmp_path: Path):
    rank_folder(tmp_path, 0, kernel_rows="1,MatMul,N/A,N/A,0,10,0,1\n1,MEMCPY_ASYNC,N/A,N/A,20,10,0,1\n")
    step = load(tmp_path).steps().iloc[0]
    assert (step["computing_ns"], step["copy_ns"], step["free_ns"]) == (10_000, 10_000, 20_000)


def test_a_bubble_that_cannot_see_combined_receives_is_doubted(tmp_path: Path):
    rank_folder(tmp_path, 0, kernel_rows="1,hcom_batchSendRecv__001_0_1,N/A,HCCL,0,10,0,1\n", step_rows="1,0,10,0,10,0,10,0\n")
    assert any("Bubble is 0, but" in note for note in load(tmp_path).notes)


@pytest.mark.parametrize("number", [10**30, -5, True, "7", 1.5, None])
def test_numbers_that_are_no_ranks_are_left_aside(copy: Path, number: object):
    metadata = {
        "distributed_args": {"world_size": number, "rank": number, "tensor_model_parallel_size": number},
        "parallel_group_info": {"a": {"group_name": "tp", "global_ranks": [number, 1]}},
    }
    for rank in (0, 1):
        (copy / f"rank{rank}_ascend_pt" / "profiler_metadata.json").write_text(json.dumps(metadata))
    (copy / "rank1_ascend_pt" / "profiler_info_1.json").write_text(json.dumps({"rank_id": number}))
    run = load(copy)
    assert run.ranks == (0, 1)
    assert not run.placement


def test_summaries_of_all_ranks_at_once_are_those_one_by_one(tmp_path, monkeypatch):
    folder = tmp_path / "run"
    shutil.copytree(SAMPLES / "torch_npu_level0", folder)
    shutil.copytree(data_folder() / "traces" / "torch_npu_2rank", folder / "other")
    at_once = load(folder, cache=False)
    monkeypatch.setattr(_recording, "_added_at_once", lambda told, sink: False)
    one_by_one = load(folder, cache=False)
    assert len(at_once.ranks) > 1
    for name in ("steps", "step_parts"):
        pd.testing.assert_frame_equal(*(run.frame(name).sort_values(["rank", "step"], kind="stable", ignore_index=True)
                                        for run in (at_once, one_by_one)))  # fmt: skip


def test_a_step_that_is_refused_is_counted_in_its_own_file_beside_sound_ones(tmp_path):
    folder = tmp_path / "run"
    shutil.copytree(data_folder() / "traces" / "torch_npu_2rank", folder)
    file = sorted(folder.rglob("step_trace_time.csv"))[1]
    header, row = file.read_text().splitlines()[:2]
    place = header.split(",").index("Computing")
    cells = row.split(",")
    file.write_text("\n".join([header, row, ",".join([*cells[:place], "-5", *cells[place + 1 :]])]) + "\n")
    run = load(folder, cache=False)
    assert [(lost.count, lost.file.split("/")[0]) for lost in run.dropped if "negative time" in lost.what] == [
        (1, "rank1_ascend_pt")
    ]
    assert set(run.steps()["rank"]) == {0, 1}


@pytest.mark.parametrize("beside", [False, True])
def test_a_timeline_that_was_compressed_is_read_as_it_was(tmp_path: Path, beside: bool):
    """Beside the plain one, which counts, it may hold anything."""
    folder = shutil.copytree(TWO_RANKS, tmp_path / "run")
    for packed in folder.rglob("trace_view.json.gz"):
        packed.with_suffix("").write_bytes(gzip.decompress(packed.read_bytes()))
        if beside:
            packed.write_bytes(gzip.compress(b"[]"))
        else:
            packed.unlink()
    plain, compressed = load(folder), load(TWO_RANKS)
    for name in compressed.tables:
        if name != "coverage":
            pd.testing.assert_frame_equal(plain.frame(name), compressed.frame(name))
    assert compressed.has("launches")
    assert compressed.has("waits")


@pytest.mark.parametrize("packed", [False, True])
def test_a_timeline_that_is_cut_is_said_through_every_door_and_again_when_it_is_opened_again(tmp_path: Path, packed: bool):
    folder = shutil.copytree(TWO_RANKS, tmp_path / "run")
    (whole,) = (folder / "rank0_ascend_pt").rglob("trace_view.json.gz")
    if packed:
        whole.write_bytes(whole.read_bytes()[:60_000])
    else:
        whole.with_suffix("").write_bytes(gzip.decompress(whole.read_bytes())[:1_100_000])
        whole.unlink()
    for _ in range(2):
        run = load(folder)
        assert len(run.frame("host"))
        (lost,) = run.dropped
        assert lost.what.endswith("what follows is lost")
        assert "trace_view.json" in str(lost.file)
