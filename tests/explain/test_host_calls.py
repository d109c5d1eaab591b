"""Calls of the host: the sums are those of the events, and those of the vendor where it sums up itself."""

from __future__ import annotations

import csv
import shutil
import sqlite3
from collections import Counter
from decimal import Decimal

import pytest

from perfkit.record.load import load
from tests import two_ranks
from tests.explain.raw_events import TRACES, ns, read, spans

SAMPLE = "hta/ns_resolution_trace/rank-0.Apr_03_18_51_38.1102.pt.trace.json.gz"
SUMMED = two_ranks.by_tables()
CALLS = ("cuda_runtime", "cuda_driver", "overhead")


def test_cuda_calls_are_those_of_the_events():
    counts: Counter[str] = Counter()
    times: Counter[str] = Counter()
    for event in spans(SAMPLE):
        if event.get("cat") in CALLS:
            counts[event["name"]] += 1
            times[event["name"]] += ns(event["dur"])
    table = read(SAMPLE).host_calls().set_index("name")
    assert table["count"].to_dict() == dict(counts)
    assert table["total_ns"].to_dict() == dict(times)
    assert table["layer"].isna().all()


def test_the_steps_have_the_calls_that_began_in_them():
    run = read(SAMPLE)
    steps = [run.host_calls(step=int(step)) for step in run.steps()["step"]]
    marks = [event for event in spans(SAMPLE) if event["name"].startswith("ProfilerStep#")]
    begin, end = min(e["ts"] for e in marks), max(e["ts"] + e["dur"] for e in marks)
    inside = sum(event.get("cat") in CALLS and begin <= event["ts"] < end for event in spans(SAMPLE))
    assert sum(int(table["count"].sum()) for table in steps) == inside


def test_cann_calls_of_a_database_are_those_of_its_table():
    file = next((TRACES / "torch_npu_db/level1").rglob("ascend_pytorch_profiler_0.db"))
    with sqlite3.connect(f"file:{file}?mode=ro", uri=True) as database:
        query = (
            "SELECT e.name, s.value, COUNT(*), SUM(endNs - startNs) FROM CANN_API a JOIN STRING_IDS s ON s.id = a.name "
            "JOIN ENUM_API_TYPE e ON e.id = a.type GROUP BY 1, 2"
        )
        wanted = {(layer, name): (count, total) for layer, name, count, total in database.execute(query)}
    table = read("torch_npu_db/level1").host_calls(rank=0)
    layers = {"AscendCL": "acl", "Node": "node", "Runtime": "runtime", "Hccl": "hccl", "Model": "model"}
    rows = table[table["layer"].isin(list(layers))]
    found = {(layers[layer], name): (n, total) for layer, name, n, total in rows[["layer", "name", "count", "total_ns"]].values}
    assert found == wanted


def test_calls_that_were_summed_up_by_the_vendor_alone_are_these_sums():
    rows = []
    for file in SUMMED.rglob("api_statistic.csv"):
        with file.open(encoding="utf-8") as text:
            rows += [(row["API Name"], int(row["Count"]), Decimal(row["Time(us)"])) for row in csv.DictReader(text)]
    table = read(SUMMED).host_calls()
    assert table["count"].sum() == sum(count for _, count, _ in rows)
    assert table["total_ns"].sum() == sum(int(total * 1000) for _, _, total in rows)
    assert set(table["name"]) == {name for name, _, _ in rows}
    assert {"AscendCL", "Node", "Hccl"} == set(table["layer"])


def test_a_spread_pooled_over_ranks_is_that_of_all_calls():
    run = read("dlrm_8xV100")
    rows = run.frame("host")
    launched = rows[rows["name"] == "cudaLaunchKernel"]["duration_ns"]
    found = run.host_calls().set_index("name").loc["cudaLaunchKernel"]
    assert (found["count"], found["min_ns"], found["max_ns"]) == (len(launched), launched.min(), launched.max())
    assert found["std_ns"] == pytest.approx(launched.std(), abs=1)
    assert found["mean_ns"] == pytest.approx(launched.mean(), abs=1)


def test_sums_that_cannot_be_read_are_counted(tmp_path):
    copy = tmp_path / "run"
    shutil.copytree(SUMMED, copy)
    file = sorted(copy.rglob("api_statistic.csv"))[0]
    lines = file.read_text(encoding="utf-8").splitlines()
    head = lines[0].split(",")
    broken = dict(zip(head, lines[1].split(","), strict=True)) | {"Time(us)": "abc"}
    negative = dict(zip(head, lines[2].split(","), strict=True)) | {"Time(us)": "-5"}
    kept = [lines[0], ",".join(broken.values()), ",".join(negative.values()), *lines[3:], lines[3].rsplit(",", 2)[0]]
    file.write_text("\n".join(kept) + "\n", encoding="utf-8")
    run = load(copy, cache=False)
    for _ in range(2):  # asked again, nothing is counted twice
        assert len(run.host_calls(rank=0)) == len(read(SUMMED).host_calls(rank=0)) - 2
    assert sum(lost.count for lost in run.dropped if lost.table == "call_sums") == 3
