"""Launches of Ascend kernels from the flows of trace_view.json."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from perfkit.explain.idle import idle_breakdown
from perfkit.explain.launches import launches
from perfkit.record.formats.ascend import host
from perfkit.record.load import load

US = 1736408883000000
HEADER = "Step Id,Name,Type,Accelerator Core,Start Time(us),Duration(us),Wait Time(us),Input Shapes,Input Data Types"


def _folder(tmp_path: Path, flow: str) -> Path:
    """Two kernels of 10 us, 90 us apart; the second was launched 5 us before its start, inside aten::mm."""
    output = tmp_path / "rank0_ascend_pt" / "ASCEND_PROFILER_OUTPUT"
    output.mkdir(parents=True)
    rows = [f"1,k{at},MatMulV2,AI_CORE,{US + at * 100}.{at}00,10,0,,\n" for at in range(2)]
    (output / "kernel_details.csv").write_text(HEADER + "\n" + "".join(rows))
    events: list[dict[str, object]] = [
        {"ph": "X", "name": "aten::linear", "cat": "cpu_op", "pid": 1, "tid": 1, "ts": f"{US + 80}.000", "dur": 40},
        {"ph": "X", "name": "aten::mm", "cat": "cpu_op", "pid": 1, "tid": 1, "ts": f"{US + 90}.000", "dur": 20},
    ]
    for at, launched in ((0, -50), (1, 95)):
        task = f"{US + at * 100}.{at}01"  # 1 ns from the start in the table
        key = task.replace(".", "") if flow == "async_npu" else str(at)
        events.append({"ph": "s", "cat": flow, "id": key, "pid": 1, "tid": 1, "ts": f"{US + launched}.000", "name": "flow"})
        events.append({"ph": "f", "cat": flow, "id": key, "pid": 9, "tid": 2, "ts": task, "name": "flow", "bp": "e"})
    (output / "trace_view.json").write_text(json.dumps(events))
    return tmp_path


@pytest.mark.parametrize("flow", ["async_npu", "HostToDevice"])
def test_a_flow_links_a_kernel_to_the_innermost_operator_of_its_launch(tmp_path: Path, flow: str):
    rows = launches(load(_folder(tmp_path, flow), cache=False), rank=0)
    assert rows["delay_ns"].tolist() == [50_000, 5_100]
    assert rows["operator"].tolist()[1] == "aten::mm"


def test_a_gap_before_a_late_launch_is_the_host_s(tmp_path: Path):
    run = load(_folder(tmp_path, "async_npu"), cache=False)
    assert dict(idle_breakdown(run, rank=0, step=1).parts) == {"host": 90_100}


def test_a_kernel_without_a_flow_is_not_linked(tmp_path: Path):
    rows = launches(load(_folder(tmp_path, "fwdbwd"), cache=False), rank=0)
    assert rows["launch_ns"].isna().all()
    assert rows["operator"].isna().all()


def test_a_garbage_collection_of_python_is_a_call_of_the_host(tmp_path: Path):
    folder = _folder(tmp_path, "async_npu")
    file = next(folder.rglob("trace_view.json"))
    events = json.loads(file.read_text())
    events.append({"ph": "X", "name": "GC", "cat": "GC", "pid": 32, "tid": 1, "ts": f"{US + 20}.000", "dur": 30.5})
    file.write_text(json.dumps(events))
    row = load(folder, cache=False).frame("host").query("name == 'GC'").iloc[0]
    assert (row["kind"], row["start_ns"], row["duration_ns"]) == ("call", (US + 20) * 1000, 30_500)


def test_a_timeline_that_speaks_of_no_waiting_is_not_decoded_to_look_for_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    def decoded(*_: object) -> None:
        raise AssertionError("decoded")

    folder = _folder(tmp_path, "async_npu")
    file = next(folder.rglob("trace_view.json"))
    events = json.loads(file.read_text())
    with monkeypatch.context() as patch:
        patch.setattr(host, "EventReader", decoded)
        assert not load(folder, cache=False).has("waits")
    task = {"task type": "Notify_Wait", "src rank": 0, "dst rank": 1}
    events.append({"ph": "X", "name": "Notify_Wait", "pid": 9, "tid": 1, "ts": f"{US + 20}.000", "dur": 30, "args": task})
    file.write_text(json.dumps(events))
    assert load(folder, cache=False).frame("waits")["duration_ns"].tolist() == [30_000]
