"""Links: what went over every link between two ranks, and which link or rank slows the others.

Links are compared with their like: those of one transport, one kind of operation and as many peers in the group. A link's
slowness is the ratio of its time a byte to the median of its like. It is split by medians over rows and columns of the matrix
(Tukey's median polish): what all links from a rank share belongs to the sender, what all links to a rank share to the receiver,
and the rest to the link itself, so that one slow link never makes its ends look slow, nor a slow rank all of its links. A rank
with fewer than `MIN_LINKS` like links in a direction cannot be told from them, and its share is null.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable

import numpy as np
import pandas as pd

from perfkit.core import robust
from perfkit.core.run import Run
from perfkit.core.units import MIB, NS_PER_S

MIN_LINKS = 3
MIN_BYTES = MIB
"""Links that moved less are ruled by latency, not by bandwidth; they are listed but not judged."""
LOCAL = "LOCAL"
_ROUNDS = 4
_FLOOR = 0.01
_ENDS = ["source_rank", "target_rank"]
_TOTAL, _GRAND_TOTAL = "total", "total op info"
_GROUP = re.compile(r"@.*$")
_SAMPLE = re.compile(r"-(?:total|top|middle|bottom)\d*$")


def links(run: Run, *, steps: Iterable[int] | None = None, local: bool = False) -> pd.DataFrame:
    """One row a link and kind of operation, summed over steps: the matrix of the run.

    Columns: `source_rank`, `target_rank`, `transport`, `operation`, `peers` (links that the sender has in that group), `bytes`,
    `transit_ns`, `bytes_per_s` (null where the time is not known). Totals of the vendor are used where it wrote them, single
    operations otherwise, never both. Copies of a rank to itself are left out unless `local`. No rows if no links were recorded.
    """
    rows = run.frame("links", steps=steps)
    rows = rows.assign(
        kind=_each(rows["operation"], _kind).astype(str),
        group=_each(rows["operation"], lambda name: name.partition("@")[2]),
        total=_each(rows["operation"], lambda name: _TOTAL in name.lower()).astype(bool),
        transport=rows["transport"].astype("object").fillna("unknown"),
    )
    rows = rows[(rows["kind"] != _GRAND_TOTAL) | ~_has_others(rows)]
    key = ["rank", "step", "kind", "group"]
    has_total = rows.groupby(key, dropna=False)["total"].transform("any").astype(bool)
    rows = rows[rows["total"] | ~has_total]
    if not local:
        rows = rows[(rows["source_rank"] != rows["target_rank"]) & (rows["transport"] != LOCAL)]
    degree = rows.groupby(["source_rank", "kind", "group"])["target_rank"].transform("nunique")
    grouped = rows.assign(peers=degree).groupby([*_ENDS, "transport", "kind", "peers"])[["bytes", "transit_ns"]]
    table = grouped.sum(min_count=1).reset_index().rename(columns={"kind": "operation"})
    timed = (table["transit_ns"] > 0).fillna(False) & table["bytes"].notna()
    rate = table["bytes"].astype("Float64") * NS_PER_S / table["transit_ns"].where(timed).astype("Float64")
    return table.assign(bytes_per_s=rate.astype("float64"))


def slow_links(run: Run, *, steps: Iterable[int] | None = None) -> pd.DataFrame:
    """Every link against its like, the one that costs most first.

    The columns of `links`, and `num_like` (links compared), `typical_bytes_per_s`, `slowness` (1 is typical, 2 takes twice the
    time), of which `sender`, `receiver` (null: too few links to tell) and `link` are factors whose product it is, `z` (robust,
    over the like), `excess_ns` (time above typical). Links without a time or with less than MIN_BYTES are left out.
    """
    table = links(run, steps=steps)
    table = table[table["bytes_per_s"].notna() & (table["bytes"] >= MIN_BYTES).fillna(False)].reset_index(drop=True)
    judged = [_judged(like) for _, like in table.groupby(["transport", "operation", "peers"], sort=True)]
    if not judged:
        extra = ("num_like", "typical_bytes_per_s", "slowness", "sender", "receiver", "link", "z", "excess_ns")
        return table.assign(**dict.fromkeys(extra, pd.Series(dtype="float64")))
    return pd.concat(judged).sort_values("excess_ns", ascending=False, kind="stable", ignore_index=True)


def slow_ends(run: Run, *, steps: Iterable[int] | None = None) -> pd.DataFrame:
    """Ranks whose links share a slowness: one row a rank, direction and kind of link, the slowest first.

    `rank`, `direction` (sends or receives), `transport`, `operation`, `num_links`, `slowness` (the factor that they share).
    """
    table = slow_links(run, steps=steps)
    sides = []
    for end, column, direction in (("source_rank", "sender", "sends"), ("target_rank", "receiver", "receives")):
        side = table[table[column].notna()].groupby([end, "transport", "operation"])[column]
        frame = side.agg(num_links="size", slowness="max").reset_index().rename(columns={end: "rank"})
        sides.append(frame.assign(direction=direction))
    columns = ["rank", "direction", "transport", "operation", "num_links", "slowness"]
    return pd.concat(sides)[columns].sort_values("slowness", ascending=False, kind="stable", ignore_index=True)


def _judged(like: pd.DataFrame) -> pd.DataFrame:
    """Links of one kind with their slowness and what of it is the sender's, the receiver's and their own."""
    rate = like["bytes_per_s"].to_numpy(dtype=np.float64)
    typical = float(np.median(rate))
    slowness = np.log(typical / rate)
    senders, receivers = like["source_rank"].to_numpy(dtype=np.int64), like["target_rank"].to_numpy(dtype=np.int64)
    rest = slowness.copy()
    by_sender, by_receiver = np.zeros(len(rest)), np.zeros(len(rest))
    for _ in range(_ROUNDS):
        for ranks, share in ((senders, by_sender), (receivers, by_receiver)):
            common = _shared(ranks, rest)
            np.add(share, common, out=share)
            rest = rest - common
    spread = max(robust.sigma(rest), _FLOOR)
    transit = like["transit_ns"].to_numpy(dtype=np.float64)
    excess = transit * (1.0 - np.exp(-slowness))
    return like.assign(
        num_like=len(like),
        typical_bytes_per_s=typical,
        slowness=np.exp(slowness),
        sender=np.where(_told(senders), np.exp(by_sender), np.nan),
        receiver=np.where(_told(receivers), np.exp(by_receiver), np.nan),
        link=np.exp(rest),
        z=(slowness - np.median(slowness)) / spread,
        excess_ns=np.rint(excess).astype(np.int64),
    )


def _shared(ranks: np.ndarray, values: np.ndarray) -> np.ndarray:
    """The median over the links of each rank, 0 for a rank with too few of them to tell."""
    frame = pd.DataFrame({"rank": ranks, "value": values})
    grouped = frame.groupby("rank")["value"]
    shared: np.ndarray = grouped.transform("median").where(grouped.transform("size") >= MIN_LINKS, 0.0).to_numpy(dtype=np.float64)
    return shared


def _told(ranks: np.ndarray) -> np.ndarray:
    counts: np.ndarray = pd.Series(ranks).map(pd.Series(ranks).value_counts()).to_numpy(dtype=np.int64)
    return counts >= MIN_LINKS


def _each(names: pd.Series, change: Callable[[str], object]) -> pd.Series:
    """`change` of every name, called once a distinct one, because thousands of links carry few names."""
    named = pd.Categorical(names)
    changed = np.array([*map(change, map(str, named.categories.tolist())), change(str(None))], dtype="object")
    return pd.Series(changed[named.codes], index=names.index, dtype="object")


def _has_others(rows: pd.DataFrame) -> pd.Series:
    """Whether the rank and step of a row also has rows of single kinds, which the grand total repeats."""
    single = (rows["kind"] != _GRAND_TOTAL).groupby([rows["rank"], rows["step"].fillna(-1)])
    return single.transform("any").astype(bool)


def _kind(operation: str) -> str:
    """The kind of "allreduce-total@1044" or "hcom_allReduce__586_0_1@1752": what is left without numbers and groups."""
    name = _SAMPLE.sub("", _GROUP.sub("", operation))
    return name.removeprefix("hcom_").partition("__")[0].lower() or "unknown"
