"""Cluster analyses as databases: the recorded 8-card run against a plain reading, the newer layout, and damaged ones."""

import shutil
import sqlite3
from contextlib import closing
from decimal import Decimal
from functools import cache
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from perfkit.core.errors import InputError
from perfkit.core.run import Run
from perfkit.record.load import load

SAMPLE = Path(__file__).parents[2] / "data" / "traces" / "cluster_db" / "cluster_analysis.db"
sample = cache(load)


def plain(query: str, path: Path = SAMPLE) -> list[tuple[object, ...]]:
    with closing(sqlite3.connect(f"file:{path}?mode=ro&immutable=1", uri=True)) as connection:
        return connection.execute(query).fetchall()


def exact(value: object, per_unit: int) -> int:
    return int((Decimal(str(value)) * per_unit).to_integral_value())


def edit(path: Path, *statements: str) -> None:
    with closing(sqlite3.connect(path)) as connection:
        for statement in statements:
            connection.execute(statement)
        connection.commit()


def states(run: Run, rank: int = 0) -> dict[str, str]:
    rows = run.frame("coverage", ranks=[rank])
    return dict(zip(rows["part"], rows["state"], strict=True))


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    return Path(shutil.copy(SAMPLE, tmp_path / "cluster_analysis.db"))


NEWER = (
    "ALTER TABLE ClusterCommAnalyzerTime RENAME TO ClusterCommunicationTime",
    "ALTER TABLE ClusterCommAnalyzerBandwidth RENAME TO ClusterCommunicationBandwidth",
    "ALTER TABLE ClusterCommAnalyzerMatrix RENAME TO ClusterCommunicationMatrix",
    "ALTER TABLE ClusterCommunicationTime DROP COLUMN rank_set",
    "DROP TABLE CommunicationGroup",
    "CREATE TABLE CommunicationGroupMapping (type TEXT, rank_set TEXT, group_name TEXT, group_id TEXT, pg_name TEXT)",
    "INSERT INTO CommunicationGroupMapping VALUES ('collective', '(0,1,2,3,4,5,6,7)', '12708701795769052535', 'g', 'dp')",
    "INSERT INTO CommunicationGroupMapping VALUES ('collective', '(0,1)', 'other', 'h', 'tp')",
)
"""From the tables of the sample to those that newer versions of the tool write."""


def test_every_step_equals_a_plain_reading_to_the_nanosecond():
    steps = sample(SAMPLE).steps()
    columns = '"index", computing, communication_not_overlapped, free, communication, overlapped'
    rows = plain(f"SELECT {columns} FROM ClusterStepTraceTime WHERE type = 'rank'")
    expected = {int(str(row[0])): tuple(exact(value, 1000) for value in row[1:]) for row in rows}
    names = ["computing_ns", "exposed_communication_ns", "free_ns", "communication_ns", "overlapped_ns"]
    assert {int(row["rank"]): tuple(int(row[name]) for name in names) for row in steps.to_dict("records")} == expected
    assert len(expected) == 8


def test_every_operation_equals_a_plain_reading_to_the_nanosecond():
    collectives = sample(SAMPLE).frame("collectives")
    rows = plain("SELECT rank_id, hccl_op_name, elapsed_time FROM ClusterCommAnalyzerTime WHERE hccl_op_name != 'Total Op Info'")
    expected = sorted((rank, name, exact(value, 1_000_000)) for rank, name, value in rows)
    found = collectives[["rank", "name", "duration_ns"]].astype({"name": str}).itertuples(index=False)
    assert sorted((int(rank), name, int(duration)) for rank, name, duration in found) == expected
    assert set(collectives["group_size"]) == {8}


def test_every_link_has_its_bytes():
    links = sample(SAMPLE).frame("links")
    rows = plain("SELECT transit_size FROM ClusterCommAnalyzerMatrix")
    assert len(links) == len(rows) == 1087
    assert int(links["bytes"].fillna(0).sum()) == sum(exact(size, 10**6) for (size,) in rows)


