"""A case: one run as the rules look at it, with what several of them need worked out once.

Steps are those after warm-up. Of a run with many ranks only the summaries of all and the kernels of some are read: of ranks that
stand out in the summaries, and of one typical rank a pipeline stage.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np
import pandas as pd

from perfkit.core import clock, placement, robust
from perfkit.core.errors import NotMeasuredError
from perfkit.core.run import LazyTables, Position, Run
from perfkit.core.texts import say
from perfkit.explain import collectives, module_tree, operator_names, stragglers
from perfkit.explain.diagnose import _gaps, _peers, on_clocks, unplaced
from perfkit.explain.diagnose._moments import Moments, moments_of
from perfkit.explain.diagnose._replay import Replay, replay_of
from perfkit.explain.diagnose.collecting import HOST_BY, KERNELS_BY
from perfkit.explain.diagnose.rule import Threshold
from perfkit.explain.diagnose.thresholds import MIN_STEPS
from perfkit.explain.ledger import Ledger, ledger
from perfkit.explain.micro_batches import micro_batches
from perfkit.record.events.graph import causal_graph

ALL_UP_TO_RANKS = 64
"""Up to so many ranks all kernels are looked at."""
NUM_SUSPECTS = 16
COMPLETE = 0.95
"""The share of the collectives whose members must all be known for a replay."""
MOST_KERNELS = 60_000
"""Kernels whose moments are timed anew: of more, a price would take seconds."""
WHOLE = 0.9
"""The share of its stated computing time that a rank's kernels must hold for what they leave open to be idle time."""

KERNEL_COLUMNS = (
    "rank",
    "step",
    "name",
    "type",
    "core",
    "kind",
    "stream",
    "start_ns",
    "duration_ns",
    "input_shapes",
    "input_dtypes",
)


