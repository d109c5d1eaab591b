"""Host side of a Nsight Systems report: calls of the CUDA runtime, NVTX ranges, and which of them launched which execution.

A call and what it launched carry one correlation within a process. Ranges that PyTorch's `emit_nvtx` writes are operators, told by
their names (`aten::mm, seq = 12`), others are marks. The operator of an execution is the innermost one around its call.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from perfkit.record.listing import File
from perfkit.record.readers import host as _host
from perfkit.record.readers.sqlite import Database, cells, open_database

CALLS, RANGES, TEXTS = "CUPTI_ACTIVITY_KIND_RUNTIME", "NVTX_EVENTS", "StringIds"
THREAD_BITS = 24
"""globalTid is globalPid with the thread in its lowest 24 bits."""
_MASK = (1 << THREAD_BITS) - 1
_OPERATOR = re.compile(r"^([\w.]+::[^,]+|[^,]+(?=, (?:seq|op_id|sizes) = ))(?:, .*)?$", re.DOTALL)
_VERSION = re.compile(r"_v\d{4,5}$")
"""What Nsight adds to the names of calls: cudaLaunchKernel_v7000."""


def read_texts(database: Database) -> dict[int, str]:
    """The texts of a report by their number."""
    rows = database.read(TEXTS, cells(ints=("id",), texts=("value",))).dropna()
    return {int(key): str(text) for key, text in zip(rows["id"], rows["value"], strict=True)}


def process_of(global_tids: pd.Series) -> npt.NDArray[np.int64]:
    """The globalPid of each globalTid; 0 where it is null."""
    return (global_tids.fillna(0).to_numpy(dtype=np.int64) >> THREAD_BITS) << THREAD_BITS


def read_calls(database: Database) -> pd.DataFrame:
    """The calls with a correlation and a start, in order of it; `globalPid` is their process."""
    rows = database.read(CALLS, cells(ints=("start", "end", "globalTid", "correlationId", "nameId")))
    rows = rows.dropna(subset=["start", "correlationId"])
    rows = rows[(rows["correlationId"] > 0).astype(bool)].sort_values("start", kind="stable")
    return rows.assign(globalPid=pd.Series(process_of(rows["globalTid"]), index=rows.index, dtype="Int64"))


def read_host(file: File, process: int, origin_ns: int, kernels: pd.DataFrame) -> tuple[list[pd.DataFrame], list[pd.DataFrame]]:
    """The tables `host` and `launches` of the executions of one process on one device, without `rank`.

    `kernels` has the columns of that table, the `correlation` of each and the `bytes` of copies; `origin_ns` is when the session
    began.
    """
    with open_database(file) as database:
        texts = read_texts(database)
        calls = read_calls(database)
        calls = calls[(calls["globalPid"] == process).to_numpy(dtype=bool)]
        ranges = database.read(RANGES, cells(ints=("start", "end", "globalTid", "textId"), texts=("text",)))
    ranges = ranges[(process_of(ranges["globalTid"]) == process) & ranges["start"].notna().to_numpy(dtype=bool)]
    names = (
        calls["nameId"].astype("object").map(lambda key: None if pd.isna(key) else _VERSION.sub("", texts.get(int(key), "call")))
    )
    host = pd.concat([_timed(_spans(calls, names, "call", origin_ns)), _ranges(ranges, texts, origin_ns)], ignore_index=True)
    found = _spans(calls, names, "call", origin_ns).assign(correlation=calls["correlationId"].to_numpy())
    return [host], [_linked(kernels, found, host)]


def _spans(rows: pd.DataFrame, names: pd.Series, kind: str, origin_ns: int) -> pd.DataFrame:
    """Rows as spans of the host."""
    return pd.DataFrame(
        {
            "name": names.astype("object").to_numpy(),
            "kind": kind,
            "thread": [f"{tid >> THREAD_BITS & _MASK}/{tid & _MASK}" for tid in rows["globalTid"].fillna(0).tolist()],
            "start_ns": (rows["start"] + origin_ns).to_numpy(),
            "duration_ns": (rows["end"] - rows["start"]).to_numpy(),
        }
    ).astype({"thread": "object", "start_ns": "Int64", "duration_ns": "Int64"})


def _timed(spans: pd.DataFrame) -> pd.DataFrame:
    """Those with an end and a name."""
    good = spans["name"].notna() & (spans["duration_ns"] >= 0).fillna(False)
    return spans[good.to_numpy(dtype=bool)].reset_index(drop=True)


def _ranges(rows: pd.DataFrame, texts: Mapping[int, str], origin_ns: int) -> pd.DataFrame:
    listed = rows["textId"].astype("object").map(lambda key: None if pd.isna(key) else texts.get(int(key)))
    names = rows["text"].astype("object").where(rows["text"].notna(), listed)
    spans = _timed(_spans(rows, names, "mark", origin_ns))
    known: dict[str, Any] = {name: _OPERATOR.match(name) for name in spans["name"].unique()}
    return spans.assign(
        kind=spans["name"].map(lambda name: "operator" if known[name] else "mark").astype("object"),
        name=spans["name"].map(lambda name: known[name][1] if known[name] else name).astype("object"),
    )


def _linked(kernels: pd.DataFrame, calls: pd.DataFrame, host: pd.DataFrame) -> pd.DataFrame:
    """Each execution with the first call of its correlation, and the innermost operator around the begin of that call."""
    known = calls.drop_duplicates("correlation").set_index("correlation")
    call = known.reindex(kernels["correlation"]).reset_index(drop=True)
    linked = call["start_ns"].notna().to_numpy(dtype=bool)
    operators = host[(host["kind"] == "operator").to_numpy(dtype=bool)].reset_index(drop=True)
    codes = pd.factorize(pd.concat([operators["thread"], call.loc[linked, "thread"]], ignore_index=True))[0]
    starts = operators["start_ns"].to_numpy(dtype=np.int64)
    place = np.full(len(call), _host.NONE, dtype=np.int64)
    place[linked] = _host.innermost(
        starts,
        starts + operators["duration_ns"].to_numpy(dtype=np.int64),
        codes[: len(operators)],
        call.loc[linked, "start_ns"].to_numpy(dtype=np.int64),
        codes[len(operators) :],
    )
    made = operators.reindex(np.where(place == _host.NONE, len(operators), place)).reset_index(drop=True)
    columns = ["step", "name", "kind", "stream", "start_ns", "duration_ns", "bytes"]
    return (
        kernels[columns]
        .reset_index(drop=True)
        .assign(
            call=call["name"].astype("object").fillna("call").where(linked),
            thread=call["thread"],
            launch_ns=call["start_ns"],
            launch_duration_ns=call["duration_ns"].where((call["duration_ns"] >= 0).fillna(False)),
            operator=made["name"],
        )
    )
