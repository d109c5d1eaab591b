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
MOST_RANKS = 8
"""Of more ranks those with most of it are read: each is a timeline of its own."""
WAITS_TOO = 0.5
"""A member that waited this share of what another one waited for it did not come last: it passes on what it waited for."""
Ints = npt.NDArray[np.int64]


def look_up(table: pd.DataFrame, run: Run) -> None:
    """Let `wait_ns`, `other_ns` and `waits_for` of rows of `meetings` follow the tasks of their operations.

    `start_ns` is on the clock of the rank. `waits_for` is the rank that was waited for longest, null where no task says it, or not
    which rank that is.
    """
    kept = run.derived.setdefault("waits", {})
    ranks = _with_rest(table)
    kept.update({rank: run.frame("waits", ranks=[rank]) for rank in ranks if rank not in kept})
    told = [_assigned(table[(table["rank"] == rank).to_numpy(dtype=bool)], kept[rank]) for rank in ranks]
    waits = pd.concat(told, ignore_index=True) if told else pd.DataFrame()
    if waits.empty:
        return
    waited = waits.groupby("row")["ns"].sum()
    rows = table.loc[waited.index]
    most = rows["duration_ns"] - rows["transfer_ns"].fillna(0)
    longer = waited.astype("Int64").where(waited <= most, most)
    longer = longer.where((longer > rows["wait_ns"].fillna(0)).fillna(False), rows["wait_ns"].fillna(0))
    table.loc[rows.index, "wait_ns"] = longer
    table.loc[rows.index, "other_ns"] = most - longer
    _name(table, waits, run)


def _recorded(table: pd.DataFrame) -> npt.NDArray[np.bool_]:
    found: npt.NDArray[np.bool_] = (table["basis"].astype("object") == "recorded").to_numpy(dtype=bool)
    return found


def _with_rest(table: pd.DataFrame) -> list[int]:
    sums = table[_recorded(table)].groupby("rank")[["other_ns", "duration_ns"]].sum()
    much = sums[(sums["other_ns"] >= LEAST_REST * sums["duration_ns"]).to_numpy(dtype=bool)]
    return sorted(int(rank) for rank in much.sort_values("other_ns", ascending=False, kind="stable").index[:MOST_RANKS])


def _assigned(own: pd.DataFrame, waits: pd.DataFrame) -> pd.DataFrame:
    """Each piece of a rank with the `row` of the one operation that it is in.

    Where several are under way at once no piece says whose it is. Times are rounded apart: a piece ends with its operation.
    """
    rows = own[own["start_ns"].notna().to_numpy()]
    starts = rows["start_ns"].to_numpy(dtype=np.int64)
    ends: Ints = starts + rows["duration_ns"].to_numpy(dtype=np.int64)
    begin = waits["start_ns"].to_numpy(dtype=np.int64)
    end = begin + waits["duration_ns"].to_numpy(dtype=np.int64)
    middle = begin + (end - begin) // 2
    opened, closed = (_sums_until(moments, middle) for moments in (starts, ends))
    alone = np.flatnonzero(opened[0] - closed[0] == 1)
    at = (opened[1] - closed[1])[alone]  # of all that began less all that ended: the one that is under way
    alone, at = (kept[_recorded(rows)[at]] for kept in (alone, at))
    told = waits.iloc[alone]
    return pd.DataFrame(
        {
            "row": rows.index.to_numpy()[at],
            "rank": rows["rank"].to_numpy(dtype=np.int64)[at],
            "ns": np.minimum(end[alone], ends[at]) - np.maximum(begin[alone], starts[at]),
            "position": told["position"].astype("Int64").to_numpy(),
            "peer": told["peer"].astype("Int64").to_numpy(),
        }
    )


def _sums_until(moments: Ints, asked: Ints) -> tuple[Ints, Ints]:
    """By moment asked for how many of the `moments` are not later, and the sum of their places."""
    order = np.argsort(moments, kind="stable")
    count = np.searchsorted(moments[order], asked, side="right")
    return count, np.concatenate([[0], np.cumsum(order)])[count]


def _name(table: pd.DataFrame, waits: pd.DataFrame, run: Run) -> None:
    """Write the rank behind the position that each operation waited for longest."""
    known = placement.members_by_rank(run)
    sums = waits.dropna(subset=["position", "peer"]).groupby(["row", "rank", "position", "peer"])["ns"].sum().reset_index()
    longest = sums.sort_values("ns", kind="stable").drop_duplicates("row", keep="last")
    told = table.loc[longest["row"]]
    longest = longest.assign(
        group=told["group"].to_numpy(), instance=told["instance"].to_numpy(), wait_ns=told["wait_ns"].to_numpy()
    )
    world = _is_world(longest, run)
    rows = [{**row, "who": _rank_at(row, known, world=world)} for row in longest.to_dict("records")]
    by_member = {(row["instance"], row["rank"]): row for row in rows}
    for row in rows:
        if (who := _last_of(row, by_member)) is not None:
            table.loc[row["row"], "waits_for"] = who


def _is_world(waits: pd.DataFrame, run: Run) -> bool:
    """Whether positions in a group of which nothing is known are ranks: the only one, with all at their numbers."""
    alone = run.distinct("collectives", columns=["group"])["group"].nunique() <= 1
    own_numbers = bool((waits["position"] == waits["rank"]).all())
    return alone and own_numbers and int(waits["rank"].max()) > 0


def _rank_at(row: Mapping[Any, Any], known: Mapping[tuple[str, int], tuple[int, ...]], *, world: bool) -> int | None:
    peer = int(row["peer"])
    members = known.get((str(row["group"]), int(row["rank"])))
    if members is not None:
        return members[peer] if peer < len(members) else None
    return peer if world else None


def _last_of(row: Mapping[Any, Any], by_member: Mapping[tuple[Any, Any], Mapping[Any, Any]]) -> int | None:
    """Whom a member waited for in the end: in a ring its neighbour tells it, who waits for his own."""
    passed = {row["rank"]}
    who: int | None = row["who"]
    while who is not None and (own := by_member.get((row["instance"], who))) is not None:
        if own["wait_ns"] < WAITS_TOO * row["wait_ns"]:
            return who
        if who in passed:
            return None
        passed.add(who)
        who = own["who"]
    return who
