"""What a strategy search found: ranked plans, the front of step time and memory, and where nothing fits what is missing."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from perfkit.core.breakdown import Breakdown
from perfkit.core.errors import InputError
from perfkit.core.spec.memory_limit import MemoryLimit
from perfkit.core.spec.plan import Plan
from perfkit.core.units import format_bytes
from perfkit.predict.estimate import Estimate
from perfkit.predict.plans.search._search_columns import Evaluated, ranked
from perfkit.predict.plans.search._strategy_plans import StrategyPlans
from perfkit.predict.plans.search.search_text import plan_dict, plan_text
from perfkit.predict.plans.search.strategy_space import OPTIONAL, ORDER, Ints, StrategySpace, broken_rules, strategy_row


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

    def missing_text(self) -> str:
        """Where nothing fits: the plan that comes nearest and what it lacks; empty otherwise."""
        if self.nearest is None:
            return ""
        return (
            f"No plan fits {format_bytes(self.memory_limit_bytes)}. The nearest is {plan_text(self.nearest.plan)}: it needs "
            f"{format_bytes(self.nearest.estimate.peak_memory_bytes)}, {format_bytes(self.nearest.missing_bytes)} more."
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
