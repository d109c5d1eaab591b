"""Branch: a tree of relaxations in which paths are added at every node, for problems with several chunks a stage.

A node allows some of the options of every stage. It is split where the relaxation mixes options with different numbers of layers:
"stage s holds at most k layers" against "more than k", for all of its chunks or one of them; then by backward time. The node with
the lowest relaxation is split next, so the lowest one left is a bound for every layout. A solver for whole numbers sees the paths
only at the end of a round; here they cut off fractional answers everywhere, which is worth more than its other means.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from perfkit.plans._cuts import deciding_cuts
from perfkit.plans._evaluator import Evaluator, Ints
from perfkit.plans._milp import Cut, Floats, StageModel
from perfkit.plans._options import StageOptions

Mask = NDArray[np.bool_]
Masks = list[Mask]
"""For every stage, which options are allowed."""

COARSE = 4e-4
"""Paths that exceed a relaxation by less than this share wait until they matter."""
FINE = 1e-9
INWARD = 0.4
"""Paths are looked for at this share of the way from the best layout to the relaxation first: such paths cut deeper."""
NEARLY = 0.97
"""Of the paths at such a point, those almost as long as the best layout's are worth a look."""
MAX_CUTS = 1500
_WHOLE_STAGE = 3.0
"""Splitting by the layers of a stage moves the relaxation more than by those of one chunk."""
_MIXED = 1e-6


class _Node(NamedTuple):
    bound_ns: float
    number: int
    allowed: Masks
    weights: list[Floats]


class _Split(NamedTuple):
    stage: int
    low: Mask


