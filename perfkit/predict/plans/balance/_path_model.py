"""Path model: the relaxation with the paths that matter, found one after another, for schedules of many operations.

A path is added where the relaxation's own times make it longer than the relaxation says. Paths at a point between the best layout
and the relaxation are looked for first: they cut deeper.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from perfkit.predict.plans.balance._cuts import deciding_cuts
from perfkit.predict.plans.balance._evaluator import Evaluator
from perfkit.predict.plans.balance._milp import Cut, Floats, Masks, Relaxed, StageModel, StoppedError
from perfkit.predict.plans.balance._options import StageOptions
from perfkit.predict.plans.balance.problem import Layout

COARSE = 4e-4
"""Paths that exceed a relaxation by less than this share wait until its options are whole ones."""
FINE = 1e-9
INWARD = 0.4
"""The share of the way from the best layout to the relaxation at which paths are looked for first."""
NEARLY = 0.97
"""Of the paths at such a point, those almost as long as the best layout's are worth a look."""
MAX_CUTS = 1500
_WHOLE = 1 - 1e-6


class PathModel(StageModel):
    """The relaxation of one problem with a growing set of paths; `relaxed` restricts the options and solves it."""

    def __init__(
        self, evaluator: Evaluator, options: Sequence[StageOptions], unit_ns: float, cuts: Sequence[Cut], best: Layout
    ) -> None:
        super().__init__(evaluator.problem, options, unit_ns)
        self._evaluator = evaluator
        self._center_ns = evaluator.chunk_times_ns(best[None])[0].astype(np.float64)
        self._center_makespan_ns = max(length_ns for length_ns, _ in deciding_cuts(evaluator, self._center_ns))
        self._known: set[tuple[int, bytes]] = set()
        for cut in cuts:
            self._learn(cut)

    def relaxed(self, allowed: Masks, _basis: Any, best_ns: float, go_on: Callable[[], bool]) -> Relaxed | None:
        """The optimum with these options; None if nothing below `best_ns` is left. Raises StoppedError when `go_on` says so."""
        self.allow(allowed)
        self._forget()
        tolerance = COARSE
        while True:
            found = self.relaxation()
            if found is None or found[0] >= best_ns:
                return None
            value_ns, times_ns = found
            if not self._separate(value_ns, times_ns, tolerance):
                weights = self.option_weights()
                if tolerance == FINE or min(float(share.max()) for share in weights) < _WHOLE:
                    return Relaxed(value_ns, weights, self.reduced_costs(), None)
                tolerance = FINE
            if not go_on():
                raise StoppedError

    def _separate(self, value_ns: float, times_ns: Floats, tolerance: float) -> bool:
        for share in (INWARD, 1.0):
            point = share * times_ns + (1 - share) * self._center_ns
            added = False
            shortest_ns = share * value_ns + (1 - share) * NEARLY * self._center_makespan_ns
            for _, cut in deciding_cuts(self._evaluator, point, above_ns=shortest_ns):
                length_ns = float((cut.counts * times_ns).sum()) + cut.comm_ns
                if length_ns > value_ns * (1 + tolerance) + 1e-3 * self.unit_ns:
                    added = self._learn(cut) or added
            if added:
                return True
        return False

    def _learn(self, cut: Cut) -> bool:
        key = (cut.comm_ns, cut.counts.tobytes())
        if key in self._known:
            return False
        self._known.add(key)
        self.add_cut(cut)
        return True

    def _forget(self) -> None:
        """Drop paths that do not hold up the last relaxation once there are too many; they are found again where they matter."""
        if len(self.cuts) > MAX_CUTS:
            for cut in self.drop_slack_cuts():
                self._known.discard((cut.comm_ns, cut.counts.tobytes()))
