"""Paper: the fault game on paper: one fault, exact numbers, no simulator; for a class without a network, or to practise reading.

Eight ranks, two pipeline stages of four, twenty steps, times in ms. Kind, rank and strength come from the digest of class seed,
student and round, as the numbers of exercises do; noise of a rank and step from a digest of its own. A step takes
data + the longest (computing + free) + the longest transit - what is hidden of it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
import numpy.typing as npt

from perfkit.teach._draw import digest

Ints = npt.NDArray[np.int64]
NUM_RANKS, STAGE_SIZE, NUM_STEPS = 8, 4, 20
COMPUTING_MS, TRANSIT_MS, HIDDEN_MS, FREE_MS, DATA_MS = 700, 120, 60, 10, 2
CASTS, MESSAGES = 40, 160
PEAK_MB, FRAGMENTS_MB = 48_874, 512

KINDS: Mapping[str, str] = {
    "none": "leave it alone",
    "slow_rank": "check clock, ECC and host of that rank; swap it",
    "slow_link": "repair the link, or move the rank",
    "data_stall": "more workers, prefetch, faster storage",
    "imbalanced_pp_stage": "move layers, or recompute elsewhere",
    "host_bound": "graph mode, fewer launches, no synchronization",
    "gc_pause": "schedule the collector: same step on all ranks",
    "small_messages": "fuse the buckets",
    "no_overlap": "overlap, other order, copies apart from computing",
    "excess_casts": "one data type, fused operators",
    "memory_fragmentation": "virtual memory pool, fixed shapes",
    "jitter": "pin cores, check for other load, repeat",
}
"""Kinds in the order of the draw, and what one does about each."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Record:
    """What a run recorded: ms by rank and step (8 × 20), data ms by step, counts a step and memory peaks in MB."""

    computing: Ints
    free: Ints
    transit: Ints
    data: Ints
    hidden: int
    casts: int
    messages: int
    peak_mb: int
    peak_with_fragments_mb: int

    @property
    def busy(self) -> Ints:
        """Computing and free time by rank and step."""
        return self.computing + self.free

    @property
    def wait(self) -> Ints:
        """How long each rank waits for the others, by step."""
        waits: Ints = self.busy.max(axis=0) - self.busy + self.transit.max(axis=0) - self.transit
        return waits

    @property
    def step(self) -> Ints:
        """The time of each step."""
        steps: Ints = self.data + self.busy.max(axis=0) + self.transit.max(axis=0) - self.hidden
        return steps


@dataclass(frozen=True, kw_only=True, slots=True)
class PaperRound:
    """A round: what is true (`ranks` empty: everywhere or nowhere; `cost` in `unit`), the run of today and last week's."""

    kind: str
    strength: int
    ranks: tuple[int, ...]
    cost: Fraction
    unit: str
    action: str
    today: Record
    last_week: Record


def paper_round(class_seed: int, student: str, name: str) -> PaperRound:
    """The round `name` ("G01", "G02", ...) of a student."""
    drawn = digest(class_seed, student, name)
    kind, rank, strength = list(KINDS)[drawn[0] % len(KINDS)], drawn[1] % NUM_RANKS, drawn[2] % 3
    noise = np.array(
        [[digest(class_seed, student, name, at, step)[0] % 5 - 2 for step in range(1, NUM_STEPS + 1)] for at in range(NUM_RANKS)]
    )
    fine = _record(noise)
    ranks = _ranks(kind, rank)
    today = _broken(kind, strength, ranks, noise)
    slower = Fraction(int(today.step.sum() - fine.step.sum()), NUM_STEPS)
    grown = today.peak_with_fragments_mb - fine.peak_with_fragments_mb
    cost, unit = (Fraction(grown), "MB") if kind == "memory_fragmentation" else (slower, "ms a step")
    return PaperRound(
        kind=kind, strength=strength, ranks=ranks, cost=cost, unit=unit, action=KINDS[kind], today=today, last_week=fine
    )


def _ranks(kind: str, rank: int) -> tuple[int, ...]:
    if kind in ("slow_rank", "gc_pause"):
        return (rank,)
    if kind == "slow_link":
        return tuple(sorted((rank, rank // STAGE_SIZE * STAGE_SIZE + (rank + 1) % STAGE_SIZE)))
    return tuple(range(STAGE_SIZE, NUM_RANKS)) if kind == "imbalanced_pp_stage" else ()


def _record(noise: Ints, **changes: Any) -> Record:
    def everywhere(amount: int) -> Ints:
        return np.full(noise.shape, amount, dtype=np.int64)

    fine: dict[str, Any] = {
        "computing": COMPUTING_MS + noise, "free": everywhere(FREE_MS), "transit": everywhere(TRANSIT_MS),
        "data": np.full(NUM_STEPS, DATA_MS, dtype=np.int64), "hidden": HIDDEN_MS, "casts": CASTS, "messages": MESSAGES,
        "peak_mb": PEAK_MB, "peak_with_fragments_mb": PEAK_MB + FRAGMENTS_MB,
    }  # fmt: skip
    return Record(**{**fine, **changes})


def _broken(kind: str, strength: int, ranks: tuple[int, ...], noise: Ints) -> Record:
    fine = _record(noise)
    where = np.zeros((NUM_RANKS, 1), dtype=np.int64)
    where[list(ranks)] = 1

    def each(steps: int) -> Ints:
        hit: Ints = (np.arange(1, NUM_STEPS + 1) % steps == 0).astype(np.int64)
        return hit

    def one_of(*amounts: int) -> int:
        return amounts[strength]

    changes: dict[str, dict[str, Any]] = {
        "none": {},
        "slow_rank": {"computing": fine.computing + where * one_of(56, 105, 245)},
        "slow_link": {"transit": np.where(where == 1, one_of(240, 360, 480), fine.transit)},
        "data_stall": {"data": fine.data + each(one_of(2, 3, 1)) * one_of(150, 400, 250)},
        "imbalanced_pp_stage": {"computing": fine.computing + where * one_of(42, 84, 140)},
        "host_bound": {"free": fine.free + one_of(90, 170, 260)},
        "gc_pause": {"free": fine.free + where * each(5) * one_of(500, 900, 1500)},
        "small_messages": {"transit": fine.transit + one_of(60, 80, 120), "messages": one_of(1280, 2560, 5120)},
        "no_overlap": {"hidden": 0},
        "excess_casts": {"computing": fine.computing + one_of(30, 45, 75), "casts": one_of(340, 490, 790)},
        "memory_fragmentation": {"peak_with_fragments_mb": PEAK_MB + one_of(4096, 6144, 9216)},
        "jitter": {"computing": COMPUTING_MS + noise * one_of(8, 16, 32)},
    }
    return _record(noise, **changes[kind])
