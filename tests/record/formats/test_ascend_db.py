"""Ascend profiler databases: recorded runs against a plain reading, damaged and foreign ones, and where they may lie."""

import shutil
import sqlite3
from contextlib import closing
from functools import cache
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from perfkit.core.errors import InputError
from perfkit.core.run import Run
from perfkit.explain.idle import idle_breakdown
from perfkit.explain.launches import launches, unlinked
from perfkit.explain.ledger import ledger
from perfkit.explain.ledger.causes import PAUSE
from perfkit.record.formats.ascend._db import read_windows
from perfkit.record.listing import list_files
from perfkit.record.load import load
from perfkit.record.overlap import Timeline
from perfkit.record.readers.sqlite import open_database

SAMPLES = Path(__file__).parents[2] / "data" / "traces"
RUNS = SAMPLES / "torch_npu_db"
OUTPUT = "ASCEND_PROFILER_OUTPUT"

# Reference values computed independently from the same files: computing, communication and overlapped ns, the step of STEP_TIME.
EXPECTED = {
    ("level0", 0): ((8843910, 89880576, 3999454), (50, 1736407067933660740, 1736407068072327480)),
    ("level1", 0): ((8903431, 102108100, 4036153), (50, 1736410576386409710, 1736410576538298460)),
    ("level1", 1): ((8915634, 98590190, 4034140), (50, 1736410576389878870, 1736410576538144290)),
}
# The summary of the vendor's own tool in StepTraceTime, us.
SUMMARY_US = {("level0", 0): ("8843.91", "85881.122", "25900.158"), ("level1", 0): ("8903.431", "98071.947", "25258.144")}

sample = cache(load)


def events_of(run: Path, rank: int = 0) -> Path:
    return run / f"rank{rank}_ascend_pt" / OUTPUT / f"ascend_pytorch_profiler_{rank}.db"


def plain_kernels(path: Path) -> list[tuple[str, int, int]]:
    """Name, start and duration of every kernel and operation, read with the standard library alone."""
    with closing(sqlite3.connect(f"file:{path}?mode=ro&immutable=1", uri=True)) as connection:
        texts = dict(connection.execute("SELECT id, value FROM STRING_IDS"))
        described = dict(connection.execute("SELECT globalTaskId, name FROM COMPUTE_TASK_INFO"))
        tasks = connection.execute("SELECT globalTaskId, startNs, endNs FROM TASK").fetchall()
        operations = connection.execute("SELECT opName, startNs, endNs FROM COMMUNICATION_OP").fetchall()
    kernels = [(texts[described[task]], start, end - start) for task, start, end in tasks if task in described]
    return sorted(kernels + [(texts[name], start, end - start) for name, start, end in operations])


def state(run: Run, part: str, rank: int = 0) -> str:
    rows = run.frame("coverage", ranks=[rank])
    return str(rows.loc[rows["part"] == part, "state"].iloc[0])


def edit(path: Path, *statements: str) -> None:
    with closing(sqlite3.connect(path)) as connection:
        for statement in statements:
            connection.execute(statement)
        connection.commit()


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """A copy of the two-rank sample that a test may damage."""
    return Path(shutil.copytree(RUNS / "level1", tmp_path / "run"))


# Recorded runs


@pytest.mark.parametrize(("level", "rank"), EXPECTED)
def test_kernels_and_steps_of_recorded_runs_have_their_reference_values(level: str, rank: int):
    run = sample(RUNS / level)
    kernels = run.frame("kernels", ranks=[rank])
    assert run.format == "ascend-db"
    assert dict(kernels["kind"].value_counts()) == {"computing": 187, "communication": 4}
    device = Timeline(kernels).whole()
    times, step = EXPECTED[level, rank]
    assert (device.computing_ns, device.communication_ns, device.overlapped_ns) == times
    [listed] = list_files(events_of(RUNS / level, rank))
    with open_database(listed) as database:
        assert [(window.step, window.start_ns, window.end_ns) for window in read_windows(database)] == [step]
    assert set(kernels["step"]) == {step[0]}


