"""Memory of Ascend ranks: text against a plain reading, text against database, units, and damaged files."""

import csv
import shutil
from decimal import Decimal
from functools import cache
from pathlib import Path

import pandas as pd
import pytest

from perfkit.core.resources import data_folder
from perfkit.record import memory
from perfkit.record.load import load

SAMPLES = Path(__file__).parents[1] / "data" / "traces"
TEXT = SAMPLES / "ascend_memory"
DATABASE = SAMPLES / "torch_npu_db"
OUTPUT = "ASCEND_PROFILER_OUTPUT"
STEPS = data_folder() / "traces" / "torch_npu_2rank" / "rank0_ascend_pt" / OUTPUT / "step_trace_time.csv"
MIB, KIB = 2**20, 2**10
sample = cache(load)


def rows_of(name: str) -> list[dict[str, str]]:
    (path,) = TEXT.rglob(name)
    with path.open(encoding="utf-8", newline="") as stream:
        return [{key: value.strip() for key, value in row.items()} for row in csv.DictReader(stream)]


def exact(text: str, per_unit: int) -> int | None:
    return int((Decimal(text) * per_unit).to_integral_value()) if text else None


def value(number: object) -> int | None:
    return None if pd.isna(number) else int(str(number))


def rank_folder(parent: Path, name: str, *lines: str) -> Path:
    folder = parent / "rank0_ascend_ms" / OUTPUT
    folder.mkdir(parents=True)
    shutil.copy(STEPS, folder)
    (folder / name).write_text("\n".join((*lines, "")), encoding="utf-8")
    return parent


def test_the_curve_equals_a_plain_reading_to_the_nanosecond_and_the_byte():
    curve = sample(TEXT).frame("memory_curve")
    curve = curve[~curve["component"].astype(str).str.startswith("module ")]
    rows = rows_of("memory_record.csv")
    expected = [
        (
            row["Component"],
            exact(row["Timestamp(us)"], 1000),
            exact(row["Total Allocated(MB)"], MIB),
            exact(row["Total Reserved(MB)"], MIB),
            exact(row["Total Active(MB)"], MIB),
        )
        for row in rows
    ]
    names = ["time_ns", "allocated_bytes", "reserved_bytes", "active_bytes"]
    found = [(str(row["component"]), *(value(row[name]) for name in names)) for row in curve.to_dict("records")]
    assert found == expected
    assert len(found) == 1004


def test_the_blocks_equal_a_plain_reading_in_the_order_of_their_allocation():
    blocks = sample(TEXT).frame("memory_blocks")
    rows = [
        (exact(row["Allocation Time(us)"], 1000), row["Name"], exact(row["Release Time(us)"], 1000), exact(row["Size(KB)"], KIB))
        for row in rows_of("operator_memory.csv")
    ]
    found = [(value(row["start"]), row["name"], value(row["end"]), int(row["bytes"])) for row in blocks.to_dict("records")]
    assert sorted(found, key=str) == sorted(rows, key=str)
    assert blocks["start"].is_monotonic_increasing
    assert int(blocks["end"].isna().sum()) == 24


def test_modules_are_components_of_their_own():
    curve = sample(TEXT).frame("memory_curve")
    modules = curve[curve["component"].astype(str).str.startswith("module ")]
    assert len(modules) == len(rows_of("npu_module_mem.csv"))
    assert int(modules["reserved_bytes"].sum()) == sum(
        exact(row["Total Reserved(MB)"], MIB) or 0 for row in rows_of("npu_module_mem.csv")
    )


def test_a_database_gives_the_same_tables():
    for folder in ("level0", "level1"):
        run = sample(DATABASE / folder)
        curve = run.frame("memory_curve", ranks=[0])
        assert dict(curve["component"].astype(str).value_counts())["PTA"] == 381
        blocks = run.frame("memory_blocks", ranks=[0])
        assert (len(blocks), int(blocks["end"].isna().sum())) == (184, 24)
        assert set(blocks["clock"]) == {"ns"}
    assert (value(run.frame("memory_blocks").iloc[2]["start"]), int(run.frame("memory_blocks").iloc[2]["bytes"])) == (
        1736410576401535490,
        25609728,
    )


def test_the_blocks_at_the_peak_are_no_larger_than_what_the_allocators_handed_out():
    run = sample(DATABASE / "level1")
    for rank in (0, 1):
        peak = memory.live_peak(run.frame("memory_blocks", ranks=[rank]))
        curve = run.frame("memory_curve", ranks=[rank])
        largest = int(curve.loc[curve["component"] == "PTA+GE", "allocated_bytes"].max())
        assert 0 < peak.num_bytes <= largest  # what was there before the recording has no block
        assert sum(memory.bytes_at_peak(peak, "name").values()) == peak.num_bytes


def test_mindspore_counts_megabytes_of_1024_000_bytes_in_its_curve_only(tmp_path: Path):
    run = load(
        rank_folder(
            tmp_path, "memory_record.csv", "Component,Timestamp(us),Total Allocated(MB)", "MindSpore,1,2", "MindSpore+GE,1,3"
        )
    )
    assert run.frame("memory_curve")["allocated_bytes"].tolist() == [2 * 1024 * 1000, 3 * 1024 * 1000]
    assert any("1024 * 1000" in note for note in run.notes)


def test_units_come_from_the_header(tmp_path: Path):
    run = load(rank_folder(tmp_path, "memory_record.csv", "Component,Timestamp(us),Total Reserved(KB)", "APP,1.5,2"))
    row = run.frame("memory_curve").iloc[0]
    assert (row["time_ns"], row["reserved_bytes"], row.isna()["allocated_bytes"]) == (1500, 2048, True)


def test_blocks_that_contradict_themselves_are_counted(tmp_path: Path):
    header = "Name,Size(KB),Allocation Time(us),Release Time(us)"
    lines = ("<img src=x>,1,10,20", "b,1,20,10", "c,1,,", "d,-1,1,2", "e,1,,5", "f,x,1,2")
    run = load(rank_folder(tmp_path, "operator_memory.csv", header, *lines))
    assert list(run.frame("memory_blocks")["name"]) == ["e", "<img src=x>"]
    assert sum(lost.count for lost in run.dropped if "operator_memory" in lost.file) >= 4


@pytest.mark.parametrize("content", [b"", b"\x00\x00", b"Component\n", b"Component,Timestamp(us)\nAPP,1\n"])
def test_a_damaged_file_leaves_the_rest_of_the_rank(tmp_path: Path, content: bytes):
    folder = rank_folder(tmp_path, "npu_module_mem.csv")
    (folder / "rank0_ascend_ms" / OUTPUT / "npu_module_mem.csv").write_bytes(content)
    run = load(tmp_path)
    assert len(run.steps()) == 1
    assert not run.has("memory_curve")
    states = run.frame("coverage").set_index("part")["state"]
    assert states["memory of modules"] == ("empty" if not content else "partial")
