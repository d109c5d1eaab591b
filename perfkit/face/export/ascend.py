"""Ascend: a run as the text output of the Ascend profiler, one folder a rank, which its analysers and viewers open.

step_trace_time.csv, kernel_details.csv, communication.json, communication_matrix.json and memory_record.csv with the layout in
profiler_metadata.json. Kernels keep their scope as name; communication has HCCL's names, counted by group.
"""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

from perfkit.core.run import Run
from perfkit.core.units import MIB, NS_PER_MS
from perfkit.face.export.rank_rows import Group, RankRows, groups_of, rank_rows, us
from perfkit.predict.simulate.operators import SHOWN

STEP_HEADER = (
    "Step,Computing,Communication(Not Overlapped),Overlapped,Communication,Free,Stage,Bubble,"
    "Communication(Not Overlapped and Exclude Receive),Preparing"
)
KERNEL_HEADER = (
    "Step Id,Model ID,Task ID,Stream ID,Name,Type,Accelerator Core,Start Time(us),Duration(us),Wait Time(us),Block Dim,"
    "Mix Block Dim,Input Shapes,Input Data Types,Input Formats,Output Shapes,Output Data Types,Output Formats,Context ID"
)
MEMORY_HEADER = "Component,Timestamp(us),Total Allocated(MB),Total Reserved(MB),Total Active(MB),Stream Ptr,Device Type"
TRANSPORTS = ("HCCS", "RDMA", "PCIE", "SDMA", "SIO")
POINT_TO_POINT = ("send", "receive")
MEGABYTE = 1_000_000


def write_ascend(run: Run, folder: Path) -> None:
    """Write a folder of the profiler's text output for every rank of a run into an existing folder."""
    for rank in run.ranks:
        position = run.placement[rank]
        home = folder / f"node{position.node or 0:03d}_{100_000 + rank}_20260101000000{rank:06d}_ascend_pt"
        output = home / "ASCEND_PROFILER_OUTPUT"
        output.mkdir(parents=True)
        rows, groups = rank_rows(run, rank), groups_of(run, rank)
        names = _names(rows, groups)
        _write(home / f"profiler_info_{rank}.json", json.dumps(_info(rank)))
        _write(home / "profiler_metadata.json", json.dumps(_metadata(run, rank, groups)))
        _write(output / "step_trace_time.csv", _steps(rows))
        _write(output / "kernel_details.csv", _kernels(rows, names))
        _write(output / "communication.json", json.dumps(_communication(rows, names)))
        _write(output / "communication_matrix.json", json.dumps(_matrix(rows, groups)))
        _write(output / "memory_record.csv", _memory(rows))


def _write(path: Path, text: str) -> None:
    path.write_text(text, encoding="utf-8")


def _info(rank: int) -> dict[str, Any]:
    common = {
        "activities": ["ProfilerActivity.CPU", "ProfilerActivity.NPU"],
        "record_shapes": True,
        "profile_memory": True,
        "with_stack": False,
    }
    special = {"_profiler_level": "Level1", "_aic_metrics": "PipeUtilization", "_export_type": "text"}
    return {"config": {"common_config": common, "experimental_config": special}, "rank_id": rank, "torch_npu_version": "simulated"}


def _metadata(run: Run, rank: int, groups: list[Group]) -> dict[str, Any]:
    sizes = {
        "tensor_model_parallel_size": "tensor_parallel_size",
        "pipeline_model_parallel_size": "pipeline_parallel_size",
        "data_parallel_size": "data_parallel_size",
        "context_parallel_size": "context_parallel_size",
        "expert_model_parallel_size": "expert_parallel_size",
        "world_size": "num_devices",
    }
    return {
        "distributed_args": {"rank": rank, **{name: run.facts[fact].value for name, fact in sizes.items()}},
        "parallel_group_info": {
            f"{group.name}%{group.number}": {
                "group_name": "default_group" if group.label == "world" else group.label,
                "group_rank": group.members.index(rank),
                "global_ranks": list(group.members),
            }
            for group in groups
        },
    }


def _names(rows: RankRows, groups: list[Group]) -> dict[int, str]:
    """HCCL's name of every communication kernel by its place, with the group after an @; a transfer has one name on both sides."""
    number = {group.name: group.number for group in groups}
    count: Counter[tuple[str, str]] = Counter()
    found = {}
    for place, row in sorted(rows.collectives.items()):
        group, operation = str(row["group"]), SHOWN[str(row["operation"])]
        pair = str(row["name"]).rpartition("/")[2] if row["operation"] in POINT_TO_POINT else ""
        lane = pair.replace("-", "0") + ("0" if str(row["name"]).startswith("forward") else "1") if pair else ""
        turn = count[group, operation + lane]
        count[group, operation + lane] += 1
        tail = f"{lane}{turn:06d}" if lane else str(turn)
        found[place] = f"hcom_{operation}__{int(number[group]) % 1000:03d}_{tail}_1@{number[group]}"
    return found


def _steps(rows: RankRows) -> str:
    lines = [STEP_HEADER]
    for step in rows.steps:
        bubble = step["bubble_ns"]
        exposed = step["exposed_communication_ns"] + bubble
        values = (
            step["computing_ns"], exposed, step["overlapped_ns"], step["communication_ns"], step["free_ns"],
            step["duration_ns"] - bubble, bubble, exposed - bubble, _preparing(rows, step),
        )  # fmt: skip
        lines.append(",".join([str(step["step"]), *map(us, values)]))
    return "\n".join(lines) + "\n"


