"""The order of a replay: what every operation of a rank waits for on that rank, read from the recorded times.

A row follows the last operation that held up its rank. What runs beside kernels (sends, hidden gradients) holds up nothing but what
it shares a queue with, unless it ended after the last kernel before the row: then the row has waited for it, and had been ready at
the end of that kernel. A row that stood in a queue beside kernels was ready earlier than it started; how much of the program its
rank had to compute before is told by the member that had computed least when it started, as all members run one program; of a queue
that did not empty for several rows, these are taken to have come evenly.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pandas as pd

from perfkit.record.overlap import Intervals, union

Ints = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]
NONE = -1  # the place of what there is not
HIDDEN_SHARE = 0.2
"""Chosen: a fifth. What runs before or after a kernel overlaps it at one end, by less."""
AT_ONCE_NS = 20_000
"""What starts this soon after the one before it in its queue has waited for it."""
ROUNDED_NS = 500
"""Times that were floating-point numbers let what waited for an end start up to so much before it."""
ALIKE = 0.02
"""Members whose numbers of kernels in the step differ by more than this run other programs."""
_NEVER = np.iinfo(np.int64)


@dataclass(frozen=True, slots=True)
class Order:
    """By row of the table: see `Replay`."""

    before: Ints
    ready_ns: Ints
    queue: Ints
    behind_ns: Ints


def order_of(table: pd.DataFrame, computing: pd.DataFrame) -> Order:
    """What every row of `table` waits for on its rank.

    `table` has `rank`, `start`, `end`, `own` (number of the operation), `send`, `group`, `step`, and every row comes after the rows
    that it follows. `computing` are kernels with `rank`, `step`, `start_ns` on the same clock and `duration_ns`.
    """
    count = len(table)
    order = Order(
        before=np.full(count, NONE, dtype=np.int64),
        ready_ns=table["start"].to_numpy(dtype=np.int64).copy(),
        queue=np.full(count, NONE, dtype=np.int64),
        behind_ns=np.zeros(count, dtype=np.int64),
    )
    by_rank = dict(iter(computing.groupby("rank")))
    ranks = [_Rank.of(rows, by_rank.get(rank, computing.iloc[:0])) for rank, rows in table.groupby("rank")]
    queued = np.zeros(count, dtype=bool)
    for rank in ranks:
        queued[rank.index] = _order_one(rank, order)
    _ready_in_queues(order, queued, table, ranks)
    return order


@dataclass(frozen=True, slots=True)
class _Rank:
    """The operations of one rank, with their rows in the table (`index`), and its kernels by step and end."""

    index: Ints
    starts: Ints
    ends: Ints
    steps: Ints
    groups: Ints
    beside: Flags
    busy: Intervals
    kernel_ends: Ints
    kernel_steps: Ints

    @staticmethod
    def of(rows: pd.DataFrame, kernels: pd.DataFrame) -> _Rank:
        """The rank whose rows of the table and kernels these are."""
        starts, ends = rows["start"].to_numpy(dtype=np.int64), rows["end"].to_numpy(dtype=np.int64)
        groups = rows["group"].to_numpy(dtype=np.int64)
        kernel_starts = kernels["start_ns"].to_numpy(dtype=np.int64)
        kernel_ends = kernel_starts + kernels["duration_ns"].to_numpy(dtype=np.int64)
        kernel_steps = kernels["step"].to_numpy(dtype=np.int64)
        by_step = np.lexsort((kernel_ends, kernel_steps))
        busy = union(kernel_starts, kernel_ends)
        return _Rank(
            index=rows.index.to_numpy(dtype=np.int64),
            starts=starts,
            ends=ends,
            steps=rows["step"].to_numpy(dtype=np.int64),
            groups=groups,
            beside=rows["send"].to_numpy(dtype=bool) | _hidden_groups(groups, _within(busy, starts, ends), ends - starts),
            busy=busy,
            kernel_ends=kernel_ends[by_step],
            kernel_steps=kernel_steps[by_step],
        )

    def held_at(self, moments: Ints) -> Ints:
        """By row the position of the operation that had held up the rank last at a moment, its start or earlier; NONE without."""
        held = _last_ended(moments + ROUNDED_NS, self.ends, ~self.beside)
        # The optimizer waits for what ended last in the steps before, whatever that ran beside.
        for step in np.unique(self.steps)[1:]:
            last = int(np.where(self.steps < step, self.ends, _NEVER.min).argmax())
            after = (self.steps == step) & (moments + ROUNDED_NS >= self.ends[last])
            held[after & ((held == NONE) | (self.ends[last] > self.ends[held]))] = last
        return self.earlier(held)

    def earlier(self, found: Ints) -> Ints:
        """Only positions of rows that come before the row itself in the table."""
        return np.where((found != NONE) & (self.index[found] < self.index), found, NONE)

    def rows(self, found: Ints) -> Ints:
        """The rows of the table at some positions."""
        return np.where(found == NONE, NONE, self.index[found])

    def num_kernels(self) -> Ints:
        """By row the kernels of its step."""
        first, last = self._kernels_of_step()
        return last - first

    def num_done(self) -> Ints:
        """By row the kernels of its step that had ended when it started."""
        first, last = self._kernels_of_step()
        done = np.zeros(len(self.starts), dtype=np.int64)
        for begin, end in np.unique(np.stack([first, last]), axis=1).T:
            mine = first == begin
            done[mine] = np.searchsorted(self.kernel_ends[begin:end], self.starts[mine] + ROUNDED_NS, side="right")
        return done

    def when_done(self, counts: Ints) -> Ints:
        """By row the moment when so many kernels of its step had ended; its start if the step has fewer, or for none."""
        first, last = self._kernels_of_step()
        at = first + counts - 1
        known = (counts > 0) & (at < last)
        found = self.starts.copy()
        found[known] = self.kernel_ends[at[known]]
        return found

    def _kernels_of_step(self) -> tuple[Ints, Ints]:
        return (
            np.searchsorted(self.kernel_steps, self.steps, side="left"),
            np.searchsorted(self.kernel_steps, self.steps, side="right"),
        )


def _order_one(rank: _Rank, order: Order) -> Flags:
    """Fill in the rows of one rank; gives which of them stood in a queue beside kernels."""
    starts, ends = rank.starts, rank.ends
    held = rank.held_at(starts)
    other = rank.earlier(_last_ended(starts + ROUNDED_NS, ends, np.ones(len(ends), dtype=bool)))
    last_kernel = _last_moment(rank.busy, starts)
    waited = (other != NONE) & (other != held) & (ends[other] >= last_kernel)
    chosen = np.where(waited, other, rank.earlier(_last_of_group(rank)))
    held_end = np.where(held == NONE, starts.min(), ends[held])
    at_once = (chosen != NONE) & (waited | (starts - ends[chosen] <= AT_ONCE_NS))
    order.before[rank.index] = rank.rows(held)
    order.queue[rank.index] = rank.rows(chosen)
    order.ready_ns[rank.index] = np.where(waited, np.maximum(last_kernel, held_end), starts)
    order.behind_ns[rank.index] = np.where(at_once, starts - ends[chosen], 0)
    stood: Flags = at_once & rank.beside
    return stood


def _ready_in_queues(order: Order, queued: Flags, table: pd.DataFrame, ranks: Sequence[_Rank]) -> None:
    """Set when rows were ready that stood in a queue while their rank went on with kernels that they do not need."""
    done, kernels = np.zeros(len(table), dtype=np.int64), np.zeros(len(table), dtype=np.int64)
    for rank in ranks:
        done[rank.index], kernels[rank.index] = rank.num_done(), rank.num_kernels()
    members = pd.DataFrame({"done": done, "kernels": kernels}).groupby(table["own"].to_numpy())
    most, least = (members["kernels"].transform(name).to_numpy() for name in ("max", "min"))
    needed = np.where(most - least <= ALIKE * most, members["done"].transform("min").to_numpy(), done)
    _spread_in_chains(needed, queued, order.queue, table["step"].to_numpy(dtype=np.int64))
    for rank in ranks:
        early = np.minimum(rank.when_done(needed[rank.index]), rank.starts)
        moved = queued[rank.index] & (early < order.ready_ns[rank.index])
        held = rank.held_at(early)
        order.ready_ns[rank.index[moved]] = early[moved]
        order.before[rank.index[moved]] = rank.rows(held)[moved]


def _spread_in_chains(needed: Ints, queued: Flags, queue: Ints, steps: Ints) -> None:
    """Lower the kernels `needed` by rows that stood in one queue, which never emptied, to what they need if they came evenly.

    The one before the first of them did not stand, and the last one needed no more than had been done when it started.
    """
    chains: dict[int, list[int]] = {}
    for row in np.flatnonzero(queued).tolist():
        before = int(queue[row])
        chain = chains.pop(before, [before]) if steps[before] == steps[row] else [row]
        if chain[-1] != row:
            chain.append(row)
        chains[row] = chain
    for chain in chains.values():
        rows = np.array(chain, dtype=np.int64)
        evenly = np.linspace(needed[rows[0]], needed[rows[-1]], len(rows))
        needed[rows] = np.minimum(needed[rows], np.ceil(evenly).astype(np.int64))


def _last_of_group(rank: _Rank) -> Ints:
    """By row that runs beside kernels the position of the row of its group that ended last when it started; else NONE."""
    found = np.full(len(rank.starts), NONE, dtype=np.int64)
    for group in np.unique(rank.groups[rank.beside]):
        mine = rank.beside & (rank.groups == group)
        found[mine] = _last_ended(rank.starts + ROUNDED_NS, rank.ends, mine)[mine]
    return found


def _hidden_groups(groups: Ints, within: Ints, lengths: Ints) -> Flags:
    """By row whether the operations of its group run beside kernels for a good part of their time."""
    number = pd.factorize(groups)[0]
    hidden = np.bincount(number, weights=within) >= HIDDEN_SHARE * np.bincount(number, weights=lengths)
    rows: Flags = hidden[number]
    return rows


def _last_ended(moments: Ints, ends: Ints, allowed: Flags) -> Ints:
    """By moment the position of the allowed row that had ended last; NONE if there is none."""
    order = np.flatnonzero(allowed)[np.argsort(ends[allowed], kind="stable")]
    if not len(order):
        return np.full(len(moments), NONE, dtype=np.int64)
    at = np.searchsorted(ends[order], moments, side="right") - 1
    return np.where(at >= 0, order[at.clip(min=0)], NONE)


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
        return np.full(len(moments), _NEVER.min)
    at = np.searchsorted(busy.starts, moments, side="left") - 1
    return np.where(at >= 0, np.minimum(busy.ends[at.clip(min=0)], moments), _NEVER.min)