class Tree:
    """The open nodes; `bound_ns` is the lowest of their relaxations."""

    def __init__(
        self, evaluator: Evaluator, options: Sequence[StageOptions], unit_ns: float, cuts: Sequence[Cut], center_ns: Floats
    ) -> None:
        self._evaluator, self._options = evaluator, list(options)
        self.model = StageModel(evaluator.problem, options, unit_ns)
        self._center_ns = center_ns
        self._center_makespan_ns = max(length_ns for length_ns, _ in deciding_cuts(evaluator, center_ns))
        self._known: set[tuple[int, bytes]] = set()
        for cut in cuts:
            self._add(cut)
        self._open: list[_Node] = []
        self.num_nodes = 0
        self._go_on: Callable[[], bool] = lambda: True
        self._features = [_features(part) for part in options]

    @property
    def bound_ns(self) -> float | None:
        """The lowest relaxation of the open nodes; None when there are none left."""
        return self._open[0].bound_ns if self._open else None

    def run(self, best_ns: Callable[[], int], on_tick: Callable[[float], bool], on_choice: Callable[[list[int]], object]) -> bool:
        """Split nodes until none can hold a better layout (True) or `on_tick(bound_ns)` says to stop (False).

        `on_choice` gets every whole choice of options that the tree comes upon.
        """
        self._go_on = lambda: on_tick(0.0)
        if not self.num_nodes:
            self._push([np.ones(len(part), dtype=np.bool_) for part in self._options], 0.0, best_ns())
        while self._open:
            if self._open[0].bound_ns >= best_ns():
                self._open.clear()
                break
            if not on_tick(self._open[0].bound_ns):
                return False
            node = heapq.heappop(self._open)
            split = self._split(node)
            if split is None:
                on_choice([int(weights.argmax()) for weights in node.weights])
                self._close(node, best_ns())
                continue
            for side in (split.low, ~split.low):
                allowed = [*node.allowed]
                allowed[split.stage] = allowed[split.stage] & side
                self._push(allowed, node.bound_ns, best_ns())
        return True

    def _close(self, node: _Node, best_ns: int) -> None:
        """A node with a whole choice: with all of its paths it is as long as its simulation, and so done."""
        found = self._relax(node.allowed, FINE, best_ns)
        if not self._go_on():
            self._keep(node.bound_ns, node, node.weights)
            return
        if found is not None and found[1] is not None and self._split(node._replace(weights=found[1])) is not None:
            self._keep(found[0], node, found[1])

    def _push(self, allowed: Masks, at_least_ns: float, best_ns: int) -> None:
        found = self._relax(allowed, COARSE, best_ns)
        self.num_nodes += 1
        if found is not None and found[1] is not None:
            room_ns = best_ns - found[0]
            costly = [costs > room_ns for costs in self.model.reduced_costs()]
            allowed = [mask & ~out for mask, out in zip(allowed, costly, strict=True)]
            heapq.heappush(self._open, _Node(max(found[0], at_least_ns), self.num_nodes, allowed, found[1]))

    def _keep(self, value_ns: float, node: _Node, weights: list[Floats]) -> None:
        self.num_nodes += 1
        heapq.heappush(self._open, _Node(max(value_ns, node.bound_ns), self.num_nodes, node.allowed, weights))

    def _relax(self, allowed: Masks, tolerance: float, best_ns: int) -> tuple[float, list[Floats] | None] | None:
        """The relaxation with its paths, in ns, and the options' weights there; no weights if it is as long as the best layout."""
        model = self.model
        model.allow(allowed)
        self._forget()
        while True:
            found = model.relaxation()
            if found is None:
                return None
            value_ns, times_ns = found
            if value_ns >= best_ns:
                return value_ns, None
            # Ended early, the relaxation lacks paths: it is lower than it could be and still a bound.
            if not self._separate(value_ns, times_ns, tolerance) or not self._go_on():
                return value_ns, model.option_weights()

    def _separate(self, value_ns: float, times_ns: Floats, tolerance: float) -> bool:
        for share in (INWARD, 1.0):
            point = share * times_ns + (1 - share) * self._center_ns
            added = False
            shortest_ns = share * value_ns + (1 - share) * NEARLY * self._center_makespan_ns
            for _, cut in deciding_cuts(self._evaluator, point, above_ns=shortest_ns):
                length_ns = float((cut.counts * times_ns).sum()) + cut.comm_ns
                if length_ns > value_ns * (1 + tolerance) + 1e-3 * self.model.unit_ns:
                    added = self._add(cut) or added
            if added:
                return True
        return False

    def _add(self, cut: Cut) -> bool:
        key = (cut.comm_ns, cut.counts.tobytes())
        if key in self._known:
            return False
        self._known.add(key)
        self.model.add_cut(cut)
        return True

    def _forget(self) -> None:
        """Drop paths that do not hold up the last relaxation once there are too many; they are found again where they matter."""
        if len(self.model.cuts) > MAX_CUTS:
            for cut in self.model.drop_slack_cuts():
                self._known.discard((cut.comm_ns, cut.counts.tobytes()))

    def _split(self, node: _Node) -> _Split | None:
        best, chosen = 0.0, None
        for stage, weights in enumerate(node.weights):
            if weights.max() > 1 - _MIXED:
                continue
            for low, preference in self._sides(stage, weights):
                below = float(weights[low].sum())
                score = preference * min(below, 1 - below)
                if min(below, 1 - below) > _MIXED and score > best:
                    best, chosen = score, _Split(stage, low)
        return chosen

    def _sides(self, stage: int, weights: Floats) -> Iterator[tuple[Mask, float]]:
        """Ways to split the options of a stage: by layers at the mean, by backward time where layers agree, or one by one."""
        features, times = self._features[stage]
        for index, feature in enumerate(features):
            yield feature <= np.floor(float(weights @ feature) + _MIXED), _WHOLE_STAGE if index == 0 else 1.0
        yield times < float(weights @ times), 1e-3
        yield np.arange(len(weights)) == int(weights.argmax()), 1e-6


def _features(options: StageOptions) -> tuple[list[Ints], Ints]:
    """Layers in sum and by chunk, and the whole backward time, of every option."""
    layers = options.counts.sum(axis=1)
    chunks = [layers[:, chunk] for chunk in range(layers.shape[1])]
    return [layers.sum(axis=1), *(chunks if len(chunks) > 1 else [])], options.times_ns[:, 1].sum(axis=1)
