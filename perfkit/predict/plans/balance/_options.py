"""Options: every way in which one stage can hold layers that may be part of an optimal layout.

The makespan never falls when an operation takes longer, and only memory links the kinds of recomputation inside a stage. So of all
mixes with the same layers in every chunk, those that fit and have no chunk faster in another fitting mix are enough. An option that
alone makes the step longer than a known layout is left out too: stage s needs at least lead(s) + m * work(s).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from itertools import product

import numpy as np
from numpy.typing import NDArray

from perfkit.predict.plans.balance._evaluator import Evaluator, Ints

MAX_OPTIONS = 250_000
_MAX_MIXES = 2**14
"""How many mixes of one stage are compared, each with all others, in some 0.1 s. Every further chunk doubles them, or more."""
_TRADED = (("bwd_ns", "wgrad_ns"), ("act_bytes",))
"""What a mix saves by holding more."""


class TooManyOptionsError(Exception):
    """The options of the stages are too many, or take too long, to be listed; the caller falls back to a search without proof."""


@dataclass(frozen=True, eq=False)
class StageOptions:
    """Options of one stage: layer counts (options, varieties, chunks), their times (options, 3, chunks) and peaks (options,)."""

    counts: Ints
    times_ns: Ints
    peak_bytes: Ints

    def __len__(self) -> int:
        return len(self.counts)

    def keep(self, mask: NDArray[np.bool_]) -> StageOptions:
        """Only some of the options."""
        return StageOptions(self.counts[mask], self.times_ns[mask], self.peak_bytes[mask])


@dataclass(frozen=True, eq=False)
class Front:
    """Mixes of kinds for given layers of one chunk that no other mix beats in time and activations, by rising backward time."""

    counts: Ints
    bwd_ns: Ints
    wgrad_ns: Ints
    act_bytes: Ints


class OptionTable:
    """Lists the options of the stages of one problem."""

    def __init__(self, evaluator: Evaluator) -> None:
        self.evaluator = evaluator
        self.problem = evaluator.problem
        self._front = lru_cache(maxsize=None)(self._front_of_type)
        self._mix = lru_cache(maxsize=None)(self._front_of_chunk)

    def all_stages(self, limit_ns: int, go_on: Callable[[], bool] = lambda: True) -> list[StageOptions]:
        """The options of every stage for a makespan of at most `limit_ns`.

        Raises TooManyOptionsError for more than `MAX_OPTIONS`, and where `go_on`, asked now and then, says that they take too long.
        """
        options: list[StageOptions] = []
        for stage in range(self.problem.num_stages):
            options.append(self._stage(stage, limit_ns, MAX_OPTIONS - sum(map(len, options)), go_on))
        return options

    def fastest(self, stage: int, counts: tuple[tuple[int, ...], ...]) -> Ints | None:
        """Layers by variety and chunk of the fastest mix for exactly these layers, by chunk and type; None if nothing fits.

        Where chunks have too many mixes to compare all, it is one that no single step makes faster.
        """
        try:
            found = self._fitting(stage, counts)
        except TooManyOptionsError:
            return self._descended(stage, counts)
        return None if found is None else np.asarray(found[0][int(found[1].sum(axis=(1, 2)).argmin())])

    def _descended(self, stage: int, counts: tuple[tuple[int, ...], ...]) -> Ints | None:
        """From the leanest mix of every chunk, always the step to the next faster one that wins most a byte and still fits."""
        fronts = self._fronts(stage, counts)
        room = (
            math.inf if self.problem.memory_limit_bytes is None else self.problem.memory_limit_bytes - self._static(stage, counts)
        )
        picks = np.array([int(front.act_bytes.argmin()) for front in fronts])
        if self._peaks(stage, fronts, picks[None])[0] > room:
            return None
        traded = [_side_by_side([sum(getattr(front, name) for name in names) for front in fronts]) for names in _TRADED]
        while True:
            chunks = np.flatnonzero(picks > 0)
            stepped = np.repeat(picks[None], len(chunks), axis=0)
            stepped[np.arange(len(chunks)), chunks] -= 1
            if len(chunks):
                fits = self._peaks(stage, fronts, stepped) <= room
                chunks, stepped = chunks[fits], stepped[fits]
            if not len(chunks):
                return np.asarray(_pick(fronts, picks[None], "counts")[0])
            more_ns, more_bytes = (each[chunks, picks[chunks] - 1] - each[chunks, picks[chunks]] for each in traded)
            gain = -more_ns / np.maximum(more_bytes, 1)
            picks = stepped[int(gain.argmax())]

    def _static(self, stage: int, counts: tuple[tuple[int, ...], ...]) -> int:
        """Bytes that a stage with these layers holds all the time."""
        params = np.array([part.param_bytes for part in self.problem.body], dtype=np.int64)
        layers = int((np.array(counts, dtype=np.int64) @ params).sum())
        return self.problem.const_bytes + layers + int(self.evaluator.fixed["param_bytes"][:, stage].sum())

    def _peaks(self, stage: int, fronts: list[Front], picks: Ints) -> Ints:
        """The highest moment of what comes and goes, for mixes that are picked by chunk: (mixes, chunks) to (mixes,)."""
        acts = _pick(fronts, picks, "act_bytes") + self.evaluator.fixed["act_bytes"][:, stage]
        lead = self.evaluator.lead(fronts[-1].counts[picks[:, -1]])
        return np.asarray((acts @ self.evaluator.vectors[stage].T).max(axis=1) + self.evaluator.stage_bytes[lead, stage])

    def _stage(self, stage: int, limit_ns: int, room: int, go_on: Callable[[], bool]) -> StageOptions:
        problem, evaluator = self.problem, self.evaluator
        budget_ns = (limit_ns - self._lead_ns(stage)) // problem.num_microbatches
        chunks = [list(self._chunk_counts(chunk, stage, budget_ns)) for chunk in range(problem.num_chunks)]
        found = []
        for counts in self._combinations(chunks, stage, budget_ns):
            if (options := self._fitting(stage, counts)) is not None:
                found.append(options)
                room -= len(options[0])
            if room < 0 or not go_on():
                raise TooManyOptionsError
        if not found:
            shape = (len(evaluator.type), problem.num_chunks)
            return StageOptions(
                np.zeros((0, *shape), np.int64), np.zeros((0, 3, problem.num_chunks), np.int64), np.zeros(0, np.int64)
            )
        return StageOptions(*(np.concatenate(parts) for parts in zip(*found, strict=True)))

    def _lead_ns(self, stage: int) -> int:
        """Least time to reach a stage, and to return from it where nothing overlaps the way back."""
        parts, least = self.problem.body, self.problem.min_layers_per_chunk
        there = min(part.fwd_ns for part in parts)
        back = 0 if self.problem.schedule == "zbh1" else min(kind.bwd_ns for part in parts for kind in part.kinds.values())
        beside = sum(int(np.minimum(self.evaluator.fixed[name], 0).sum()) for name in ("fwd_ns", "bwd_ns"))
        # Layers of the first stage may have no way back.
        behind = stage - 1 if stage and any(part.forward_first for part in parts) else stage
        return least * (stage * there + behind * back) + beside

    def _chunk_counts(self, chunk: int, stage: int, budget_ns: int) -> Iterator[tuple[int, ...]]:
        """Layers by type that one chunk can hold: at the right place of the body, and not too long on their own."""
        problem = self.problem
        position, least = chunk * problem.num_stages + stage, problem.min_layers_per_chunk
        before, after = position * least, (problem.num_stages * problem.num_chunks - 1 - position) * least
        room = problem.num_layers - before - after
        ranges, start = [], 0
        for part in problem.body:
            stop = start + part.count
            fits_here = before < stop and problem.num_layers - after > start
            work_ns = part.least_work_ns(first=position == 0)
            longest = budget_ns // work_ns if work_ns else part.count
            ranges.append(range(min(part.count, room, longest) + 1) if fits_here else range(1))
            start = stop
        for counts in product(*ranges):
            if least <= sum(counts) <= room and _contiguous(counts, [part.count for part in problem.body]):
                yield counts

    def _combinations(
        self, chunks: list[list[tuple[int, ...]]], stage: int, budget_ns: int
    ) -> Iterator[tuple[tuple[int, ...], ...]]:
        fixed = sum(int(self.evaluator.fixed[name][:, stage].sum()) for name in ("fwd_ns", "bwd_ns", "wgrad_ns"))
        least = [[part.least_work_ns(first=chunk == stage == 0) for part in self.problem.body] for chunk in range(len(chunks))]
        work = [
            [sum(count * ns for count, ns in zip(counts, own, strict=True)) for counts in chunk]
            for chunk, own in zip(chunks, least, strict=True)
        ]
        least_rest = [sum(min(amounts, default=0) for amounts in work[chunk + 1 :]) for chunk in range(len(chunks))]

        def extend(chunk: int, used: int, chosen: tuple[tuple[int, ...], ...]) -> Iterator[tuple[tuple[int, ...], ...]]:
            if chunk == len(chunks):
                yield chosen
                return
            for counts, amount in zip(chunks[chunk], work[chunk], strict=True):
                if used + amount + least_rest[chunk] <= budget_ns:
                    yield from extend(chunk + 1, used + amount, (*chosen, counts))

        return extend(0, fixed, ())

    def _fitting(self, stage: int, counts: tuple[tuple[int, ...], ...]) -> tuple[Ints, Ints, Ints] | None:
        """Counts, times and peaks of the mixes for given layers by chunk that fit and that no other one beats."""
        evaluator, problem = self.evaluator, self.problem
        fronts = self._fronts(stage, counts)
        layers = np.array(counts, dtype=np.int64)  # chunks x types
        static = self._static(stage, counts)
        acts = [front.act_bytes + evaluator.fixed["act_bytes"][chunk, stage] for chunk, front in enumerate(fronts)]
        vectors = evaluator.vectors[stage]
        sizes = [len(act) for act in acts[:-1]]
        if math.prod(map(len, acts)) > _MAX_MIXES:
            raise TooManyOptionsError
        grid = np.indices(sizes).reshape(len(sizes), math.prod(sizes)).T
        before = np.zeros((len(grid), len(vectors)), dtype=np.int64)
        for chunk in range(len(acts) - 1):
            before += acts[chunk][grid[:, chunk]][:, None] * vectors[:, chunk]
        dynamic = (before[:, None, :] + acts[-1][None, :, None] * vectors[None, None, :, -1]).max(axis=2)
        dynamic = dynamic + evaluator.stage_bytes[evaluator.lead(fronts[-1].counts), stage]
        limit = problem.memory_limit_bytes
        fits = np.ones_like(dynamic, dtype=np.bool_) if limit is None else static + dynamic <= limit
        if problem.schedule == "zbh1":
            first, last = np.nonzero(fits)
        else:
            first = np.flatnonzero(fits.any(axis=1))
            last = fits[first].argmax(axis=1)  # mixes are sorted: the first one that fits is the fastest
        if not len(first):
            return None
        picks = np.concatenate([grid[first], last[:, None]], axis=1)
        times = np.stack([_pick(fronts, picks, "bwd_ns"), _pick(fronts, picks, "wgrad_ns")], axis=1)
        best = _undominated(times.reshape(len(times), -1))
        picks, times = picks[best], times[best]
        fwd = layers @ np.array([part.fwd_ns for part in problem.body], dtype=np.int64)
        fixed = np.stack([evaluator.fixed[name][:, stage] for name in ("fwd_ns", "bwd_ns", "wgrad_ns")])
        full = np.concatenate([np.broadcast_to(fwd, (len(times), 1, len(fwd))), times], axis=1) + fixed
        return _pick(fronts, picks, "counts"), full, static + dynamic[first[best], last[best]]

    def _fronts(self, stage: int, counts: tuple[tuple[int, ...], ...]) -> list[Front]:
        """The mixes of every chunk of a stage."""
        return [self._mix(own, stage == chunk == 0) for chunk, own in enumerate(counts)]

    def _front_of_chunk(self, counts: tuple[int, ...], first: bool) -> Front:
        front = self._front(0, counts[0], first)
        for index in range(1, len(counts)):
            front = _combine(front, self._front(index, counts[index], first))
        return front

    def _front_of_type(self, type_index: int, count: int, first: bool) -> Front:
        size = len(self.evaluator.type)
        zero = np.zeros(1, dtype=np.int64)
        front = Front(np.zeros((1, size), dtype=np.int64), zero, zero, zero)
        rows = np.flatnonzero(self.evaluator.type == type_index)
        one = Front(
            np.eye(size, dtype=np.int64)[rows],
            *(self.evaluator.priced(name, first=first)[rows] for name in ("bwd_ns", "wgrad_ns", "act_bytes")),
        )
        return _combine(self._front(type_index, count - 1, first), one) if count else front


def _combine(a: Front, b: Front) -> Front:
    """The best sums of two fronts."""

    def sums(x: Ints, y: Ints) -> Ints:
        return np.asarray((x[:, None] + y[None, :]).reshape(-1, *x.shape[1:]), dtype=np.int64)

    bwd, wgrad, act = sums(a.bwd_ns, b.bwd_ns), sums(a.wgrad_ns, b.wgrad_ns), sums(a.act_bytes, b.act_bytes)
    best = _undominated(np.stack([bwd, act] if not wgrad.any() else [bwd, wgrad, act], axis=1))
    best = best[np.argsort(bwd[best], kind="stable")]
    return Front(sums(a.counts, b.counts)[best], bwd[best], wgrad[best], act[best])


def _undominated(values: Ints) -> NDArray[np.int64]:
    """Indices of rows that no other row is at most in every column; of equal rows the first in lexicographic order stays."""
    order = np.lexsort(values.T[::-1])
    rows = values[order][:, (values != values[:1]).any(axis=0)]  # columns of one value decide nothing
    if rows.shape[1] < 2:
        return order[:1]
    if rows.shape[1] == 2:
        lowest = np.minimum.accumulate(rows[:, 1])
        return np.asarray(order[np.concatenate([[True], rows[1:, 1] < lowest[:-1]])])
    kept: list[int] = []
    best = np.zeros_like(rows)
    for index, row in enumerate(rows):
        if not (best[: len(kept)] <= row).all(axis=1).any():
            best[len(kept)] = row
            kept.append(index)
    return order[kept]


def _pick(fronts: list[Front], picks: NDArray[np.int64], name: str) -> Ints:
    return np.stack([getattr(front, name)[picks[:, chunk]] for chunk, front in enumerate(fronts)], axis=-1)


def _side_by_side(columns: list[Ints]) -> Ints:
    """Columns of different lengths as rows, filled up with zeros."""
    found = np.zeros((len(columns), max(map(len, columns))), dtype=np.int64)
    for row, column in zip(found, columns, strict=True):
        row[: len(column)] = column
    return found


def _contiguous(counts: tuple[int, ...], available: list[int]) -> bool:
    """Whether layers of these types can follow each other: all of a type between two others must be here."""
    present = [index for index, count in enumerate(counts) if count]
    return all(counts[index] == available[index] for index in range(present[0] + 1, present[-1])) if present else True