@pytest.mark.parametrize(("level", "rank"), EXPECTED)
def test_every_kernel_equals_a_plain_reading_of_the_database(level: str, rank: int):
    kernels = sample(RUNS / level).frame("kernels", ranks=[rank])
    found = sorted(zip(kernels["name"].astype(str), map(int, kernels["start_ns"]), map(int, kernels["duration_ns"]), strict=True))
    plain = plain_kernels(events_of(RUNS / level, rank))
    assert found == plain
    assert sum(row[2] for row in found) == sum(row[2] for row in plain)


@pytest.mark.parametrize("key", SUMMARY_US)
def test_steps_are_those_of_the_analysis_to_the_nanosecond(key: tuple[str, int]):
    level, rank = key
    step = sample(RUNS / level).steps().set_index("rank").loc[rank]
    computing, exposed, free = (int(text.replace(".", "").ljust(len(text.split(".")[0]) + 3, "0")) for text in SUMMARY_US[key])
    assert (step["computing_ns"], step["exposed_communication_ns"], step["free_ns"]) == (computing, exposed, free)
    assert step["duration_ns"] == computing + exposed + free


def test_the_summary_and_the_kernels_of_one_database_agree_exactly():
    run = sample(RUNS / "level1")
    for row in run.steps().to_dict("records"):
        device = Timeline(run.frame("kernels", ranks=[row["rank"]])).whole()
        assert (device.computing_ns, device.communication_ns) == (row["computing_ns"], row["communication_ns"])
    assert not [note for note in run.notes if "differs" in note or "add up" in note]


@pytest.mark.parametrize(("level", "rank"), EXPECTED)
def test_every_kernel_is_linked_to_the_operator_of_its_connection(level: str, rank: int):
    operators = """
        SELECT s.value, MIN(CAST(p.startNs AS INTEGER)), t.startNs FROM PYTORCH_API p
        JOIN CONNECTION_IDS c ON c.id = p.connectionId JOIN STRING_IDS s ON s.id = p.name
        JOIN (SELECT startNs, connectionId FROM TASK WHERE globalTaskId IN (SELECT globalTaskId FROM COMPUTE_TASK_INFO)
              UNION ALL SELECT startNs, connectionId FROM COMMUNICATION_OP) t ON t.connectionId = c.connectionId
        WHERE p.type = 50001 GROUP BY t.startNs ORDER BY t.startNs"""
    with closing(sqlite3.connect(f"file:{events_of(RUNS / level, rank)}?mode=ro&immutable=1", uri=True)) as connection:
        plain = connection.execute(operators).fetchall()
    rows = launches(sample(RUNS / level), rank=rank)
    assert list(zip(rows["operator"], rows["launch_ns"], rows["start_ns"], strict=True)) == plain
    assert (rows["delay_ns"] > 0).all()


def test_where_the_framework_was_not_recorded_the_calls_of_cann_count(copy: Path):
    edit(events_of(copy), "DROP TABLE PYTORCH_API")
    folder = copy / "rank0_ascend_pt"
    rows = launches(run := load(folder), rank=0)
    assert unlinked(run, rank=0) == 0
    assert set(rows["call"]) == {"Node@launch"}
    assert rows["operator"].isna().all()
    edit(events_of(copy), "DROP TABLE CANN_API")
    run = load(folder)
    assert not run.has("launches")
    assert set(idle_breakdown(run, rank=0, step=50).parts) <= {"copying", "unknown", "collective"}


def test_idle_time_of_a_database_has_causes_that_sum_to_free():
    run = sample(RUNS / "level1")
    idle = idle_breakdown(run, rank=0, step=50)
    assert idle.total == int(run.steps().set_index("rank").loc[0, "free_ns"])
    assert idle.parts["host"] > idle.total / 2


def test_collectives_carry_the_waits_sizes_and_links_of_the_analysis():
    run = sample(RUNS / "level1")
    collectives = run.frame("collectives", ranks=[0])
    assert list(collectives["operation"].unique()) == ["all_reduce"]
    assert collectives["bytes"].notna().all()
    first = collectives.iloc[0]
    assert (first["duration_ns"], first["transit_ns"], first["bytes"]) == (88750993, 228565, 28647232)
    links = run.frame("links", ranks=[0])
    assert len(links) == 48
    assert set(links["target_rank"]) == set(range(8))


