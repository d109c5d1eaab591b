"""Cluster analyses: the recorded 16-card run, old and new layouts, and folders that hold only some of the files."""

import json
import shutil
from functools import cache
from pathlib import Path

import pytest

from perfkit.core.errors import InputError
from perfkit.core.resources import data_folder
from perfkit.core.run import Run
from perfkit.record.formats.ascend import cluster_analysis
from perfkit.record.load import list_files, load
from perfkit.record.store import read_csv

CARDS_16 = data_folder() / "traces" / "cluster_16card"
SAMPLES = Path(__file__).parents[2] / "data" / "traces"
sample = cache(load)

STEP_HEADER = "Step,Type,Index,Computing,Communication(Not Overlapped),Overlapped,Communication,Free,Stage,Bubble"


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    return Path(shutil.copytree(CARDS_16, tmp_path / "run"))


def states(run: Run) -> dict[str, str]:
    rows = run.frame("coverage", ranks=[run.ranks[0]])
    return dict(zip(rows["part"], rows["state"], strict=True))


def test_stages_have_their_published_means():
    steps = sample(CARDS_16).steps()
    means = steps.groupby("pipeline_stage")[["duration_ns", "bubble_ns"]].mean() / 1e6
    assert means["duration_ns"].round(3).to_dict() == {0: 293.808, 1: 381.668}
    assert means["bubble_ns"].round(3).to_dict() == {0: 0, 1: 181.583}


def test_every_rank_row_adds_up_to_stage_and_bubble_within_half_a_microsecond():
    (file,) = list_files(CARDS_16).named("cluster_step_trace_time.csv")
    columns = ["Computing", "Communication(Not Overlapped)", "Free", "Stage", "Bubble"]
    rows = read_csv(file, {"Type": "text", **dict.fromkeys(columns, "us")}).frame
    rows = rows[rows["Type"] == "rank"]
    off = rows[columns[:3]].sum(axis=1) - rows[columns[3:]].sum(axis=1)
    assert len(rows) == 16
    assert off.abs().max() <= 500
    assert not sample(CARDS_16).notes


def test_the_leaves_of_every_step_sum_to_its_duration_exactly():
    run = sample(CARDS_16)
    assert len(run.steps()) == 16
    for row in run.steps().itertuples():
        assert run.step_breakdown(row.rank, row.step).total == row.duration_ns


def test_the_bubble_is_counted_once():
    row = sample(CARDS_16).steps().set_index("rank").loc[8]
    assert row["bubble_ns"] == 178320265
    assert row["exposed_communication_ns"] == 216680955 - 178320265


def test_parts_that_do_not_add_up_are_noted(copy: Path):
    path = copy / "cluster_step_trace_time.csv"
    path.write_text(path.read_text().replace("291698.0", "291699.0"))
    (note,) = load(copy).notes
    assert "the parts do not add up in 1 of 16 steps; worst is rank 0, step 2" in note


def test_collectives_of_groups_and_pairs_are_read():
    rows = sample(CARDS_16).frame("collectives")
    send = rows[(rows["name"] == "hcom_send__822_0") & (rows["rank"] == 1)].iloc[0]
    assert (send["operation"], send["step"], send["group"]) == ("send", 2, "13337953553061386822")
    assert (send["duration_ns"], send["transit_ns"], send["wait_ns"], send["bytes"]) == (896580, 863820, 20, 20971520)
    assert send["start_ns"] == 1695115378810055500
    assert set(rows.loc[rows["operation"] == "broadcast", "group_size"]) == {8}
    assert "Total Op Info" not in set(rows["name"])


def test_links_name_both_ranks_and_the_transport():
    rows = sample(CARDS_16).frame("links")
    link = rows[(rows["operation"] == "hcom_send__822_0@13337953553061386822") & (rows["target_rank"] == 8)].iloc[0]
    assert (link["rank"], link["source_rank"], link["transport"]) == (0, 0, "RDMA")
    assert (link["bytes"], link["transit_ns"]) == (20971520, 863815)


def test_a_recording_without_steps_is_step_0():
    rows = sample(SAMPLES / "msprof_analyze" / "cluster_analysis_output").frame("collectives")
    assert set(rows["step"]) == {0}
    assert set(rows["group_size"]) == {2}
    first = rows[(rows["rank"] == 0) & (rows["name"] == "hcom_broadcast__501_0")].iloc[0]
    assert first["duration_ns"] == 121736944
    assert first["bytes"] == 63936 + 21376  # HCCS and PCIE; SDMA repeats their sum


