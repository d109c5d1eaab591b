"""Solve: the rounds of `balance`, from a first layout to a proven one or to the end of the time.

1. Relaxation: the model without whole numbers; every path that its fractional times make too long is added until none is left.
2. A short attempt with whole numbers; most problems with one chunk a stage end here.
3. Annealing for a better layout. With it, options whose reduced cost exceeds the gap cannot be part of a better layout and go.
4. Whole numbers again, round after round, until bound and makespan meet or the time is up.

With several chunks a stage, 2 and 4 split relaxations into a tree instead (`_branch.py`).
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from perfkit.predict.plans.balance._branch import Tree
from perfkit.predict.plans.balance._cuts import deciding_cuts
from perfkit.predict.plans.balance._descent import descend
from perfkit.predict.plans.balance._evaluator import Evaluator
from perfkit.predict.plans.balance._milp import Cut, StageModel
from perfkit.predict.plans.balance._options import OptionTable, TooManyOptionsError
from perfkit.predict.plans.balance._path_model import PathModel
from perfkit.predict.plans.balance._schedule_model import ScheduleModel
from perfkit.predict.plans.balance._search import OptionSearch, layout_of
from perfkit.predict.plans.balance._start import choice_of, even_layouts, time_grain_ns, work_bound_ns
from perfkit.predict.plans.balance.moves import LayerPlanner
from perfkit.predict.plans.balance.problem import Layout

FIRST_TRY_S = 4.0
FIRST_TRY_SHARE = 0.6
"""One chunk a stage is mostly solved at once, several rarely: seconds for these, a share of the time for those."""
REPORT_EVERY_S = 0.1
FEW_OPERATIONS = 2_000
"""So many operations fit into the relaxation themselves; with more, adding the paths that matter is faster."""
MANY_CUTS = 400
"""More paths than this slow the solver more than they help; those that hold the relaxation up stay."""
WHOLE = 1e5
"""The first makespan in the solver's unit: far from the solver's tolerances at both ends."""
DESCENT_SHARE = 0.15
SEARCH_SHARE = 0.15
TOLERANCE = 1e-7
"""Relative error allowed for the solver's bound, which is computed in floating point."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Ended:
    """Where the solve stands or how it ended."""

    what: str
    status: str
    best_ns: int | None
    bound_ns: int
    num_cuts: int
    rounds: int
    seconds: float