def test_without_an_analysis_the_size_of_a_collective_is_its_elements_and_a_note_says_so():
    run = sample(RUNS / "level0")
    # 4 all-reduces of float32: 4097000 + 16781312 + 37752832 + 2469696 elements.
    assert int(run.frame("collectives")["bytes"].sum()) == 4 * (4097000 + 16781312 + 37752832 + 2469696)
    assert any("elements times the size of one" in note for note in run.notes)
    assert (state(run, "links"), state(run, "collectives")) == ("missing", "partial")


def test_the_rank_is_the_one_that_the_database_maps_where_no_settings_file_says_it(copy: Path):
    database = events_of(copy, 1)
    edit(database, "UPDATE RANK_DEVICE_MAP SET rankId = 6")
    (copy / "rank1_ascend_pt" / "profiler_info_1.json").unlink()
    assert load(copy).ranks == (0, 6)


def test_one_database_of_events_alone_is_read_under_any_name(tmp_path: Path):
    path = shutil.copy(events_of(RUNS / "level1", 1), tmp_path / "device.dat")
    run = load(path)
    assert run.ranks == (1,)
    assert len(run.frame("kernels")) == 191
    step = run.steps().iloc[0]
    assert (step["step"], step["computing_ns"]) == (50, 8915634)


def test_databases_of_several_ranks_in_one_folder_are_told_apart(tmp_path: Path):
    for rank in (0, 1):
        shutil.copy(events_of(RUNS / "level1", rank), tmp_path / f"ascend_pytorch_profiler_{rank}.db")
    run = load(tmp_path)
    assert run.ranks == (0, 1)
    assert len(run.frame("kernels")) == 382


def test_text_in_the_same_folder_is_read_and_not_both(copy: Path):
    text = SAMPLES / "torch_npu_level0" / "rank0_ascend_pt" / OUTPUT / "kernel_details.csv"
    for rank in (0, 1):
        shutil.copy(text, copy / f"rank{rank}_ascend_pt" / OUTPUT / "kernel_details.csv")
    run = load(copy)
    assert run.format == "ascend-text"
    assert len(run.frame("kernels")) == 382


def test_msprofs_own_database_below_a_rank_folder_is_not_counted_again(copy: Path):
    inside = copy / "rank0_ascend_pt" / "PROF_000001_20250109_ABC"
    inside.mkdir()
    shutil.copy(SAMPLES / "msprof_db" / "msprof_0.db", inside / "msprof_20250109.db")
    assert load(copy).ranks == (0, 1)
    assert len(load(copy).frame("kernels")) == 382


def test_a_small_database_without_steps_is_one_step_0_and_names_what_it_lacks():
    run = sample(SAMPLES / "msprof_db")
    assert len(run.frame("kernels")) == 11
    assert list(run.steps()["step"]) == [0]
    assert any("no table STEP_TIME" in note for note in run.notes)


def test_devices_of_one_database_become_ranks_of_their_own(copy: Path):
    path = events_of(copy)
    edit(path, "UPDATE TASK SET deviceId = 5 WHERE globalTaskId % 2", "INSERT INTO RANK_DEVICE_MAP VALUES (9, 5)")
    run = load(path)
    assert run.ranks == (0, 9)
    assert len(run.frame("kernels")) + sum(lost.count for lost in run.dropped) == 191
    assert any("holds 2 devices" in note for note in run.notes)


# Damaged and hostile databases


@pytest.mark.parametrize("table", ["STEP_TIME", "COMMUNICATION_OP", "COMPUTE_TASK_INFO", "CANN_API", "STRING_IDS"])
def test_a_database_without_one_of_its_tables_is_read_as_far_as_it_goes(copy: Path, table: str):
    for rank in (0, 1):
        edit(events_of(copy, rank), f"DROP TABLE {table}")
    run = load(copy)
    assert list(run.steps()["computing_ns"]) == [8903431, 8915634]
    if table in ("STEP_TIME", "COMMUNICATION_OP", "COMPUTE_TASK_INFO"):
        assert any(f"no table {table}" in note for note in run.notes)


