"""Transfers: which receive takes what which send gives, where the members of their group are more than these two ranks.

A group of all stages of a pipeline holds sends and receives of several pairs of ranks, and few recordings state the pairs. They are
found by what identifies them, surest first: one number (equal names of one step, or the k-th of a group of two ranks), names that
differ in nothing but the word for the operation, and ends within TOGETHER_NS of each other, as of a receive that waited for its
send. A receive that came late did not wait: it lasts as long as its send, and between two ranks that are known to talk the order of
the receives is that of the sends. What none of these tells stays alone.
"""

from __future__ import annotations

import re

import numpy as np
import numpy.typing as npt
import pandas as pd

Ints = npt.NDArray[np.int64]
TOGETHER_NS = 5_000
"""A receive that waited for its send ends this soon after it."""
ALONE = -1
_WORDS = re.compile("send|receive|recv", re.IGNORECASE)


def partners(table: pd.DataFrame) -> Ints:
    """By row of `table` the position of the other end of its transfer; ALONE for all else, and where nothing tells it.

    The columns are `rank`, `step`, `members` (number of the group), `instance` (number of the operation), `name`, `operation`,
    `moment_ns` (start on the common clock, null if that is not known) and `duration_ns`.
    """
    found = np.full(len(table), ALONE, dtype=np.int64)
    places = np.flatnonzero(table["operation"].isin(("send", "receive")).to_numpy(dtype=bool))
    if not len(places):
        return found
    rows = table.iloc[places].assign(place=places)
    rows["sends"] = (rows["operation"] == "send").to_numpy(dtype=bool)
    for keys in (["instance"], ["step", "members", "plain"]):
        if "plain" in keys:
            rows = rows.assign(plain=_plain_names(rows["name"]))
        rows = _join(rows, _alone_in(rows, keys), found)
    rows = _join(rows, _near(rows, "end", ("members",)), found)
    _join(rows, _in_order(_near(rows, "duration_ns", ("members", "step")), table, found), found)
    return found


def _join(rows: pd.DataFrame, pairs: pd.DataFrame, found: Ints) -> pd.DataFrame:
    """Note pairs of places (`sent`, `taken`) in `found`; gives the rows that are left."""
    sent, taken = (pairs[name].to_numpy(dtype=np.int64) for name in ("sent", "taken"))
    found[sent], found[taken] = taken, sent
    left: pd.DataFrame = rows[found[rows["place"].to_numpy(dtype=np.int64)] == ALONE]
    return left


def _alone_in(rows: pd.DataFrame, keys: list[str]) -> pd.DataFrame:
    """The pairs of one send and one receive on two ranks that are the only ones with equal keys."""
    columns = [*keys, "place", "rank"]
    sends, takes = rows.loc[rows["sends"], columns], rows.loc[~rows["sends"], columns]
    sends, takes = (side[~side.duplicated(keys, keep=False)] for side in (sends, takes))
    both = sends.merge(takes, on=keys, suffixes=("", "_there"))
    both = both[both["rank"] != both["rank_there"]]
    return both.rename(columns={"place": "sent", "place_there": "taken"})


def _plain_names(names: pd.Series) -> npt.NDArray[np.object_]:
    """Names without the words for the operation."""
    coded = names.astype("category")
    plain = [_WORDS.sub("", str(name)) for name in coded.cat.categories.tolist()]
    return np.array([*plain, ""], dtype=object)[coded.cat.codes.to_numpy()]


def _near(rows: pd.DataFrame, by: str, alike: tuple[str, ...]) -> pd.DataFrame:
    """Receives with the send of their group on another rank that is nearest to them by end or by length, nearest first."""
    timed = rows[rows["moment_ns"].notna().to_numpy(dtype=bool) & rows["duration_ns"].notna().to_numpy(dtype=bool)]
    moments, lengths = timed["moment_ns"].to_numpy(dtype=np.int64), timed["duration_ns"].to_numpy(dtype=np.int64)
    timed = timed.assign(end=moments + lengths, moment=moments, duration_ns=lengths).sort_values(by, kind="stable")
    columns = [*alike, by, "place", "rank", "moment"]
    sends, takes = timed.loc[timed["sends"], columns], timed.loc[~timed["sends"], columns]
    sides = []
    for direction in ("forward", "backward"):
        side = pd.merge_asof(
            takes, sends.assign(there=sends[by]), on=by, by=list(alike), direction=direction, suffixes=("", "_there"),
            tolerance=TOGETHER_NS,
        )  # fmt: skip
        sides.append(side.dropna(subset=["place_there"]))
    near = pd.concat(sides, ignore_index=True)
    near = near[near["rank"] != near["rank_there"]].rename(columns={"place": "taken", "place_there": "sent"})
    near = near.assign(apart=(near[by] - near["there"]).abs()).sort_values(["apart", "taken"], kind="stable")
    return near.drop_duplicates("taken").drop_duplicates("sent")


def _in_order(pairs: pd.DataFrame, table: pd.DataFrame, found: Ints) -> pd.DataFrame:
    """Those pairs whose ranks are known to talk, whose send came first, and whose order is that of the transfers already found."""
    if pairs.empty:
        return pairs
    moments = table["moment_ns"].to_numpy(dtype=np.float64, na_value=np.nan)
    ranks, groups = table["rank"].to_numpy(dtype=np.int64), table["members"].to_numpy(dtype=np.int64)
    sent = np.flatnonzero((found != ALONE) & (table["operation"] == "send").to_numpy(dtype=bool))
    known = pd.DataFrame({"sent": sent, "taken": found[sent], "new": False})
    pairs = pairs[(pairs["moment"] > pairs["moment_there"]).to_numpy(dtype=bool)]
    both = pd.concat([known, pairs[["sent", "taken"]].astype("int64").assign(new=True)], ignore_index=True)
    sends, takes = both["sent"].to_numpy(dtype=np.int64), both["taken"].to_numpy(dtype=np.int64)
    both = both.assign(sender=ranks[sends], receiver=ranks[takes], group=groups[sends], left=moments[sends], came=moments[takes])
    link = ["group", "sender", "receiver"]
    both = both.sort_values([*link, "left"], kind="stable")
    talks = (~both["new"]).groupby([both[name] for name in link]).transform("any")
    old = both["came"].where(~both["new"])
    keys = [both[name] for name in link]
    before, after = old.groupby(keys).cummax().groupby(keys).ffill(), old[::-1].groupby(keys).cummin().groupby(keys).ffill()[::-1]
    orderly = ~(both["came"] < before) & ~(both["came"] > after)
    return both.loc[both["new"] & talks & orderly, ["sent", "taken"]]
