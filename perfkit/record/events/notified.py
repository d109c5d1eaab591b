"""Notified: how long a member of an operation waited and for whom, from the tasks that its operation is made of.

A vendor's sum of waiting may leave most of it out (`perfkit.record.formats.ascend._waits`). The tasks of an operation that moved
nothing and waited are in the table `waits`; they are looked at where what a vendor says of a rank leaves much that is neither.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from perfkit.core import placement
from perfkit.core.run import Run

LEAST_REST = 0.01
"""The share of a rank's communication that is neither moving nor waiting from which its tasks are read, which takes long."""
Ints = npt.NDArray[np.int64]


def look_up(table: pd.DataFrame, run: Run) -> None:
    """Let `wait_ns` and `other_ns` of rows of `meetings` follow the tasks, and add `waits_for`: the rank waited for longest.

    `start_ns` is on the clock of the rank. Null where no task says it, or not which rank its peer is.
    """
    table["waits_for"] = pd.Series(pd.NA, index=table.index, dtype="Int64")
    ranks = _with_rest(table) if run.has("waits") else []
    pieces = {rank: run.frame("waits", ranks=[rank]) for rank in ranks}
    told = [found for rank, rows in pieces.items() if len(found := _assigned(table[(table["rank"] == rank).to_numpy()], rows))]
    if not told:
        return
    waits = pd.concat(told, ignore_index=True)
    waited = waits.groupby("row")["ns"].sum()
    rows = table.loc[waited.index]
    most = rows["duration_ns"] - rows["transfer_ns"].fillna(0)
    longer = waited.astype("Int64").where(waited <= most, most)
    longer = longer.where((longer > rows["wait_ns"].fillna(0)).fillna(False), rows["wait_ns"].fillna(0))
    table.loc[rows.index, "wait_ns"] = longer
    table.loc[rows.index, "other_ns"] = most - longer
    _name(table, waits, run)


def _with_rest(table: pd.DataFrame) -> list[int]:
    recorded = table[(table["basis"].astype("object") == "recorded").to_numpy(dtype=bool)]
    sums = recorded.groupby("rank")[["other_ns", "duration_ns"]].sum()
    return [int(rank) for rank in sums.index[(sums["other_ns"] >= LEAST_REST * sums["duration_ns"]).to_numpy(dtype=bool)]]


def _assigned(own: pd.DataFrame, waits: pd.DataFrame) -> pd.DataFrame:
    """Each piece of a rank with the `row` of the operation that it is in; pieces inside of several at once are left out."""
    rows = own[own["start_ns"].notna().to_numpy() & (own["basis"].astype("object") == "recorded").to_numpy(dtype=bool)]
    rows = rows.sort_values("start_ns", kind="stable")
    starts = rows["start_ns"].to_numpy(dtype=np.int64)
    ends: Ints = starts + rows["duration_ns"].to_numpy(dtype=np.int64)
    begin = waits["start_ns"].to_numpy(dtype=np.int64)
    end = begin + waits["duration_ns"].to_numpy(dtype=np.int64)
    last = np.searchsorted(starts, begin, side="right")
    alone = last - np.searchsorted(np.sort(ends), begin, side="right") == 1
    inside = np.flatnonzero(alone & (end <= np.append(ends, 0)[last - 1]) & (last > 0))
    at = last[inside] - 1
    told = waits.iloc[inside]
    return pd.DataFrame(
        {
            "row": rows.index.to_numpy()[at],
            "rank": rows["rank"].to_numpy(dtype=np.int64)[at],
            "ns": told["duration_ns"].to_numpy(dtype=np.int64),
            "position": told["position"].astype("Int64").to_numpy(),
            "peer": told["peer"].astype("Int64").to_numpy(),
        }
    )


def _name(table: pd.DataFrame, waits: pd.DataFrame, run: Run) -> None:
    """Write the rank behind the position that each operation waited for longest.

    Positions are those of a known group; of any other they are ranks if every rank that was read stands at its own number.
    """
    known = placement.members_by_rank(run)
    sums = waits.dropna(subset=["position", "peer"]).groupby(["row", "rank", "position", "peer"])["ns"].sum().reset_index()
    longest = sums.sort_values("ns", kind="stable").drop_duplicates("row", keep="last")
    longest = longest.assign(
        members=table.loc[longest["row"], "members"].to_numpy(), group=table.loc[longest["row"], "group"].to_numpy()
    )
    own_number = (longest["position"] == longest["rank"]).groupby(longest["members"]).transform("all")
    several = longest.groupby("members")["rank"].transform("max") > 0
    for row, is_rank in zip(longest.to_dict("records"), (own_number & several).tolist(), strict=True):
        if (rank := _rank_at(row, known, is_rank=is_rank)) is not None:
            table.loc[row["row"], "waits_for"] = rank


def _rank_at(row: Mapping[Any, Any], known: Mapping[tuple[str, int], tuple[int, ...]], *, is_rank: bool) -> int | None:
    peer = int(row["peer"])
    members = known.get((str(row["group"]), int(row["rank"])))
    if members is not None:
        return members[peer] if peer < len(members) else None
    return peer if is_rank else None
