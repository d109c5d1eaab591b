"""Schedule: the exact makespan of a pipeline schedule for given stage times, and where the time goes.

`bubble_over_work` is P T / work - 1 and `idle_share` 1 - work / (P T), with P stages, makespan T and all compute time (also
recomputation) as work. Communication is no work. The simulation is exact in int64 ns for uneven stages; closed forms are tests.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from perfkit.core.errors import InputError
from perfkit.predict.memory.in_flight import Vector, in_flight
from perfkit.predict.plans.schedule.compile import compile_schedule, mode_problems
from perfkit.predict.plans.schedule.dag import Dag
from perfkit.predict.plans.schedule.longest import longest_path, node_ends
from perfkit.predict.plans.schedule.order import KINDS, SPLIT, Ints, LaneTable, shape_problems

Rows = tuple[tuple[int, ...], ...]
"""One tuple a chunk with one entry a stage."""

ORDER_SHOWN = 24
MAX_NS = 10**12
"""Times of one operation above this (17 minutes) are refused: sums of a million of them must fit into int64."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ScheduleCase:
    """Times of one forward and backward of a micro batch by chunk and stage, and how outputs travel.

    `wgrad_ns` is the weight gradient where the schedule runs it apart (zbh1, dualpipe), then left out of `bwd_ns`. `pair_ns` is, by
    stage, the time of an overlapped forward and backward of dualpipe; None means that they take as long as one after the other.
    """

    schedule: str
    num_stages: int
    num_microbatches: int
    fwd_ns: Rows
    bwd_ns: Rows
    wgrad_ns: Rows | None = None
    pair_ns: tuple[int, ...] | None = None
    num_chunks: int = 1
    p2p_ns: int = 0
    p2p_mode: str = "none"

    def __post_init__(self) -> None:
        problems = shape_problems(self.schedule, self.num_stages, self.num_chunks, self.num_microbatches)
        if not problems:
            problems = [*mode_problems(self.schedule, self.p2p_mode), *self._time_problems()]
        if problems:
            raise InputError("schedule", problems)

    def _time_problems(self) -> list[str]:
        problems = _bad_times("p2p_ns", (self.p2p_ns,))
        if (self.schedule in SPLIT) != (self.wgrad_ns is not None):
            need = "needs" if self.schedule in SPLIT else "does not use"
            problems.append(f"wgrad_ns: {self.schedule} {need} the time of the weight gradient")
        if self.pair_ns is not None and (self.schedule != "dualpipe" or len(self.pair_ns) != self.num_stages):
            problems.append(f"pair_ns has {len(self.pair_ns)} entries; only dualpipe uses it, with one for each of its stages")
        for name in ("fwd_ns", "bwd_ns", "wgrad_ns"):
            rows: Rows | None = getattr(self, name)
            if rows is None:
                continue
            if [len(row) for row in rows] != [self.num_stages] * self.num_chunks:
                shape = [len(row) for row in rows]
                problems.append(f"{name} has rows of {shape} entries; {self.num_chunks} rows of {self.num_stages} are needed")
            problems += _bad_times(name, (value for row in rows for value in row))
        return [*problems, *_bad_times("pair_ns", self.pair_ns or ())]

    @property
    def dag(self) -> Dag:
        """The compiled schedule."""
        return compile_schedule(
            self.schedule,
            self.num_stages,
            self.num_chunks,
            self.num_microbatches,
            self.p2p_mode,
            paired=self.pair_ns is not None,
        )

    def durations_ns(self) -> list[int]:
        """The duration table of the compiled schedule."""
        table: list[int] = []
        for rows in (self.fwd_ns, self.bwd_ns, self.wgrad_ns or ((0,) * self.num_stages,) * self.num_chunks):
            # A stage of dualpipe also holds the mirrored stage, as its chunk 1.
            held = (rows[0], rows[0][::-1]) if self.schedule == "dualpipe" else rows
            table += [value for row in held for value in row]
        return [*table, *(self.pair_ns or (0,) * self.num_stages), self.p2p_ns]


