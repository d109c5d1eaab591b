"""Evaluator: makespans and memory peaks of many layouts of one problem at once, exactly in int64.

Layouts have shape (layouts, varieties, chunks, stages). The peak of a stage is

    const + parameters + max over its in-flight vectors a of sum over chunks v of a[v] * activations of chunk v

and what its backward pass has besides, which depends on the recomputation in its last chunk.
"""

from __future__ import annotations

from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from perfkit.predict.memory.in_flight import in_flight
from perfkit.predict.plans.balance.problem import EndPart, Layout, PipelineProblem
from perfkit.predict.plans.schedule.compile import compile_schedule
from perfkit.predict.plans.schedule.dag import Dag
from perfkit.predict.plans.schedule.longest import Times, makespans

Ints = NDArray[np.int64]
LEADS = {"none": 0, "comm": 0, "select": 1, "both": 1, "full": 2}
"""The row of `PipelineProblem.stage_bytes` that a layer of a kind in the last chunk asks for; the largest counts."""
ONCE_BACK = ("bwd_ns", "wgrad_ns", "act_bytes")
"""Amounts that a layer without a backward pass has none of."""


class Evaluator:
    """The amounts of a problem as arrays: one entry a variety, and what head and tail add to the first and last chunk."""

    def __init__(self, problem: PipelineProblem) -> None:
        self.problem = problem
        parts = [problem.body[variety.type] for variety in problem.varieties]
        kinds = [part.kinds[variety.kind] for part, variety in zip(parts, problem.varieties, strict=True)]
        self.fwd_ns = np.array([part.fwd_ns for part in parts], dtype=np.int64)
        self.bwd_ns = np.array([kind.bwd_ns for kind in kinds], dtype=np.int64)
        self.wgrad_ns = np.array([kind.wgrad_ns for kind in kinds], dtype=np.int64)
        self.param_bytes = np.array([part.param_bytes for part in parts], dtype=np.int64)
        self.act_bytes = np.array([kind.act_bytes for kind in kinds], dtype=np.int64)
        self.type = np.array([variety.type for variety in problem.varieties], dtype=np.int64)
        self.forward_first = np.array([part.forward_first for part in parts], dtype=np.bool_)
        self.fixed = {name: self._ends(name) for name in ("fwd_ns", "bwd_ns", "wgrad_ns", "param_bytes", "act_bytes")}
        for name, rows in zip(("fwd_ns", "bwd_ns"), problem.pass_ns, strict=False):
            self.fixed[name] += np.array(rows, dtype=np.int64)
        self.leads = np.array([LEADS[variety.kind] for variety in problem.varieties], dtype=np.int64)
        self.stage_bytes = np.array(problem.stage_bytes or [[0] * problem.num_stages] * 3, dtype=np.int64)

    @cached_property
    def dag(self) -> Dag:
        """The compiled schedule."""
        problem = self.problem
        return compile_schedule(
            problem.schedule, problem.num_stages, problem.num_chunks, problem.num_microbatches, problem.p2p_mode
        )

    @cached_property
    def vectors(self) -> tuple[Ints, ...]:
        """For every stage its in-flight vectors, shape (vectors, chunks)."""
        problem = self.problem
        micro_batches = problem.num_microbatches // (problem.micro_batch_copies * problem.sequence_chunks)
        found = in_flight(problem.schedule, problem.num_stages, problem.num_chunks, micro_batches, problem.sequence_chunks)
        return tuple(np.array(vectors, dtype=np.int64) for vectors in found)

    def chunk_times_ns(self, layouts: Layout) -> Ints:
        """Forward, backward and weight gradient, shape (layouts, 3, chunks, stages)."""
        return np.stack([self._summed(layouts, name) for name in ("fwd_ns", "bwd_ns", "wgrad_ns")], axis=1)

    def priced(self, name: str, *, first: bool) -> Ints:
        """An amount of every variety: in the first chunk of the first stage, or in any other place."""
        amounts: Ints = getattr(self, name)
        return np.where(self.forward_first, 0, amounts) if first and name in ONCE_BACK else amounts

    def _summed(self, layouts: Layout, name: str) -> Ints:
        """What layers and ends have of an amount, shape (layouts, chunks, stages)."""
        found = np.asarray(np.tensordot(layouts, self.priced(name, first=False), (1, 0)) + self.fixed[name])
        if self.forward_first.any():
            found[:, 0, 0] = layouts[:, :, 0, 0] @ self.priced(name, first=True) + self.fixed[name][0, 0]
        return found

    def durations_ns(self, layouts: Layout) -> Times:
        """The duration tables of the schedule, shape (rows, layouts)."""
        return self.table_ns(self.chunk_times_ns(layouts))

    def table_ns(self, times_ns: Ints) -> Times:
        """The duration tables of chunk times (layouts, 3, chunks, stages), shape (rows, layouts)."""
        count = len(times_ns)
        table = np.zeros((self.dag.num_rows, count), dtype=np.int64)
        table[: self.dag.pair_row] = times_ns.reshape(count, -1).T
        table[self.dag.hop_row] = self.problem.p2p_ns
        return table

    def makespans_ns(self, layouts: Layout) -> Times:
        """The makespan of every layout."""
        return makespans(self.dag, self.durations_ns(layouts))

    def peaks_bytes(self, layouts: Layout) -> Ints:
        """The memory peak of every layout and stage, shape (layouts, stages)."""
        static, acts = self._summed(layouts, "param_bytes"), self._summed(layouts, "act_bytes")
        dynamic = np.stack([(acts[:, :, stage] @ vectors.T).max(axis=1) for stage, vectors in enumerate(self.vectors)], axis=1)
        besides = np.take_along_axis(self.stage_bytes, self.lead(np.swapaxes(layouts[:, :, -1], 1, 2)), axis=0)
        peaks: Ints = self.problem.const_bytes + static.sum(axis=1) + dynamic + besides
        return peaks

    def least_peaks_bytes(self, layout: Layout) -> Ints:
        """The peak of every stage of a layout, if its backward pass had as little besides as with any recomputation."""
        own = self.stage_bytes[self.lead(layout[:, -1].T), np.arange(self.problem.num_stages)]
        return np.asarray(self.peaks_bytes(layout[None])[0] - own + self.stage_bytes.min(axis=0))

    def lead(self, counts: Ints) -> Ints:
        """The row of `stage_bytes` for layers of a last chunk, with the varieties on the last axis."""
        return np.asarray(((counts > 0) * self.leads).max(axis=-1), dtype=np.int64)

    def fits(self, layouts: Layout) -> NDArray[np.bool_]:
        """Whether every stage of a layout stays within the limit."""
        limit = self.problem.memory_limit_bytes
        if limit is None:
            return np.ones(len(layouts), dtype=np.bool_)
        return np.asarray((self.peaks_bytes(layouts) <= limit).all(axis=1), dtype=np.bool_)

    def _ends(self, name: str) -> Ints:
        problem = self.problem
        amounts = np.zeros((problem.num_chunks, problem.num_stages), dtype=np.int64)
        amounts[0, 0] += _amount(problem.head, name)
        amounts[-1, -1] += _amount(problem.tail, name)
        return amounts


def _amount(part: EndPart | None, name: str) -> int:
    return 0 if part is None else int(getattr(part, name))
