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

from perfkit.trace.overlap import Intervals, union

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
NONE = -1
HIDDEN_SHARE = 0.2
AT_ONCE_NS = 20_000
"""What starts this soon after the one before it in its queue has waited for it."""


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
            less = np.array([faster_ns.get(number, 0.0) for number in self.numbers])
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
    before, ready, queue, behind = _before(table, computing)
    return Replay(
        rank=table["rank"].to_numpy(),
        start_ns=table["start"].to_numpy(),
        end_ns=table["end"].to_numpy(),
        instance=pd.factorize(table["own"])[0].astype(np.int64),
        before=before,
        ready_ns=ready,
        queue=queue,
        behind_ns=behind,
        after_ns=after.clip(lower=0).to_numpy(dtype=np.int64),
        source=np.asarray(source, dtype=np.int64),
        numbers=tuple(int(number) for number in pd.unique(table["own"])),
    )


def _before(table: pd.DataFrame, computing: pd.DataFrame) -> tuple[Ints, Ints, Ints, Ints]:
    """For every row the row of its rank that it follows, when it was ready, and what it waits for besides, with the distance.

    It follows the last one that had ended and that held up the rank. What runs beside kernels (sends, hidden gradients) holds up
    nothing but what it shares a queue with, unless it ended after the last kernel before the row: then the row has waited for it,
    and had been ready at the end of that kernel.
    """
    count = len(table)
    before, queue = np.full(count, NONE, dtype=np.int64), np.full(count, NONE, dtype=np.int64)
    ready, behind = table["start"].to_numpy().copy(), np.zeros(count, dtype=np.int64)
    queued, first, done = np.zeros(count, dtype=bool), np.zeros(count, dtype=np.int64), np.zeros(count, dtype=np.int64)
    by_rank = dict(iter(computing.groupby("rank")))
    kernel_ends = {rank: _ends_of(by_rank.get(rank)) for rank in table["rank"].unique()}
    for rank, rows in table.groupby("rank"):
        index = rows.index.to_numpy()
        starts, ends = rows["start"].to_numpy(), rows["end"].to_numpy()
        busy = _busy(by_rank.get(rank))
        groups = rows["group"].to_numpy()
        beside = rows["send"].to_numpy() | _hidden_groups(groups, _within(busy, starts, ends), ends - starts)
        before_step = _last_of_steps_before(starts, ends, rows["step"].to_numpy())
        held = _earlier(_later_of(_last_ended(starts, ends, ~beside), before_step, ends), index)
        other = _earlier(_last_ended(starts, ends, np.ones(len(ends), dtype=bool)), index)
        last_kernel = _last_moment(busy, starts)
        waited = (other != NONE) & (other != held) & (ends[other] >= last_kernel)
        same = _earlier(_last_of_group(starts, ends, groups, beside), index)
        chosen = np.where(waited, other, same)
        held_end = np.where(held == NONE, starts.min(), ends[held])
        at_once = (chosen != NONE) & (waited | (starts - ends[chosen] <= AT_ONCE_NS))
        before[index] = np.where(held == NONE, NONE, index[held])
        queue[index] = np.where(chosen == NONE, NONE, index[chosen])
        ready[index] = np.where(waited, np.maximum(last_kernel, held_end), starts)
        behind[index] = np.where(at_once, starts - ends[chosen], 0)
        queued[index] = at_once & beside
        first[index] = np.where(held == NONE, 0, np.searchsorted(kernel_ends[rank], held_end, side="right"))
        done[index] = np.where(
            beside, np.searchsorted(kernel_ends[rank], starts, side="right") - first[index], np.iinfo(np.int64).max
        )
    _ready_in_queues(ready, queued, table, first=first, done=done, kernel_ends=kernel_ends)
    return before, ready, queue, behind


def _ready_in_queues(
    ready: Ints, queued: npt.NDArray[np.bool_], table: pd.DataFrame, *, first: Ints, done: Ints, kernel_ends: Mapping[int, Ints]
) -> None:
    """Set when rows were ready that stood in a queue, while their rank went on with kernels that they do not need.

    They need as many kernels (from `first` on) as the member had `done` that had done fewest when it started.
    """
    needed = pd.Series(done).groupby(table["own"].to_numpy()).transform("min").to_numpy()
    for rank, ends in kernel_ends.items():
        mine = np.flatnonzero(queued & (table["rank"].to_numpy() == rank) & (needed > 0))
        if len(mine) and len(ends):
            last = ends[(first[mine] + needed[mine] - 1).clip(max=len(ends) - 1)]
            ready[mine] = np.minimum(ready[mine], last)


