"""Late: why the rank was late that others waited for, back to where the time was lost.

The members of an operation are followed in the order in which their latest ones arrived. Since the operation before that a waiting
rank and the late one ran together, the same time has passed for both; what the late one spent more of in that time - computing,
waiting for its host, moving other data - is why the other waits, in proportion, and what that does not make up was not recorded.
What the late one itself had waited for others counts by its own reasons, so that time is followed through any number of ranks to
where it was lost. A rank without a timeline comes last too: only what it waited itself is known of it, and the rest is its own for
a reason that was not recorded. All amounts are whole ns, and sum to what was waited.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
import pandas as pd

from perfkit.core.clock import Clock
from perfkit.explain.ledger import causes
from perfkit.explain.ledger._paint import Covered, Ints, shared
from perfkit.explain.ledger._rank import WAITS, Timeline
from perfkit.explain.ledger._stated import NOBODY, latest_members
from perfkit.explain.stragglers import NO_STAGE
from perfkit.record.overlap import Intervals

Reason = tuple[str, int]
"""Why, and which rank lost the time."""
LEAST = 50
"""A reason of less than one part in so many of the largest one is noise."""


Group = tuple[int, ...]


@dataclass(slots=True)
class _Member:
    """A rank on its way through the operations.

    `spent` is what it spent on what until each of them met (empty without a timeline), `waited` what it waited for so far and
    `had_waited` that when each of its groups met last.
    """

    spent: dict[int, Ints]
    waited: dict[Reason, int] = field(default_factory=dict)
    had_waited: dict[Group, dict[Reason, int]] = field(default_factory=dict)

    def waited_since(self, group: Group | None) -> int:
        """All of what it waited since a group met; None: since the recording began."""
        then = {} if group is None else self.had_waited.get(group, {})
        return sum(self.waited.values()) - sum(then.values())


def reasons(
    timelines: Mapping[int, Timeline], members: pd.DataFrame, clocks: Mapping[int, Clock], stages: Mapping[int, int]
) -> dict[int, list[tuple[Reason, int]]]:
    """By row of `members` why its exposed waiting was, as shares in ns of the time that the timelines show as waiting."""
    rows = members[members["start_ns"].notna().to_numpy()]
    waits = _exposed(timelines)
    found = {row: [((causes.WAITING_UNTOLD, who), ns)] for row, who, ns in _recorded(rows, waits)}
    ordered = rows[rows["basis"].astype("object").isin(["arrival", "partial"]).to_numpy(dtype=bool)]
    if ordered.empty:
        return found
    arrived = ordered.assign(until=ordered["start_ns"].astype("int64") + ordered["wait_ns"].fillna(0).astype("int64"))
    latest = arrived.groupby("instance")["start_ns"].transform("max").astype("int64")
    arrived = arrived.assign(latest=latest).sort_values(["latest", "instance", "start_ns"], kind="stable")
    untold = arrived[~arrived["rank"].isin(list(timelines)).to_numpy()]
    # Without a timeline nothing says which of its waiting was hidden behind computing.
    waits |= dict(zip(untold.index.tolist(), untold["wait_ns"].fillna(0).astype("int64").tolist(), strict=True))
    names = _names(timelines)
    walkers = {
        int(str(rank)): _Member(_spent(timelines[int(str(rank))], own, clocks.get(int(str(rank))), names))
        for rank, own in arrived.groupby("rank")
        if rank in timelines
    }
    walkers |= {int(rank): _Member({}) for rank in untold["rank"].unique()}
    walk = _Walk(walkers, names, stages, waits, found)
    columns = [arrived[name].to_numpy(dtype=np.int64).tolist() for name in ("instance", "rank", "start_ns", "until")]
    every = list(zip(arrived.index.tolist(), *columns, strict=True))
    for instance, own in itertools.groupby(every, key=lambda row: row[1]):
        walk.meet(instance, [member[:1] + member[2:] for member in own])
    return found


def _exposed(timelines: Mapping[int, Timeline]) -> dict[int, int]:
    """By row of the collectives how long its rank did nothing but wait in it."""
    found: dict[int, int] = {}
    for line in timelines.values():
        at = np.flatnonzero(line.causes == WAITS)
        lengths = line.ends[at] - line.starts[at]
        for row, length in zip(line.members[at].tolist(), lengths.tolist(), strict=True):
            found[row] = found.get(row, 0) + length
    return found


def _recorded(rows: pd.DataFrame, waits: Mapping[int, int]) -> list[tuple[int, int, int]]:
    """Waiting that the vendor states, with whom for: the moments of the members are not known, only how long each waited.

    Who came last is told by how long the others waited; where that does not say it, by their tasks.
    """
    told = rows[(rows["basis"].astype("object") == "recorded").to_numpy(dtype=bool)]
    last = told["instance"].map(latest_members(told)).astype("Int64").fillna(told["waits_for"]).fillna(NOBODY).astype("int64")
    last = last.where(last != told["rank"], NOBODY)
    return [(int(row), int(who), waits[row]) for row, who in zip(told.index, last, strict=True) if row in waits]


def _names(timelines: Mapping[int, Timeline]) -> list[str]:
    """What a rank can be late by, of its own."""
    found = {causes.why(str(cause)) for line in timelines.values() for cause in pd.unique(line.causes) if cause != WAITS}
    return sorted(found)


def _spent(line: Timeline, own: pd.DataFrame, clock: Clock | None, names: list[str]) -> dict[int, Ints]:
    """By operation what a rank spent on each of `names` until its latest member came."""
    moments = own["latest"].to_numpy(dtype=np.int64)
    starts, ends = (moment if clock is None else clock.common_ns(moment) for moment in (line.starts, line.ends))
    codes, kinds = pd.factorize(line.causes)
    own_why = np.array([-1 if kind == WAITS else names.index(causes.why(str(kind))) for kind in kinds], dtype=np.int64)[codes]
    spent = (Covered.of(Intervals(starts[own_why == at], ends[own_why == at])) for at in range(len(names)))
    table = np.stack([each.until(moments) for each in spent], axis=1)
    return dict(zip(own["instance"].tolist(), table, strict=True))


@dataclass(slots=True)
class _Walk:
    """The operations in order: which ranks had met when, and what each waited for."""

    members: Mapping[int, _Member]
    names: list[str]
    stages: Mapping[int, int]
    waits: Mapping[int, int]
    found: dict[int, list[tuple[Reason, int]]]
    met: dict[Group, tuple[int, int]] = field(default_factory=dict)
    groups: dict[int, set[Group]] = field(default_factory=dict)
    ahead: dict[tuple[int, int], tuple[int, Ints, int]] = field(default_factory=dict)
    """By waiting and late rank the operation until which they are compared, what one had done before the other by then, and what
    both had waited: who has waited since is no longer ahead by as much."""
    number: int = 0

    def meet(self, instance: int, own: list[tuple[int, int, int, int]]) -> None:
        """Explain what each member waited in one operation by what its latest member did since they had last met.

        `own` are row, rank, start and end of the waiting of the members.
        """
        _, late, latest, _ = max(own, key=lambda member: member[2])
        ahead: dict[tuple[int, int], Ints | None] = {}
        for row, rank, start, waits_until in own:
            wait = self.waits.get(row, 0)
            if rank != late:
                ahead[rank, late] = self._run_ahead(rank, late, instance, (wait, waits_until - start - wait))
            if not wait or row in self.found:
                continue
            # Who waits longer than until the latest of the members in order waits for one whose arrival is not known.
            reasons_of = (
                self._reasons(rank, late, instance, wait) if waits_until <= latest else {(causes.WAITING_UNTOLD, NOBODY): 1}
            )
            parts = shared(wait, np.array(list(reasons_of.values()), dtype=np.int64))
            self.found[row] = [(key, part) for key, part in zip(reasons_of, parts.tolist(), strict=True) if part]
            waited = self.members[rank].waited
            for key, part in self.found[row]:
                waited[key] = waited.get(key, 0) + part
        for pair, kept in ahead.items():
            self.ahead.pop(pair, None)
            if kept is not None:
                self.ahead[pair] = instance, kept, self._waited(pair)
        group = tuple(sorted({member[1] for member in own}))
        self.number += 1
        self.met[group] = (self.number, instance)
        for rank in group:
            self.groups.setdefault(rank, set()).add(group)
            self.members[rank].had_waited[group] = dict(self.members[rank].waited)

    def _run_ahead(self, rank: int, late: int, instance: int, waits: tuple[int, int]) -> Ints | None:
        """What a rank did while it waited behind its computing: the late one does it later, and is late for the same reason.

        `waits` are what it waited beside nothing, which is explained by what the late one spent more, and beside its computing.
        """
        wait, hidden = waits
        _, before = self._since(rank, late)
        if (hidden <= 0 and before is None) or (more := self._more(rank, late, instance)) is None:
            return None
        spent, done = more.clip(min=0).astype(np.float64), (-more).clip(min=0).astype(np.float64)
        most = max(0, hidden) + (0 if before is None else int(before.clip(min=0).sum()))
        if (kept := min(spent.sum() - wait, done.sum(), most)) <= 0:
            return None
        ahead: Ints = np.round(spent * (kept / spent.sum()) - done * (kept / done.sum())).astype(np.int64)
        return ahead

    def _more(self, rank: int, late: int, instance: int) -> Ints | None:
        """What the late rank spent more than the other on each of `names` since both met last; None where that is not known."""
        one, other = self.members[late], self.members[rank]
        if not one.spent or not other.spent:
            return None
        own: Ints = one.spent[instance] - other.spent[instance]
        then, ahead = self._since(rank, late)
        if then in one.spent and then in other.spent:
            own = own - (one.spent[then] - other.spent[then])
        return own if ahead is None else own + ahead

    def _since(self, rank: int, late: int) -> tuple[int | None, Ints | None]:
        """The operation until which two ranks are compared, and what one had done before the other by then."""
        instance, ahead, waited = self.ahead.get((rank, late), (NOBODY, None, 0))
        if ahead is not None and waited == self._waited((rank, late)):
            return instance, ahead
        both = self.groups.get(rank, set()) & self.groups.get(late, set())
        return max((self.met[group] for group in both), default=(0, None))[1], None

    def _waited(self, pair: tuple[int, int]) -> int:
        return sum(self.members[rank].waited_since(None) for rank in pair)

    def _reasons(self, rank: int, late: int, instance: int, wait: int) -> dict[Reason, int]:
        both = self.groups.get(rank, set()) & self.groups.get(late, set())
        before = max(both, key=lambda group: self.met[group][0], default=None)
        one, other = self.members[late], self.members[rank]
        found: dict[Reason | str, int] = {}
        if (own := self._more(rank, late, instance)) is not None:
            found = {name: int(amount) for name, amount in zip(self.names, own.tolist(), strict=True) if amount > 0}
        elif (more := wait + other.waited_since(before) - one.waited_since(before)) > 0:
            found = {causes.WAITING_UNTOLD: more}
        had = ({}, {}) if before is None else (one.had_waited[before], other.had_waited[before])
        for key, amount in one.waited.items():
            more = amount - had[0].get(key, 0) - (other.waited.get(key, 0) - had[1].get(key, 0))
            if more > 0:
                found[key] = more
        if (rest := wait - sum(found.values())) > 0:
            found[causes.WAITING_UNTOLD] = found.get(causes.WAITING_UNTOLD, 0) + rest
        return _named(found, late, rank, self.stages)


def _named(more: Mapping[Reason | str, int], late: int, rank: int, stages: Mapping[int, int]) -> dict[Reason, int]:
    """The reasons with the rank that lost the time; computing of another stage is the load of that stage.

    What goes back to the waiting rank itself passed for it too: that is not why it waits.
    """
    others = {key: amount for key, amount in more.items() if isinstance(key, str) or key[1] != rank}
    least = max(others.values(), default=0) // LEAST
    found: dict[Reason, int] = {}
    for key, amount in others.items():
        if amount <= least:
            continue
        reason = (key, late) if isinstance(key, str) else key
        if reason[0] == causes.KERNELS and _of_other_stage(reason[1], rank, stages):
            reason = (causes.STAGE_LOAD, reason[1])
        found[reason] = found.get(reason, 0) + amount
    return found or {(causes.WAITING_UNTOLD, NOBODY): 1}


def _of_other_stage(one: int, other: int, stages: Mapping[int, int]) -> bool:
    """Whether both stages are known, and not the same."""
    found = stages.get(one, NO_STAGE), stages.get(other, NO_STAGE)
    return NO_STAGE not in found and found[0] != found[1]
