"""Counters of kernels: CUPTI's by operator, those of Ascend's cores by kernel."""

from __future__ import annotations

import sqlite3

import pytest

from perfkit.core.errors import InputError, NotMeasuredError
from perfkit.core.resources import data_folder
from perfkit.record.load import load
from tests.explain.raw_events import TRACES, read, spans

SAMPLE = "hta/cupti_profiler/benchmark_result_924719_1679055439_trace.json.gz"
FADD = "smsp__sass_thread_inst_executed_op_fadd_pred_on.sum"


def test_cupti_counters_have_the_operators_that_holistic_trace_analysis_publishes():
    """Figures of tests/test_cupti_profiler.py in facebookresearch/HolisticTraceAnalysis."""
    rows = read(SAMPLE).frame("kernel_counters")
    assert (rows[rows["counter"] == FADD]["count"].sum(), rows["counter"].nunique()) == (77, 9)
    found = rows[(rows["counter"] == FADD) & rows["name"].astype(str).str.contains("fft2d_r2c_32x32") & (rows["most"] == 86114304)]
    assert found[["operator", "outer_operator"]].values.tolist() == [["aten::cudnn_convolution", "aten::conv2d"]]


@pytest.mark.parametrize("by", ["name", "operator", "outer_operator", "type"])
def test_totals_by_any_group_are_those_of_the_events(by):
    events = [event for event in spans(SAMPLE) if event.get("cat") == "cuda_profiler_range"]
    wanted = {name: sum(event["args"][name] for event in events) for name in events[0]["args"]}
    table = read(SAMPLE).kernel_counters(by=by)
    assert table.groupby("counter")["total"].sum().to_dict() == wanted
    assert (table["mean"] * table["count"]).tolist() == pytest.approx(table["total"].tolist())


def test_counters_of_a_database_are_those_of_its_table():
    run = read("torch_npu_db/level1")
    file = next((TRACES / "torch_npu_db/level1").rglob("ascend_pytorch_profiler_0.db"))
    with sqlite3.connect(f"file:{file}?mode=ro", uri=True) as database:
        query = "SELECT s.value, SUM(p.value) FROM TASK_PMU_INFO p JOIN STRING_IDS s ON s.id = p.name GROUP BY s.value"
        wanted = dict(database.execute(query).fetchall())
    table = run.kernel_counters(rank=0)
    sums = table.groupby("counter")["total"].sum()
    assert len(wanted) > 20
    busy = [name for name in wanted if not name.endswith("icache_miss_rate")]  # idle cores state a rate without having run
    assert sums[busy].to_dict() == pytest.approx({name: wanted[name] for name in busy}, rel=1e-2)


def test_text_and_database_of_one_recording_count_the_same():
    text = load(data_folder() / "traces" / "torch_npu_2rank", cache=False).kernel_counters(rank=0)
    assert {"aic_mac_time(us)", "aiv_vec_ratio", "cube_utilization(%)"} <= set(text["counter"])
    assert text["least"].le(text["mean"] + 1e-9).all()
    assert text["mean"].le(text["most"] + 1e-9).all()


def test_what_was_not_counted_is_not_measured_and_a_wrong_group_is_named():
    with pytest.raises(NotMeasuredError, match="aic_metrics"):
        read("dlrm_8xV100").kernel_counters()
    with pytest.raises(InputError, match="do you mean 'operator'"):
        read(SAMPLE).kernel_counters(by="operators")
