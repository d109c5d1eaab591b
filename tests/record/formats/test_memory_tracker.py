"""Memory tracker tables: both layouts, names and places, stacks with commas, and damaged tables."""

import shutil
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from perfkit.core.errors import InputError
from perfkit.record.load import load

SAMPLES = Path(__file__).parents[2] / "data" / "traces" / "memory_tracker"
HEADER = (
    "start_time_stamp,end_time_stamp,device_addr,stream_id,pool_type,size,actual_used_memory,actual_peak_memory,file_name,line_num,"
    "type,producer_task,task_name,node_name,graph_name,user_tasks,last_user_task,python_stack,is_persistent,is_small,"
)


def table(folder: Path, *rows: str, name: str = "memory_block.csv", header: str = HEADER) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_text("\n".join((header, *rows, "")), encoding="utf-8")
    return folder


def row(start: object = 1, end: object = 9, *, size: object = 512, name: str = "a", users: str = "{2-3-}", stack: str = "") -> str:
    return f"{start},{end},0x1,0,Pool,{size},512,1024,x.cc,1,Kernel,1,{name},A,g,{users},3,{stack},0,1,"


@pytest.mark.parametrize("name", ["older", "newer"])
def test_every_row_equals_a_plain_reading_of_the_file(name: str):
    blocks = load(SAMPLES / name).frame("memory_blocks")
    lines = [line.split(",") for line in (SAMPLES / name / "memory_block.csv").read_text().splitlines()]
    at = {column: index for index, column in enumerate(lines[0])}
    assert len(blocks) == len(lines) - 1
    for block, cells in zip(blocks.to_dict("records"), lines[1:], strict=True):
        assert (block["bytes"], block["address"], block["name"]) == (
            int(cells[at["size"]]),
            cells[at["device_addr"]],
            cells[at["task_name"]],
        )
        if int(cells[0]) >= 0:
            assert block["start"] == int(cells[0])
        if 0 <= int(cells[1]) < 2**63 - 1:
            assert block["end"] == int(cells[1])
        users = [int(user) for user in cells[at["user_tasks"]].strip("{}").split("-") if user]
        assert block["num_uses"] == len(users)


def test_coverage_counts_blocks_and_tasks():
    rows = load(SAMPLES / "newer").frame("coverage").set_index("part")["rows"]
    assert (rows["memory blocks"], rows["tasks"]) == (12, 11)


@pytest.mark.parametrize("column", ["actual_peak_memory", "user_tasks", "type", "task_name", "file_name"])
def test_a_column_with_one_letter_wrong_is_told_with_what_it_should_be(tmp_path: Path, column: str):
    damaged = HEADER.replace(f",{column},", f",{column[:-1]}#,")
    (told,) = load(table(tmp_path / "damaged", row(), header=damaged)).dropped
    assert (told.what, told.file) == (f"column '{column[:-1]}#', nearly '{column}', which is missing", "memory_block.csv")


def test_a_column_that_a_release_has_not_is_no_damage(tmp_path: Path):
    older = HEADER.replace("actual_peak_memory,", "").replace("last_user_task,", "")
    cells = row().replace("512,1024,", "512,").replace("{2-3-},3,", "{2-3-},")
    assert load(table(tmp_path, cells, header=older)).dropped == ()


def test_users_that_are_no_list_of_tasks_are_told_and_unknown(tmp_path: Path):
    run = load(table(tmp_path, row(), row(start=2, users="{5<5+"), row(start=3, users="{}")))
    assert [(part.what, part.count) for part in run.dropped] == [("user_tasks: not a list of tasks such as {12-15}", 1)]
    uses = run.frame("memory_blocks").sort_values("start")["num_uses"]
    assert uses.isna().tolist() == [False, True, False]
    assert uses.dropna().tolist() == [2, 0]


