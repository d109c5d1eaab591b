"""Transfers: which receive takes what which send gives, where the members of their group are more than these two ranks.

A group of all stages of a pipeline holds sends and receives of several pairs of ranks, and few recordings state the pairs. They are
found by what identifies them, surest first: one number (equal names of one step, or the k-th of a group of two ranks), names that
differ in nothing but the word for the operation, and ends within TOGETHER_NS of each other, as of a receive that waited for its
send. What none of these tells stays alone.
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
    _join(rows, _ending_together(rows), found)
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
    plain = [_WORDS.sub("", str(name)) for name in coded.cat.categories]
    return np.array([*plain, ""], dtype=object)[coded.cat.codes.to_numpy()]


def _ending_together(rows: pd.DataFrame) -> pd.DataFrame:
    """Receives with the send of their group on another rank that ends nearest to them, the nearest pairs first."""
    timed = rows[rows["moment_ns"].notna().to_numpy(dtype=bool)]
    ends = timed["moment_ns"].to_numpy(dtype=np.int64) + timed["duration_ns"].to_numpy(dtype=np.int64)
    timed = timed.assign(end=ends).sort_values("end", kind="stable")
    sends = timed.loc[timed["sends"], ["members", "end", "place", "rank"]]
    takes = timed.loc[~timed["sends"], ["members", "end", "place", "rank"]]
    sides = []
    for direction in ("forward", "backward"):
        side = pd.merge_asof(
            takes, sends.assign(sent_end=sends["end"]), on="end", by="members", direction=direction, suffixes=("", "_there"),
            tolerance=TOGETHER_NS,
        )  # fmt: skip
        sides.append(side.dropna(subset=["place_there"]))
    near = pd.concat(sides, ignore_index=True)
    near = near[near["rank"] != near["rank_there"]].rename(columns={"place": "taken", "place_there": "sent"})
    near = near.assign(apart=(near["end"] - near["sent_end"]).abs()).sort_values(["apart", "taken"], kind="stable")
    return near.drop_duplicates("taken").drop_duplicates("sent")[["sent", "taken"]]
