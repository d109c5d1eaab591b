"""Growth: what a step spends more of than in an earlier run of the same job, by the ledgers of both.

Kinds are coarser than causes, so that both recordings have them: computing, host (which launches late, blocks, stops), feed,
copying, moving data (transfer) and waiting for ranks; and communication where a recording does not tell those two apart.
"""

from __future__ import annotations

import numpy as np
import pandas as pd

from perfkit.explain.ledger import Ledger, causes

COMPUTING, HOST, FEED, COPY, TRANSFER, WAITING = "computing", "host", "feed", "copy", "transfer", "waiting"
COMMUNICATION = "communication"
KINDS = (COMPUTING, HOST, FEED, COPY, TRANSFER, WAITING, COMMUNICATION)
_ROOTS = {"work": COMPUTING, "host": HOST, "device": HOST, "feed": FEED, "copy": COPY, "transfer": TRANSFER, "waiting": WAITING}


def growth(now: Ledger, then: Ledger) -> pd.DataFrame:
    """One row a rank of both runs and kind: `rank`, `kind`, `then_ns`, `now_ns` (mean steps, float), `grown_ns`, `cause`.

    `cause` is the cause of the kind that grew most on the rank. Where either run does not tell transfer and waiting apart, both
    are communication.
    """
    together = _untold(now) or _untold(then)
    before, after = (_means(ledger, together) for ledger in (then, now))
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
    return bool(untold > 0.1 * rows["ns"].sum())


def _means(ledger: Ledger, together: bool) -> pd.Series:
    """The mean step by `rank`, `kind` and `cause`; what belongs to no kind is left out."""
    rows = ledger.entries
    kind = rows["cause"].str.split("/", n=1).str[0].map(_ROOTS)
    talking = (rows["part"] == "communication").to_numpy(dtype=bool)
    if together:
        kind = kind.mask(talking, COMMUNICATION)
    rows = rows.assign(kind=kind)
    steps = rows.groupby("rank")["step"].nunique()
    sums = rows.dropna(subset=["kind"]).groupby(["rank", "kind", "cause"])["ns"].sum()
    counts = steps.reindex(sums.index.get_level_values("rank")).to_numpy(dtype=np.float64)
    means: pd.Series = sums.astype("float64") / counts
    return means
