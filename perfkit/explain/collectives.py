"""Collectives: each operation once, over all ranks that took part: how long data moved, who waited, and for whom.

Members, waiting and transfer are those of `perfkit.record.events.meetings`.

Bandwidths follow the definitions of nccl-tests: algorithmic = payload / time, bus = algorithmic x 2(n-1)/n for an all-reduce,
(n-1)/n for all-gather, reduce-scatter and all-to-all, 1 for the others. Where the vendor states the time in which data moved
(`transit_ns`), the bytes that it states are those that crossed links, i.e. the bus side; elsewhere they are the payload.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np
import pandas as pd

from perfkit.core import clock
from perfkit.core.run import Run
from perfkit.core.units import NS_PER_S
from perfkit.record.events.graph import causal_graph
from perfkit.record.events.meetings import arrivals

_GATHERING = ("all_gather", "reduce_scatter", "all_to_all")


def bus_factor(operation: str, size: int) -> float:
    """What the bandwidth of the links is of the algorithmic one, for an operation among `size` ranks (nccl-tests)."""
    if size < 2:
        return 1.0
    if operation == "all_reduce":
        return 2.0 * (size - 1) / size
    return (size - 1) / size if operation in _GATHERING else 1.0


def collectives(
    run: Run,
    *,
    ranks: Iterable[int] | None = None,
    steps: Iterable[int] | None = None,
    clocks: Mapping[int, clock.Clock] | None = None,
) -> pd.DataFrame:
    """One row an operation, with all of its members.

    Columns: `instance`, `step`, `name`, `operation`, `group`, `group_size`, `num_seen`, `bytes` (payload), `start_ns` (first
    member), `end_ns`, `latest_rank` (null unless the latest member is known), `latest_start_ns`, `late_ns` (latest behind the
    second latest: what only that rank costs), `spread_ns` (latest behind first), `wait_ns` (sum over members), `transfer_ns` (time
    in which data moved), `algorithm_bytes_per_s`, `bus_bytes_per_s`, `basis`.
    """
    return summed(causal_graph(run).members(ranks=ranks, steps=steps, clocks=clocks))


def summed(rows: pd.DataFrame) -> pd.DataFrame:
    """The rows of `members` as those of `collectives`."""
    grouped = rows.sort_values(["instance", "start_ns", "rank"], kind="stable").groupby("instance", sort=True)
    first = grouped[["step", "name", "operation", "group", "group_size", "num_seen", "basis"]].first()
    timed = first["basis"].isin(("arrival", "partial")).astype(bool)
    table = first.join(arrivals(rows)).assign(
        start_ns=grouped["start_ns"].min(),
        end_ns=(rows["start_ns"] + rows["duration_ns"]).groupby(rows["instance"]).max(),
        wait_ns=grouped["wait_ns"].sum(min_count=1),
        transfer_ns=grouped["duration_ns"].last().astype("Int64").where(timed, _middle(rows, "transfer_ns")),
        stated_bytes=grouped["bytes"].max(),
        recorded=grouped["transit_ns"].count() > 0,
    )
    return _with_bandwidth(table.reset_index())


def waiting(rows: pd.DataFrame) -> pd.DataFrame:
    """Who waits and who is waited for, from rows of `members`: one row a rank, the rank that costs most first.

    `wait_ns` is its own waiting, `caused_ns` what its peers waited between the second latest arrival and its own, summed over the
    operations that it reached last, `times_last` their number, `operations` those with a known order. Without any, nobody knows
    whether it was last: null.
    """
    table = summed(rows)
    known = table[table["latest_rank"].notna() & (table["basis"] == "arrival")]
    caused = (known["late_ns"] * (known["num_seen"] - 1)).groupby(known["latest_rank"]).sum()
    last = known.groupby("latest_rank").size()
    own = rows.groupby("rank")["wait_ns"].sum(min_count=1)
    seen = rows[rows["basis"] == "arrival"].groupby("rank").size()
    ranks = pd.Index(sorted(int(rank) for rank in rows["rank"].unique()), name="rank")
    seen = seen.reindex(ranks, fill_value=0).astype("int64")
    table = pd.DataFrame(
        {
            "wait_ns": own.reindex(ranks).astype("Int64"),
            "caused_ns": caused.reindex(ranks, fill_value=0).astype("Int64").where(seen > 0),
            "times_last": last.reindex(ranks, fill_value=0).astype("Int64").where(seen > 0),
            "operations": seen,
        }
    )
    return table.sort_values("caused_ns", ascending=False, kind="stable").reset_index()


def _middle(rows: pd.DataFrame, column: str) -> pd.Series:
    """The median over the members of every operation, as whole ns."""
    return rows.groupby("instance")[column].median().round().astype("Int64")


def _with_bandwidth(table: pd.DataFrame) -> pd.DataFrame:
    sizes = table["group_size"].fillna(0).to_numpy(dtype=np.int64)
    factor = np.array([bus_factor(str(name), int(size)) for name, size in zip(table["operation"], sizes, strict=True)])
    known = ((table["transfer_ns"] > 0) & table["stated_bytes"].notna()).fillna(False).to_numpy(dtype=bool)
    time_s = table["transfer_ns"].fillna(1).to_numpy(dtype=np.float64) / NS_PER_S
    stated = table["stated_bytes"].fillna(0).to_numpy(dtype=np.float64)
    on_links = table["recorded"].to_numpy(dtype=bool)
    told = (sizes > 0) | np.isin(table["operation"].astype(str), ("send", "receive", "send_receive", "broadcast"))
    payload = np.where(on_links, stated / factor, stated)
    table["bytes"] = (
        pd.Series(np.rint(payload), index=table.index).astype("Int64").where(table["stated_bytes"].notna() & (told | ~on_links))
    )
    table["algorithm_bytes_per_s"] = np.where(known & (told | ~on_links), payload / np.maximum(time_s, 1e-12), np.nan)
    table["bus_bytes_per_s"] = np.where(
        known & (told | on_links), np.where(on_links, stated, stated * factor) / np.maximum(time_s, 1e-12), np.nan
    )
    first = ["instance", "step", "name", "operation", "group", "group_size", "num_seen", "bytes", "start_ns", "end_ns"]
    last = ["wait_ns", "transfer_ns", "algorithm_bytes_per_s", "bus_bytes_per_s", "basis"]
    return table[[*first, "latest_rank", "latest_start_ns", "late_ns", "spread_ns", *last]]