@dataclass(frozen=True, kw_only=True, slots=True)
class ScheduleResult:
    """What a simulation found; lists have one entry a stage. `ends_ns` and `path` number the nodes of the compiled schedule."""

    case: ScheduleCase
    makespan_ns: int
    stage_busy_ns: tuple[int, ...]
    first_backward_start_ns: tuple[int, ...]
    stage_end_ns: tuple[int, ...]
    inflight_maximal: tuple[tuple[Vector, ...], ...]
    ends_ns: tuple[int, ...]
    path: tuple[int, ...]

    @property
    def stage_idle_ns(self) -> tuple[int, ...]:
        """The bubble of every stage: what it does not compute, transfers included."""
        return tuple(self.makespan_ns - busy_ns for busy_ns in self.stage_busy_ns)

    @property
    def bubble_over_work(self) -> float:
        """P T / work - 1."""
        work_ns = sum(self.stage_busy_ns)
        return self.case.num_stages * self.makespan_ns / work_ns - 1 if work_ns else 0.0

    @property
    def idle_share(self) -> float:
        """1 - work / (P T)."""
        whole_ns = self.case.num_stages * self.makespan_ns
        return 1 - sum(self.stage_busy_ns) / whole_ns if whole_ns else 0.0

    @property
    def peak_inflight_chunks(self) -> tuple[int, ...]:
        """The most activations that a stage holds at once, those of all chunks counted alike."""
        return tuple(max(sum(vector) for vector in vectors) for vectors in self.inflight_maximal)

    def critical_counts(self) -> dict[str, int]:
        """Operations of each kind on the critical path, as `F3`: those of stage 3."""
        nodes = (self.case.dag.nodes[node] for node in self.path)
        names = [f"{op.kind}{node.stages[0]}" for node in nodes for op in node.item]
        return {name: names.count(name) for name in dict.fromkeys(names)}

    def frame(self) -> pd.DataFrame:
        """One row an operation or transfer: `stage`, `op`, `microbatch`, `chunk`, `start_ns`, `end_ns`, `critical`.

        An overlapped pair is one row with the names of both; a blocking transfer has a row for each of its two stages, with `op`
        "transfer" and no micro batch.
        """
        return pd.DataFrame(self.columns())

    def columns(self) -> dict[str, NDArray[Any]]:
        """The columns of `frame`, in a tenth of its time."""
        graph = self.case.dag.graph
        ends_ns, critical = np.array(self.ends_ns), np.zeros(len(graph), dtype=np.bool_)
        critical[list(self.path)] = True
        twice = np.flatnonzero(graph.receiver >= 0)
        nodes = np.concatenate([np.arange(len(graph)), twice])
        stage = np.concatenate([graph.ops.stage, graph.receiver[twice]])
        starts_ns = ends_ns - _lengths_ns(self.case)
        order = np.lexsort((np.arange(len(nodes)) >= len(graph), nodes, starts_ns[nodes], stage))
        nodes, ops = nodes[order], graph.ops
        return {
            "stage": stage[order],
            "op": _names(ops)[nodes],
            "microbatch": ops.microbatch[nodes, 0],
            "chunk": ops.chunk[nodes, 0],
            "start_ns": starts_ns[nodes],
            "end_ns": ends_ns[nodes],
            "critical": critical[nodes],
        }

    def to_dict(self) -> dict[str, Any]:
        """The result as `perfkit schedule --json` prints it."""
        items = [item for item in self.case.dag.lanes[0] if item]
        return {
            "makespan_ns": self.makespan_ns,
            "stage_busy_ns": list(self.stage_busy_ns),
            "bubble_over_work": self.bubble_over_work,
            "idle_share": self.idle_share,
            "inflight_maximal": [[list(vector) for vector in vectors] for vectors in self.inflight_maximal],
            "peak_inflight_chunks": list(self.peak_inflight_chunks),
            "first_backward_start_ns": list(self.first_backward_start_ns),
            "stage_end_ns": list(self.stage_end_ns),
            "order_stage0": ["+".join(map(str, item)) for item in items[:ORDER_SHOWN]],
        }


def simulate_schedule(case: ScheduleCase) -> ScheduleResult:
    """Run one step of a pipeline schedule and say when every operation ends, in ns from the start of the step.

    The result has the makespan, how long each stage is busy, the most micro batches that each holds at once, and `frame()` with one
    row an operation. Raises ScheduleError, with the operations that wait for one another, if it deadlocks.
    """
    dag, table = case.dag, case.durations_ns()
    all_ends_ns = node_ends(dag, table)
    computes, lengths_ns, ends_ns = dag.graph.computes, _lengths_ns(case), np.array(all_ends_ns)
    stages = dag.graph.ops.stage
    busy_ns, stage_end_ns = np.zeros((2, case.num_stages), dtype=np.int64)
    np.add.at(busy_ns, stages[computes], lengths_ns[computes])
    np.maximum.at(stage_end_ns, stages[computes], ends_ns[computes])
    first_backward_ns, backward = stage_end_ns.copy(), dag.graph.ops.kind[:, 0] == KINDS.index("B")
    np.minimum.at(first_backward_ns, stages[backward], (ends_ns - lengths_ns)[backward])
    last = int(np.where(computes, ends_ns, -1).argmax())
    return ScheduleResult(
        case=case,
        makespan_ns=all_ends_ns[last],
        stage_busy_ns=tuple(busy_ns.tolist()),
        first_backward_start_ns=tuple(first_backward_ns.tolist()),
        stage_end_ns=tuple(stage_end_ns.tolist()),
        inflight_maximal=in_flight(case.schedule, case.num_stages, case.num_chunks, case.num_microbatches),
        ends_ns=tuple(all_ends_ns),
        path=tuple(longest_path(dag, table, all_ends_ns, last)),
    )


def _lengths_ns(case: ScheduleCase) -> Ints:
    """How long every node of the compiled schedule runs."""
    return np.asarray(np.array([*case.durations_ns(), 0])[case.dag.graph.rows].sum(axis=1))


def _names(ops: LaneTable) -> NDArray[Any]:
    """What every node runs: the kinds of its operations, "transfer" without any."""
    base = len(KINDS) + 1
    codes = (ops.kind + 1) @ base ** np.arange(ops.kind.shape[1])
    seen, places = np.unique(codes, return_index=True)
    names = np.array(
        ["".join(KINDS[kind] for kind in ops.kind[place] if kind >= 0) or "transfer" for place in places], dtype=object
    )
    return names[np.searchsorted(seen, codes)]


def _bad_times(name: str, values_ns: Iterable[int]) -> list[str]:
    return [f"{name} has {value_ns} ns; a time is 0 to {MAX_NS} ns" for value_ns in values_ns if not 0 <= value_ns <= MAX_NS]
