"""Evaluating strategies: memory of all, then the step time of those that can fit, in pieces that can be stopped between."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from perfkit.core.plan_columns import Flags, Floats
from perfkit.core.texts import say
from perfkit.predict.estimate import step_seconds
from perfkit.predict.plans.search.search_scores import Scores
from perfkit.predict.plans.search.strategy_space import Columns, Ints, Strategies

Progress = Callable[[str, int, int], object]
"""Called as `progress(what, done, total)`; returning False stops the search with what it has."""

CHUNK = 4096
STATIC = "parameters, gradients and optimizer state alone exceed the limit"
MEMORY = "activations exceed the limit even with what recomputation frees"
STOPPED = "not looked at: the search was stopped"


@dataclass(frozen=True, slots=True)
class Evaluated:
    """All strategies with their `peak` in bytes and `seconds` a step (nan: not computed), and the rows that fit.

    `stopped` are the rows that would have been computed; `tight` the rows of the leanest kind of recomputation that does not fit
    where recomputing every layer does.
    """

    strategies: Strategies
    peak: Floats
    static: Floats
    seconds: Floats
    fits: Flags
    stopped: Flags
    tight: Ints
    limit_bytes: float

    def rejected(self) -> dict[str, int]:
        """How many strategies did not come into question, by reason."""
        static = self.static > self.limit_bytes
        over = self.peak > self.limit_bytes
        found = {**self.strategies.rejected, STATIC: int(static.sum()), MEMORY: int((over & ~static).sum())}
        found[STOPPED] = int(self.stopped.sum())
        return {reason: count for reason, count in found.items() if count}


def evaluate(scores: Scores, *, limit_bytes: float, progress: Progress | None) -> Evaluated:
    """Step time of the strategies that can fit, as far as it is not known yet."""
    columns, plans = scores.strategies.columns, scores.plans
    under = scores.peak <= limit_bytes
    kinds = len(plans.space.recompute)
    blocks = under.reshape(-1, kinds)
    between = blocks[:, -1] & ~blocks[:, -2] if kinds > 1 else np.zeros(len(blocks), dtype=bool)
    tight = np.flatnonzero(between) * kinds + kinds - 2
    wanted = under.copy()
    wanted[tight] = True
    rows, done = np.flatnonzero(wanted & np.isnan(scores.seconds)), 0
    while done < len(rows):
        if progress is not None and progress(say("searched strategies"), done, len(rows)) is False:
            break
        part = rows[done : done + CHUNK]
        some: Columns = {name: values[part] for name, values in columns.items()}
        scores.keep(part, step_seconds(plans.plans(some), scores.known))
        done += len(part)
    timed = ~np.isnan(scores.seconds)
    return Evaluated(
        strategies=scores.strategies,
        peak=scores.peak,
        static=scores.static,
        seconds=scores.seconds,
        fits=under & timed,
        stopped=under & ~timed,
        tight=tight[timed[tight] & timed[tight + 1]] if len(tight) else tight,
        limit_bytes=limit_bytes,
    )


def ranked(columns: Columns, rows: Ints, seconds: Floats, peak: Floats) -> Ints:
    """The rows from the fastest on; of equal times the one that recomputes less, then the one that needs less memory."""
    order = np.lexsort((columns["zero"][rows], peak[rows], columns["recompute"][rows], columns["copies"][rows], seconds[rows]))
    return rows[order]


def divisions(columns: Columns, rows: Ints) -> Ints:
    """A number for the division (tp, cp, pp, ep; dp follows) of every row."""
    key = np.zeros(len(rows), dtype=np.int64)
    for name in ("tp", "cp", "pp", "ep"):
        key = key * (int(columns[name].max()) + 1) + columns[name][rows]
    return key


def best_of_divisions(columns: Columns, rows: Ints) -> Ints:
    """The first of the given (ranked) rows of every division, in the same order."""
    _, first = np.unique(divisions(columns, rows), return_index=True)
    return rows[np.sort(first)]
