"""Meetings: which rows of `collectives` are one operation, and how each of its members spent its time in it.

The members of an operation are matched by step, group and name, the k-th with the k-th where a name repeats; sends meet the
receives of the other rank of their pair (`perfkit.record.events.transfers`). On the common clock of the run the operation cannot
move data before its latest member has arrived, so of every member's duration the time before that moment is waiting and the rest is
transfer. They sum to the duration exactly. `basis` says how the two were told apart:

- "arrival": all members were read and their clocks are known.
- "recorded": from the vendor's own wait and transit times, and from the tasks of the operation where they are on record
  (`perfkit.record.events.notified`); a rest that is neither (`other_ns`) may remain.
- "partial": only some members were read, so a rank that was not may have come even later: waiting is a lower bound.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np
import pandas as pd

from perfkit.core import clock, placement
from perfkit.core.run import Run
from perfkit.record.events import notified, transfers

_KEY = ["step", "members", "match"]
_TURNED = {"send": 0, "receive": 0}


def members(
    run: Run,
    clocks: Mapping[int, clock.Clock],
    *,
    ranks: Iterable[int] | None = None,
    steps: Iterable[int] | None = None,
    tasks: bool = True,
) -> pd.DataFrame:
    """One row a rank and operation: the operation's number `instance`, and how the rank spent its time in it.

    Columns: `instance`, `rank`, `step`, `name`, `operation`, `group`, `group_size`, `num_seen` (members read), `start_ns` (common
    clock if `basis` is not "recorded"), `duration_ns`, `bytes`, `wait_ns`, `transfer_ns`, `other_ns` (neither, 0 unless
    recorded), `late_ns` (behind the first member), `waits_for` (the rank that it waited for longest, where its tasks say so),
    `basis`. Null where nothing says it. `wait + transfer + other = duration`. Without `tasks` those of operations are not asked.
    """
    rows = run.frame("collectives", ranks=ranks, steps=steps)
    told = placement.told_apart(rows, run)
    table = _matched(told.assign(moment_ns=clock.aligned(told, clocks)["start_ns"])).reset_index(drop=True)
    common = table["moment_ns"]
    _arrivals(table)
    _split(table)
    table["waits_for"] = pd.Series(pd.NA, index=table.index, dtype="Int64")
    if tasks and run.has("waits"):
        notified.look_up(table, run)
    names = ["instance", "rank", "step", "name", "operation", "group", "group_size", "num_seen", "start_ns", "duration_ns"]
    # A rank alone, or one whose clock shares no collective with others, still tells its own times.
    table["start_ns"] = common.fillna(table["start_ns"])
    return table[
        [*names, "bytes", "transit_ns", "wait_ns", "transfer_ns", "other_ns", "late_ns", "waits_for", "basis"]
    ].sort_values(["instance", "rank"], ignore_index=True)


def arrivals(rows: pd.DataFrame) -> pd.DataFrame:
    """Who came last, one row an operation (the index) of rows of `members`.

    `latest_rank` (null unless the order is known and several came, or their tasks all wait for one rank), `latest_start_ns`,
    `late_ns` (behind the second latest: what only that rank costs), `spread_ns` (behind the first); null where the order of arrival
    is not known.
    """
    ordered = rows.sort_values(["instance", "start_ns", "rank"], kind="stable")
    last = ordered.drop_duplicates("instance", keep="last").set_index("instance")
    second = ordered[ordered.duplicated("instance", keep="last")].drop_duplicates("instance", keep="last").set_index("instance")
    told = ordered.groupby("instance")[["num_seen", "basis"]].first()
    timed = told["basis"].isin(("arrival", "partial")).astype(bool)
    whom = rows.groupby("instance")["waits_for"]
    named = whom.first().where(whom.nunique() == 1)
    return pd.DataFrame(
        {
            "latest_rank": last["rank"].astype("Int64").where(timed & (told["num_seen"] > 1)).fillna(named),
            "latest_start_ns": last["start_ns"].where(timed),
            "late_ns": (last["start_ns"] - second["start_ns"]).reindex(told.index).where(timed),
            "spread_ns": rows.groupby("instance")["late_ns"].max(),
        }
    )


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
    return told.drop(columns=["match", "occurrence"])


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
