"""Scores: what a search finds of every strategy whatever the memory limit is, kept so that another limit only filters.

Rows are put together from one block a size of tensor parallel, so that another largest size keeps what is known of the others.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any

import numpy as np

from perfkit.core.plan_columns import Coded, Floats, PlanColumns
from perfkit.core.spec.plan import Plan
from perfkit.predict.calibration import Calibration
from perfkit.predict.cost.cost_columns import cost_columns
from perfkit.predict.cost.labels import labels_of
from perfkit.predict.estimate import Estimate, estimates, step_seconds, under_limit
from perfkit.predict.memory.settings import MemorySettings
from perfkit.predict.memory.table import ALL, fullest_bytes
from perfkit.predict.plans.search._search_refine import StageTotals, least_full, with_full
from perfkit.predict.plans.search._search_sensitivity import win_shares
from perfkit.predict.plans.search._strategy_plans import StrategyPlans
from perfkit.predict.plans.search.strategy_space import RULES, Columns, Ints, Strategies, enumerate_strategies

Strategy = tuple[int, int]
"""A strategy by its size of tensor parallel and its row among those of that size."""


@dataclass(frozen=True, slots=True)
class Variant:
    """A strategy with `full` layers of every stage recomputed (none: as its kind says), and the plan of that."""

    row: int
    key: tuple[Strategy, tuple[int, ...]]
    plan: Plan


@dataclass(frozen=True, slots=True)
class _Block:
    """The strategies of one size of tensor parallel with their bytes, and seconds as far as they are known (else nan)."""

    strategies: Strategies
    peak: Floats
    static: Floats
    seconds: Floats


class Scored:
    """What searches found of the strategies of one space; given to the next search, it looks only at what is new to it.

    A search of another model, device, batch or choice (but the sizes of tensor parallel and the largest of them) starts anew.
    """

    def __init__(self) -> None:
        self._of: tuple[Any, ...] = ()
        self._start(())

    def _start(self, of: tuple[Any, ...]) -> None:
        self._of = of
        self._blocks: dict[tuple[int, bool], _Block] = {}
        self.totals: dict[Strategy, StageTotals] = {}
        self.seconds: dict[tuple[Strategy, tuple[int, ...]], float] = {}
        self.plans: dict[Strategy, Plan] = {}
        self.estimates: dict[tuple[Strategy, tuple[int, ...]], Estimate] = {}
        self.shares: dict[tuple[Any, ...], Floats] = {}

    def scores(self, plans: StrategyPlans, settings: MemorySettings, known: Calibration) -> Scores:
        """All strategies of the space of `plans`, with their memory."""
        sizes, node = plans.space.values("tp").tolist(), plans.space.devices_per_node
        of = (replace(plans.base, memory_limit=None), replace(plans.space, tp=(), devices_per_node=0), settings, known)
        if self._of != of:
            self._start(of)
        # The devices of a node decide only whether a size is allowed: of one that is not, there are no strategies.
        blocks = [(size, not node or size <= node) for size in sizes]
        self._add(plans, settings, [block for block in blocks if block not in self._blocks])
        return Scores(self, plans, settings, known, [(block[0], self._blocks[block]) for block in blocks])

    def _add(self, plans: StrategyPlans, settings: MemorySettings, blocks: list[tuple[int, bool]]) -> None:
        found = [enumerate_strategies(replace(plans.space, tp=(size,))) for size, _ in blocks]
        if not sum(map(len, found)):
            peak = static = np.zeros(0)
        else:
            rows = plans.plans(_joined(found))
            peak, static = fullest_bytes(rows, Coded.same(settings, len(rows)), ALL, ("static",))
        start = 0
        for block, strategies in zip(blocks, found, strict=True):
            part = slice(start, start + len(strategies))
            self._blocks[block] = _Block(strategies, peak[part], static[part], np.full(len(strategies), np.nan))
            start = part.stop


class Scores:
    """The strategies of one search in rows: sizes in columns, bytes, and what was estimated of single ones."""

    def __init__(
        self,
        scored: Scored,
        plans: StrategyPlans,
        settings: MemorySettings,
        known: Calibration,
        blocks: Sequence[tuple[int, _Block]],
    ) -> None:
        self._scored, self.plans, self.settings, self.known, self._blocks = scored, plans, settings, known, blocks
        parts = [block for _, block in blocks]
        lost = {rule.reason: sum(block.strategies.rejected.get(rule.reason, 0) for block in parts) for rule in RULES}
        self.strategies = Strategies(
            MappingProxyType(dict(_joined([block.strategies for block in parts]))),
            sum(block.strategies.searched for block in parts),
            MappingProxyType({reason: count for reason, count in lost.items() if count}),
        )
        self.peak = np.concatenate([block.peak for block in parts])
        self.static = np.concatenate([block.static for block in parts])
        self.seconds = np.concatenate([block.seconds for block in parts])
        self._starts = np.cumsum([0, *(len(block.strategies) for block in parts)])

    def keep(self, rows: Ints, seconds: Floats) -> None:
        """Take over the seconds of a step of some strategies."""
        self.seconds[rows] = seconds
        for (_, block), start in zip(self._blocks, self._starts.tolist(), strict=False):
            block.seconds[:] = self.seconds[start : start + len(block.seconds)]

    def plan(self, row: int) -> Plan:
        """The plan of a strategy."""
        key, kept = self._key(row), self._scored.plans
        if key not in kept:
            kept[key] = self.plans.plan(self.plans.row(self.strategies.columns, row))
        elif kept[key].memory_limit != (limit := self.plans.base.memory_limit):
            kept[key] = replace(kept[key], memory_limit=limit)
        return kept[key]

    def variant(self, row: int) -> Variant:
        """A strategy with the recomputation of its kind."""
        return Variant(row, (self._key(row), ()), self.plan(row))

    def refined(self, row: int, limit_bytes: float) -> tuple[Variant, int] | None:
        """A strategy with the fewest fully recomputed layers that fit, and its peak in bytes; None if not even all do."""
        key, plan = self._key(row), self.plan(row)
        totals = self._scored.totals.setdefault(key, {})
        full = least_full(plan, limit_bytes, self.settings, totals)
        if full is None:
            return None
        return Variant(row, (key, full), with_full(plan, full, self.settings)), max(totals[place] for place in enumerate(full))

    def step_seconds(self, variants: Sequence[Variant]) -> list[float]:
        """Seconds of a step of every variant."""
        kept = self._scored.seconds
        if new := {variant.key: variant.plan for variant in variants if variant.key not in kept}:
            seconds = step_seconds(PlanColumns.of(list(new.values())), self.known)
            kept.update(zip(new, seconds.tolist(), strict=True))
        return [kept[variant.key] for variant in variants]

    def estimates(self, variants: Sequence[Variant]) -> list[Estimate]:
        """The whole prediction of every variant."""
        kept = self._scored.estimates
        if new := {variant.key: variant.plan for variant in variants if variant.key not in kept}:
            kept.update(zip(new, estimates(list(new.values()), calibration=self.known), strict=True))
        return [under_limit(kept[variant.key], variant.plan) for variant in variants]

    def win_shares(self, variants: Sequence[Variant]) -> list[float]:
        """The share of draws of the calibration's numbers in which each variant is the fastest."""
        key, kept = tuple(variant.key for variant in variants), self._scored.shares
        if key not in kept:
            plans = PlanColumns.of([variant.plan for variant in variants])
            kept[key] = win_shares(cost_columns(plans), self.known.efficiency(labels_of(plans)), self.known.interval)
        return [float(share) for share in kept[key]]

    def _key(self, row: int) -> Strategy:
        index = int(np.searchsorted(self._starts, row, side="right")) - 1
        return self._blocks[index][0], row - int(self._starts[index])


def _joined(parts: Sequence[Strategies]) -> Columns:
    return {name: np.concatenate([part.columns[name] for part in parts]) for name in parts[0].columns}