def _preparing(rows: RankRows, step: dict[str, Any]) -> int:
    starts = [row["start_ns"] for row in rows.kernels if row["step"] == step["step"] and row["kind"] != "copy"]
    return int(min(starts) - step["start_ns"]) if starts else 0


def _kernels(rows: RankRows, names: dict[int, str]) -> str:
    lines = [KERNEL_HEADER]
    end = 0
    for place, row in enumerate(rows.kernels):
        start, length = row["start_ns"], row["duration_ns"]
        waited = us(max(0, start - end)) if end else "0"
        end = max(end, start + length)
        if place in names:
            name = names[place].partition("@")[0]
            lines.append(
                f"{row['step']},4294967295,N/A,N/A,{name},{row['type']},HCCL,{us(start)}\t,{us(length)},{waited},0{',N/A' * 8}"
            )
        elif row["kind"] != "copy":
            shapes = f'"""{row["input_shapes"]}"""' if row["input_shapes"] else "N/A"
            dtypes = row["input_dtypes"] or "N/A"
            lines.append(
                f"{row['step']},4294967295,{place},2,{row['name']},{row['type']},{row['core']},{us(start)}\t,{us(length)},{waited},24,0,"
                f"{shapes},{dtypes},ND;ND,N/A,N/A,N/A,N/A"
            )
    return "\n".join(lines) + "\n"


def _communication(rows: RankRows, names: dict[int, str]) -> dict[str, Any]:
    document: dict[str, dict[str, Any]] = {f"step{step['step']}": {"p2p": {}, "collective": {}} for step in rows.steps}
    near = {row["operation"]: row["transport"] for row in rows.links}
    for place, row in rows.collectives.items():
        kind = str(row["group"]).partition("_")[0]
        transport = near.get(f"{kind}-{row['operation']}-total", "HCCS")
        part = "p2p" if row["operation"] in POINT_TO_POINT else "collective"
        sent = 0 if row["operation"] == "receive" else row["bytes"]
        document[f"step{row['step']}"][part][names[place]] = {
            "Communication Time Info": {
                "Start Timestamp(us)": float(us(row["start_ns"])),
                **_times(row),
                "Wait Time Ratio": round(row["wait_ns"] / row["duration_ns"], 4) if row["duration_ns"] else 0,
                "Synchronization Time Ratio": round(row["wait_ns"] / row["duration_ns"], 4) if row["duration_ns"] else 0,
            },
            "Communication Bandwidth Info": _bandwidth(transport, sent, row["transit_ns"]),
        }
    return document


def _times(row: dict[str, Any]) -> dict[str, float]:
    named = {
        "Elapse": row["duration_ns"],
        "Transit": row["transit_ns"],
        "Wait": row["wait_ns"],
        "Synchronization": row["wait_ns"],
        "Idle": 0,
    }
    return {f"{name} Time(ms)": value / NS_PER_MS for name, value in named.items()}


def _bandwidth(transport: str, num_bytes: int, transit_ns: int) -> dict[str, Any]:
    found = {}
    for name in TRANSPORTS:
        size, time = (num_bytes / MEGABYTE, transit_ns / NS_PER_MS) if name == transport else (0, 0)
        found[name] = {
            "Transit Size(MB)": size,
            "Transit Time(ms)": time,
            "Bandwidth(GB/s)": round(size / time, 4) if time else 0,
            "Large Packet Ratio": 1 if size > 1 else 0,
            "Size Distribution": {f"{size:.6f}": [1, time]} if size else {},
        }
    return found


def _matrix(rows: RankRows, groups: list[Group]) -> dict[str, Any]:
    document: dict[str, dict[str, Any]] = {f"step{step['step']}": {"p2p": {}, "collective": {}} for step in rows.steps}
    by_label = {group.label: group for group in groups}
    for row in rows.links:
        kind, operation, _ = str(row["operation"]).split("-")
        group = by_label[kind]
        part = "p2p" if operation in POINT_TO_POINT else "collective"
        ends = f"{group.members.index(row['source_rank'])}-{group.members.index(row['target_rank'])}"
        size, time = row["bytes"] / MEGABYTE, row["transit_ns"] / NS_PER_MS
        document[f"step{row['step']}"][part].setdefault(f"{SHOWN[operation].lower()}-total@{group.number}", {})[ends] = {
            "Transport Type": row["transport"],
            "Transit Size(MB)": size,
            "Transit Time(ms)": time,
            "Bandwidth(GB/s)": round(size / time, 4) if time else 0,
            "Op Name": f"{SHOWN[operation]}",
        }
    return document


def _memory(rows: RankRows) -> str:
    lines = [MEMORY_HEADER]
    for row in rows.memory:
        allocated, reserved = row["allocated_bytes"] / MIB, row["reserved_bytes"] / MIB
        lines.append(f"PTA,{us(row['time_ns'])}\t,{allocated:.6f},{reserved:.6f},{allocated:.6f},0,NPU:0")
    return "\n".join(lines) + "\n"
