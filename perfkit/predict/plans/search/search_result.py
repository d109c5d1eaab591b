"""What a strategy search found: ranked plans, the front of step time and memory, and where nothing fits what is missing."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pandas as pd

from perfkit.core.breakdown import Breakdown
from perfkit.core.errors import InputError
from perfkit.core.spec.memory_limit import MemoryLimit
from perfkit.core.spec.plan import Plan
from perfkit.core.texts import capital, say
from perfkit.core.units import NS_PER_S, format_bytes, format_ns, format_ratio
from perfkit.predict.calibration import Calibration
from perfkit.predict.estimate import Estimate, estimate
from perfkit.predict.plans.search._search_columns import Evaluated, ranked
from perfkit.predict.plans.search._strategy_plans import StrategyPlans
from perfkit.predict.plans.search.search_text import costs_text, division_text, plan_dict, plan_text, recompute_text, strategy_text
from perfkit.predict.plans.search.strategy_space import OPTIONAL, ORDER, Ints, StrategySpace, broken_rules, strategy_row

MARKS = 1_500
LEAST_SHARE = 0.3
"""Of the best throughput; slower strategies would only flatten a picture."""
TOLD_APART = ("tp", "pp", "cp", "ep", "vpp", "mbs")
CLEAR = 0.8
MOST_SHOWN = 8
"""Plans of which a picture shows the steps."""


class Mark(NamedTuple):
    """A strategy of a picture: sizes, figures, whether no other one beats it in both time and memory, and its plan."""

    tp: int
    pp: int
    micro_batch_size: int
    tokens_per_s_per_device: float
    step_time_s: float
    peak_memory_bytes: int
    front: bool
    plan: Callable[[], Plan]


@dataclass(frozen=True, kw_only=True, slots=True)
class RankedPlan:
    """A plan that fits: its estimate, the sentence that says what it costs, and how sure its rank is.

    `within_interval`: its time lies in the interval of the best plan's. `win_share` is the share of draws of the calibration's
    numbers in which it is the fastest of the listed plans, drawn when it is asked for; 0 for a plan that is not listed.
    """

    plan: Plan
    estimate: Estimate
    why: str
    within_interval: bool
    _shares: Callable[[], Sequence[float]] = field(default=lambda: (0.0,), repr=False, compare=False)
    _place: int = field(default=0, repr=False)

    @property
    def win_share(self) -> float:
        """The share of draws in which the plan is the fastest."""
        return self._shares()[self._place]

    def to_dict(self) -> dict[str, Any]:
        """The plan as JSON."""
        return {
            "plan": plan_dict(self.plan),
            "estimate": self.estimate.to_dict(),
            "why": self.why,
            "within_interval": self.within_interval,
            "win_share": self.win_share,
        }


@dataclass(frozen=True, kw_only=True, slots=True)
class Nearest:
    """Where nothing fits: the plan with the least memory, what is missing on its fullest stage, and what fills that stage."""

    plan: Plan
    estimate: Estimate
    missing_bytes: int
    parts: Breakdown

    def to_dict(self) -> dict[str, Any]:
        """The plan as JSON."""
        return {
            "plan": plan_dict(self.plan),
            "estimate": self.estimate.to_dict(),
            "missing_bytes": self.missing_bytes,
            "parts_bytes": {path: int(amount) for path, amount in self.parts.parts.items()},
        }


@dataclass(frozen=True, kw_only=True, slots=True)
class FrontPoint:
    """A plan of the front of step time (s) against peak memory (bytes)."""

    plan: Plan
    step_time_s: float
    tokens_per_s_per_device: float
    peak_memory_bytes: int

    def to_dict(self) -> dict[str, Any]:
        """The point as JSON."""
        return {
            "plan": plan_dict(self.plan),
            "step_time_s": self.step_time_s,
            "tokens_per_s_per_device": self.tokens_per_s_per_device,
            "peak_memory_bytes": self.peak_memory_bytes,
        }


@dataclass(frozen=True, kw_only=True, eq=False)
class SearchResult:
    """What a search found. `searched` combinations = `feasible` + the sum of `rejected`.

    `plans` are the best of different divisions (dp, tp, pp, cp, ep), fastest first; `close` counts all strategies within the
    interval of the best. `suggestion` is the guides' rule with its plan. `complete` is False if the search was stopped.
    """

    devices: int
    memory_limit: MemoryLimit
    calibration: Calibration
    space: StrategySpace
    searched: int
    evaluated: int
    feasible: int
    refined: int
    seconds: float
    complete: bool
    close: int
    plans: tuple[RankedPlan, ...]
    pareto: tuple[FrontPoint, ...]
    rejected: Mapping[str, int]
    suggestion: tuple[str, RankedPlan] | None
    nearest: Nearest | None
    _found: Evaluated = field(repr=False)
    _strategies: StrategyPlans = field(repr=False)

    @property
    def memory_limit_bytes(self) -> int:
        """The limit in bytes."""
        return self.memory_limit.limit_bytes or 0

    @cached_property
    def candidates(self) -> pd.DataFrame:
        """All strategies that fit, fastest first: the sizes, `step_time_s`, `tokens_per_s_per_device`, `peak_memory_bytes`."""
        return pd.DataFrame(self._of_rows(self._fastest))

    def best_of(self, names: Sequence[str], most: int) -> Mapping[str, npt.NDArray[Any]]:
        """Of `candidates` the fastest of every combination of the named sizes, at most `most`, by column."""
        columns, rows = self._found.strategies.columns, self._fastest
        if not len(rows):
            return self._of_rows(rows)
        _, first = np.unique(np.stack([columns[name][rows] for name in names]), axis=1, return_index=True)
        return self._of_rows(rows[np.sort(first)[:most]])

    @cached_property
    def _fastest(self) -> Ints:
        found = self._found
        return ranked(found.strategies.columns, np.flatnonzero(found.fits), found.seconds, found.peak)

    def _of_rows(self, rows: Ints) -> dict[str, npt.NDArray[Any]]:
        found, columns = self._found, self._found.strategies.columns
        names = ("dp", "tp", "pp", "vpp", "cp", "ep", "mbs", "m", "copies", "zero", "sp")
        return {
            **{name: columns[name][rows] for name in names},
            "recompute": np.array(self.space.recompute, dtype=object)[columns["recompute"][rows]],
            "step_time_s": found.seconds[rows],
            "tokens_per_s_per_device": self.space.global_batch * self.space.seq_len / self.devices / found.seconds[rows],
            "peak_memory_bytes": np.rint(found.peak[rows]).astype(np.int64),
            "row": rows,
        }

    @cached_property
    def marks(self) -> Mapping[str, Mark]:
        """By `plan_text` the fastest strategy of every division, chunks and micro batch, the front, and the listed plans.

        At most `MARKS` strategies, and none below `LEAST_SHARE` of the best throughput.
        """
        columns = {name: values.tolist() for name, values in self.best_of(TOLD_APART, MARKS).items()}
        kinds = dict.fromkeys(columns["recompute"], "")
        for kind, row in zip(columns["recompute"], columns["row"], strict=True):
            kinds[kind] = kinds[kind] or recompute_text(self.plan_of(row))
        found: dict[str, Mark] = {}
        for values in zip(*columns.values(), strict=True):
            row = dict(zip(columns, values, strict=True))
            figures = (row["tokens_per_s_per_device"], row["step_time_s"], row["peak_memory_bytes"])
            name = strategy_text(row, kinds[row["recompute"]])
            found[name] = Mark(row["tp"], row["pp"], row["mbs"], *figures, False, partial(self.plan_of, row["row"]))
        for point in self.pareto:
            found[plan_text(point.plan)] = _mark(point.plan, point, front=True)
        for ranked_plan in self.plans:
            before = found.get(name := plan_text(ranked_plan.plan))
            found[name] = _mark(ranked_plan.plan, ranked_plan.estimate, front=before is not None and before.front)
        least = LEAST_SHARE * max((mark.tokens_per_s_per_device for mark in found.values()), default=0.0)
        return {name: mark for name, mark in found.items() if mark.tokens_per_s_per_device >= least}

    def named(self, name: str) -> tuple[Plan, Estimate] | None:
        """The plan that `plan_text` calls so, of those listed, suggested or drawn, with its estimate; None if there is none."""
        known: list[RankedPlan | Nearest] = [*self.plans]
        known += [self.suggestion[1]] if self.suggestion else []
        known += [self.nearest] if self.nearest else []
        for one in known:
            if plan_text(one.plan) == name:
                return one.plan, one.estimate
        if name not in self.marks:
            return None
        plan = self.marks[name].plan()
        return plan, estimate(plan, calibration=self.calibration)

    def plan_of(self, row: int) -> Plan:
        """The plan of the candidate whose column `row` has this value."""
        return self._strategies.plan(self._strategies.row(self._found.strategies.columns, row))

    def plan_with(self, *, recompute: str = "none", **sizes: int) -> Plan:
        """The plan of one strategy by hand: tp, pp, vpp, cp, ep, mbs, copies, zero, shard, sp; what is left out is 1 or 0.

        Raises InputError with every rule that it breaks.
        """
        kinds = self.space.recompute
        problems = [f"{name} is no dimension of a strategy; there are {', '.join(ORDER)}" for name in sizes if name not in ORDER]
        problems += [] if recompute in kinds else [f"recompute = {recompute!r} must be one of {', '.join(kinds)}"]
        problems += [f"{name} = {size} must be at least 1" for name, size in sizes.items() if size < (name not in OPTIONAL)]
        if not problems:
            problems += broken_rules(sizes, self.space)
        if problems:
            raise InputError("plan by hand", problems)
        return self._strategies.plan({**strategy_row(sizes, self.space), "recompute": kinds.index(recompute)})

    def told(self) -> tuple[str, ...]:
        """What is best and how much was searched; then where the limit is from, the rule of thumb, and what fills the nearest."""
        if not self.plans and not self.complete:
            return ("The search was stopped before any plan was evaluated.",)
        text = self.best_text() or self.missing_text()
        texts: list[str] = [text if self.complete else say("Stopped early: {text}", text=text)]
        if self.plans:
            best = self.plans[0]
            texts.append(say("{plan}: {why}", plan=capital(plan_text(best.plan)), why=best.why))
            form = "Of {searched} combinations {kept} keep the rules, {fit} fit {limit_bytes}."
            counts = {"searched": self.searched, "kept": self.evaluated, "fit": self.feasible}
            texts.append(say(form, **counts, limit_bytes=self.memory_limit_bytes))
            texts.append(say("The limit: {source}.", source=self.memory_limit.source))
        if self.nearest is not None:
            parts = sorted(self.nearest.parts.parts.items(), key=lambda item: -item[1])[:4]
            filled = ", ".join(f"{part} {format_bytes(amount)}" for part, amount in parts)
            texts.append(say("The nearest in full: {plan}.", plan=plan_text(self.nearest.plan)))
            texts.append(
                f"What fills its fullest stage: {filled}. More devices, or sharing more of the optimizer's state, would help."
            )
        if self.suggestion is not None:
            rule, suggested = self.suggestion
            texts.append(say("Rule of thumb for this size ({rule}): {why}", rule=rule, why=suggested.why))
        return tuple(texts)

    def rejected_text(self) -> str:
        """What rules out most of the combinations that lost, in a sentence."""
        reason, count = max(self.rejected.items(), key=lambda item: item[1], default=("", 0))
        return (
            say("Most often: {reason}, {count} combinations.", reason=say(reason), count=count)
            if count
            else say("No combination lost.")
        )

    def best_estimates(self) -> dict[str, Estimate]:
        """What is predicted for the listed plans, by division, fastest first; where none fits, for the nearest."""
        listed = [(one.plan, one.estimate) for one in self.plans]
        best = listed or ([] if self.nearest is None else [(self.nearest.plan, self.nearest.estimate)])
        return {division_text(plan): predicted for plan, predicted in best[:MOST_SHOWN]}

    def nearest_table(self) -> pd.DataFrame:
        """What fills the fullest stage of the plan that is nearest to fitting: `part`, `peak_bytes`, most first.

        Empty if a plan fits.
        """
        rows = [] if self.nearest is None else list(self.nearest.parts.parts.items())
        frame = pd.DataFrame(rows, columns=["part", "peak_bytes"]).sort_values("peak_bytes", ascending=False, ignore_index=True)
        frame.attrs["title"] = "What fills the fullest stage of the nearest plan"
        return frame

    def certainty_text(self) -> str:
        """How sure it is that the best plan is the best, in sentences."""
        if not self.plans:
            return "No plan fits, so there is no order."
        best = self.plans[0]
        low, high = (format_ns(bound_s * NS_PER_S) for bound_s in best.estimate.interval_s)
        sure = "clear" if best.win_share >= CLEAR else "too close to call"
        won = format_ratio(best.win_share)
        return (
            f"80 % of its measured times would lie between {low} and {high}; {self.close} other strategies are predicted within "
            f"that. It is the fastest listed in {won} of the draws of the calibration's numbers ({sure})."
        )

    def ranked(self) -> pd.DataFrame:
        """The listed plans, fastest first: `rank`, `plan`, step, throughput, MFU, peak, what is free, what it waits for."""
        rows = [
            {
                "rank": rank,
                "plan": plan_text(one.plan),
                "step_time_s": one.estimate.step_time_s,
                "tokens_per_s_per_device": one.estimate.tokens_per_s_per_device,
                "mfu": one.estimate.mfu,
                "peak_memory_bytes": one.estimate.peak_memory_bytes,
                "free_bytes": self.memory_limit_bytes - (one.estimate.peak_memory_bytes or 0),
                "beside_computing": costs_text(one.estimate),
            }
            for rank, one in enumerate(self.plans, 1)
        ]
        frame = pd.DataFrame(rows)
        frame.attrs["first"] = ("rank", "plan", "step_time_s", "peak_memory_bytes", "beside_computing")
        return frame

    def certainty(self) -> pd.DataFrame:
        """The listed plans with the bounds of 80 % of their measured times and the share of draws that each of them wins."""
        rows = [
            {
                "rank": rank,
                "plan": plan_text(one.plan),
                "step_time_s": one.estimate.step_time_s,
                "low_step_time_s": one.estimate.interval_s[0],
                "high_step_time_s": one.estimate.interval_s[1],
                "fastest_ratio": one.win_share,
            }
            for rank, one in enumerate(self.plans, 1)
        ]
        return pd.DataFrame(rows)

    def best_text(self) -> str:
        """The division of the best plan with its step and its memory; empty where no plan fits."""
        if not self.plans:
            return ""
        best = self.plans[0]
        return say(
            "{division} is best on {devices} devices: {step_ns} a step, its peak {peak_bytes} of {limit_bytes}.",
            division=capital(division_text(best.plan)),
            devices=str(self.devices),
            step_ns=best.estimate.step_time_s * NS_PER_S,
            peak_bytes=best.estimate.peak_memory_bytes or 0,
            limit_bytes=self.memory_limit_bytes,
        )

    def missing_text(self) -> str:
        """Where nothing fits: the plan that comes nearest and what it lacks; empty otherwise."""
        if self.nearest is None:
            return ""
        return say(
            "No plan fits {limit_bytes}. The nearest is {plan}: it needs {peak_bytes}, {missing_bytes} more.",
            limit_bytes=self.memory_limit_bytes,
            plan=division_text(self.nearest.plan),
            peak_bytes=format_bytes(self.nearest.estimate.peak_memory_bytes),
            missing_bytes=self.nearest.missing_bytes,
        )

    def to_dict(self) -> dict[str, Any]:
        """The JSON document of `perfkit plan --json`."""
        rule = None if self.suggestion is None else {"rule": self.suggestion[0], **self.suggestion[1].to_dict()}
        return {
            "searched": self.searched,
            "evaluated": self.evaluated,
            "feasible": self.feasible,
            "refined": self.refined,
            "seconds": self.seconds,
            "complete": self.complete,
            "devices": self.devices,
            "memory_limit_bytes": self.memory_limit_bytes,
            "memory_limit_source": self.memory_limit.source,
            "memory_limit_part": self.memory_limit.part,
            "within_interval": self.close,
            "plans": [plan.to_dict() for plan in self.plans],
            "pareto": [point.to_dict() for point in self.pareto],
            "rejected": dict(self.rejected),
            "suggestion": rule,
            "nearest": None if self.nearest is None else self.nearest.to_dict(),
        }


def _mark(plan: Plan, figures: Estimate | FrontPoint, *, front: bool) -> Mark:
    return Mark(
        plan.parallel.tensor_parallel_size,
        plan.parallel.pipeline_parallel_size,
        plan.workload.micro_batch_size,
        figures.tokens_per_s_per_device,
        figures.step_time_s,
        figures.peak_memory_bytes or 0,
        front,
        lambda: plan,
    )
