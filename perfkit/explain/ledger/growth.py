"""Growth: what a step spends more of than in an earlier run of the same job, by the ledgers of both.

Kinds are coarser than causes, so that both recordings have them: computing, host (which launches late, blocks, stops), feed,
copying, moving data (transfer) and waiting for ranks; communication where a recording does not tell those two apart, and free where
it does not tell why the device of a rank has nothing to do: the hosts of some ranks only are read, and of each run others.
"""

from __future__ import annotations

import numpy as np
import pandas as pd

from perfkit.explain.ledger import Ledger, causes
from perfkit.explain.ledger._rank import LEAST_IDLE

COMPUTING, HOST, FEED, COPY, TRANSFER, WAITING = "computing", "host", "feed", "copy", "transfer", "waiting"
COMMUNICATION, FREE = "communication", "free"
KINDS = (COMPUTING, HOST, FEED, COPY, TRANSFER, WAITING, COMMUNICATION, FREE)
WORTH_NAMING = 0.1
"""Up to this share of communication or of free time may be unexplained for what it is to be told apart."""
_ROOTS = {"work": COMPUTING, "host": HOST, "device": HOST, "feed": FEED, "copy": COPY, "transfer": TRANSFER, "waiting": WAITING}


def growth(now: Ledger, then: Ledger) -> pd.DataFrame:
    """One row a rank of both runs and kind: `rank`, `kind`, `then_ns`, `now_ns` (mean steps, float), `grown_ns`, `cause`.

    `cause` is the cause of the kind that grew most on the rank. Where either run does not tell transfer and waiting apart, both
    are communication; of ranks of which either run does not tell why they are free, all of that is free.
    """
    together = _untold(now) or _untold(then)
    idle = _idle_untold(now) | _idle_untold(then)
    before, after = (_means(ledger, together, idle) for ledger in (then, now))
    ranks = sorted(set(before.index.get_level_values("rank")) & set(after.index.get_level_values("rank")))
    both = pd.DataFrame({"then_ns": before, "now_ns": after}).fillna(0.0)
    both = both[both.index.get_level_values("rank").isin(ranks)]
    both["grown_ns"] = both["now_ns"] - both["then_ns"]
    largest = both["grown_ns"].groupby(level=["rank", "kind"]).idxmax()
    table = both.groupby(level=["rank", "kind"]).sum()
    table["cause"] = [str(key[2]) for key in largest.reindex(table.index)]
    return table.reset_index()


def _untold(ledger: Ledger) -> bool:
    """Whether communication of which nothing says what it is takes a part of it worth naming."""
    rows = ledger.entries[(ledger.entries["part"] == "communication").to_numpy(dtype=bool)]
    untold = rows.loc[(rows["cause"] == causes.UNEXPLAINED).to_numpy(dtype=bool), "ns"].sum()
    return bool(untold > WORTH_NAMING * rows["ns"].sum())


def _idle_untold(ledger: Ledger) -> set[int]:
    """The ranks of whose free time nothing says why for a part worth naming, and long enough for its host to be read."""
    rows = ledger.entries
    free = (rows["part"] == "free").to_numpy(dtype=bool)
    untold = free & (rows["cause"] == causes.UNEXPLAINED).to_numpy(dtype=bool)
    sums = (
        rows.assign(free=rows["ns"].where(free, 0), unknown=rows["ns"].where(untold, 0))
        .groupby("rank")[["ns", "free", "unknown"]]
        .sum()
    )
    named = (sums["unknown"] > WORTH_NAMING * sums["free"]) & (sums["unknown"] > LEAST_IDLE * sums["ns"])
    return {int(str(rank)) for rank in sums.index[named.to_numpy(dtype=bool)]}


def _means(ledger: Ledger, together: bool, idle: set[int]) -> pd.Series:
    """The mean step by `rank`, `kind` and `cause`; what belongs to no kind is left out.

    Of the ranks in `idle` all free time is of one kind.
    """
    rows = ledger.entries
    kind = rows["cause"].str.split("/", n=1).str[0].map(_ROOTS)
    talking = (rows["part"] == "communication").to_numpy(dtype=bool)
    free = (rows["part"] == "free").to_numpy(dtype=bool) & rows["rank"].isin(list(idle)).to_numpy(dtype=bool)
    if together:
        kind = kind.mask(talking, COMMUNICATION)
    rows = rows.assign(kind=kind.mask(free, FREE), cause=rows["cause"].mask(free, causes.UNEXPLAINED))
    steps = rows.groupby("rank")["step"].nunique()
    sums = rows.dropna(subset=["kind"]).groupby(["rank", "kind", "cause"])["ns"].sum()
    counts = steps.reindex(sums.index.get_level_values("rank")).to_numpy(dtype=np.float64)
    means: pd.Series = sums.astype("float64") / counts
    return means
