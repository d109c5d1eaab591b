"""What a recording shows of its host's calls, of the operations of several ranks, and of copies that are part of one."""

from __future__ import annotations

import re

import numpy as np
import pandas as pd

from perfkit.core.run import Run

WAITS = ("Synchronize", "Memcpy", "memcpy", "synchronize")
LONG_WAIT_NS, LONG_LAUNCH_NS = 30_000, 100_000
"""Calls that wait are at least this long; launches block only where the queue is full."""
OF_MEMORY = re.compile("malloc|free", re.IGNORECASE)
COPY_OF_ASCEND = "MEMCPY_ASYNC"


def calls_of(run: Run, rank: int) -> pd.DataFrame:
    """The calls of a rank that launch or wait, in order of their start, without those inside another."""
    host = run.frame("host", ranks=[rank])
    rows = host[(host["kind"] == "call").to_numpy(dtype=bool)]
    long = rows["duration_ns"] >= np.where(rows["name"].astype(str).str.contains("|".join(WAITS)), LONG_WAIT_NS, LONG_LAUNCH_NS)
    launches = run.frame("launches", ranks=[rank])
    launches = launches[launches["launch_ns"].notna().to_numpy(dtype=bool)]
    pieces = [
        pd.DataFrame(
            {"start": rows["start_ns"][long], "length": rows["duration_ns"][long], "name": rows["name"][long].astype(str)}
        ),
        pd.DataFrame(
            {
                "start": launches["launch_ns"],
                "length": launches["launch_duration_ns"].fillna(0),
                "name": launches["call"].astype(str),
            }
        ),
    ]
    found = pd.concat(pieces, ignore_index=True).astype({"start": "int64", "length": "int64"})
    found = found.sort_values(["start", "length"], ascending=[True, False]).drop_duplicates("start")
    return pd.DataFrame({"rank": rank, "start": found["start"], "end": found["start"] + found["length"], "name": found["name"]})


def instances(run: Run, kernels: pd.DataFrame) -> list[tuple[str, str, int] | None]:
    """Which operation of several ranks a kernel is a member of."""
    rows = run.frame("collectives")
    rows = rows[rows["start_ns"].notna() & rows["step"].notna()]
    rows = rows.assign(key=list(zip(rows["group"].astype(str), rows["name"].astype(str), rows["step"], strict=True)))
    met = rows.groupby("key")["rank"].transform("nunique") > 1
    once = ~rows.duplicated(["key", "rank"], keep=False)
    rows = rows[(met & once).to_numpy(dtype=bool)]
    of = {
        (int(r), int(s), int(d)): key for r, s, d, key in rows[["rank", "start_ns", "duration_ns", "key"]].itertuples(index=False)
    }
    asked = kernels[["rank", "start_ns", "duration_ns"]].itertuples(index=False, name=None)
    talks = (kernels["kind"] == "communication").to_numpy(dtype=bool)
    return [of.get((int(r), int(s), int(d))) if talk else None for (r, s, d), talk in zip(asked, talks, strict=True)]


def copies_of_collectives(kernels: pd.DataFrame) -> dict[int, int]:
    """By copy (row) the collective that makes it: on Ascend devices such copies stand beside it, on streams of their own."""
    found: dict[int, int] = {}
    for _, rows in kernels.groupby("rank"):
        starts, at = rows["start_ns"].to_numpy(dtype=np.int64), rows.index.to_numpy()
        ends = starts + rows["duration_ns"].to_numpy(dtype=np.int64)
        copies = (rows["name"].astype(str) == COPY_OF_ASCEND).to_numpy(dtype=bool)
        for number in np.flatnonzero((rows["kind"] == "communication").to_numpy(dtype=bool)).tolist():
            inside = copies & (starts >= starts[number]) & (ends <= ends[number])
            found.update(dict.fromkeys(at[inside].tolist(), int(at[number])))
    return found
