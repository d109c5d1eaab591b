"""Late: why the rank was late that others waited for, back to where the time was lost.

The members of an operation are followed in the order in which their latest ones arrived. Since the operation before that a waiting
rank and the late one ran together, the same time has passed for both; what the late one spent more of in that time - computing,
waiting for its host, moving other data - is why the other waits, in proportion. What the late one itself had waited for others
counts by its own reasons, so that time is followed through any number of ranks to where it was lost. All amounts are whole ns, and
sum to what was waited.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
import pandas as pd

from perfkit.core.clock import Clock
from perfkit.explain.ledger import causes
from perfkit.explain.ledger._paint import Ints, shared, until
from perfkit.explain.ledger._rank import WAITS, Timeline
from perfkit.explain.ledger._stated import latest_members
from perfkit.record.overlap import Intervals

Reason = tuple[str, int]
"""Why, and which rank lost the time."""
NEVER = -1
LEAST = 50
"""A reason of less than one part in so many of the largest one is noise."""


@dataclass(slots=True)
class _Member:
    """A rank on its way through the operations: what it spent on what until each of them met, and what it waited for so far."""

    spent: dict[int, Ints]
    waited: dict[Reason, int]
    had_waited: dict[int, dict[Reason, int]]


def reasons(
    timelines: Mapping[int, Timeline], members: pd.DataFrame, clocks: Mapping[int, Clock], stages: Mapping[int, int]
) -> dict[int, list[tuple[Reason, int]]]:
    """By row of `members` why its exposed waiting was, as shares in ns of the time that the timelines show as waiting."""
    rows = members[members["rank"].isin(list(timelines)).to_numpy() & members["start_ns"].notna().to_numpy()]
    waits = _exposed(timelines)
    found = {row: [((causes.WAITING_UNTOLD, who), ns)] for row, who, ns in _recorded(rows, waits)}
    ordered = rows[rows["basis"].astype("object").isin(["arrival", "partial"]).to_numpy(dtype=bool)]
    if ordered.empty:
        return found
    arrived = ordered.assign(moment=ordered["start_ns"].astype("int64") + ordered["wait_ns"].fillna(0).astype("int64"))
    latest = arrived.groupby("instance")["start_ns"].transform("max").astype("int64")
    arrived = arrived.assign(latest=latest).sort_values(["latest", "instance", "start_ns"], kind="stable")
    names = _names(timelines)
    walkers = {
        int(str(rank)): _member(timelines[int(str(rank))], own, clocks.get(int(str(rank))), names)
        for rank, own in arrived.groupby("rank")
    }
    walk = _Walk(walkers, names, stages, waits, found)
    columns = [arrived[name].to_numpy(dtype=np.int64).tolist() for name in ("instance", "rank", "start_ns")]
    every = list(zip(arrived.index.tolist(), *columns, strict=True))
    for instance, own in itertools.groupby(every, key=lambda row: row[1]):
        walk.meet(instance, [(row, rank, start) for row, _, rank, start in own])
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
    """Waiting that the vendor states, with whom for: the moments of the members are not known, only how long each waited."""
    told = rows[(rows["basis"].astype("object") == "recorded").to_numpy(dtype=bool)]
    last = told["instance"].map(latest_members(told)).fillna(NEVER).astype("int64")
    last = last.where(last != told["rank"], NEVER)
    return [(int(row), int(who), waits[row]) for row, who in zip(told.index, last, strict=True) if row in waits]


def _names(timelines: Mapping[int, Timeline]) -> list[str]:
    """What a rank can be late by, of its own."""
    found = {causes.why(str(cause)) for line in timelines.values() for cause in pd.unique(line.causes) if cause != WAITS}
    return sorted(found)


def _member(line: Timeline, own: pd.DataFrame, clock: Clock | None, names: list[str]) -> _Member:
    moments = own["latest"].to_numpy(dtype=np.int64)
    starts, ends = (moment if clock is None else clock.common_ns(moment) for moment in (line.starts, line.ends))
    codes, kinds = pd.factorize(line.causes)
    own_why = np.array([-1 if kind == WAITS else names.index(causes.why(str(kind))) for kind in kinds], dtype=np.int64)[codes]
    table = np.stack([until(Intervals(starts[own_why == at], ends[own_why == at]), moments) for at in range(len(names))], axis=1)
    return _Member(dict(zip(own["instance"].tolist(), table, strict=True)), {}, {})


@dataclass(slots=True)
class _Walk:
    """The operations in order: which ranks had met when, and what each waited for."""

    members: Mapping[int, _Member]
    names: list[str]
    stages: Mapping[int, int]
    waits: Mapping[int, int]
    found: dict[int, list[tuple[Reason, int]]]
    met: dict[tuple[int, ...], tuple[int, int]] = field(default_factory=dict)
    groups: dict[int, set[tuple[int, ...]]] = field(default_factory=dict)
    number: int = 0

    def meet(self, instance: int, own: list[tuple[int, int, int]]) -> None:
        """Explain what each member waited in one operation by what its latest member did since they had last met.

        `own` are row, rank and start of the members.
        """
        late = max(own, key=lambda member: member[2])[1]
        for row, rank, _ in own:
            wait = self.waits.get(row, 0)
            if not wait or row in self.found:
                continue
            both = self.groups.get(rank, set()) & self.groups.get(late, set())
            before = max((self.met[group] for group in both), default=(-1, NEVER))[1]
            more = _more(self.members[late], self.members[rank], instance, before, self.names)
            reasons_of = _named(more, late, rank, self.stages)
            parts = shared(wait, np.array(list(reasons_of.values()), dtype=np.int64))
            self.found[row] = [(key, part) for key, part in zip(reasons_of, parts.tolist(), strict=True) if part]
            waited = self.members[rank].waited
            for key, part in self.found[row]:
                waited[key] = waited.get(key, 0) + part
        group = tuple(sorted({rank for _, rank, _ in own}))
        self.number += 1
        self.met[group] = (self.number, instance)
        for rank in group:
            self.groups.setdefault(rank, set()).add(group)
            self.members[rank].had_waited[instance] = dict(self.members[rank].waited)


def _more(late: _Member, rank: _Member, instance: int, before: int, names: list[str]) -> dict[Reason | str, int]:
    """What the late rank spent more than the other since they had met: its own reasons by name, those of others as they are."""
    own = late.spent[instance] - rank.spent[instance]
    if before in late.spent and before in rank.spent:
        own = own - (late.spent[before] - rank.spent[before])
    found: dict[Reason | str, int] = {name: int(amount) for name, amount in zip(names, own.tolist(), strict=True) if amount > 0}
    then = (late.had_waited.get(before, {}), rank.had_waited.get(before, {}))
    for key, amount in late.waited.items():
        more = amount - then[0].get(key, 0) - (rank.waited.get(key, 0) - then[1].get(key, 0))
        if more > 0:
            found[key] = more
    return found


def _named(more: Mapping[Reason | str, int], late: int, rank: int, stages: Mapping[int, int]) -> dict[Reason, int]:
    """The reasons with the rank that lost the time; computing of another stage is the load of that stage."""
    least = max(more.values(), default=0) // LEAST
    found: dict[Reason, int] = {}
    for key, amount in more.items():
        if amount <= least:
            continue
        reason = (key, late) if isinstance(key, str) else key
        if reason[0] == causes.KERNELS and stages.get(reason[1], 0) != stages.get(rank, 0):
            reason = (causes.STAGE_LOAD, reason[1])
        found[reason] = found.get(reason, 0) + amount
    return found or {(causes.WAITING_UNTOLD, late): 1}
