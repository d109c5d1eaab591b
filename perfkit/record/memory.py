"""Memory: what is allocated at the peak, who owns it, and what is held longer than it is used.

Works on rows of the table `memory_blocks` of one rank. A block is alive from its start up to, but not including, its end; releases
come before allocations of the same moment. Blocks without start and end lie inside another block and are left out. Moments are ns
or, for a memory tracker, events of the allocator: those order, but do not time.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pandas as pd

from perfkit.core.errors import InputError, NotMeasuredError

WEIGHT = "Weight"
TRACKER = "run the job with MS_ALLOC_CONF=memory_tracker:True; it writes memory_block.csv for every rank"

Ints = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Peak:
    """The first moment at which most bytes are alive, and the rows of the blocks alive then."""

    num_bytes: int
    moment: int
    blocks: pd.DataFrame


@dataclass(frozen=True, kw_only=True, slots=True)
class Held:
    """A block that outlives its last use: `freed` is null if it was never released, `waste` is its bytes times `held`."""

    name: str | None
    address: str | None
    num_bytes: int
    last_use: int
    freed: int | None
    held: int

    @property
    def waste(self) -> int:
        """Bytes times moments held after the last use."""
        return self.num_bytes * self.held


@dataclass(frozen=True, kw_only=True, slots=True)
class Pool:
    """A pool: the peak of its blocks, and the peak that the allocator states, which contains the gaps between blocks."""

    pool: str
    live_peak_bytes: int
    reported_peak_bytes: int | None

    @property
    def fragmentation_bytes(self) -> int | None:
        """Memory in gaps at the peak; None if the allocator does not state its peak."""
        return None if self.reported_peak_bytes is None else self.reported_peak_bytes - self.live_peak_bytes


def live_peak(blocks: pd.DataFrame) -> Peak:
    """The peak of what is allocated. Raises NotMeasuredError if no block has a start or an end."""
    rows = _of_one_rank(blocks)
    rows = rows[~_inside(rows)]
    starts = rows["start"].fillna(_first_moment(rows)).to_numpy(dtype=np.int64)
    ends = rows["end"].fillna(_last_moment(rows) + 1).to_numpy(dtype=np.int64)
    return _peak(rows, starts, ends)


def use_peak(blocks: pd.DataFrame) -> Peak:
    """The peak if every used block lived from the task that made it up to its last use, that one included.

    The difference to the live peak is memory held after its last use. Raises NotMeasuredError if no use was recorded.
    """
    rows = _of_one_rank(blocks)
    rows = rows[~_inside(rows) & rows["last_use"].notna()]
    if rows.empty:
        raise NotMeasuredError("which task used a block last", how_to_collect=TRACKER)
    starts = rows["producer"].fillna(rows["start"]).fillna(_first_moment(rows)).to_numpy(dtype=np.int64)
    return _peak(rows, starts, rows["last_use"].to_numpy(dtype=np.int64) + 1)


def bytes_at_peak(peak: Peak, by: str = "kind") -> dict[str, int]:
    """Bytes alive at the peak by "kind", "owner", "name", "pool" or "place", the largest first; "" where it is not recorded."""
    if by not in ("kind", "owner", "name", "pool", "place"):
        raise InputError("bytes at the peak", [f"{by!r} is none of kind, owner, name, pool, place"])
    names = peak.blocks[by].astype("object").where(peak.blocks[by].notna(), "")
    sums = peak.blocks["bytes"].groupby(names).sum().sort_values(ascending=False, kind="stable")
    return {str(name): int(total) for name, total in sums.items()}


def held_after_use(blocks: pd.DataFrame, limit: int | None = 5) -> tuple[Held, ...]:
    """Blocks held after their last use, those that waste most bytes times moments first, ties in the order of their addresses.

    Weights are left out. A block that nobody used counts from the task that made it. One that was never released counts up to one
    moment after the last. Raises NotMeasuredError if no use was recorded.
    """
    rows = _of_one_rank(blocks)
    rows = rows[~_inside(rows)]
    if not rows["num_uses"].notna().any() and not rows["last_use"].notna().any():
        raise NotMeasuredError("which task used a block last", how_to_collect=TRACKER)
    stop = _last_moment(rows) + 1
    last_use = rows[["last_use", "producer"]].max(axis=1)
    found = rows.assign(used=last_use.astype("Int64"), until=rows["end"].fillna(stop))
    found = found[(found["kind"] != WEIGHT).fillna(True).astype(bool) & found["used"].notna()]
    held = [
        Held(
            name=None if pd.isna(row["name"]) else str(row["name"]),
            address=None if pd.isna(row["address"]) else str(row["address"]),
            num_bytes=int(row["bytes"]),
            last_use=int(row["used"]),
            freed=None if pd.isna(row["end"]) else int(row["end"]),
            held=int(row["until"]) - int(row["used"]),
        )
        for row in found[(found["until"] > found["used"]).astype(bool)].to_dict("records")
    ]
    held.sort(key=lambda block: (-block.waste, block.address or ""))
    return tuple(held[:limit])


def pools(blocks: pd.DataFrame) -> tuple[Pool, ...]:
    """Every pool with the peak of its blocks and the peak that the allocator states, largest first."""
    rows = _of_one_rank(blocks)
    rows = rows[~_inside(rows)]
    names = rows["pool"].astype("object").where(rows["pool"].notna(), "")
    found = []
    for name in names.unique():
        of_pool = rows[names == name]
        stated = of_pool["pool_peak_bytes"].max()
        found.append(
            Pool(
                pool=str(name),
                live_peak_bytes=live_peak(of_pool).num_bytes,
                reported_peak_bytes=None if pd.isna(stated) else int(stated),
            )
        )
    return tuple(sorted(found, key=lambda pool: -pool.live_peak_bytes))


def compare(before: pd.DataFrame, after: pd.DataFrame) -> pd.DataFrame:
    """Blocks of two recordings matched by name, owner, size and order, with `change` in bytes: null where both have the block.

    Columns `name`, `owner`, `bytes`, `ordinal` and `change`: + bytes for a block that only `after` has, - bytes for one that only
    `before` has, 0 for one that both have.
    """
    key = ["name", "owner", "bytes", "ordinal"]
    left, right = (_numbered(_of_one_rank(blocks)) for blocks in (before, after))
    both = left.merge(right, on=key, how="outer", indicator="side")
    sign = both["side"].map({"left_only": -1, "right_only": 1, "both": 0}).astype("int64")
    return both.assign(change=both["bytes"].astype("int64") * sign)[[*key, "change"]]


def _numbered(rows: pd.DataFrame) -> pd.DataFrame:
    named = rows[["name", "owner", "bytes"]].astype({"name": "object", "owner": "object"})
    named[["name", "owner"]] = named[["name", "owner"]].where(named[["name", "owner"]].notna(), "")
    return named.assign(ordinal=named.groupby(["name", "owner", "bytes"]).cumcount())


def _of_one_rank(blocks: pd.DataFrame) -> pd.DataFrame:
    problems = [
        f"blocks of {count} different {column}s; choose one, for example run.frame('memory_blocks', ranks=[0])"
        for column in ("rank", "clock")
        if (count := blocks[column].nunique()) > 1
    ]
    if problems:
        raise InputError("memory blocks", problems)
    return blocks


def _inside(rows: pd.DataFrame) -> pd.Series:
    """Blocks inside another one: they take no memory of their own."""
    return rows["start"].isna() & rows["end"].isna()


def _first_moment(rows: pd.DataFrame) -> int:
    return min((int(rows[name].min()) for name in ("start", "producer", "end") if rows[name].notna().any()), default=0)


def _last_moment(rows: pd.DataFrame) -> int:
    named = ("start", "end", "producer", "last_use")
    return max((int(rows[name].max()) for name in named if rows[name].notna().any()), default=0)


def _peak(rows: pd.DataFrame, starts: Ints, ends: Ints) -> Peak:
    if not len(rows):
        raise NotMeasuredError("the peak of the memory blocks", how_to_collect=TRACKER)
    lasting = starts < ends
    rows, starts, ends = rows[lasting], starts[lasting], ends[lasting]
    sizes = rows["bytes"].to_numpy(dtype=np.int64)
    moments = np.concatenate([ends, starts])
    order = np.argsort(moments, kind="stable")
    totals = np.cumsum(np.concatenate([-sizes, sizes])[order])
    at = int(totals.argmax()) if len(totals) else 0
    moment = int(moments[order][at]) if len(totals) else 0
    alive = (starts <= moment) & (moment < ends)
    return Peak(int(totals[at]) if len(totals) else 0, moment, rows[alive])