def test_missing_columns_are_null_and_foreign_tables_and_columns_are_ignored(copy: Path):
    path = events_of(copy)
    edit(path, "ALTER TABLE TASK DROP COLUMN streamId", "ALTER TABLE TASK ADD COLUMN depth2 INTEGER", "CREATE TABLE viewer (a)")
    kernels = load(copy).frame("kernels", ranks=[0])
    assert len(kernels) == 191
    assert kernels["stream"].isna().all()


def test_cells_of_another_type_are_counted_and_never_guessed(copy: Path):
    path = events_of(copy)
    edit(
        path,
        "UPDATE TASK SET endNs = 'soon' WHERE globalTaskId = 3",
        "UPDATE TASK SET endNs = 1.5 WHERE globalTaskId = 4",
        "UPDATE TASK SET startNs = CAST(startNs AS TEXT) WHERE globalTaskId = 5",
        "UPDATE TASK SET startNs = endNs, endNs = startNs WHERE globalTaskId = 6",
    )
    run = load(copy)
    assert len(run.frame("kernels", ranks=[0])) == 188
    assert sum(lost.count for lost in run.dropped if "reversed time" in lost.what) == 3
    assert sum(lost.count for lost in run.dropped if "not a whole number" in lost.what) >= 2
    assert state(run, "kernels") == "partial"


def test_hostile_names_stay_data(copy: Path):
    name = "<img src=x onerror=alert(1)>'; DROP TABLE TASK; --"
    path = events_of(copy)
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("UPDATE STRING_IDS SET value = ? WHERE id = (SELECT name FROM COMPUTE_TASK_INFO LIMIT 1)", (name,))
        connection.execute('CREATE TABLE "a""b; DROP TABLE TASK" (x)')
        connection.execute("CREATE VIEW MEMORY_RECORD_VIEW AS SELECT * FROM TASK")
        connection.commit()
    run = load(copy)
    assert name in set(run.frame("kernels", ranks=[0])["name"])
    assert len(run.frame("kernels")) == 382


def test_a_view_in_place_of_a_table_is_not_executed(copy: Path):
    endless = "WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n) SELECT x AS id, 'a' AS value FROM n"
    edit(events_of(copy), "DROP TABLE STEP_TIME", f"CREATE VIEW STEP_TIME AS {endless}")
    run = load(copy)
    assert any("no table STEP_TIME" in note for note in run.notes)


def test_an_empty_database_is_named_as_empty(copy: Path):
    events_of(copy).write_bytes(b"")
    run = load(copy)
    assert state(run, "kernels") == "empty"
    assert any("empty (0 bytes)" in lost.what for lost in run.dropped)
    assert run.ranks == (0, 1)


def test_a_folder_of_empty_databases_is_an_error_that_says_so(tmp_path: Path):
    (tmp_path / "ascend_pytorch_profiler_0.db").write_bytes(b"")
    with pytest.raises(InputError, match="empty"):
        load(tmp_path)


def test_text_named_like_a_database_is_an_error_that_shows_how_it_begins(tmp_path: Path):
    (tmp_path / "ascend_pytorch_profiler_0.db").write_text("not a database at all")
    with pytest.raises(InputError, match="no SQLite database"):
        load(tmp_path)


def test_rows_that_another_program_has_not_written_yet_are_noted(copy: Path):
    path = events_of(copy)
    path.with_name(path.name + "-wal").write_bytes(b"x")
    assert any("-wal" in note for note in load(copy).notes)


def test_the_recording_is_not_changed_by_reading_it(copy: Path):
    before = {path: (path.stat().st_mtime_ns, path.stat().st_size) for path in copy.rglob("*")}
    load(copy)
    assert {path: (path.stat().st_mtime_ns, path.stat().st_size) for path in copy.rglob("*")} == before