def test_the_new_group_layout_places_every_rank():
    run = sample(SAMPLES / "msinsight_groups" / "new")
    assert run.ranks == tuple(range(8))
    assert [(at.tensor, at.data, at.pipeline) for _, at in sorted(run.placement.items())] == [
        (rank % 2, rank // 2 % 2, rank // 4) for rank in range(8)
    ]
    sizes = {name: fact.value for name, fact in run.facts.items()}
    assert sizes == {"tensor_parallel_size": 2, "pipeline_parallel_size": 2, "data_parallel_size": 2}
    assert states(run) == {"step times": "missing", "collectives": "missing", "links": "missing", "layout": "present"}


def test_the_old_group_layout_tells_the_stages_by_its_pairs(tmp_path: Path):
    shutil.copy(CARDS_16 / "communication_group.json", tmp_path)
    run = load(tmp_path)
    assert [run.placement[rank].pipeline for rank in range(16)] == [0] * 8 + [1] * 8


def test_groups_without_names_or_stages_are_an_error_that_says_so():
    with pytest.raises(InputError, match="lists 19 groups, but no names of theirs and no pipeline stages"):
        load(SAMPLES / "msinsight_groups" / "old")


@pytest.mark.parametrize(
    ("name", "table"),
    [
        ("cluster_step_trace_time.csv", "steps"),
        ("cluster_communication.json", "collectives"),
        ("cluster_communication_matrix.json", "links"),
    ],
)
def test_one_file_alone_is_read_as_folder_and_as_file(tmp_path: Path, name: str, table: str):
    shutil.copy(CARDS_16 / name, tmp_path)
    for path in (tmp_path, tmp_path / name):
        run = load(path)
        assert run.format == "cluster-analysis"
        assert len(run.frame(table)) == len(sample(CARDS_16).frame(table))


@pytest.mark.parametrize("name", sorted(cluster_analysis.PARTS))
def test_a_missing_or_empty_file_leaves_the_others(copy: Path, name: str):
    part = cluster_analysis.PARTS[name]
    (copy / name).write_bytes(b"")
    run = load(copy)
    assert states(run)[part] == "empty"
    assert [lost.what for lost in run.dropped] == ["the file is empty (0 bytes)"]
    (copy / name).unlink()
    assert states(load(copy))[part] == "missing"


def test_a_cut_file_keeps_its_whole_entries(copy: Path):
    path = copy / "cluster_communication.json"
    text = path.read_text()
    path.write_text(text[: text.index("hcom_broadcast__483_0") + 30])
    run = load(copy)
    assert set(run.frame("collectives")["name"]) == {"hcom_send__822_0"}
    assert states(run)["collectives"] == "partial"
    assert run.dropped[0].what == "bytes after the break of a cut file"


def test_bad_rows_are_counted_and_the_rest_is_read(tmp_path: Path):
    rows = [
        "2,rank,0,100,50,10,60,30,180,0",
        "2,rank,1,nan,50,10,60,30,180,0",
        "2,rank,2,-1,50,10,60,30,180,0",
        "2,rank,3,100,50,10,60,30,80,100",
        "2,rank,many,100,50,10,60,30,180,0",
        "2,planet,4,100,50,10,60,30,180,0",
        "2,rank,5,100",
        "2,rank,6,100,50,10,60,30,180,0",
        "2,rank,6,200,50,10,60,30,280,0",
    ]
    (tmp_path / "cluster_step_trace_time.csv").write_text("\n".join([STEP_HEADER, *rows]))
    run = load(tmp_path)
    assert run.steps()[["rank", "duration_ns"]].to_numpy().tolist() == [[0, 180_000], [6, 280_000]]
    assert {lost.what: lost.count for lost in run.dropped} == {
        "row with more or fewer cells than the header": 1,
        "row that is neither of a rank nor of a stage": 2,
        "step row without computing, communication or free time": 1,
        "step row with a negative time": 1,
        "step row whose Bubble is larger than its Communication(Not Overlapped)": 1,
        "step row of a rank and step that another row repeats": 1,
    }


def test_a_rank_that_a_stage_names_but_no_row_tells_is_noted(copy: Path):
    path = copy / "cluster_step_trace_time.csv"
    path.write_text("".join(line for line in path.read_text().splitlines(keepends=True) if not line.startswith("2,rank,5,")))
    (note,) = load(copy).notes
    assert note.endswith("cluster_step_trace_time.csv has no row of rank 5, though a pipeline stage names them")


def test_index_columns_place_the_ranks(tmp_path: Path):
    rows = ["1,rank,0,1,1,0,1,1,3,0,0,1,2", "1,rank,1,1,1,0,1,1,3,0,,,"]
    (tmp_path / "cluster_step_trace_time.csv").write_text("\n".join([f"{STEP_HEADER},DP Index,PP Index,TP Index", *rows]))
    run = load(tmp_path)
    at = run.placement[0]
    assert (at.data, at.pipeline, at.tensor) == (0, 1, 2)
    assert list(run.placement) == [0]
    assert run.steps()["pipeline_stage"].iloc[0] == 1


def test_a_missing_column_is_named(copy: Path):
    path = copy / "cluster_step_trace_time.csv"
    path.write_text(path.read_text().replace("Computing,", "Reckoning,", 1))
    (lost,) = load(copy).dropped
    assert lost.what.startswith("column 'Computing' is missing; the file has 'Step', 'Type', 'Index', 'Reckoning'")


def test_hostile_names_stay_data(tmp_path: Path):
    name = "<img src=x onerror=alert(1)>"
    blocks = {"Communication Time Info": {"Elapse Time(ms)": "1.5", "Transit Time(ms)": 10**30}}
    (tmp_path / "cluster_communication.json").write_text(json.dumps({"(0, 1)": {"step1": {name: {"0": blocks, "x": blocks}}}}))
    run = load(tmp_path)
    row = run.frame("collectives").iloc[0]
    assert (row["name"], row["operation"], row["duration_ns"]) == (name, "other", 1_500_000)
    assert {(lost.what, lost.count) for lost in run.dropped} == {
        ("operation of something that is no rank", 1),
        ("Transit Time(ms): not a number", 1),
    }


def test_of_several_analyses_the_fullest_is_read(copy: Path):
    (copy / "older").mkdir()
    shutil.copy(copy / "communication_group.json", copy / "older")
    run = load(copy)
    assert run.has("steps")
    assert run.notes[0].startswith("2 cluster analyses were found")


@pytest.mark.parametrize("number", [10**30, -5, True, "7", 1.5, None])
def test_numbers_that_are_no_ranks_are_left_aside(copy: Path, number: object):
    group = {"group_name": "a", "pg_name": "tp", "rank_set": [number, 1]}
    content = {"collective": [[number]], "p2p": [[0, number], [1]], "comm_group_parallel_info": [group, number]}
    (copy / "communication_group.json").write_text(json.dumps(content))
    run = load(copy)
    assert run.ranks == tuple(range(16))
    assert "tensor_parallel_size" not in run.facts