def _ends_of(kernels: pd.DataFrame | None) -> Ints:
    rows = pd.DataFrame({"start_ns": [], "duration_ns": []}) if kernels is None else kernels
    return np.sort(rows["start_ns"].to_numpy(dtype=np.int64) + rows["duration_ns"].to_numpy(dtype=np.int64))


def _earlier(found: Ints, index: Ints) -> Ints:
    """Only positions of rows that come before the row itself in the table."""
    return np.where((found != NONE) & (index[found] < index), found, NONE)


def _later_of(first: Ints, second: Ints, ends: Ints) -> Ints:
    return np.where((first == NONE) | ((second != NONE) & (ends[second] > ends[first])), second, first)


def _last_of_steps_before(starts: Ints, ends: Ints, steps: Ints) -> Ints:
    """By row the position that ended last in the steps before: the optimizer waits for it, whatever it ran beside; else NONE."""
    found = np.full(len(starts), NONE, dtype=np.int64)
    for step in np.unique(steps)[1:]:
        last = int(np.where(steps < step, ends, np.iinfo(np.int64).min).argmax())
        found[(steps == step) & (starts >= ends[last])] = last
    return found


def _last_of_group(starts: Ints, ends: Ints, groups: Ints, beside: npt.NDArray[np.bool_]) -> Ints:
    """By row that runs beside kernels the position of the row of its group that ended last when it started; else NONE."""
    found = np.full(len(starts), NONE, dtype=np.int64)
    for group in np.unique(groups[beside]):
        mine = beside & (groups == group)
        found[mine] = _last_ended(starts, ends, mine)[mine]
    return found


def _hidden_groups(groups: Ints, within: Ints, lengths: Ints) -> npt.NDArray[np.bool_]:
    """By row whether the operations of its group run beside kernels for a good part of their time."""
    number = pd.factorize(groups)[0]
    hidden = np.bincount(number, weights=within) >= HIDDEN_SHARE * np.bincount(number, weights=lengths)
    rows: npt.NDArray[np.bool_] = hidden[number]
    return rows


def _last_ended(starts: Ints, ends: Ints, allowed: npt.NDArray[np.bool_]) -> Ints:
    """By row the position of the allowed row that ended last when it started; NONE if there is none."""
    order = np.flatnonzero(allowed)[np.argsort(ends[allowed], kind="stable")]
    if not len(order):
        return np.full(len(starts), NONE, dtype=np.int64)
    at = np.searchsorted(ends[order], starts, side="right") - 1
    return np.where(at >= 0, order[at.clip(min=0)], NONE)


def _busy(kernels: pd.DataFrame | None) -> Intervals:
    if kernels is None:
        return union([], [])
    starts = kernels["start_ns"].to_numpy(dtype=np.int64)
    return union(starts, starts + kernels["duration_ns"].to_numpy(dtype=np.int64))


def _within(busy: Intervals, starts: Ints, ends: Ints) -> Ints:
    """By row the time from its start to its end in which kernels compute."""
    if not len(busy.starts):
        return np.zeros(len(starts), dtype=np.int64)
    whole = np.concatenate([[0], np.cumsum(busy.ends - busy.starts)])

    def until(moments: Ints) -> Ints:
        at = np.searchsorted(busy.starts, moments, side="right") - 1
        first = at.clip(min=0)
        inside = np.minimum(moments, busy.ends[first]) - busy.starts[first]
        return np.where(at >= 0, whole[first] + inside, 0)

    return until(ends) - until(starts)


def _last_moment(busy: Intervals, moments: Ints) -> Ints:
    """By moment the last one up to it at which kernels computed."""
    if not len(busy.starts):
        return np.full(len(moments), np.iinfo(np.int64).min)
    at = np.searchsorted(busy.starts, moments, side="left") - 1
    return np.where(at >= 0, np.minimum(busy.ends[at.clip(min=0)], moments), np.iinfo(np.int64).min)
