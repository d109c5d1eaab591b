"""Utilisation of the device's units: against a plain reading of the samples, and what is not recorded is said to be so."""

from __future__ import annotations

import csv
import sqlite3
from contextlib import closing
from decimal import Decimal
from pathlib import Path

import pytest

from perfkit.core.errors import NotMeasuredError
from perfkit.core.resources import data_folder
from perfkit.explain.utilization import step_utilization, utilization
from perfkit.record.load import load

TEXT = data_folder() / "traces" / "torch_npu_2rank"
RECORDED = Path(__file__).parent.parent / "data" / "traces"
DATABASE = RECORDED / "torch_npu_db" / "level1" / "rank0_ascend_pt"
HEADER = "Step Id,Name,Type,Accelerator Core,Start Time(us),Duration(us),Wait Time(us),aicore_time(us),"


def ns(text: str) -> int:
    return int(Decimal(text) * 1000)


def test_the_times_of_a_pipe_are_those_of_the_table_to_the_nanosecond():
    path = next(TEXT.rglob("rank0*/**/kernel_details.csv"))
    with path.open(encoding="utf-8", newline="") as stream:
        rows = [
            row
            for row in csv.DictReader(stream)
            if row["aic_mac_time(us)"] not in ("", "N/A") and float(row["aicore_time(us)"]) > 0
        ]
    steps = step_utilization(load(TEXT), ranks=[0]).set_index("unit")
    mac = steps.loc["aic_mac"]
    assert (mac["step"], mac["count"]) == (50, len(rows))
    assert mac["duration_ns"] == sum(ns(row["Duration(us)"]) for row in rows)
    assert mac["core_ns"] == sum(ns(row["aicore_time(us)"]) for row in rows)
    assert mac["busy_ns"] == sum(ns(row["aic_mac_time(us)"]) for row in rows)
    assert mac["step_ratio"] == pytest.approx(mac["busy_ns"] / int(load(TEXT).steps()["duration_ns"].iloc[0]))
    assert steps["busy_ratio"].between(0, 1).all()


def test_kernels_and_steps_sum_to_the_same():
    run = load(TEXT)
    by_kernel = utilization(run, rank=0).groupby("unit")[["count", "duration_ns", "busy_ns"]].sum()
    by_step = step_utilization(run, ranks=[0]).groupby("unit")[["count", "duration_ns", "busy_ns"]].sum()
    assert by_kernel.equals(by_step)


def test_a_database_gives_the_counters_of_its_tasks():
    with closing(sqlite3.connect(f"file:{next(DATABASE.rglob('ascend_pytorch*.db'))}?mode=ro&immutable=1", uri=True)) as connection:
        counters = """SELECT t.value, c.value FROM TASK_PMU_INFO t JOIN STRING_IDS s ON s.id = t.name AND s.value = 'aiv_vec_time'
            JOIN TASK_PMU_INFO c USING (globalTaskId) JOIN STRING_IDS n ON n.id = c.name AND n.value = 'aiv_total_time'
            WHERE c.value > 0"""
        rows = connection.execute(counters).fetchall()
    vec = step_utilization(load(DATABASE)).set_index("unit").loc["aiv_vec"]
    assert vec["count"] == len(rows)
    assert abs(vec["busy_ns"] - sum(busy for busy, _ in rows)) <= len(rows)
    assert abs(vec["core_ns"] - sum(core for _, core in rows)) <= len(rows)


def test_ratios_alone_are_enough_and_impossible_ones_are_left_out(tmp_path: Path):
    output = tmp_path / "rank0_ascend_pt" / "ASCEND_PROFILER_OUTPUT"
    output.mkdir(parents=True)
    rows = ["1,a,MatMul,AI_CORE,10,8,0,4,0.5,25", "1,a,MatMul,AI_CORE,30,8,0,4,7,N/A", "1,b,Cast,AI_CORE,50,2,0,,0.1,-3"]
    text = HEADER + "aic_mac_fp16_ratio,cube_utilization(%)\n" + "\n".join(rows) + "\n"
    (output / "kernel_details.csv").write_text(text, encoding="utf-8")
    table = utilization(load(tmp_path), rank=0)
    found = table[["name", "unit", "count", "core_ns", "busy_ns", "busy_ratio"]].to_numpy().tolist()
    assert found == [["a", "aic_mac_fp16", 1, 4000, 2000, 0.5], ["a", "cube", 1, 8000, 2000, 0.25]]


def test_occupancy_and_multiprocessors_of_a_gpu_are_weighted_by_time():
    run = load(RECORDED / "hta" / "nccl_parser_config")
    launches = run.frame("launches")
    rows = launches[launches["occupancy_ratio"].notna()]
    units = step_utilization(run).groupby("unit")[["busy_ns", "core_ns"]].sum()
    weighted = (rows["occupancy_ratio"] * rows["duration_ns"])[rows["step"].notna()].sum()
    assert units.loc["occupancy", "busy_ns"] == pytest.approx(weighted, rel=1e-3)
    assert 0 < units.loc["sm", "busy_ns"] <= units.loc["sm", "core_ns"]


def test_what_was_not_recorded_is_said_with_the_way_to_collect_it():
    with pytest.raises(NotMeasuredError, match="PipeUtilization"):
        utilization(load(RECORDED / "torch_npu_level0"), rank=0)