@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(length=st.integers(min_value=0, max_value=830_000))
def test_a_database_cut_at_any_byte_gives_no_more_than_the_whole_and_never_fails(tmp_path: Path, length: int):
    folder = tmp_path / "cut" / OUTPUT
    folder.mkdir(parents=True, exist_ok=True)
    content = events_of(RUNS / "level1").read_bytes()
    (folder / "ascend_pytorch_profiler_0.db").write_bytes(content[:length])
    whole = plain_kernels(events_of(RUNS / "level1"))
    try:
        run = load(tmp_path / "cut")
    except InputError:
        return
    kernels = run.frame("kernels")
    found = set(zip(map(int, kernels["start_ns"]), map(int, kernels["duration_ns"]), strict=True))
    assert found <= {row[1:] for row in whole}
    assert len(kernels) == len(whole) or run.dropped or run.notes


@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(at=st.integers(min_value=100, max_value=820_000), bits=st.binary(min_size=1, max_size=64))
def test_a_database_overwritten_at_any_place_never_ends_in_another_error(tmp_path: Path, at: int, bits: bytes):
    folder = tmp_path / "spoilt" / OUTPUT
    folder.mkdir(parents=True, exist_ok=True)
    content = bytearray(events_of(RUNS / "level1").read_bytes())
    content[at : at + len(bits)] = bits
    (folder / "ascend_pytorch_profiler_0.db").write_bytes(content)
    try:
        run = load(tmp_path / "spoilt")
    except InputError:
        return
    assert (run.frame("kernels")["duration_ns"] >= 0).all()


def test_a_garbage_collection_of_python_is_a_call_of_the_host_and_the_cause_of_the_idle_time_that_it_makes(tmp_path):
    shutil.copytree(RUNS / "level1" / "rank0_ascend_pt", tmp_path / "rank0_ascend_pt")
    plain = load(tmp_path / "rank0_ascend_pt", cache=False)
    idle = plain.idle(rank=0).query("cause == 'host'").nlargest(1, "duration_ns").iloc[0]
    with sqlite3.connect(next(tmp_path.rglob("ascend_pytorch_profiler_0.db"))) as database:
        database.execute("CREATE TABLE GC_RECORD (startNs INTEGER, endNs INTEGER, globalTid INTEGER)")
        end = int(idle["start_ns"] + idle["duration_ns"])
        database.execute("INSERT INTO GC_RECORD VALUES (?, ?, ?)", (int(idle["start_ns"]), end, (7 << 32) | 7))
        database.execute("INSERT INTO GC_RECORD VALUES (?, ?, ?)", (end, end - 5, (7 << 32) | 7))
    database.close()
    run = load(tmp_path / "rank0_ascend_pt", cache=False)
    collections = run.frame("host").query("name == 'GC'")
    assert collections[["thread", "start_ns", "duration_ns"]].values.tolist() == [["7/7", idle["start_ns"], idle["duration_ns"]]]
    before, after = (ledger(each).entries.groupby("cause")["ns"].sum() for each in (plain, run))
    assert after.get(PAUSE, 0) > before.get(PAUSE, 0)
    assert after.sum() == before.sum()


def test_a_summary_whose_parts_do_not_add_up_is_named_with_its_database(copy: Path):
    (analysis,) = copy.glob("rank0*/**/analysis.db")
    edit(analysis, "UPDATE StepTraceTime SET stage = stage + 50")
    assert any(note.startswith("StepTraceTime of analysis.db: the parts do not add up") for note in load(copy).notes)


def test_what_is_read_of_a_database_that_lacks_its_end_is_there_in_part(tmp_path: Path):
    shutil.copytree(RUNS / "level1", tmp_path / "run")
    for path in (tmp_path / "run").rglob("*.db"):
        path.write_bytes(path.read_bytes()[:-1])
    states = load(tmp_path / "run").frame("coverage").set_index(["part", "rank"])["state"]
    for part in ("step times", "kernels", "collectives", "links"):
        assert states[part].to_dict() == {0: "partial", 1: "partial"}, part