def test_the_rank_that_waits_least_is_rank_5():
    steps = sample(SAMPLE).steps().set_index("rank")
    assert steps["communication_ns"].idxmin() == 5
    assert steps.loc[5, "communication_ns"] == 88441320


def test_newer_tables_give_the_same_steps_and_operations(copy: Path):
    edit(copy, *NEWER)
    run = load(copy)
    assert run.steps().drop(columns="pipeline_stage").equals(sample(SAMPLE).steps().drop(columns="pipeline_stage"))
    columns = ["rank", "name", "group", "group_size", "duration_ns", "transit_ns"]
    merged = run.frame("collectives")[columns].astype({"name": str, "group": str})
    known = sample(SAMPLE).frame("collectives")[columns].astype({"name": str, "group": str})
    in_group = merged["group"] == "12708701795769052535"
    assert merged[in_group].reset_index(drop=True).equals(known[in_group].reset_index(drop=True))
    assert (run.facts["tensor_parallel_size"].value, run.facts["data_parallel_size"].value) == (2, 8)
    assert run.placement[1].tensor == 1


def test_indexes_of_the_layout_place_the_ranks(copy: Path):
    edit(copy, *(f"ALTER TABLE ClusterStepTraceTime ADD COLUMN {name}_index TEXT" for name in ("dp", "pp", "tp")))
    edit(copy, "UPDATE ClusterStepTraceTime SET dp_index = '1', pp_index = '0', tp_index = 'what' WHERE \"index\" = '3'")
    position = load(copy).placement[3]
    assert (position.data, position.pipeline, position.tensor) == (1, 0, None)


@pytest.mark.parametrize(
    ("table", "part"),
    [
        ("ClusterStepTraceTime", "step times"),
        ("ClusterCommAnalyzerTime", "collectives"),
        ("ClusterCommAnalyzerMatrix", "links"),
        ("CommunicationGroup", "layout"),
    ],
)
def test_a_missing_table_is_shown_as_missing_and_the_rest_is_read(copy: Path, table: str, part: str):
    edit(copy, f"DROP TABLE {table}")
    found = states(load(copy))
    assert found.pop(part) == "missing"
    assert set(found.values()) == {"present"}


def test_cells_that_are_no_numbers_are_counted(copy: Path):
    edit(
        copy,
        "UPDATE ClusterCommAnalyzerTime SET elapsed_time = '<img src=x onerror=alert(1)>' WHERE rank_id = 0",
        "UPDATE ClusterCommAnalyzerTime SET rank_id = 'none' WHERE rank_id = 1",
        "UPDATE ClusterStepTraceTime SET computing = -1 WHERE \"index\" = '2'",
    )
    run = load(copy)
    assert sorted(run.steps()["rank"]) == [0, 1, 3, 4, 5, 6, 7]
    assert set(run.frame("collectives")["rank"]) == {2, 3, 4, 5, 6, 7}
    lost = {dropped.what: dropped.count for dropped in run.dropped}
    assert lost["operation without a duration"] == 42
    assert lost["operation of something that is no rank"] == 42
    assert lost["step row with a negative time"] == 1


@pytest.mark.parametrize("content", [b"", b"SQLite format 3\x00", b"no database"])
def test_an_empty_or_broken_database_is_an_error_that_names_it(tmp_path: Path, content: bytes):
    (tmp_path / "cluster_analysis.db").write_bytes(content)
    with pytest.raises(InputError, match=r"cluster_analysis\.db"):
        load(tmp_path)


@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(length=st.integers(min_value=1, max_value=299_007))
def test_a_database_cut_at_any_byte_is_told(tmp_path: Path, length: int):
    (tmp_path / "cluster_analysis.db").write_bytes(SAMPLE.read_bytes()[:length])
    try:
        run = load(tmp_path)
    except InputError:
        return
    assert len(run.frame("links")) <= 1087
    assert run.dropped or len(run.frame("links")) == 1087