def test_a_prefix_and_rank_folders_are_understood(tmp_path: Path):
    for rank in (0, 3):
        folder = tmp_path / f"rank_{rank}"
        folder.mkdir()
        for kind in ("memory_block", "task"):
            shutil.copy(SAMPLES / "older" / f"{kind}.csv", folder / f"tracker_{kind}.csv")
    run = load(tmp_path)
    assert run.ranks == (0, 3)
    assert set(run.frame("coverage")["state"]) == {"present"}
    assert load(tmp_path / "rank_3").ranks == (3,)


def test_commas_in_a_stack_shift_nothing(tmp_path: Path):
    table(tmp_path, row(stack="at f(a, b),at g(c)"), row(name="b"))
    blocks = load(tmp_path).frame("memory_blocks")
    assert list(blocks["name"]) == ["a", "b"]
    assert list(blocks["place"]) == ["at f(a, b),at g(c)", "x.cc:1"]
    assert list(blocks["last_use"]) == [3, 3]
    assert not load(tmp_path).dropped


def test_a_recording_with_the_last_user_only_knows_when_but_not_how_often(tmp_path: Path):
    header = HEADER.replace("user_tasks,", "", 1)
    table(tmp_path, row().replace("{2-3-},", "", 1), header=header)
    block = load(tmp_path).frame("memory_blocks").iloc[0]
    assert block["last_use"] == 3
    assert block.isna()["num_uses"]


def test_blocks_that_need_more_than_the_stated_peak_are_noted(tmp_path: Path):
    table(tmp_path, row(size=4096))
    assert any("more than the peak that the allocator states" in note for note in load(tmp_path).notes)


def test_rows_that_cannot_be_read_are_counted_by_reason(tmp_path: Path):
    table(tmp_path, row(), row(start="soon"), row(start=9, end=1), row(size=-5), row(size="x"), "1,2,3", row(name="<img src=x>"))
    run = load(tmp_path)
    assert list(run.frame("memory_blocks")["name"]) == ["a", "<img src=x>"]
    assert sum(lost.count for lost in run.dropped) == 5
    assert run.frame("coverage").set_index("part").loc["memory blocks", "state"] == "partial"


def test_huge_and_negative_moments_are_not_moments(tmp_path: Path):
    table(tmp_path, row(end=2**64 - 1), row(start=-1, end=-1), row(start=5, end=-1))
    blocks = load(tmp_path).frame("memory_blocks")
    assert blocks["end"].isna().all()
    assert blocks["start"].isna().tolist() == [False, True, False]


def test_an_empty_table_is_named_as_empty(tmp_path: Path):
    (tmp_path / "memory_block.csv").write_bytes(b"")
    with pytest.raises(InputError, match="empty"):
        load(tmp_path)


def test_a_header_alone_says_that_a_cpu_writes_no_rows(tmp_path: Path):
    table(tmp_path)
    with pytest.raises(InputError, match="CPU"):
        load(tmp_path)


def test_a_table_without_a_size_is_refused_by_name(tmp_path: Path):
    table(tmp_path, header="start_time_stamp,end_time_stamp,device_addr,")
    with pytest.raises(InputError, match="'size' is missing"):
        load(tmp_path)


def test_two_tables_of_one_rank_are_not_added(tmp_path: Path):
    table(tmp_path / "rank_1" / "a", row())
    table(tmp_path / "rank_1" / "b", row(), row())
    run = load(tmp_path)
    assert len(run.frame("memory_blocks")) == 1
    assert any("another table of rank 1" in lost.what for lost in run.dropped)


@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(length=st.integers(0, 1600), junk=st.binary(max_size=40))
def test_a_table_cut_anywhere_with_junk_behind_never_ends_in_another_error(tmp_path: Path, length: int, junk: bytes):
    (tmp_path / "memory_block.csv").write_bytes((SAMPLES / "newer" / "memory_block.csv").read_bytes()[:length] + junk)
    try:
        run = load(tmp_path)
    except InputError:
        return
    assert len(run.frame("memory_blocks")) <= 13
