"""Host side of an Ascend database: what the host did, and which of it launched which kernel.

A kernel carries the connection of the call of CANN_API that launched it. CONNECTION_IDS gives the same number to the operator of
the framework (PYTORCH_API) that asked for it, often on another thread and earlier. As with the flows of trace_view.json the
operator counts, and the call only where no operator is known.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pandas as pd

from perfkit.record.formats.ascend._db import label_of, read_texts
from perfkit.record.formats.ascend.host import launched
from perfkit.record.listing import File
from perfkit.record.readers.sqlite import Database, cells, open_database

CALLS, FRAMEWORK, MARKS, CONNECTIONS = "CANN_API", "PYTORCH_API", "MSTX_EVENTS", "CONNECTION_IDS"
COLLECTIONS = "GC_RECORD"
"""Garbage collections of Python that took longer than `gc_detect_threshold` (seen in torch_npu 2.14)."""
_KINDS = {"op": "operator", "queue": "call", "trace": "python", "mstx": "mark"}
_PREFIXES = {"acl": "AscendCL@", "node": "Node@", "runtime": "Runtime@", "hccl": "Hccl@", "model": "Model@"}
"""What trace_view.json puts before the names of calls, by their type."""
_TYPES = {5000: "runtime", 5500: "hccl", 10000: "node", 15000: "model", 20000: "acl"}
_TYPES |= {50001: "op", 50002: "queue", 50003: "trace", 50004: "mstx"}
_DEFAULT_DOMAIN = "default"
_SPAN = ["name", "kind", "thread", "start_ns", "duration_ns"]


def read_host(file: File, kernels: pd.DataFrame, connections: pd.Series) -> tuple[list[pd.DataFrame], list[pd.DataFrame]]:
    """The tables `host` and `launches` of one rank, without `rank`; `connections` has the connection of each of its `kernels`."""
    with open_database(file) as database:
        texts, types = read_texts(database), _types(database)
        calls = _spans(database, CALLS, texts, types)
        framework = _spans(database, FRAMEWORK, texts, types)
        marks, collections = _marks(database, texts), _collections(database)
        ids = database.read(CONNECTIONS, cells(ints=("id", "connectionId"))).dropna()
    operators = framework[framework["kind"] == "operator"].dropna(subset=["connection"])
    asked = operators.merge(ids, left_on="connection", right_on="id")
    by_connection = pd.concat([asked.assign(connection=asked["connectionId"]), calls.dropna(subset=["connection"])])
    known = by_connection.drop_duplicates("connection").set_index("connection")
    rows = kernels.assign(connection=connections.to_numpy()).sort_values("start_ns", kind="stable").reset_index(drop=True)
    found = known.reindex(rows["connection"])
    launch_ns = pd.Series(found["start_ns"].to_numpy(), dtype="Int64")
    threads = found["thread"].astype("object").where(found["thread"].notna(), None).to_numpy(dtype=object)
    host = pd.concat([frame for frame in (framework, calls, marks, collections) if len(frame)] or [calls], ignore_index=True)
    launches = launched(rows, launch_ns, threads, host).assign(
        call=found["name"].astype("object").to_numpy(), launch_duration_ns=pd.Series(found["duration_ns"].to_numpy(), dtype="Int64")
    )
    return [host[_SPAN]], [launches]


def _marks(database: Database, texts: Mapping[int, str]) -> pd.DataFrame:
    """The marks and ranges of mstx; those of a domain other than the default one have its name before theirs."""
    rows = database.read(MARKS, cells(ints=("startNs", "endNs", "message", "domainId", "globalTid", "connectionId")))
    timed = rows["startNs"].notna() & (rows["endNs"] >= rows["startNs"]).fillna(False)
    rows = rows[timed.astype(bool)].sort_values("startNs", kind="stable").reset_index(drop=True)
    domains = label_of(rows["domainId"], texts)
    prefix = domains.map(lambda domain: f"{domain}: " if isinstance(domain, str) and domain != _DEFAULT_DOMAIN else "")
    frame = pd.DataFrame(
        {
            "name": prefix + label_of(rows["message"], texts),
            "kind": "mark",
            "thread": _threads(rows["globalTid"]),
            "start_ns": rows["startNs"],
            "duration_ns": rows["endNs"] - rows["startNs"],
            "connection": rows["connectionId"],
        }
    ).astype({"name": "object", "kind": "object", "thread": "object"})
    return frame[frame["name"].notna()].reset_index(drop=True)


def _collections(database: Database) -> pd.DataFrame:
    """Garbage collections as calls of the host."""
    rows = database.read(COLLECTIONS, cells(ints=("startNs", "endNs", "globalTid")))
    rows = rows[(rows["startNs"].notna() & (rows["endNs"] >= rows["startNs"]).fillna(False)).astype(bool)]
    rows = rows.sort_values("startNs", kind="stable").reset_index(drop=True)
    times = {"start_ns": rows["startNs"], "duration_ns": rows["endNs"] - rows["startNs"]}
    frame = pd.DataFrame({"name": "GC", "kind": "call", "thread": _threads(rows["globalTid"]), **times})
    return frame.astype({"name": "object", "kind": "object", "thread": "object"})


def _threads(numbers: pd.Series) -> list[str]:
    """Process and thread of a globalTid."""
    return [f"{each >> 32}/{each & 0xFFFFFFFF}" for each in numbers.fillna(0).to_numpy(dtype=np.int64).tolist()]


def _types(database: Database) -> Mapping[int, str]:
    rows = database.read("ENUM_API_TYPE", cells(ints=("id",), texts=("name",))).dropna()
    return _TYPES | {int(key): str(name) for key, name in zip(rows["id"], rows["name"], strict=True)}


def _spans(database: Database, table: str, texts: Mapping[int, str], types: Mapping[int, str]) -> pd.DataFrame:
    """The rows of a table of calls that have a name and a time, in order of start, with their `connection`."""
    rows = database.read(table, cells(ints=("startNs", "endNs", "type", "globalTid", "connectionId", "name")))
    rows = rows[rows["startNs"].notna() & (rows["endNs"] >= rows["startNs"]).fillna(False)].sort_values("startNs", kind="stable")
    kind = rows["type"].map(types).astype("object")
    names = label_of(rows["name"], texts)
    of_framework = table == FRAMEWORK
    prefix = "" if of_framework else kind.map(_PREFIXES).fillna("")
    frame = pd.DataFrame(
        {
            "name": prefix + names,
            "kind": kind.map(_KINDS).fillna("operator" if of_framework else "call"),
            "thread": _threads(rows["globalTid"]),
            "start_ns": rows["startNs"],
            "duration_ns": rows["endNs"] - rows["startNs"],
            "connection": rows["connectionId"],
        }
    ).astype({"name": "object", "kind": "object", "thread": "object"})
    return frame[frame["name"].notna()].reset_index(drop=True)
