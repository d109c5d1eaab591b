"""Replay: the recorded steps once more with some of their time removed, to see what the steps would win.

Every collective of a rank starts a fixed time after the one before it that ended last: what the rank does in between. A collective
ends a fixed time after its latest member has started. Time removed from a rank shortens what lies between its collectives, and all
else follows, but only as far as others let it. Without removal the replay gives the recorded times exactly.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pandas as pd

from perfkit.explain.diagnose._replay_order import NONE, order_of

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Replay:
    """The recorded collectives as a chain: rows are members in the order of `instance`, which is the order of ends.

    `before` is the row that a member follows (NONE: none), and `ready_ns` when what its rank does in between had ended. `queue` is
    a row that it also waits for, which ran beside the kernels (NONE: none), and `behind_ns` how long after its end it starts at the
    least. `after_ns` is what the operation takes after its latest start. A send waits for nobody and is an operation of its
    own; `source` is the row of the send that a receive needs (NONE for all else).
    """

    rank: Ints
    start_ns: Ints
    end_ns: Ints
    instance: Ints
    before: Ints
    ready_ns: Ints
    queue: Ints
    behind_ns: Ints
    after_ns: Ints
    source: Ints
    numbers: tuple[int, ...]

    def won_ns(self, removed: pd.DataFrame, faster_ns: Mapping[int, float] | None = None) -> float:
        """How much earlier the last rank ends if the `removed` time of ranks is gone and operations are `faster_ns`.

        `removed` has `rank`, `start_ns`, `duration_ns` (on the common clock, not overlapping on a rank) and `fraction`.
        """
        if not len(self.rank):
            return 0.0
        gone, queued_gone = self._gone_ns(removed)
        before_end = np.where(self.before == NONE, self.start_ns, self.end_ns[self.before])
        between = (self.ready_ns - before_end).astype(np.float64) - gone
        behind = np.maximum(self.behind_ns - queued_gone, 0.0)
        after = self.after_ns.astype(np.float64)
        if faster_ns:
            less = np.array([faster_ns.get(_number_of(own), 0.0) for own in self.numbers])
            after = np.maximum(after - less[self.instance], 0.0)
        ends = self._ends(between, behind, after)
        tail = self._last_rows()
        old, new = self.end_ns[tail], ends[tail]
        return float(old.max() - new.max())

    def _gone_ns(self, removed: pd.DataFrame) -> tuple[Floats, Floats]:
        """What is removed from the end of the row before until each row was ready, and from the end of its queue to its start."""
        gone, queued = np.zeros(len(self.rank)), np.zeros(len(self.rank))
        by_rank = {int(str(rank)): rows for rank, rows in removed.groupby("rank")} if len(removed) else {}
        for rank, rows in by_rank.items():
            mine = np.flatnonzero(self.rank == rank)
            ordered = rows.sort_values("start_ns")
            starts = ordered["start_ns"].to_numpy(dtype=np.int64)
            lengths = ordered["duration_ns"].to_numpy(dtype=np.int64)
            whole = np.concatenate([[0.0], np.cumsum(lengths * ordered["fraction"].to_numpy(dtype=np.float64))])
            share = ordered["fraction"].to_numpy(dtype=np.float64)

            def before(
                moments: Ints, starts: Ints = starts, lengths: Ints = lengths, whole: Floats = whole, share: Floats = share
            ) -> Floats:
                at = np.searchsorted(starts, moments, side="right") - 1
                inside = np.clip(moments - starts[at.clip(min=0)], 0, lengths[at.clip(min=0)]) * share[at.clip(min=0)]
                result: Floats = np.where(at >= 0, whole[at.clip(min=0)] + inside, 0.0)
                return result

            first = np.where(self.before[mine] == NONE, np.iinfo(np.int64).min, self.end_ns[self.before[mine]])
            gone[mine] = before(self.ready_ns[mine]) - before(first)
            tail = np.where(self.queue[mine] == NONE, self.start_ns[mine], self.end_ns[self.queue[mine]])
            queued[mine] = before(self.start_ns[mine]) - before(tail)
        return gone, queued

    def _ends(self, between: Floats, behind: Floats, after: Floats) -> Floats:
        count = len(self.rank)
        ends, begins = [0.0] * count, [0.0] * count
        follows, gaps, lasts = self.before.tolist(), between.tolist(), after.tolist()
        starts, sources = self.start_ns.tolist(), self.source.tolist()
        queues, distances = self.queue.tolist(), behind.tolist()
        bounds = [*np.flatnonzero(np.diff(self.instance, prepend=-1)).tolist(), count]
        for first, last in itertools.pairwise(bounds):
            latest = 0.0
            for row in range(first, last):
                begins[row] = (ends[follows[row]] if follows[row] != NONE else starts[row]) + gaps[row]
                if queues[row] != NONE:
                    begins[row] = max(begins[row], ends[queues[row]] + distances[row])
                latest = max(latest, begins[row])
                if sources[row] != NONE:
                    latest = max(latest, begins[sources[row]])
            end = latest + lasts[first]
            for row in range(first, last):
                ends[row] = end
        return np.array(ends)

    def _last_rows(self) -> Ints:
        order = np.lexsort((self.end_ns, self.rank))
        last = np.flatnonzero(np.diff(self.rank[order], append=-1))
        rows: Ints = order[last]
        return rows


def replay_of(members: pd.DataFrame, computing: pd.DataFrame) -> Replay:
    """The chain of the operations whose members all have a start on the common clock.

    `computing` are kernels (`rank`, `start_ns` on that clock, `duration_ns`); they tell what runs beside them.
    """
    rows = members[members["start_ns"].notna()]
    starts = rows["start_ns"].to_numpy(dtype=np.int64)
    table = pd.DataFrame(
        {
            "rank": rows["rank"].to_numpy(dtype=np.int64),
            "start": starts,
            "end": starts + rows["duration_ns"].to_numpy(dtype=np.int64),
            "number": rows["instance"].to_numpy(dtype=np.int64),
            "send": (rows["operation"].astype(str) == "send").to_numpy(),
            "group": pd.factorize(rows["group"].astype("object").fillna(""))[0],
            "step": rows["step"].fillna(-1).to_numpy(dtype=np.int64),
        }
    )
    # A send comes when it starts, all else when it ends: so every row comes after the rows that it follows.
    table["own"] = table["number"].where(~table["send"], -1 - table["number"])
    grouped = table.groupby("own")
    table["finish"] = grouped["end"].transform("max").where(~table["send"], table["start"])
    table = table.sort_values(["finish", "send", "own", "rank"], kind="stable", ignore_index=True)
    sends = table[table["send"]].drop_duplicates("number")
    source = table["number"].map(pd.Series(sends.index, index=sends["number"])).where(~table["send"]).fillna(NONE).astype("int64")
    latest = table.groupby("own")["start"].transform("max")
    latest = np.maximum(latest, table["start"].to_numpy()[source.to_numpy()] * (source != NONE))
    after = table.groupby("own")["end"].transform("max") - latest
    order = order_of(table, computing)
    return Replay(
        rank=table["rank"].to_numpy(),
        start_ns=table["start"].to_numpy(),
        end_ns=table["end"].to_numpy(),
        instance=pd.factorize(table["own"])[0].astype(np.int64),
        before=order.before,
        ready_ns=order.ready_ns,
        queue=order.queue,
        behind_ns=order.behind_ns,
        after_ns=after.clip(lower=0).to_numpy(dtype=np.int64),
        source=np.asarray(source, dtype=np.int64),
        numbers=tuple(int(number) for number in pd.unique(table["own"])),
    )


def _number_of(own: int) -> int:
    """The number of the operation that a send (negative) is one end of, or of the operation itself."""
    return own if own >= 0 else -1 - own
