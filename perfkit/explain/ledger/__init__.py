"""Ledger: for every rank and step, whole ns by cause that sum exactly to the step, down to what is unexplained.

Every moment of a step has one cause (`causes`): computing before moving data, that before waiting for other ranks, that before
copying, and idle times by what the host did. Waiting is followed to the rank and the reason that it goes back to (`_late`), with
the filling of a pipeline told apart (`_pipeline`). Where a recording states more than its timeline shows, or only the parts of a
step, what is not told apart is unexplained, never 0 and never guessed.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd

from perfkit.core import clock
from perfkit.core.breakdown import Breakdown
from perfkit.core.display import text_table
from perfkit.core.errors import NotMeasuredError
from perfkit.core.run import LazyTables, Run
from perfkit.core.shown import Shown
from perfkit.core.source import Source
from perfkit.core.texts import say
from perfkit.core.units import format_ns, format_ratio
from perfkit.explain import stragglers
from perfkit.explain.ledger import _late, _pipeline, _stated, _usual, causes
from perfkit.explain.ledger._host import FAR_LONGER as FAR_LONGER
from perfkit.explain.ledger._host import at_work_ns as at_work_ns
from perfkit.explain.ledger._paint import shared as shared
from perfkit.explain.ledger._rank import AFTER as AFTER
from perfkit.explain.ledger._rank import BEFORE as BEFORE
from perfkit.explain.ledger._rank import BEHIND as BEHIND
from perfkit.explain.ledger._rank import WAITS, Talk, Timeline, Window, timeline
from perfkit.explain.ledger._stated import NOBODY as NOBODY
from perfkit.record.events.graph import causal_graph

KEY = ["rank", "step", "cause", "who", "place", "detail"]
IDLE = ["rank", "step", "cause", "place", "detail", "start_ns", "duration_ns", "gap"]
MODULES = ["rank", "step", "cause", "module", "ns"]
_KEPT = "ledger"
_MOST_KEPT = 500_000
"""Of so many entries and pieces at most the ledger of a run is kept."""
READ_HOSTS = 8
"""The host of at most so many ranks is read, those whose devices idle longest: timelines of hosts are large."""


@dataclass(frozen=True, slots=True, repr=False)
class Ledger(Shown):
    """The entries of a run: `rank`, `step`, `cause`, `who` (the rank that was late; -1: none), `place`, `detail`, `part`, `ns`.

    `place` says whether the time is before the first kernel of the step, inside, after, or (computing) behind the optimizer;
    `detail` names the call that blocked or what is not explained; `part` is the part of the step that the time is in: computing,
    communication or free. `stages` has the pipeline stage of the ranks. Entries are positive and sum to the duration of their rank
    and step.

    `modules` are the entries of computing by module of the network too: `rank`, `step`, `cause`, `module`, `ns`. "" is what belongs
    to none, or is of a rank whose modules are not known; it is empty where no rank's were recorded.

    `idle` are the pieces of timelines in which nothing computes or moves: `rank`, `step`, `cause`, `place`, `detail`, `start_ns` on
    the clock of the rank, `duration_ns`, and `gap`, the number of the idle time that a piece is of. `hosts` are the ranks of which
    what the host did was read, `sampled` those of which only so large a share of the launches is on record: too little for that.
    """

    name: str
    kind: str
    entries: pd.DataFrame
    stages: Mapping[int, int]
    idle: pd.DataFrame
    hosts: frozenset[int]
    modules: pd.DataFrame
    sampled: Mapping[int, float]

    def __repr__(self) -> str:
        causes = self.waterfall()
        parts = zip(causes["words"], causes["ns"], causes["share"], strict=True)
        rows = [(words, format_ns(ns), format_ratio(share)) for words, ns, share in parts]
        return text_table(f"Ledger of {self.name}. {self.told()}", rows)

    def to_frame(self) -> pd.DataFrame:
        """The mean step of a rank by cause, as `waterfall()` gives it."""
        return self.waterfall()

    @property
    def total_ns(self) -> int:
        """All steps of all ranks."""
        return int(self.entries["ns"].sum())

    @property
    def unexplained_ns(self) -> int:
        """What nothing accounts for, summed over ranks and steps."""
        return int(self.entries.loc[(self.entries["cause"] == causes.UNEXPLAINED) | _for_nobody(self.entries), "ns"].sum())

    @property
    def explained_share(self) -> float | None:
        """The share of all time that has a cause, 0 to 1; None without any."""
        return 1 - self.unexplained_ns / self.total_ns if self.total_ns else None

    def told(self) -> str:
        """How much of the steps has a cause."""
        known = self.explained_share
        if known is None:
            return "No step was recorded."
        form = "Explained {explained_share}, unexplained {unexplained_share} of all steps."
        return say(form, explained_share=known, unexplained_share=1 - known)

    def of(self, *, ranks: Iterable[int] | None = None, steps: Iterable[int] | None = None) -> Ledger:
        """The entries of some ranks and steps."""
        chosen = {name: list(which) for name, which in (("rank", ranks), ("step", steps)) if which is not None}

        def part(rows: pd.DataFrame) -> pd.DataFrame:
            kept = [rows[name].isin(which).to_numpy(dtype=bool) for name, which in chosen.items()]
            return rows[np.logical_and.reduce([np.ones(len(rows), dtype=bool), *kept])].reset_index(drop=True)

        return replace(self, entries=part(self.entries), idle=part(self.idle), modules=part(self.modules))

    def breakdown(self, rank: int, step: int) -> Breakdown:
        """One step of one rank by cause, in ns; who was waited for is the last part of a path.

        Raises NotMeasuredError if the run has no such step.
        """
        rows = self.of(ranks=[rank], steps=[step]).entries
        if rows.empty:
            raise NotMeasuredError(f"step {step} of rank {rank}", how_to_collect="record a profile of the step")
        whom = np.where(rows["who"] == NOBODY, "", "/rank " + rows["who"].astype(str))
        cause = rows["cause"].astype(str).mask(_for_nobody(rows), causes.UNEXPLAINED)
        sums = rows.groupby(cause + whom, sort=False)["ns"].sum().sort_values(ascending=False)
        source = Source("measured" if self.kind == "measured" else "simulated", self.name, f"ledger of rank {rank}, step {step}")
        return Breakdown("ns", {str(path): int(ns) for path, ns in sums.items()}, source)

    def waterfall(self, *, ranks: Iterable[int] | None = None, steps: Iterable[int] | None = None) -> pd.DataFrame:
        """The mean step of these ranks by cause, the largest first and unexplained last.

        `cause` (of unexplained time with what it is spent in, `unexplained/communication`), `words`, `who` (the rank that lost most
        of it, -1: none in particular), `ns` (whole, they sum to the mean step), `share` (0 to 1).
        """
        rows = _with_what_lacks(self.of(ranks=ranks, steps=steps).entries)
        count = max(1, len(rows[["rank", "step"]].drop_duplicates()))
        sums = rows.groupby("cause", sort=True)["ns"].sum()
        by_rank = rows.groupby(["cause", "who"])["ns"].sum()
        most = by_rank[by_rank * 2 >= by_rank.groupby("cause").transform("sum")].reset_index().drop_duplicates("cause")
        table = pd.DataFrame({"cause": sums.index.astype(str), "ns": _means(sums, count)})
        table["words"] = [causes.words_of(cause) for cause in table["cause"]]
        table["who"] = table["cause"].map(most.set_index("cause")["who"]).fillna(NOBODY).astype("int64")
        table["share"] = table["ns"] / max(1, int(table["ns"].sum()))
        last = table["cause"].str.startswith(causes.UNEXPLAINED).to_numpy(dtype=bool)
        order = np.lexsort((-table["ns"].to_numpy(), last))
        return table.iloc[order][["cause", "words", "who", "ns", "share"]].reset_index(drop=True)

    def by_module(self) -> pd.DataFrame:
        """The computing of the mean step of a rank by `module` and `cause`, the largest first, in whole `ns`; empty without any."""
        count = max(1, len(self.entries[["rank", "step"]].drop_duplicates()))
        sums = self.modules.groupby(["module", "cause"], sort=True)["ns"].sum()
        table = sums.index.to_frame(index=False).assign(ns=_means(sums, count))
        return table.sort_values("ns", ascending=False, kind="stable", ignore_index=True)


def _with_what_lacks(rows: pd.DataFrame) -> pd.DataFrame:
    """The entries with what unexplained time is spent in as the second part of its cause."""
    lacks = ((rows["cause"] == causes.UNEXPLAINED) & rows["detail"].notna()).to_numpy(dtype=bool)
    full = causes.UNEXPLAINED + "/" + rows["detail"].astype("object").astype(str)
    cause = rows["cause"].astype("object").where(~lacks, full)
    return rows.assign(cause=cause.where(~_for_nobody(rows).to_numpy(dtype=bool), causes.UNEXPLAINED + "/waiting"))


def _for_nobody(rows: pd.DataFrame) -> pd.Series:
    """Which entries are waiting of which neither the rank nor the reason is known: what was waited for is not explained."""
    return (rows["cause"] == causes.WAITING_UNTOLD) & (rows["who"] == NOBODY)


def _means(sums: pd.Series, count: int) -> np.ndarray:
    """Means in whole ns that sum to the mean of the sum, rounded down."""
    cumulated = np.concatenate([[0], np.cumsum(sums.to_numpy(dtype=np.int64))]) // count
    means: np.ndarray = np.diff(cumulated)
    return means


def ledger(
    run: Run,
    *,
    steps: Collection[int] | None = None,
    detail_ranks: Collection[int] | None = None,
    clocks: Mapping[int, clock.Clock] | None = None,
) -> Ledger:
    """The ledger of a run, of all its steps or of some.

    Timelines are read of `detail_ranks` (all); of the others, and of ranks without one, the summaries. `clocks` are those of the
    run where they were estimated before. A run without steps has an empty one. What a step has does not depend on the others that
    are asked for; that of a whole run is made once and kept with it.
    """
    asked = None if detail_ranks is None or set(detail_ranks) >= set(run.ranks) else frozenset(detail_ranks)
    is_whole = asked is None and (clocks is None or not run.has("collectives") or clocks is causal_graph(run).clocks)
    found: Ledger | None = run.derived.get(_KEPT) if is_whole else None
    if found is None:
        found = _ledger(run, asked, clocks)
        if is_whole and len(found.entries) + len(found.idle) <= _MOST_KEPT:
            run.derived[_KEPT] = found
    return found.of(steps=steps)


def _ledger(run: Run, asked: Collection[int] | None, clocks: Mapping[int, clock.Clock] | None) -> Ledger:
    rows = stragglers.staged_steps(run) if run.has("steps") else run.steps().assign(stage=stragglers.NO_STAGE)
    rows = rows.drop_duplicates(["rank", "step"], keep="last").reset_index(drop=True)
    stages = {int(rank): int(stage) for rank, stage in rows.drop_duplicates("rank")[["rank", "stage"]].itertuples(index=False)}
    looked_at = _with_kernels(run, rows, asked)
    graph = causal_graph(run)
    known = graph.clocks if clocks is None else clocks
    # Ranks without kernels take part in collectives too.
    members = graph.members(ranks=asked, clocks=known).reset_index(drop=True)
    lines = _timelines(run, rows, looked_at, members, known)
    parts = []
    if lines:
        told = _entries(lines, _late.reasons(lines, members, known, stages))
        detailed = rows[_in(rows, told)]
        parts.append(_stated.held_to(told, detailed))
        rows = rows[~_in(rows, told)]
    if len(rows):
        parts.append(_stated.summaries(rows, members, _fed(run)))
    entries = pd.concat(parts, ignore_index=True) if parts else pd.DataFrame(columns=_stated.COLUMNS)
    entries = entries[(entries["ns"] > 0).to_numpy(dtype=bool)]
    entries = _pipeline.told_apart(run, entries, members, stages)
    entries = entries.astype({"rank": "int64", "step": "int64", "who": "int64", "ns": "int64"})
    entries, modules = _without_modules(entries[(entries["ns"] > 0).to_numpy(dtype=bool)])
    entries = entries.groupby([*KEY, "part"], dropna=False, sort=False)["ns"].sum().reset_index()
    ordered = entries.sort_values(["rank", "step", "ns"], ascending=[True, True, False], kind="stable", ignore_index=True)
    idle = _idle(lines)
    hosts = frozenset(rank for rank, line in lines.items() if line.host_read)
    sampled = {rank: line.launched for rank, line in lines.items() if line.launched and not line.host_read}
    return Ledger(run.name, run.kind, ordered, stages, idle, hosts, modules, sampled)


def _without_modules(entries: pd.DataFrame) -> tuple[pd.DataFrame, pd.DataFrame]:
    """The entries without the modules that pieces of computing have as their detail, and these by module."""
    works = entries["cause"].astype(str).str.startswith("work/").to_numpy(dtype=bool)
    own = entries[works]
    rows = own[[*MODULES[:3], "ns"]].assign(module=own["detail"].fillna("").astype(str)) if own["detail"].any() else own.iloc[:0]
    by_module = rows.reindex(columns=MODULES).groupby(MODULES[:-1], sort=False)["ns"].sum().reset_index()
    return entries.assign(detail=entries["detail"].where(~works, None)), by_module


def _idle(lines: Mapping[int, Timeline]) -> pd.DataFrame:
    """The pieces of all timelines that are in no other part of the step; those that touch are one idle time."""
    frames = [pd.DataFrame({name: pd.Series(dtype="int64") for name in IDLE})]
    for rank, line in lines.items():
        own = np.flatnonzero(line.parts == "free")
        begin, end, step = line.starts[own], line.ends[own], line.steps[own]
        new = np.ones(len(own), dtype=bool)
        new[1:] = (begin[1:] != end[:-1]) | (step[1:] != step[:-1])
        told = {"cause": line.causes[own], "place": line.places[own], "detail": line.details[own]}
        frame = pd.DataFrame({"rank": rank, "step": step, **told, "start_ns": begin, "duration_ns": end - begin})
        frames.append(frame.assign(gap=np.cumsum(new)))
    return pd.concat(frames if len(frames) == 1 else frames[1:], ignore_index=True)


def _with_kernels(run: Run, steps: pd.DataFrame, detail_ranks: Collection[int] | None) -> list[int]:
    if "kernels" not in run.tables:
        return []
    tables = run.tables
    recorded = tables.ranks("kernels") if isinstance(tables, LazyTables) else set(run.tables["kernels"]["rank"].unique())
    wanted = set(map(int, steps["rank"].unique())) & {int(rank) for rank in recorded}
    return sorted(wanted if detail_ranks is None else wanted & set(detail_ranks))


def _timelines(
    run: Run, steps: pd.DataFrame, ranks: list[int], members: pd.DataFrame, clocks: Mapping[int, clock.Clock]
) -> dict[int, Timeline]:
    slow, cut = _usual.slower_ns(members), _cut_groups(run, members)
    by_rank = dict(iter(members.groupby("rank")))
    hosts = _hosts(steps, ranks)
    found: dict[int, Timeline] = {}
    for rank in ranks:
        own = steps[(steps["rank"] == rank).to_numpy(dtype=bool)].sort_values("step")
        windows = [
            Window(int(step), None if pd.isna(start) else int(start), int(lasts))
            for step, start, lasts in own[["step", "start_ns", "duration_ns"]].itertuples(index=False)
        ]
        talk = Talk(by_rank.get(rank, members.iloc[:0]), clocks.get(rank), slow, cut)
        line = timeline(run, rank, windows, talk, host=rank in hosts, stacks=len(ranks) <= READ_HOSTS)
        if line is not None:
            found[rank] = line
    return found


def _cut_groups(run: Run, members: pd.DataFrame) -> frozenset[str]:
    """The groups of which a link leads to a rank that was not read; links are many, and read where no size of a group says it."""
    unsized = (members["group_size"].isna() & (members["other_ns"] > 0).fillna(False)).any()
    if not unsized or not run.has("links"):
        return frozenset()
    links = run.distinct("links", columns=["operation", "source_rank", "target_rank"])
    inside = links["source_rank"].isin(run.ranks) & links["target_rank"].isin(run.ranks)
    return frozenset(name.partition("@")[2] for name in links["operation"][~inside].unique()) - {""}


def _hosts(steps: pd.DataFrame, ranks: list[int]) -> set[int]:
    """The ranks whose host is read: all of few, of many those whose devices are free longest."""
    if len(ranks) <= READ_HOSTS:
        return set(ranks)
    free = steps[steps["rank"].isin(ranks)].groupby("rank")["free_ns"].sum().sort_values(ascending=False, kind="stable")
    return {int(str(rank)) for rank in free.index[:READ_HOSTS]}


def _entries(lines: Mapping[int, Timeline], reasons: Mapping[int, list[tuple[_late.Reason, int]]]) -> pd.DataFrame:
    """The pieces of all timelines, summed by cause; those of waiting by their reasons."""
    frames = []
    for rank, line in lines.items():
        frame = pd.DataFrame(
            {
                "rank": rank,
                "step": line.steps,
                "cause": line.causes,
                "who": NOBODY,
                "place": line.places,
                "detail": line.details,
                "part": line.parts,
                "member": np.where(line.causes == WAITS, line.members, NOBODY),
                "ns": line.ends - line.starts,
            }
        )
        keys = [*KEY, "part", "member"]
        frames.append(frame.groupby(keys, dropna=False, sort=False, observed=True)["ns"].sum().reset_index())
    every = pd.concat(frames, ignore_index=True)
    waits = (every["cause"] == WAITS).to_numpy(dtype=bool)
    told = [every[~waits], _explained(every[waits], reasons)]
    joined = pd.concat([part for part in told if len(part)], ignore_index=True)
    summed: pd.DataFrame = joined.groupby([*KEY, "part"], dropna=False, sort=False)["ns"].sum().reset_index()
    return summed


def _explained(waits: pd.DataFrame, reasons: Mapping[int, list[tuple[_late.Reason, int]]]) -> pd.DataFrame:
    """Rows of waiting in one operation, each cut by its reasons; one operation may wait in two steps or places."""
    rows: list[dict[str, Any]] = []
    for row in waits.to_dict("records"):
        record = {str(name): value for name, value in row.items()}
        why = reasons.get(int(record["member"]), [((causes.WAITING_UNTOLD, NOBODY), 1)])
        parts = shared(int(record["ns"]), np.array([amount for _, amount in why], dtype=np.int64))
        rows += [
            {**record, "cause": cause, "who": who, "ns": int(part)} for ((cause, who), _), part in zip(why, parts, strict=True)
        ]
    return pd.DataFrame(rows, columns=waits.columns)


def _in(rows: pd.DataFrame, told: pd.DataFrame) -> np.ndarray:
    found = pd.MultiIndex.from_frame(rows[["rank", "step"]].astype("int64"))
    inside: np.ndarray = found.isin(pd.MultiIndex.from_frame(told[["rank", "step"]].astype("int64").drop_duplicates()))
    return inside


def _fed(run: Run) -> pd.DataFrame:
    """What the run itself states as waiting for input at the start of steps."""
    if not run.has("step_parts"):
        return pd.DataFrame({"rank": [], "step": [], "ns": []})
    parts = run.frame("step_parts")
    rows = parts[(parts["path"].astype("object") == "free/data").to_numpy(dtype=bool) & parts["amount_ns"].notna().to_numpy()]
    sums: pd.DataFrame = rows.groupby(["rank", "step"])["amount_ns"].sum().rename("ns").reset_index()
    return sums