class Solver:
    """Keeps the best layout, the best bound and the clock while the steps of the module's docstring run."""

    def __init__(self, evaluator: Evaluator, time_limit_s: float, report: Callable[[Ended], bool]) -> None:
        self.evaluator, self.problem = evaluator, evaluator.problem
        self.best: Layout | None = None
        self.best_ns: int | None = None
        self.bound_ns = 0
        self._begin, self._limit_s = time.monotonic(), time_limit_s
        self._report = report
        self._cancelled, self._rounds, self._what = False, 0, "first layouts"
        self._model: StageModel | None = None
        self._pending: list[Cut] = []
        self._last_report_s, self._unit_ns = 0.0, 1.0
        # Every makespan is a multiple of this, so a bound may be rounded up to one.
        self._grain_ns = max(1, time_grain_ns(evaluator))

    def consider(self, layout: Layout) -> bool:
        """Keep a layout if it fits and is the best so far."""
        if not self.evaluator.fits(layout[None])[0]:
            return False
        makespan_ns = int(self.evaluator.makespans_ns(layout[None])[0])
        if self.best_ns is not None and makespan_ns >= self.best_ns:
            return False
        self.best, self.best_ns = layout.copy(), makespan_ns
        return True

    def solve(self) -> Ended:
        """Run until proven, cancelled or out of time."""
        for layout in even_layouts(self.evaluator):
            self.consider(layout)
        self._descend()
        if self.best_ns is None:
            return self._ended("time_limit")
        self._unit_ns = max(self.best_ns, 1) / WHOLE
        self._raise_bound(work_bound_ns(self.evaluator))
        table = OptionTable(self.evaluator)
        try:
            options = table.all_stages(self.best_ns, lambda: self._tick(math.inf) and self._remaining_s() > 0)
        except TooManyOptionsError:
            return self._ended("time_limit" if self._cancelled or not self._remaining_s() else "heuristic")
        self._model = StageModel(self.problem, options, self._unit_ns)
        if self.problem.num_chunks > 1 and len(self.evaluator.dag.graph) <= FEW_OPERATIONS:
            model = ScheduleModel(self.evaluator, options, self._unit_ns)
            return self._ended(self._solve_tree(Tree(model, self.best_ns)))
        self._relax(self._remaining_s() * 0.3)
        self._round_relaxation()
        self._tighten()
        return self._ended(self._solve_rounds() if self.problem.num_chunks == 1 else self._solve_tree(self._path_tree()))

    def _solve_rounds(self) -> str:
        status = self._whole(self._remaining_s() * FIRST_TRY_SHARE)
        if status != "unfinished":
            return status
        self._anneal(self._remaining_s() * SEARCH_SHARE)
        self._tighten()
        status = self._whole(self._remaining_s())
        return "time_limit" if status == "unfinished" else status

    def _path_tree(self) -> Tree:
        model, best = self._need_model(), self.best
        assert best is not None
        return Tree(PathModel(self.evaluator, model.options, self._unit_ns, model.cuts, best), self.best_ns or 0)

    def _solve_tree(self, tree: Tree) -> str:
        if self._grow(tree, min(FIRST_TRY_S, self._remaining_s())):
            return "optimal"
        self._anneal(self._remaining_s() * SEARCH_SHARE)
        return "optimal" if self._grow(tree, self._remaining_s()) else "time_limit"

    def _grow(self, tree: Tree, seconds: float) -> bool:
        """Split nodes of the tree; True once nothing better is left."""
        until = time.monotonic() + seconds
        self._what = "tree of relaxations"
        done = tree.run(
            best_ns=lambda: self.best_ns or 0,
            on_tick=lambda bound_ns: time.monotonic() < until and not self._proven() and self._tick(bound_ns),
            on_choice=lambda chosen: self.consider(layout_of(tree.model.options, chosen)),
        )
        self._rounds = tree.num_nodes
        if done:
            self._raise_bound(float(self.best_ns or 0))
        return self._proven()

    def _descend(self) -> None:
        """A good layout soon: everything after it has less to search."""
        planner = LayerPlanner(self.problem)
        until = time.monotonic() + DESCENT_SHARE * self._remaining_s()
        self.consider(descend(planner, planner.even(), lambda: time.monotonic() < until and self._tick(self.bound_ns)))

    def _relax(self, seconds: float) -> None:
        """Add paths until the relaxation is as long as it says; its optimum is a bound."""
        model, until = self._need_model(), time.monotonic() + seconds
        self._what = "relaxation"
        while time.monotonic() < until and self._tick(self.bound_ns):
            found = model.relaxation()
            if found is None:
                return
            value_ns, times_ns = found
            self._raise_bound(value_ns)
            cuts = deciding_cuts(self.evaluator, times_ns, above_ns=value_ns)
            violated = [cut for length_ns, cut in cuts if length_ns > value_ns * (1 + TOLERANCE) + self._noise_ns]
            if not violated:
                return
            for cut in violated:
                model.add_cut(cut)

    def _round_relaxation(self) -> None:
        """The whole options nearest to the relaxation, as a first good layout."""
        model = self._need_model()
        chosen = model.nearest(time_limit_s=min(2.0, self._remaining_s()))
        if chosen is not None:
            self.consider(layout_of(model.options, chosen))

    def _whole(self, seconds: float) -> str:
        """Rounds with whole options: "optimal", "stalled", or "unfinished" when the seconds or the visitor end them."""
        model, until = self._need_model(), time.monotonic() + seconds
        self._what = "whole layers"
        while time.monotonic() < until and not self._cancelled:
            if self._proven():
                return "optimal"
            self._rounds += 1
            answer = model.solve(
                time_limit_s=until - time.monotonic(),
                abs_gap_ns=0.9 * self._grain_ns,
                start=choice_of(model.options, self.best),
                on_tick=self._tick,
                on_solution=lambda chosen: self._learn(model, chosen),
            )
            if answer.infeasible:
                # The options were listed for layouts at least as good as the best one, so there is no better one.
                self._raise_bound(float(self.best_ns or 0))
                return "optimal"
            self._raise_bound(answer.bound_ns)
            known = len(model.cuts)
            if answer.chosen is not None:
                self._learn(model, answer.chosen)
            self._add_pending(model)
            if self._proven():
                return "optimal"
            if len(model.cuts) == known and not answer.interrupted:
                return "stalled"
        return "unfinished"

    def _learn(self, model: StageModel, chosen: Sequence[int]) -> None:
        """Simulate a choice of the solver; its deciding paths join the model before the next round."""
        layout = layout_of(model.options, chosen)
        self.consider(layout)
        times_ns = self.evaluator.chunk_times_ns(layout[None])[0].astype(np.float64)
        self._pending += [cut for _, cut in deciding_cuts(self.evaluator, times_ns)]

    def _add_pending(self, model: StageModel) -> None:
        known = {(cut.comm_ns, cut.counts.tobytes()) for cut in model.cuts}
        for cut in self._pending:
            key = (cut.comm_ns, cut.counts.tobytes())
            if key not in known:
                known.add(key)
                model.add_cut(cut)
        self._pending = []

    def _tighten(self) -> None:
        """Drop options that no better layout can have, and paths that do not matter; relax again."""
        model = self._need_model()
        self._relax(self._remaining_s() * 0.2)
        found = model.relaxation()
        if found is None or self.best_ns is None:
            return
        room_ns = self.best_ns * (1 + TOLERANCE) - found[0]
        own = choice_of(model.options, self.best)
        keep = [costs <= room_ns for costs in model.reduced_costs()]
        for stage, option in enumerate(own or ()):
            keep[stage][option] = True
        cuts = model.cuts if len(model.cuts) <= MANY_CUTS else model.tight_cuts()
        options = [part.keep(mask) for part, mask in zip(model.options, keep, strict=True)]
        self._model = StageModel(self.problem, options, self._unit_ns)
        for cut in cuts:
            self._model.add_cut(cut)

    def _anneal(self, seconds: float) -> None:
        model = self._need_model()
        start = choice_of(model.options, self.best)
        if start is None or seconds <= 0:
            return
        self._what = "search"
        search = OptionSearch(self.evaluator, model.options, start)

        def tick(_best_ns: int) -> bool:
            if self.best_ns is None or search.best_ns < self.best_ns:
                self.consider(layout_of(model.options, search.best))
            return self._tick(self.bound_ns) and not self._proven()

        search.run(seconds, tick)
        self.consider(layout_of(model.options, search.best))

    def _tick(self, bound_ns: float) -> bool:
        """Tell the caller where the solve stands; False once it should stop."""
        if math.isfinite(bound_ns) and self._model is not None:
            self._raise_bound(bound_ns)
        now_s = time.monotonic()
        if now_s - self._last_report_s >= REPORT_EVERY_S:
            self._last_report_s = now_s
            self._cancelled = self._cancelled or not self._report(self._ended("running"))
        return not self._cancelled

    def _raise_bound(self, bound_ns: float) -> None:
        if not math.isfinite(bound_ns):
            return
        if self.best_ns is not None and bound_ns * (1 + TOLERANCE) + self._noise_ns >= self.best_ns:
            self.bound_ns = self.best_ns
            return
        safe_ns = bound_ns * (1 - TOLERANCE) - self._noise_ns
        self.bound_ns = max(self.bound_ns, math.ceil(safe_ns / self._grain_ns) * self._grain_ns)
        if self.best_ns is not None:
            self.bound_ns = min(self.bound_ns, self.best_ns)

    def _proven(self) -> bool:
        return self.best_ns is not None and self.bound_ns >= self.best_ns

    @property
    def _noise_ns(self) -> float:
        return 1e-6 * self._unit_ns

    def _remaining_s(self) -> float:
        return max(0.0, self._limit_s - (time.monotonic() - self._begin))

    def _need_model(self) -> StageModel:
        assert self._model is not None
        return self._model

    def _ended(self, status: str) -> Ended:
        return Ended(
            what=self._what,
            status="optimal" if self._proven() else status,
            best_ns=self.best_ns,
            bound_ns=self.bound_ns,
            num_cuts=len(self._model.cuts) if self._model is not None else 0,
            rounds=self._rounds,
            seconds=time.monotonic() - self._begin,
        )
