"""Collectives: each operation once, over all ranks that took part: how long data moved, who waited, and for whom.

The members of an operation are matched by step, group and name, the k-th with the k-th where a name repeats; sends meet the
receives of the other rank of their pair (`perfkit.explain.transfers`). On the common clock of the run the operation cannot move
data before its latest member has arrived, so of every member's duration the time before that moment is waiting and the rest is
transfer. They sum to the duration exactly. `basis` says how the two were told apart:

- "arrival": all members were read and their clocks are known.
- "recorded": from the vendor's own wait and transit times; a rest that is neither (`other_ns`) remains.
- "partial": only some members were read, so a rank that was not may have come even later: waiting is a lower bound.

Bandwidths follow the definitions of nccl-tests: algorithmic = payload / time, bus = algorithmic x 2(n-1)/n for an all-reduce,
(n-1)/n for all-gather, reduce-scatter and all-to-all, 1 for the others. Where the vendor states the time in which data moved
(`transit_ns`), the bytes that it states are those that crossed links, i.e. the bus side; elsewhere they are the payload.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np
import pandas as pd

from perfkit.core import clock, placement
from perfkit.core.run import Run
from perfkit.core.units import NS_PER_S
from perfkit.explain import transfers

_KEY = ["step", "members", "match"]
_TURNED = {"send": 0, "receive": 0}
_GATHERING = ("all_gather", "reduce_scatter", "all_to_all")


def bus_factor(operation: str, size: int) -> float:
    """What the bandwidth of the links is of the algorithmic one, for an operation among `size` ranks (nccl-tests)."""
    if size < 2:
        return 1.0
    if operation == "all_reduce":
        return 2.0 * (size - 1) / size
    return (size - 1) / size if operation in _GATHERING else 1.0


def members(
    run: Run,
    *,
    ranks: Iterable[int] | None = None,
    steps: Iterable[int] | None = None,
    clocks: Mapping[int, clock.Clock] | None = None,
) -> pd.DataFrame:
    """One row a rank and operation: the operation's number `instance`, and how the rank spent its time in it.

    Columns: `instance`, `rank`, `step`, `name`, `operation`, `group`, `group_size`, `num_seen` (members read), `start_ns` (common
    clock if `basis` is not "recorded"), `duration_ns`, `bytes`, `wait_ns`, `transfer_ns`, `other_ns` (neither, 0 unless
    recorded), `late_ns` (behind the first member), `basis`. Null where nothing says it. `wait + transfer + other = duration`.
    """
    rows = run.frame("collectives", ranks=ranks, steps=steps)
    known = clock.estimate(run) if clocks is None else clocks
    told = placement.told_apart(rows, run)
    table = _matched(told.assign(moment_ns=clock.aligned(told, known)["start_ns"])).reset_index(drop=True)
    common = table["moment_ns"]
    _arrivals(table)
    _split(table)
    names = ["instance", "rank", "step", "name", "operation", "group", "group_size", "num_seen", "start_ns", "duration_ns"]
    # A rank alone, or one whose clock shares no collective with others, still tells its own times.
    table["start_ns"] = common.fillna(table["start_ns"])
    return table[[*names, "bytes", "transit_ns", "wait_ns", "transfer_ns", "other_ns", "late_ns", "basis"]].sort_values(
        ["instance", "rank"], ignore_index=True
    )


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
    return summed(members(run, ranks=ranks, steps=steps, clocks=clocks))


def summed(rows: pd.DataFrame) -> pd.DataFrame:
    """The rows of `members` as those of `collectives`."""
    ordered = rows.assign(own_start=rows["start_ns"]).sort_values(["instance", "start_ns", "rank"], kind="stable")
    grouped = ordered.groupby("instance", sort=True)
    first = grouped[["step", "name", "operation", "group", "group_size", "num_seen", "basis"]].first()
    last = ordered.drop_duplicates("instance", keep="last").set_index("instance")
    second = ordered[ordered.duplicated("instance", keep="last")].drop_duplicates("instance", keep="last").set_index("instance")
    timed = first["basis"].isin(("arrival", "partial")).astype(bool)
    ends = (ordered["start_ns"] + ordered["duration_ns"]).groupby(ordered["instance"]).max()
    table = first.assign(
        start_ns=grouped["start_ns"].min(),
        end_ns=ends,
        latest_rank=last["rank"].astype("Int64").where(timed & (first["num_seen"] > 1)),
        latest_start_ns=last["start_ns"].where(timed),
        late_ns=(last["start_ns"] - second["start_ns"]).reindex(first.index).where(timed),
        spread_ns=grouped["late_ns"].max(),
        wait_ns=grouped["wait_ns"].sum(min_count=1),
        transfer_ns=last["duration_ns"].astype("Int64").where(timed, _middle(ordered, "transfer_ns")),
        stated_bytes=grouped["bytes"].max(),
        recorded=grouped["transit_ns"].count() > 0,
    )
    return _with_bandwidth(table.reset_index())


def waiting(rows: pd.DataFrame) -> pd.DataFrame:
    """Who waits and who is waited for, from rows of `members`: one row a rank, the rank that costs most first.

    `wait_ns` is its own waiting, `caused_ns` what its peers waited between the second latest arrival and its own, summed over the
    operations that it reached last, `times_last` their number, `operations` those with a known order.
    """
    table = summed(rows)
    known = table[table["latest_rank"].notna() & (table["basis"] == "arrival")]
    caused = (known["late_ns"] * (known["num_seen"] - 1)).groupby(known["latest_rank"]).sum()
    last = known.groupby("latest_rank").size()
    own = rows.groupby("rank")["wait_ns"].sum(min_count=1)
    seen = rows[rows["basis"] == "arrival"].groupby("rank").size()
    ranks = pd.Index(sorted(int(rank) for rank in rows["rank"].unique()), name="rank")
    table = pd.DataFrame(
        {
            "wait_ns": own.reindex(ranks).astype("Int64"),
            "caused_ns": caused.reindex(ranks, fill_value=0).astype("int64"),
            "times_last": last.reindex(ranks, fill_value=0).astype("int64"),
            "operations": seen.reindex(ranks, fill_value=0).astype("int64"),
        }
    )
    return table.sort_values("caused_ns", ascending=False, kind="stable").reset_index()


def _matched(rows: pd.DataFrame) -> pd.DataFrame:
    """The rows with the number of the operation (`instance`) that they are part of, and how many were seen of it.

    `partner` is the position of the other end of a transfer, transfers.ALONE for all else.
    """
    pair = (rows["group_size"].fillna(0) == 2) & rows["operation"].isin(_TURNED)
    table = rows.assign(
        match=pd.factorize(rows["name"])[0],
        step=rows["step"].fillna(-1).astype("int64"),
        members=rows["members"].astype("int64"),
    )
    _match_pairs(table, pair.to_numpy(dtype=bool))
    table = table.sort_values(["rank", "start_ns"], kind="stable")
    table["occurrence"] = table.groupby(["rank", *_KEY]).cumcount()
    grouped = table.groupby([*_KEY, "occurrence"])
    seen = grouped["rank"].transform("size")
    # More ranks than the group has: several groups share the name, and which rank belongs to which is not known.
    mixed = (seen > table["group_size"].fillna(seen)).to_numpy(dtype=bool)
    instance = grouped.ngroup().to_numpy(dtype=np.int64).copy()
    instance[mixed] = instance.max(initial=0) + 1 + np.arange(mixed.sum())
    partner = transfers.partners(table.assign(instance=instance))
    place = np.arange(len(table))
    paired, talking = partner != transfers.ALONE, table["operation"].isin(_TURNED).to_numpy(dtype=bool)
    instance = np.where(talking, instance.max(initial=0) + 1 + np.where(paired, np.minimum(place, partner), place), instance)
    num_seen = np.where(talking, np.where(paired, 2, 1), np.where(mixed, 1, seen))
    first = table.assign(instance=instance).groupby("instance")["start_ns"].transform("min")
    order = pd.DataFrame({"step": table["step"], "start": first, "instance": instance}).sort_values(["step", "start", "instance"])
    distinct = order["instance"].unique()
    number = np.empty(len(distinct) and int(distinct.max()) + 1, dtype=np.int64)
    number[distinct] = np.arange(len(distinct))
    step = table["step"].astype("Int64")
    told = table.assign(instance=number[instance], num_seen=num_seen, partner=partner, step=step.where(step != -1))
    return told.drop(columns=["match", "members", "occurrence"])


def _match_pairs(table: pd.DataFrame, pair: np.ndarray) -> None:
    """Give the k-th send of a rank and the k-th receive of the other one, and the other way round, one number to match by."""
    rows = table[pair].sort_values(["rank", "start_ns"], kind="stable")
    lower = rows.groupby("members")["rank"].transform("min") == rows["rank"]
    # Towards the higher rank: sends of the lower one and receives of the higher one.
    upward = (rows["operation"] == "send") == lower
    number = rows.groupby(["rank", "members", "step", upward.rename("upward")]).cumcount()
    names = table["match"].max() + 1 if len(table) else 0
    table.loc[rows.index, "match"] = names + 2 * number + upward.astype("int64")


def _arrivals(table: pd.DataFrame) -> None:
    """Add when the latest member came (`latest_ns`), how far behind the first each came, and what is known of the order."""
    grouped = table.groupby("instance")
    placed = grouped["moment_ns"].transform("count")
    # A transfer has two ends, however many ranks its group has.
    paired = (table["partner"] != transfers.ALONE).to_numpy(dtype=bool)
    complete = ((table["num_seen"] == table["group_size"]).fillna(False) | paired) & (placed == table["num_seen"])
    some = (placed > 1) & ~complete
    table["latest_ns"] = grouped["moment_ns"].transform("max").astype("Int64")
    # A send that was over before its receive began has not waited for it.
    over = paired & (table["operation"] == "send") & (table["moment_ns"] + table["duration_ns"] <= table["latest_ns"]).fillna(False)
    table["latest_ns"] = table["latest_ns"].mask(over, table["moment_ns"])
    table["late_ns"] = (table["moment_ns"] - grouped["moment_ns"].transform("min")).astype("Int64").where(complete | some)
    table["basis"] = pd.Series(np.select([complete, some], ["arrival", "partial"], "none"), index=table.index, dtype="object")


def _split(table: pd.DataFrame) -> None:
    """Split every duration into waiting, transfer and neither."""
    stated = table["transit_ns"].notna() | table["wait_ns"].notna()
    recorded = stated & (table["basis"] != "arrival")
    duration = table["duration_ns"].astype("Int64")
    zero = pd.Series(0, index=table.index, dtype="Int64")
    ordered = table["basis"].isin(("arrival", "partial")) & ~recorded & table["moment_ns"].notna()
    late = (table["latest_ns"] - table["moment_ns"]).where(ordered)
    wait = _at_most(late, duration)
    told = _at_most(table["wait_ns"], duration)
    moved = _at_most(table["transit_ns"], duration - told.fillna(0))
    table["wait_ns"] = wait.where(~recorded, told)
    table["transfer_ns"] = (duration - wait).where(~recorded, moved)
    rest = duration - table["wait_ns"].fillna(0) - table["transfer_ns"].fillna(0)
    table["other_ns"] = rest.where(recorded, zero.where(ordered))
    basis = table["basis"].where(ordered, None)
    table["basis"] = pd.Categorical(basis.mask(recorded, "recorded"), categories=pd.Index(["arrival", "partial", "recorded"]))


def _at_most(values: pd.Series, limit: pd.Series) -> pd.Series:
    """The smaller of both; null stays null."""
    return values.mask((values > limit).fillna(False), limit)


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
