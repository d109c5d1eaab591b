"""Databases of msMonitor: the tables that its monitor writes, with marks of mstx and their domains."""

import sqlite3
from pathlib import Path

import pytest

from perfkit.record.load import load

BASE_NS = 1_750_000_000_000_000_000
TABLES = """
CREATE TABLE STRING_IDS (id INTEGER, value TEXT);
CREATE TABLE TASK (startNs INTEGER, endNs INTEGER, deviceId INTEGER, connectionId INTEGER, globalTaskId INTEGER, globalPid INTEGER,
  taskType INTEGER, contextId INTEGER, streamId INTEGER, taskId INTEGER, modelId INTEGER);
CREATE TABLE COMPUTE_TASK_INFO (name INTEGER, globalTaskId INTEGER, blockDim INTEGER, mixBlockDim INTEGER,
  taskType INTEGER,
  opType INTEGER, inputFormats INTEGER, inputDataTypes INTEGER, inputShapes INTEGER, outputFormats INTEGER, outputDataTypes INTEGER,
  outputShapes INTEGER,
  attrInfo INTEGER);
CREATE TABLE COMMUNICATION_OP (opName INTEGER, startNs INTEGER, endNs INTEGER, connectionId INTEGER,
  groupName INTEGER, opId INTEGER,
  relay INTEGER, retry INTEGER, dataType INTEGER, algType INTEGER, count INTEGER, opType INTEGER, deviceId INTEGER);
CREATE TABLE CANN_API (startNs INTEGER, endNs INTEGER, type INTEGER, globalTid INTEGER, connectionId INTEGER, name INTEGER);
CREATE TABLE MSTX_EVENTS (startNs INTEGER, endNs INTEGER, eventType INTEGER, rangeId INTEGER, category INTEGER, message INTEGER,
  globalTid INTEGER, endGlobalTid INTEGER, domainId INTEGER, connectionId INTEGER);
CREATE TABLE RANK_DEVICE_MAP (rankId INTEGER, deviceId INTEGER);
"""
TEXTS = [
    "MatMulV2",
    "AI_CORE",
    "N/A",
    "hcom_allReduce_123_0_1",
    "hcom_allReduce",
    "group",
    "aclnnMatmul",
    "forward",
    "default",
    "mine",
]


@pytest.fixture
def database(tmp_path: Path) -> Path:
    path = tmp_path / "msmonitor_4242_20250615160000123_5.db"
    connection = sqlite3.connect(path)
    connection.executescript(TABLES)
    connection.executemany("INSERT INTO STRING_IDS VALUES (?, ?)", enumerate(TEXTS))
    for number in range(4):
        start = BASE_NS + number * 1000
        connection.execute("INSERT INTO TASK VALUES (?,?,2,?,?,1,1,9,3,9,9)", (start, start + 500, number, number))
        connection.execute("INSERT INTO COMPUTE_TASK_INFO VALUES (0,?,9,9,1,2,2,2,2,2,2,2,2)", (number,))
        connection.execute("INSERT INTO CANN_API VALUES (?,?,10000,4294967297,?,6)", (start - 100, start - 50, number))
    connection.execute("INSERT INTO COMMUNICATION_OP VALUES (3,?,?,9,5,0,0,0,0,2,64,4,2)", (BASE_NS + 4000, BASE_NS + 4700))
    connection.execute("INSERT INTO MSTX_EVENTS VALUES (?,?,2,0,0,7,4294967297,4294967297,8,77)", (BASE_NS, BASE_NS + 900))
    connection.execute("INSERT INTO MSTX_EVENTS VALUES (?,?,0,0,0,7,4294967297,4294967297,9,78)", (BASE_NS + 5, BASE_NS + 5))
    connection.execute("INSERT INTO RANK_DEVICE_MAP VALUES (5, 2)")
    connection.commit()
    connection.close()
    return path


def test_kernels_and_communication_are_those_of_the_rank(database: Path):
    run = load(database.parent, cache=False)
    assert (run.format, list(run.ranks)) == ("ascend-db", [5])
    kernels = run.frame("kernels")
    assert kernels["kind"].tolist().count("computing") == 4
    assert kernels["duration_ns"].sum() == 4 * 500 + 700
    assert run.frame("collectives")["operation"].tolist() == ["all_reduce"]
    assert not run.dropped


def test_marks_have_the_name_of_their_domain(database: Path):
    host = load(database.parent, cache=False).frame("host")
    marks = host[host["kind"] == "mark"]
    assert marks[["name", "duration_ns"]].astype(object).to_numpy().tolist() == [["forward", 900], ["mine: forward", 0]]


def test_a_database_without_a_rank_is_rank_0(database: Path):
    connection = sqlite3.connect(database)
    connection.execute("UPDATE RANK_DEVICE_MAP SET rankId = -1")
    connection.commit()
    connection.close()
    database.rename(database.with_name("msmonitor_4242_20250615160000123_-1.db"))
    assert list(load(database.parent, cache=False).ranks) == [0]