@dataclass
class Case:
    """A run and its baseline, if there is one, with the limits that the caller changed (by name of the threshold)."""

    run: Run
    baseline: Run | None = None
    limits: Mapping[str, float] = field(default_factory=dict)
    host: dict[int, pd.DataFrame | None] = field(default_factory=dict)
    host_named: dict[tuple[int, re.Pattern[str]], pd.DataFrame] = field(default_factory=dict)
    blocked: dict[int, pd.DataFrame | None] = field(default_factory=dict)
    launched: dict[int, pd.DataFrame | None] = field(default_factory=dict)
    costs: pd.DataFrame | None = None
    ledger_errors: list[str] = field(default_factory=list)
    outside_ns: int = 0
    """How long the executions last that are in no step at all, of the ranks whose kernels were looked at."""

    def limit(self, threshold: Threshold) -> float:
        """The value of a threshold: the caller's or its own."""
        return self.limits.get(threshold.name, threshold.value)

    @cached_property
    def all_steps(self) -> pd.DataFrame:
        """Every recorded step of every rank, with its `stage` (-1: not known)."""
        return stragglers.staged_steps(self.run)

    @cached_property
    def steps(self) -> pd.DataFrame:
        """The steps after warm-up in which no clock was set, all ranks."""
        rows = self.all_steps
        return rows[~rows["step"].isin((*self.warm_up_steps, *self.set_steps)).to_numpy(dtype=bool)].reset_index(drop=True)

    @cached_property
    def set_steps(self) -> tuple[int, ...]:
        """The steps in which a clock was set; of many ranks clocks are compared after the steps are chosen."""
        if len(self.run.ranks) > ALL_UP_TO_RANKS or not self.run.has("collectives"):
            return ()
        return on_clocks.set_steps(self.clocks, set(self.all_steps["step"]) - set(self.warm_up_steps))

    @cached_property
    def warm_up_steps(self) -> tuple[int, ...]:
        """The first recorded steps that are much longer than the others; with a baseline no more than it has.

        Both runs are of one job: what only one of them has at its start is no warm-up.
        """
        found = robust.warm_up(self.all_steps)
        return found if self.baseline is None else found[: len(robust.warm_up(self.baseline.steps()))]

    @cached_property
    def step_numbers(self) -> tuple[int, ...]:
        """The steps that are judged, ascending."""
        return tuple(sorted(int(step) for step in self.steps["step"].unique()))

    @cached_property
    def settled_steps(self) -> tuple[int, ...]:
        """The judged steps without the first of a job, in which ranks connect and caches fill though it be no warm-up."""
        first = int(self.all_steps["step"].min()) if len(self.all_steps) else 0
        return tuple(step for step in self.step_numbers if step != first or first >= robust.WARM_FROM_STEP)

    @cached_property
    def grown_ns(self) -> int | None:
        """How much longer a step is than in the baseline, at least 0; None without one."""
        if self.baseline is None:
            return None
        before_ns = Case(self.baseline, None, self.limits).step_ns
        return None if self.step_ns is None or before_ns is None else max(0, self.step_ns - before_ns)

    @property
    def unmarked(self) -> bool:
        """Whether the recording has no marks of steps, so that readers take all of it for one, number 0."""
        return "kernels" in self.run.tables and self.step_numbers == (0,)

    @cached_property
    def step_ns(self) -> int | None:
        """The length of a step: the mean over steps of the longest rank; None if no step was recorded."""
        lengths = self.steps.groupby("step")["duration_ns"].max()
        return round(float(lengths.mean())) if len(lengths) else None

    @cached_property
    def part_ns(self) -> Mapping[str, int]:
        """The most that any rank spends in a part of the step, means over steps; only parts that were measured."""
        found = {}
        for part, columns in (
            ("computing", ["computing_ns"]),
            ("communication", ["exposed_communication_ns", "bubble_ns"]),
            ("free", ["free_ns"]),
        ):
            known = self.steps[["rank", *columns]].dropna(subset=columns[:1])
            if len(known):
                amounts = known[columns].fillna(0).astype("int64").sum(axis=1)
                found[part] = round(float(amounts.groupby(known["rank"]).mean().max()))
        return found

    @cached_property
    def detail_ranks(self) -> tuple[int, ...]:
        """The ranks whose kernels are looked at: where only some ranks have any, of those."""
        ranks, tables = self.run.ranks, self.run.tables
        if len(ranks) <= ALL_UP_TO_RANKS:
            return ranks
        recorded = tables.ranks("kernels") if isinstance(tables, LazyTables) and "kernels" in tables else frozenset[int]()
        if not recorded and "kernels" in tables and not isinstance(tables, LazyTables):
            recorded = frozenset(int(rank) for rank in tables["kernels"]["rank"].unique())
        return _peers.suspects(self.steps, NUM_SUSPECTS, recorded or None)

    @property
    def notes(self) -> tuple[str, ...]:
        """Sentences about how the run was read and judged."""
        notes: list[str] = [*self.run.notes]
        if self.warm_up_steps:
            notes.append(_left_out(self.warm_up_steps))
        if self.set_steps:
            notes.append(on_clocks.told(self.set_steps))
        if len(self.detail_ranks) < len(self.run.ranks):
            notes.append(
                say("kernels of {count} of {all} ranks were looked at", count=len(self.detail_ranks), all=len(self.run.ranks))
            )
        if "torn" in vars(self) and self.torn:
            notes.append(
                say(
                    "kernels of {ranks} hold {least_share} and more of the computing time that is stated: "
                    "too few to say when the device is idle",
                    ranks=_ranks(self.torn),
                    least_share=min(self.torn.values()),
                )
            )
        if self.ledger.sampled:
            notes.append(
                say(
                    "of {share} of what {ranks} ran kernel and launch are on record: a sample of the events, which tells neither "
                    "idle times nor what they cost",
                    ranks=_ranks(self.ledger.sampled),
                    share=max(self.ledger.sampled.values()),
                )
            )
        notes += unplaced.told(self.run, self.unplaced)
        if self.ledger_errors:
            notes.append(say("where the time went is told by summaries of the steps at most: {why}", why=self.ledger_errors[0]))
        if self.unmarked:
            notes.append("the recording marks no steps: all of it counts as one, and what is told of a step is of all")
        elif self.step_numbers and len(self.step_numbers) < self.limit(MIN_STEPS):
            form = "{count} step was judged" if len(self.step_numbers) == 1 else "{count} steps were judged"
            judged = say(form, count=len(self.step_numbers))
            notes.append(say("{judged}, too few to show that a cost lasts", judged=judged))
        return tuple(notes)

    @cached_property
    def unplaced(self) -> dict[str, float]:
        """How much of the recording has no step or no cause (`perfkit.explain.diagnose.unplaced`)."""
        return unplaced.figures(self.ledger, self.outside_ns)

    @cached_property
    def kernels(self) -> pd.DataFrame:
        """Kernels of the judged steps and ranks in the order of their start, with `op`: the type, or the name without counters."""
        rows = self.run.frame("kernels", ranks=self.detail_ranks, columns=KERNEL_COLUMNS)
        self.outside_ns = int(rows.loc[rows["step"].isna().to_numpy(dtype=bool), "duration_ns"].sum())
        rows = rows[rows["step"].isin(self.step_numbers).to_numpy(dtype=bool) & rows["start_ns"].notna().to_numpy()]
        rows = rows.assign(
            op=operator_names.operators(rows),
            step=rows["step"].to_numpy(dtype=np.int64),
            start_ns=rows["start_ns"].to_numpy(dtype=np.int64),
        )
        return rows.sort_values(["rank", "start_ns"], kind="stable", ignore_index=True)

    @cached_property
    def kernel_steps(self) -> tuple[int, ...]:
        """The judged steps of which kernels are known, ascending: a profiler may record them for some only. All, if for none."""
        return tuple(sorted(int(step) for step in self.kernels["step"].unique())) or self.step_numbers

    @property
    def num_kernel_steps(self) -> int:
        """In how many of the judged steps kernels are known, at least one."""
        return max(1, len(self.kernel_steps))

    @cached_property
    def torn(self) -> Mapping[int, float]:
        """Ranks whose kernels are a part of what ran, with the share of their stated computing time that the kernels hold."""
        rows = self.kernels[self.kernels["kind"] == "computing"]
        held = rows.groupby(["rank", "step"])["duration_ns"].sum().rename("held_ns").reset_index()
        stated = self.steps[["rank", "step", "computing_ns"]].dropna().merge(held, on=["rank", "step"])
        sums = stated.groupby("rank")[["held_ns", "computing_ns"]].sum().astype("float64")
        shares = (sums["held_ns"] / sums["computing_ns"].clip(lower=1.0))[sums["computing_ns"] > 0]
        return {int(str(rank)): float(share) for rank, share in shares.items() if share < WHOLE}

    @cached_property
    def known_ranks(self) -> frozenset[int]:
        """The ranks all of whose kernels are known."""
        return frozenset(int(rank) for rank in self.kernels["rank"].unique()) - self.torn.keys() - self.ledger.sampled.keys()

    def whole(self, rows: pd.DataFrame) -> pd.DataFrame:
        """The `rows` (with `rank`) of ranks all of whose kernels are known; raises NotMeasuredError if those of no rank are."""
        if not len(self.kernels):
            return rows
        if not self.known_ranks and self.ledger.sampled and not self.torn:
            share = max(self.ledger.sampled.values())
            missing = say("all events of a step: kernel and launch of {share} of what ran were recorded", share=share)
            raise NotMeasuredError(missing, how_to_collect=HOST_BY)
        if not self.known_ranks:
            raise NotMeasuredError(
                say("all kernels of a step: the table holds {share} of the computing time", share=max(self.torn.values())),
                how_to_collect=KERNELS_BY,
            )
        found: pd.DataFrame = rows[rows["rank"].isin(list(self.known_ranks)).to_numpy(dtype=bool)]
        return found

    @cached_property
    def computing(self) -> pd.DataFrame:
        """The kernels that compute; raises NotMeasuredError if the run has none."""
        rows = self.kernels[self.kernels["kind"] == "computing"].reset_index(drop=True)
        if rows.empty:
            raise NotMeasuredError("kernels of a recorded step", how_to_collect=KERNELS_BY)
        return rows

    @cached_property
    def modules(self) -> pd.Series:
        """By row of `computing` the module of the network that it belongs to, as a path; "" where that is not known."""
        known: dict[int, Iterator[str]] = {}
        kernels = self.kernels
        told_of = self.ledger.modules[(self.ledger.modules["module"] != "").to_numpy(dtype=bool)]
        for rank in told_of["rank"].unique().tolist():
            told = module_tree.modules_of(self.run, rank)
            steps = causal_graph(self.run).rank(rank).device["step"].isin(self.step_numbers).to_numpy(dtype=bool)
            known[rank] = iter(() if told is None else told[steps].tolist())
        every = [next(known[rank], "") if rank in known else "" for rank in kernels["rank"].tolist()]
        return pd.Series(every, dtype=object)[(kernels["kind"] == "computing").to_numpy(dtype=bool)].reset_index(drop=True)

    @cached_property
    def operator_sums(self) -> pd.DataFrame:
        """Computing time by `rank` and `op`: `total_ns` and `count` a step (float), `mean_ns` an execution."""
        sums = self.computing.groupby(["rank", "op"], observed=True)["duration_ns"].agg(total_ns="sum", count="size").reset_index()
        steps = self.computing.groupby("rank")["step"].nunique()
        per_step = sums["rank"].map(steps).astype("float64")
        return sums.assign(
            mean_ns=sums["total_ns"] / sums["count"], total_ns=sums["total_ns"] / per_step, count=sums["count"] / per_step
        )

    @cached_property
    def idle_known(self) -> bool:
        """Whether the kernels of any rank say when its device does nothing."""
        return bool(self.known_ranks)

    @cached_property
    def gaps(self) -> pd.DataFrame:
        """Times in which the device of a rank did nothing at all; see `_gaps.idle_gaps`.

        Raises NotMeasuredError if the kernels of every rank are a part of what ran.
        """
        return _gaps.idle_gaps(self.whole(self.kernels), self.steps)

    @cached_property
    def clocks(self) -> Mapping[int, clock.Clock]:
        """The clocks of the ranks that share collectives, of those that are looked at."""
        if self.detail_ranks == self.run.ranks:
            return causal_graph(self.run).clocks
        rows = self.run.frame("collectives", ranks=self.detail_ranks)
        return clock.estimate(replace(self.run, tables={"collectives": rows}))

    @cached_property
    def members(self) -> pd.DataFrame:
        """Collectives, one row a rank and operation, with waiting and transfer told apart; see `perfkit.explain.collectives`."""
        ranks = None if self.detail_ranks == self.run.ranks else self.detail_ranks
        rows = causal_graph(self.run).members(ranks=ranks, clocks=self.clocks)
        return rows[rows["step"].isin(self.step_numbers).fillna(False).to_numpy(dtype=bool)].reset_index(drop=True)

    @cached_property
    def operations(self) -> pd.DataFrame:
        """Collectives, one row an operation with all of its members."""
        return collectives.summed(self.members)

    @cached_property
    def groups(self) -> tuple[placement.Group, ...]:
        """The process groups of the run."""
        return placement.groups(self.run)

    @cached_property
    def num_micro_batches(self) -> int | None:
        """Micro batches of a step: those of the plan, or counted by what the ends of the pipeline receive; None without either."""
        if self.run.plan is None and not self.run.has("collectives"):
            return None
        stages = {int(rank): int(stage) for rank, stage in zip(self.steps["rank"], self.steps["stage"], strict=True)}
        return micro_batches(self.run, self.members, stages)

    @cached_property
    def replay(self) -> Replay | None:
        """The recorded collectives as a chain; None unless those of all ranks are known by their arrival, and all their kernels."""
        if not self.run.has("collectives") or self.known_ranks != frozenset(self.run.ranks):
            return None
        rows = self.members
        alone = rows["operation"].isin(("send", "receive"))
        known = rows[
            ((rows["basis"].astype(str) == "arrival") | alone).to_numpy() & rows["rank"].isin(list(self.clocks)).to_numpy()
        ]
        if len(known) < COMPLETE * len(rows):
            return None
        return replay_of(known, self.computing.assign(start_ns=self.common_ns(self.computing)))

    def common_ns(self, rows: pd.DataFrame) -> clock.Ints:
        """The `start_ns` of rows with `rank` on the clock that the ranks share, as `members` have it."""
        return on_clocks.common_ns(rows, self.clocks if self.run.has("collectives") else {}, self.run.clock)

    @cached_property
    def moments(self) -> Moments | None:
        """Hosts and devices as what waits for what; None unless the launches of all ranks are known, of not too many kernels."""
        if self.known_ranks != frozenset(self.run.ranks) or len(self.kernels) > MOST_KERNELS:
            return None
        meets = len(self.run.ranks) > 1 and self.run.has("collectives")
        return moments_of(self.run, self.step_numbers, self.clocks if meets else {}, self.members if meets else pd.DataFrame())

    @cached_property
    def ledger(self) -> Ledger:
        """Where every ns of the judged steps went, by cause; see `perfkit.explain.ledger`.

        Where that fails, of the summaries of the steps and in the end of nothing, with the reason in `notes`.
        """
        alone = replace(self.run, tables={"steps": self.all_steps.drop(columns="stage")})
        for run, detail_ranks in ((self.run, self.detail_ranks), (self.run, ()), (alone, ())):
            try:
                clocks = self.clocks if detail_ranks and run.has("collectives") else {}
                return ledger(run, steps=self.step_numbers, detail_ranks=detail_ranks, clocks=clocks)
            except Exception as error:  # a defect or a table that cannot be read must not take the rules with it
                self.ledger_errors.append(f"{type(error).__name__}: {error}")
        return ledger(replace(self.run, tables={}))

    @cached_property
    def roles(self) -> Mapping[int, int]:
        """The role of every rank: ranks of one role have equal work, and are compared with one another."""
        signature = self.operator_sums if self.run.has("kernels") and len(self.kernels) else None
        if signature is not None and self.torn:
            signature = signature[signature["rank"].isin(list(self.known_ranks)).to_numpy(dtype=bool)]
        return _peers.roles(self.steps, signature)

    @cached_property
    def nodes(self) -> Mapping[int, int]:
        """The node of every rank where the run says so."""
        placement: Mapping[int, Position] = self.run.placement
        return {rank: position.node for rank, position in placement.items() if position.node is not None}


def _left_out(steps: tuple[int, ...]) -> str:
    told = ", ".join(map(str, steps))
    form = "steps {steps} are warm-up and were left out" if len(steps) > 1 else "step {steps} is warm-up and was left out"
    return say(form, steps=told)


def _ranks(ranks: Collection[int]) -> str:
    return say("rank {rank}", rank=str(min(ranks))) if len(ranks) == 1 else say("{count} ranks", count=len(ranks))
