"""Tables of the database of events that Ascend profilers write for a rank, as the frames that their text files also give.

Times are int ns of the epoch, sizes bytes, texts ids of STRING_IDS. A task is a kernel if COMPUTE_TASK_INFO names it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd

from perfkit.core.errors import InputError
from perfkit.record import times
from perfkit.record.formats.ascend.communication import Operation, is_rank
from perfkit.record.formats.ascend.kernels import kinds_of
from perfkit.record.listing import File
from perfkit.record.placing import Marks
from perfkit.record.readers.sqlite import Database, cells, open_database
from perfkit.record.steps import Window
from perfkit.record.store import NULLS

TASKS, INFO, OPERATIONS, STEPS = TABLES = ("TASK", "COMPUTE_TASK_INFO", "COMMUNICATION_OP", "STEP_TIME")
ELEMENT_BYTES = {
    **dict.fromkeys(("INT8", "UINT8", "HIF8", "FP8E4M3", "FP8E5M2", "FP8E8M0"), 1),
    **dict.fromkeys(("INT16", "UINT16", "FP16", "BFP16"), 2),
    **dict.fromkeys(("INT32", "UINT32", "FP32"), 4),
    **dict.fromkeys(("INT64", "UINT64", "FP64"), 8),
    "INT128": 16,
}
"""Size of an element by the name that ENUM_HCCL_DATA_TYPE gives its type."""


def described(file: File) -> dict[str, Any]:
    """What a database says about its rank, with the keys of profiler_metadata.json; `devices` maps device to rank."""
    told: dict[str, Any] = {}
    try:
        with open_database(file) as database:
            ranks = database.read("RANK_DEVICE_MAP", {"rankId": "int", "deviceId": "int"}).dropna()
            devices = {int(device): max(int(rank), 0) for rank, device in zip(ranks["rankId"], ranks["deviceId"], strict=True)}
            metadata = database.read("META_DATA", {"name": "text", "value": "text"}).dropna()
    except InputError:
        return told
    if devices and all(map(is_rank, devices.values())):
        told["devices"] = devices
        if len(devices) == 1:
            told["rank"] = next(iter(devices.values()))
    for name, value in zip(metadata["name"], metadata["value"], strict=True):
        if name in ("distributed_args", "parallel_group_info"):
            try:
                told[name] = json.loads(value)
            except (ValueError, RecursionError):
                continue
    return told


def device_name(database: Database) -> str | None:
    """The name of the device, such as Ascend910B."""
    names = database.read("NPU_INFO", {"name": "text"})["name"].dropna()
    return str(names.iloc[0]) if len(names) else None


def read_windows(database: Database) -> list[Window]:
    """The steps as the host marked them: number, start and end."""
    rows = database.read(STEPS, {"id": "int", "startNs": "int", "endNs": "int"}).dropna()
    rows = rows[(rows["startNs"] >= 0) & (rows["endNs"] >= rows["startNs"])].sort_values("startNs")
    return [Window(int(step), int(start), int(end)) for step, start, end in rows.itertuples(index=False)]


def read_tasks(database: Database) -> pd.DataFrame:
    """Kernels and communication operations with the columns of `kernels`, without `rank`, with `device`, `connection` and `task`.

    `step` is that in which the task was launched; where no launch is recorded, that in which it began.
    """
    texts = read_texts(database)
    launches = database.read("CANN_API", {"connectionId": "int", "startNs": "int"}).dropna()
    launched = launches.drop_duplicates("connectionId").set_index("connectionId")["startNs"]
    tasks = pd.concat([_kernels(database, texts), _communication(database, texts)], ignore_index=True)
    timed = times.possible(tasks["start_ns"], times.middle_of(tasks["start_ns"]))
    good = timed & (tasks["end_ns"] >= tasks["start_ns"]).fillna(False).to_numpy(dtype=bool) & tasks["name"].notna().to_numpy()
    database.lose({"task without a name or with a missing, impossible or reversed time": int((~good).sum())}, "kernels")
    tasks = tasks[good].reset_index(drop=True)
    host_ns = tasks["connection"].map(launched).astype("Int64").fillna(tasks["start_ns"])
    return tasks.assign(
        step=_steps(host_ns, Marks(read_windows(database))),
        duration_ns=tasks["end_ns"] - tasks["start_ns"],
        kind=kinds_of(tasks.rename(columns={"name": "Name", "type": "Type", "core": "Accelerator Core"})),
        stream=tasks["stream"].map(lambda stream: None if pd.isna(stream) else str(stream)).astype("object"),
    ).drop(columns=["end_ns"])


def read_payloads(database: Database, tasks: pd.DataFrame, rank: int) -> list[Operation]:
    """Operations of the event database with their group, and as size their number of elements times the size of one."""
    texts = read_texts(database)
    types = database.read("ENUM_HCCL_DATA_TYPE", {"id": "int", "name": "text"}).dropna()
    element_bytes = {int(key): ELEMENT_BYTES.get(str(name)) for key, name in zip(types["id"], types["name"], strict=True)}
    rows = database.read(OPERATIONS, cells(ints=("opName", "startNs", "groupName", "dataType", "count")))
    stated = {
        (texts.get(row["opName"]), row["startNs"]): (texts.get(row["groupName"]), row["count"], element_bytes.get(row["dataType"]))
        for row in rows.dropna(subset=["opName", "startNs"]).astype("object").to_dict("records")
    }
    found = []
    for row in tasks[tasks["kind"] == "communication"].to_dict("records"):
        group, count, size = stated.get((row["name"], row["start_ns"]), (None, None, None))
        known = size is not None and not pd.isna(count) and 0 < count < 2**59
        found.append(
            Operation(
                rank=rank,
                step=0 if pd.isna(row["step"]) else int(row["step"]),
                name=str(row["name"]),
                group=group,
                start_ns=int(row["start_ns"]),
                duration_ns=int(row["duration_ns"]),
                transit_ns=None,
                wait_ns=None,
                size_bytes=int(count) * size if known and size else None,
            )
        )
    return found


def _kernels(database: Database, texts: Mapping[int, str]) -> pd.DataFrame:
    columns = ("globalTaskId", "startNs", "endNs", "deviceId", "connectionId", "streamId")
    tasks = database.read(TASKS, dict.fromkeys(columns, "int"))
    info = database.read(
        INFO, dict.fromkeys(("globalTaskId", "name", "opType", "taskType", "inputShapes", "inputDataTypes"), "int")
    ).dropna(subset=["globalTaskId"])
    repeated = int(info.duplicated("globalTaskId").sum())
    database.lose({f"{INFO}: row of a task that another row describes": repeated}, "kernels")
    rows = info.drop_duplicates("globalTaskId", keep="last").merge(tasks, on="globalTaskId", how="inner")
    unknown = len(info) - repeated - int(rows["globalTaskId"].nunique())
    database.lose({f"{INFO}: row of a task that {TASKS} lacks": unknown}, "kernels")
    return pd.DataFrame(
        {
            "name": label_of(rows["name"], texts),
            "type": label_of(rows["opType"], texts),
            "core": label_of(rows["taskType"], texts),
            "stream": rows["streamId"],
            "device": rows["deviceId"],
            "connection": rows["connectionId"],
            "task": rows["globalTaskId"],
            "start_ns": rows["startNs"],
            "end_ns": rows["endNs"],
            "input_shapes": label_of(rows["inputShapes"], texts).str.strip('"'),
            "input_dtypes": label_of(rows["inputDataTypes"], texts),
        }
    )


def _communication(database: Database, texts: Mapping[int, str]) -> pd.DataFrame:
    columns = ("opId", "opName", "startNs", "endNs", "connectionId", "opType", "deviceId")  # deviceId: of msMonitor
    rows = database.read(OPERATIONS, dict.fromkeys(columns, "int"))
    parts = database.read("COMMUNICATION_TASK_INFO", dict.fromkeys(("opId", "globalTaskId"), "int")).dropna()
    devices = database.read(TASKS, dict.fromkeys(("globalTaskId", "deviceId"), "int")).dropna().drop_duplicates("globalTaskId")
    ran_on = parts.merge(devices, on="globalTaskId").drop_duplicates("opId").set_index("opId")["deviceId"]
    return pd.DataFrame(
        {
            "name": label_of(rows["opName"], texts),
            "type": label_of(rows["opType"], texts),
            "core": pd.Series("COMMUNICATION", index=rows.index, dtype="object"),
            "stream": pd.Series(None, index=rows.index, dtype="object"),
            "device": rows["opId"].map(ran_on).astype("Int64").fillna(rows["deviceId"]),
            "connection": rows["connectionId"],
            "task": pd.Series(pd.NA, index=rows.index, dtype="Int64"),
            "start_ns": rows["startNs"],
            "end_ns": rows["endNs"],
            "input_shapes": pd.Series(None, index=rows.index, dtype="object"),
            "input_dtypes": pd.Series(None, index=rows.index, dtype="object"),
        }
    )


def read_texts(database: Database) -> dict[int, str]:
    """The texts of a database by their number."""
    rows = database.read("STRING_IDS", {"id": "int", "value": "text"}).dropna()
    return {int(key): str(text) for key, text in zip(rows["id"], rows["value"], strict=True) if text not in NULLS}


def label_of(ids: pd.Series, texts: Mapping[int, str]) -> pd.Series:
    """The text of each number; null where there is none."""
    codes, keys = pd.factorize(ids)  # names repeat a thousandfold; -1 is null
    return pd.Series(
        np.array([*(texts.get(int(key)) for key in keys), None], dtype="object")[codes], index=ids.index, dtype="object"
    )


def _steps(times_ns: pd.Series, marks: Marks) -> pd.Series:
    """The step in which each moment lies; null before and after all of them, and if none is marked."""
    if not marks.are_recorded:
        return pd.Series(pd.NA, index=times_ns.index, dtype="Int64")
    return pd.Series(marks.steps(marks.places(times_ns.to_numpy(dtype=np.int64))), index=times_ns.index)
