"""Branch: a tree of relaxations, for problems with several chunks a stage.

A node allows some of the options of every stage. It is split where the relaxation mixes options with different numbers of layers:
"stage s holds at most k layers" against "more than k", for all of its chunks or one of them; then by backward time. The node with
the lowest relaxation is split next, so the lowest one left is a bound for every layout. Of the possible splits the one is made that
raised both of its sides most whenever it was made before.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np

from perfkit.predict.plans.balance._evaluator import Ints
from perfkit.predict.plans.balance._milp import Floats, Mask, Masks, StoppedError
from perfkit.predict.plans.balance._options import StageOptions
from perfkit.predict.plans.balance._path_model import PathModel
from perfkit.predict.plans.balance._schedule_model import ScheduleModel

_FIRST_GUESS = {"stage": 4e-3, "chunk": 1.5e-3}
"""What a split is expected to raise the relaxation by, as a share of the makespan, before any of its kind was made."""
_RANK = {"stage": 2, "chunk": 2, "time": 1, "single": 0}
"""Splits of options with the same layers are made only where no other is left."""
_LEAST_GAIN = 1e-6
_MIXED = 1e-6


class _Node(NamedTuple):
    bound_ns: float
    number: int
    allowed: list[Mask]
    weights: list[Floats]
    basis: Any


class _Split(NamedTuple):
    kind: str
    feature: tuple[int, int]
    low: Mask
    below: float
    """Share of the relaxation's weights on the low side."""


class _Gains:
    """By how much splits raised the relaxation of their low and high side, for a whole unit of the split amount."""

    def __init__(self, makespan_ns: int) -> None:
        self._makespan_ns = makespan_ns
        self._seen: dict[object, list[list[float]]] = {}

    def learn(self, split: _Split, side: int, gain_ns: float) -> None:
        """A split has raised its low (0) or high (1) side by this much."""
        for key in (split.feature, split.kind):
            self._seen.setdefault(key, [[], []])[side].append(gain_ns / self._distance(split, side))

    def worth(self, split: _Split, room_ns: float) -> float:
        """How much both sides are expected to rise, together; more than `room_ns` closes a side and counts no more."""
        least_ns = _LEAST_GAIN * self._makespan_ns
        low, high = (min(max(self._expected_ns(split, side), least_ns), room_ns) for side in (0, 1))
        return low * high

    def _expected_ns(self, split: _Split, side: int) -> float:
        for key in (split.feature, split.kind):
            if gains := self._seen.get(key, [[], []])[side]:
                return self._distance(split, side) * sum(gains) / len(gains)
        return self._distance(split, side) * _FIRST_GUESS.get(split.kind, 0.0) * self._makespan_ns

    @staticmethod
    def _distance(split: _Split, side: int) -> float:
        return split.below if side else 1 - split.below


class Tree:
    """The open nodes; `bound_ns` is the lowest of their relaxations."""

    def __init__(self, model: PathModel | ScheduleModel, best_ns: int) -> None:
        self.model = model
        self._features = [_features(part) for part in model.options]
        self._gains = _Gains(best_ns)
        self._open: list[_Node] = []
        self.num_nodes = 0
        self._go_on: Callable[[], bool] = lambda: True

    @property
    def bound_ns(self) -> float:
        """The lowest relaxation of the open nodes; 0 while there are none."""
        return self._open[0].bound_ns if self._open else 0.0

    def run(self, best_ns: Callable[[], int], on_tick: Callable[[float], bool], on_choice: Callable[[list[int]], object]) -> bool:
        """Split nodes until none can hold a better layout (True) or `on_tick(bound_ns)` says to stop (False).

        `on_choice` gets every whole choice of options that the tree comes upon.
        """
        self._go_on = lambda: on_tick(self.bound_ns)
        try:
            if not self.num_nodes:
                self._push([np.ones(len(part), dtype=np.bool_) for part in self.model.options], 0.0, None, best_ns())
            while self._open and self._open[0].bound_ns < best_ns():
                if not self._go_on():
                    return False
                self._grow(self._open[0], best_ns, on_choice)
        except StoppedError:
            return False
        self._open.clear()
        return True

    def _grow(self, node: _Node, best_ns: Callable[[], int], on_choice: Callable[[list[int]], object]) -> None:
        """Replace the first open node by its two sides; it stays until both are known, so that a stop loses no bound."""
        split = self._split(node, best_ns())
        if split is None:  # whole options: their relaxation is as long as their simulation
            on_choice([int(weights.argmax()) for weights in node.weights])
            heapq.heappop(self._open)
            return
        sides = []
        for side, mask in enumerate((split.low, ~split.low)):
            stage = split.feature[0]
            allowed = [*node.allowed]
            allowed[stage] = allowed[stage] & mask
            sides.append(self._relax(allowed, node.bound_ns, node.basis, best_ns()))
            room_ns = best_ns() - node.bound_ns
            found = sides[-1]
            self._gains.learn(split, side, room_ns if found is None else min(found.bound_ns - node.bound_ns, room_ns))
        heapq.heappop(self._open)
        for found in sides:
            if found is not None:
                heapq.heappush(self._open, found)

    def _push(self, allowed: Masks, at_least_ns: float, basis: Any, best_ns: int) -> None:
        found = self._relax(allowed, at_least_ns, basis, best_ns)
        if found is not None:
            heapq.heappush(self._open, found)

    def _relax(self, allowed: Masks, at_least_ns: float, basis: Any, best_ns: int) -> _Node | None:
        """The node of these options; None if it holds nothing better than the best layout."""
        found = self.model.relaxed(allowed, basis, best_ns, self._go_on)
        self.num_nodes += 1
        if found is None:
            return None
        room_ns = best_ns - found.value_ns
        kept = [mask & (costs <= room_ns) for mask, costs in zip(allowed, found.costs_ns, strict=True)]
        return _Node(max(found.value_ns, at_least_ns), self.num_nodes, kept, found.weights, found.basis)

    def _split(self, node: _Node, best_ns: int) -> _Split | None:
        room_ns = best_ns - node.bound_ns
        return max(self._splits(node), key=lambda split: (_RANK[split.kind], self._gains.worth(split, room_ns)), default=None)

    def _splits(self, node: _Node) -> Iterator[_Split]:
        """Ways to split: by the layers of a stage or chunk at their mean; where layers agree, by time, then one by one."""
        for stage, weights in enumerate(node.weights):
            if weights.max() > 1 - _MIXED:
                continue
            features, times = self._features[stage]
            sides = [
                ("stage" if index == 0 else "chunk", feature <= np.floor(float(weights @ feature) + _MIXED))
                for index, feature in enumerate(features)
            ]
            sides += [("time", times < float(weights @ times)), ("single", np.arange(len(weights)) == int(weights.argmax()))]
            for index, (kind, low) in enumerate(sides):
                below = float(weights[low].sum())
                if min(below, 1 - below) > _MIXED:
                    yield _Split(kind, (stage, index), low, below)


def _features(options: StageOptions) -> tuple[list[Ints], Ints]:
    """Layers in sum and by chunk, and the whole backward time, of every option."""
    layers = options.counts.sum(axis=1)
    chunks = [layers[:, chunk] for chunk in range(layers.shape[1])]
    return [layers.sum(axis=1), *(chunks if len(chunks) > 1 else [])], options.times_ns[:, 1].sum(axis=1)
