"""Small runs with known faults, as a recording would show them."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pandas as pd

from perfkit.core.run import Position, Run
from perfkit.explain.diagnose import Diagnosis, diagnose
from perfkit.explain.diagnose.case import Case
from perfkit.explain.diagnose.rule import Rule
from perfkit.explain.diagnose.rules import oom_dynamic, oom_static
from perfkit.record.format import Sink

US = 1_000
MS = 1_000_000
GIB = 2**30
OUT_OF_MEMORY = (oom_static.RULE, oom_dynamic.RULE)


def run_of(sink: Sink, placement: dict[int, Position] | None = None, name: str = "made") -> Run:
    return Run(name=name, kind="measured", format="made", tables=sink.tables(), placement=placement or {})


def summaries(
    computing_ms: dict[int, Any], *, stages: dict[int, int] | None = None, step_ms: float = 200.0, steps: int = 10
) -> Run:
    """A run of step summaries: computing in ms by rank, one number or one a step; what is left of a step is communication."""
    sink = Sink()
    for rank, values in computing_ms.items():
        computing = np.rint(np.broadcast_to(np.asarray(values, dtype=float), steps) * MS).astype(np.int64)
        duration = np.full(steps, round(step_ms * MS))
        sink.add(
            "steps",
            rank=rank,
            step=list(range(1, steps + 1)),
            pipeline_stage=(stages or {}).get(rank),
            duration_ns=duration,
            computing_ns=computing,
            communication_ns=duration - computing,
            overlapped_ns=0,
            exposed_communication_ns=duration - computing,
            free_ns=0,
        )
    return run_of(sink)


FORWARD = (("Norm", 30), ("MatMul", 200), ("FlashAttention", 230), ("Swiglu", 40))
BACKWARD = (("FlashAttentionGrad", 520), ("MatMulGrad", 400), ("NormGrad", 50))


class Training:
    """A data parallel training of some layers: kernels on every rank, gradients hidden behind the backward pass.

    Fields change it: `factors` (of kernels by rank), `lead_us` and `stop_us` (by rank: idle before the step, once inside it),
    `gap_us` (before every kernel), `extra` (kernels after each layer's forward), `recompute`, `late` (gradients after the backward
    pass), `pieces` (messages a gradient), `noise` (log-normal), `skew_us` (clock by rank), `slow` (factors by operator).
    """

    def __init__(self, ranks: int = 4, steps: int = 6, layers: int = 4, **changes: Any) -> None:
        self.ranks, self.steps, self.layers = ranks, steps, layers
        self.factors: dict[int, float] = {}
        self.lead_us: dict[int, Any] = {}
        self.stop_us: dict[int, Any] = {}
        self.gap_us: dict[int, float] = {}
        self.skew_us: dict[int, float] = {}
        self.extra: tuple[tuple[str, str, float], ...] = ()
        self.recompute = self.late = False
        self.pieces, self.noise, self.transfer_us, self.latency_us = 1, 0.005, 300.0, 20.0
        self.slow: dict[str, float] = {}
        for name, value in changes.items():
            assert hasattr(self, name)
            setattr(self, name, value)

    def run(self) -> Run:
        """The recording of it."""
        self.random = np.random.default_rng(5)
        self.kernels: dict[int, list[tuple[int, str, str, int, int]]] = {rank: [] for rank in range(self.ranks)}
        self.calls: dict[int, list[tuple[int, str, int, int, int, int]]] = {rank: [] for rank in range(self.ranks)}
        now = np.zeros(self.ranks)
        sink = Sink()
        for step in range(1, self.steps + 1):
            begin = now.copy()
            now = self._step(step, now)
            for rank in range(self.ranks):
                self._summary(sink, rank, step, begin[rank], now[rank])
        for rank in range(self.ranks):
            shift = round(self.skew_us.get(rank, 0.0) * US)
            step, name, core, start, length = (list(column) for column in zip(*self.kernels[rank], strict=True))
            sink.add(
                "kernels", rank=rank, step=step, name=name, type=name, core=core, stream="0",
                kind=["communication" if op.startswith("hcom") else "computing" for op in name],
                start_ns=[moment + shift for moment in start], duration_ns=length,
            )  # fmt: skip
            step, name, start, length, moved, size = (list(column) for column in zip(*self.calls[rank], strict=True))
            sink.add(
                "collectives", rank=rank, step=step, name=name, operation="all_reduce", group="world", group_size=self.ranks,
                start_ns=[moment + shift for moment in start], duration_ns=length, transit_ns=moved, bytes=size,
            )  # fmt: skip
        return run_of(sink)

    def _step(self, step: int, now: Any) -> Any:
        at = now + [self._of(self.lead_us, rank, step) + 50 for rank in range(self.ranks)]
        queue = at.copy()
        for layer in range(self.layers):
            at = self._kernels(step, at, FORWARD)
            at = self._kernels(
                step, at, [(op, length) for op, _, length in self.extra], core=self.extra[0][1] if self.extra else ""
            )
            if layer == 0:
                at = at + [self._of(self.stop_us, rank, step) for rank in range(self.ranks)]
        for _ in range(self.layers):
            if self.recompute:
                at = self._kernels(step, at, FORWARD)
            at = self._kernels(step, at, BACKWARD)
            if not self.late:
                queue = self._gradient(step, at, queue)
        for _ in range(self.layers if self.late else 0):
            queue = self._gradient(step, at, np.maximum(queue, at))
        return self._kernels(step, np.maximum(at, queue), [("Adam", 200)])

    def _of(self, values: dict[int, Any], rank: int, step: int) -> float:
        value = values.get(rank, 0.0)
        return float(value(step) if callable(value) else value)

    def _kernels(self, step: int, at: Any, ops: Any, core: str = "AI_CORE") -> Any:
        at = at.copy()
        for rank in range(self.ranks):
            for op, length in ops:
                at[rank] += self.gap_us.get(rank, 0.0)
                took = (
                    length * self.slow.get(op, 1.0) * self.factors.get(rank, 1.0) * float(np.exp(self.random.normal(0, self.noise)))
                )
                self.kernels[rank].append((step, op, core, round(at[rank] * US), round(took * US)))
                at[rank] += round(took * US) / US
        return at

    def _gradient(self, step: int, at: Any, queue: Any) -> Any:
        for _ in range(self.pieces):
            start = np.maximum(at, queue)
            moving = self.transfer_us / self.pieces
            queue = np.full(self.ranks, start.max() + self.latency_us + moving)
            for rank in range(self.ranks):
                begin, length = round(start[rank] * US), round(queue[rank] * US) - round(start[rank] * US)
                self.kernels[rank].append((step, "hcom_allReduce_", "HCCL", begin, length))
                size = round(32 * 2**20 / self.pieces)
                self.calls[rank].append((step, f"hcom_allReduce__{len(self.calls[rank])}", begin, length, round(moving * US), size))
        return queue

    def _summary(self, sink: Sink, rank: int, step: int, begin: float, end: float) -> None:
        rows = [row for row in self.kernels[rank] if row[0] == step]
        computing = sum(row[4] for row in rows if row[2] != "HCCL")
        length = round((end - begin) * US)
        sink.add(
            "steps", rank=rank, step=step, duration_ns=length, computing_ns=computing, communication_ns=length - computing,
            overlapped_ns=0, exposed_communication_ns=length - computing, free_ns=length - computing,
        )  # fmt: skip


@cache
def healthy() -> Run:
    """A training without a fault."""
    return Training().run()


def judged(rule: Rule, run: Run, baseline: Run | None = None) -> Diagnosis:
    """What one rule says."""
    return diagnose(run, baseline, only=[rule])


def judged_memory(static: int, dynamic: int, requested: int | None = None) -> Diagnosis:
    """What both rules of full memory say of a printed statistic, in GiB of the 58 that may be used."""
    sink = Sink()
    sink.add("memory_reports", rank=0, block=0, file="rank_0.log", line=1, device_bytes=64 * GIB, budget_bytes=58 * GIB,
             actual_peak_bytes=(static + dynamic) * GIB, static_bytes=static * GIB, dynamic_bytes=dynamic * GIB,
             requested_bytes=requested)  # fmt: skip
    return diagnose(run_of(sink), only=OUT_OF_MEMORY)


def won_ns(changed: Run, before: Run | None = None) -> float:
    """What a step really wins without the fault of a run, in ns."""
    plain = healthy() if before is None else before
    return float(changed.steps()["duration_ns"].mean() - plain.steps()["duration_ns"].mean())


def stays_healthy(rule: Rule, run: Run) -> dict[str, float]:
    """The evidence with which a rule calls a run healthy; fails if it says anything else."""
    result = judged(rule, run)
    assert result.findings == result.failed == result.not_measured == ()
    assert [entry.rule for entry in result.healthy] == [rule.name]
    assert result.healthy[0].evidence
    return dict(result.healthy[0].evidence)


def assert_possible(found: Diagnosis, case: Case) -> None:
    """No price is above the time of its part, nor all together above the step."""
    left = (case.steps["computing_ns"] - case.steps["overlapped_ns"].fillna(0)).groupby(case.steps["rank"]).mean().max()
    for finding in found.findings:
        if finding.cost_ns is None:
            continue
        assert 0 <= finding.cost_ns <= finding.evidence["bound_ns"] <= (found.step_ns or 0), finding.rule
        if finding.rule == "exposed-communication":
            assert finding.evidence["bound_ns"] <= np.ceil(left)
    assert sum(finding.cost_ns or 0 for finding in found.findings) <= (found.step_ns or 0)


def lacks(rule: Rule, run: Run) -> str:
    """What a rule says is missing in a run; fails unless it is not measured, with a way to collect it."""
    result = judged(rule, run)
    assert result.findings == result.failed == result.healthy == ()
    assert result.not_measured[0].how_to_collect
    return ", ".join(result.not_measured[0].missing)


def changed(run: Run, table: str, **columns: Any) -> Run:
    """A run with columns of a table replaced."""
    rows: pd.DataFrame = run.tables[table].assign(**columns)
    return replace(run, tables={**run.tables, table: rows})


def added(run: Run, **tables: list[dict[str, Any]]) -> Run:
    """A run with more rows of some tables."""
    sink = Sink()
    for table, rows in tables.items():
        for row in rows:
            sink.add(table, **row)
    more = sink.tables()
    whole = {name: pd.concat([run.tables[name], more[name]]) if name in run.tables else more[name] for name in more}
    return replace(run, tables={**run.tables, **whole})


def launched(run: Run, shapes: list[str]) -> Run:
    """A run of one rank whose host states shapes: those of the operators that launched its computing kernels, in order."""
    rows = run.tables["kernels"]
    rows = rows[(rows["kind"] == "computing").to_numpy(dtype=bool)]
    columns = {name: rows[name].to_numpy() for name in ("step", "name", "kind", "start_ns", "duration_ns")}
    sink = Sink()
    sink.add("launches", rank=0, **columns, launch_ns=rows["start_ns"].to_numpy() - 10, input_shapes=shapes)
    return replace(run, tables={**run.tables, "launches": sink.tables()["launches"]})


def with_incidents(*rows: tuple[int, str, str | None, int | None]) -> Run:
    """A run of logs that tell of incidents: rank, kind, code and line of each."""
    sink = Sink()
    for rank, kind, code, line in rows:
        sink.add("incidents", rank=rank, kind=kind, code=code, file="worker.log", line=line, text="as printed")
    return run_of(sink)


def log(
    durations_ms: list[float],
    *,
    steps: list[int] | None = None,
    skipped: dict[int, int] | None = None,
    nan: tuple[int, ...] = (),
    ranks: tuple[int, ...] = (0,),
) -> Run:
    """A training log, a line a step; `skipped` and `nan` are by the position of the line, on the last of `ranks`."""
    sink = Sink()
    for rank in ranks:
        last = rank == ranks[-1]
        for at, duration in enumerate(durations_ms):
            bad = last and at in nan
            sink.add(
                "log", rank=rank, step=at + 1 if steps is None else steps[at], line=10 + at, num_steps=1,
                duration_ns=round(duration * MS), loss=None if bad else 2.0, loss_is_nan=bad,
                num_skipped=(skipped or {}).get(at, 0) if last else 0,
            )  # fmt: skip
    return run_of(sink)
