"""Search: better layouts by annealing over the options of the stages, many chains at once.

A move gives one stage another option with the same layers in sum, or moves layers between two stages. All options fit, so every
layout on the way does. Chains accept a longer makespan with probability exp(-increase / temperature); the temperature falls from
2 % of the makespan to nothing over the time that is given.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from perfkit.predict.plans.balance._evaluator import Evaluator, Ints
from perfkit.predict.plans.balance._options import StageOptions
from perfkit.predict.plans.balance.problem import layout_problems
from perfkit.predict.plans.schedule.longest import makespans

NUM_CHAINS = 64
HOTTEST = 0.02
_NEAR = 3
_RESTARTS = 40
"""A chain that falls behind returns to the best layout this many times over the whole search."""


class OptionSearch:
    """Annealing from one choice of options; `best` and `best_ns` are the best so far."""

    def __init__(self, evaluator: Evaluator, options: Sequence[StageOptions], start: Sequence[int], seed: int = 0) -> None:
        self.evaluator, self.options = evaluator, list(options)
        self._random = np.random.default_rng(seed)
        types = evaluator.type
        self._several_types = int(types.max()) > 0
        self._totals = [
            np.stack([option.counts[:, types == index].sum(axis=(1, 2)) for index in range(int(types.max()) + 1)], axis=1)
            for option in self.options
        ]
        self._shapes = [option.counts.sum(axis=1) for option in self.options]
        self._near: dict[tuple[int, int], NDArray[np.int64]] = {}
        self.chains = np.tile(np.array(start, dtype=np.int64), (NUM_CHAINS, 1))
        self.times_ns = np.repeat(self._makespans(self.chains[:1]), NUM_CHAINS)
        self.best, self.best_ns = self.chains[0].copy(), int(self.times_ns[0])

    def run(self, seconds: float, on_tick: Callable[[int], bool]) -> None:
        """Anneal for some seconds; `on_tick(best_ns)` stops it by returning False."""
        begin = time.monotonic()
        restart = 1
        while (share := (time.monotonic() - begin) / seconds) < 1 and on_tick(self.best_ns):
            self._sweep(HOTTEST * self.best_ns * (1 - share) ** 2)
            if share * _RESTARTS > restart:
                restart += 1
                behind = self.times_ns > np.median(self.times_ns)
                self.chains[behind], self.times_ns[behind] = self.best, self.best_ns

    def _sweep(self, temperature_ns: float) -> None:
        proposed = np.stack([self._move(chain) for chain in self.chains])
        found_ns = self._makespans(proposed)
        luck = self._random.random(NUM_CHAINS)
        with np.errstate(over="ignore", divide="ignore", invalid="ignore"):
            taken = (found_ns <= self.times_ns) | (luck < np.exp(-(found_ns - self.times_ns) / max(temperature_ns, 1e-9)))
        self.chains[taken], self.times_ns[taken] = proposed[taken], found_ns[taken]
        leader = int(found_ns.argmin())
        if found_ns[leader] < self.best_ns:
            self.best, self.best_ns = proposed[leader].copy(), int(found_ns[leader])

    def _move(self, chain: Ints) -> Ints:
        moved = chain.copy()
        stage = int(self._random.integers(len(chain)))
        moved[stage] = self._pick(self._neighbours(stage, int(chain[stage])))
        change = self._totals[stage][moved[stage]] - self._totals[stage][chain[stage]]
        if change.any():
            other = int(self._random.integers(len(chain)))
            near = self._neighbours(other, int(chain[other]))
            wanted = self._totals[other][chain[other]] - change
            matching = near[(self._totals[other][near] == wanted).all(axis=1)]
            if other == stage or not len(matching):
                return chain
            moved[other] = self._pick(matching)
        if self._several_types and self._out_of_order(moved):
            return chain
        return moved

    def _neighbours(self, stage: int, option: int) -> NDArray[np.int64]:
        found = self._near.get((stage, option))
        if found is None:
            distance = np.abs(self._shapes[stage] - self._shapes[stage][option]).sum(axis=1)
            found = np.flatnonzero(distance <= _NEAR)
            self._near[stage, option] = found
        return found

    def _pick(self, indices: NDArray[np.int64]) -> int:
        return int(indices[int(self._random.random() * len(indices))])

    def _out_of_order(self, chain: Ints) -> bool:
        return bool(layout_problems(self.evaluator.problem, layout_of(self.options, chain)))

    def _makespans(self, chains: Ints) -> Ints:
        times = np.stack([option.times_ns[chains[:, stage]] for stage, option in enumerate(self.options)], axis=-1)
        return makespans(self.evaluator.dag, self.evaluator.table_ns(times))


def layout_of(options: Sequence[StageOptions], chosen: Sequence[int] | Ints) -> Ints:
    """The layout of one option a stage."""
    return np.stack([option.counts[index] for option, index in zip(options, chosen, strict=True)], axis=-1)
