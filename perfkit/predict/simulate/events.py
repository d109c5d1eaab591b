"""Events: what every rank of a stage did in one step, as columns: passes, transfers and the end of the step on the rank's clock.

`StageEvents` has one row an event and one column a rank of the stage; what an event is (`op`) is the same on all of them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from perfkit.predict.simulate.lanes import StageStep, Transfer
from perfkit.predict.simulate.layout import Layout
from perfkit.predict.simulate.operators import CODE, COLLECTIVES
from perfkit.predict.simulate.passes import Pass
from perfkit.predict.simulate.program import Op

Ints = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]

COPY_NS = 20_000
"""Copy of a micro batch's token ids to the device."""


@dataclass(frozen=True)
class StageEvents:
    """Events of a stage and step: `op` numbers `ops`; the others have shape (events, ranks), in int64 ns.

    `host_gap` says whether the device waited for the host before it.
    """

    ops: tuple[Op, ...]
    op: Ints
    start: Ints
    duration: Ints
    wait: Ints
    host_gap: Flags
    places: Mapping[tuple[int, str], tuple[int, int]]
    """First event of each pass by (chunk, kind), and its micro batches."""

    @property
    def code(self) -> Ints:
        """Code of every event's operator or collective."""
        found: Ints = np.array([op.code for op in self.ops], dtype=np.int64)[self.op]
        return found


@dataclass(frozen=True)
class StepTimes:
    """Where the time of a step went, by rank of a stage, in int64 ns."""

    start: Ints
    duration: Ints
    computing: Ints
    communication: Ints
    overlapped: Ints
    bubble: Ints
    data: Ints
    copied: Ints

    @property
    def exposed(self) -> Ints:
        """Communication with no computing at the same time, without the bubble."""
        return self.communication - self.overlapped - self.bubble

    @property
    def free(self) -> Ints:
        """Neither computing nor communicating."""
        return self.duration - self.computing - self.exposed - self.bubble


def stage_events(
    step: StageStep, passes: Mapping[tuple[int, str], Pass], layout: Layout, stage: int, boundary_bytes: int
) -> StageEvents:
    """Every event of a stage in a step."""
    rows = _Rows()
    for key, timed in passes.items():
        # The last micro batch goes backward in a pass of its own.
        kept = slice(0, -1) if key[1] == "B" else slice(None)
        rows.places[key] = (rows.count, timed.start[:, kept].shape[1])
        if timed.parts is None:
            times = _on_the_clock(timed, step.ready[key], step.moved[key])
        else:
            exact = timed.exactly(step.ready[key], layout)
            times = exact.start, exact.duration, _all_waits(exact)
        rows.add_pass(timed, *(values[:, kept] for values in times))
    for timed in step.exact:
        rows.add_pass(timed, timed.start, timed.duration, _all_waits(timed))
    if stage in (0, layout.pipeline - 1):
        copied = np.full_like(step.first, COPY_NS)
        began, none = step.first - COPY_NS, np.zeros_like(copied)
        rows.add_each([Op("input", CODE["Copy"], COPY_NS)], began[None], copied[None], none[None], waited=True)
    if step.transfers:
        ops = [_transfer_op(transfer, stage, boundary_bytes) for transfer in step.transfers]
        columns = (np.stack([getattr(transfer, name) for transfer in step.transfers]) for name in ("start", "duration", "wait"))
        rows.add_each(ops, *columns)
    return rows.done()


def _transfer_op(transfer: Transfer, stage: int, num_bytes: int) -> Op:
    low, high = sorted((stage, transfer.peer))
    return Op(f"{transfer.name}/{low}-{high}", -1 - COLLECTIVES.index(transfer.operation), 0.0, "pp", num_bytes=num_bytes)


class _Rows:
    """Events as they are added."""

    def __init__(self) -> None:
        self.places: dict[tuple[int, str], tuple[int, int]] = {}
        self.count = 0
        self._ops: list[Op] = []
        self._columns: list[tuple[Ints, Ints, Ints, Ints]] = []
        self._host: list[Flags] = []

    def add_pass(self, timed: Pass, start: Ints, duration: Ints, wait: Ints) -> None:
        if not timed.program.ops:
            return
        numbers = np.arange(len(self._ops), len(self._ops) + len(timed.program.ops), dtype=np.int64)
        self._ops.extend(timed.program.ops)
        shape = (start.shape[0] * start.shape[1], start.shape[2])
        op: Ints = np.repeat(numbers, start.shape[1])
        self._columns.append((op, start.reshape(shape), duration.reshape(shape), wait.reshape(shape)))
        self._host.append(np.broadcast_to(timed.host[:, : start.shape[1]], start.shape).reshape(shape))
        self.count += shape[0]

    def add_each(self, ops: Sequence[Op], start: Ints, duration: Ints, wait: Ints, *, waited: bool = False) -> None:
        """Single events, one of each operator."""
        numbers = np.arange(len(self._ops), len(self._ops) + len(ops), dtype=np.int64)
        self._ops.extend(ops)
        self._columns.append((numbers, start, duration, wait))
        self._host.append(np.full(start.shape, waited))
        self.count += len(ops)

    def done(self) -> StageEvents:
        op, start, duration, wait = (np.concatenate([column[place] for column in self._columns]) for place in range(4))
        return StageEvents(tuple(self._ops), op, start, duration, wait, np.concatenate(self._host), self.places)


def step_times(step: StageStep, events: StageEvents, layout: Layout) -> StepTimes:
    """Where the time of a step went; computing never overlaps itself, communication may."""
    code = events.code
    copies, computing, talking = code == CODE["Copy"], (code >= 0) & (code != CODE["Copy"]), code < 0
    ends = events.start + events.duration
    computed = events.duration[computing].sum(axis=0)
    communicated = _covered(events.start[talking], ends[talking])
    worked = _covered(events.start[~copies], ends[~copies])
    receives = code == -1 - COLLECTIVES.index("receive")
    meets = np.array([op.group == "world" for op in events.ops])[events.op] & (layout.pipeline > 1)
    return StepTimes(
        start=step.begin,
        duration=step.end - step.begin,
        computing=computed,
        communication=communicated,
        overlapped=computed + communicated - worked,
        bubble=events.wait[receives | meets].sum(axis=0),
        data=step.first - step.begin,
        copied=events.duration[copies].sum(axis=0),
    )


def _on_the_clock(timed: Pass, ready: Ints, moved: Ints) -> tuple[Ints, Ints, Ints]:
    """Start, duration and wait of every operator of all micro batches; the first collective spans what the ranks were apart."""
    start, duration, wait = timed.start + ready, timed.duration, _all_waits(timed)
    if timed.first is None:
        return start, duration, wait
    late = moved - ready
    start[timed.first + 1 :] += late
    duration, wait = duration.copy(), wait.copy()
    duration[timed.first] += late
    wait[timed.first] += late
    return start, duration, wait


def _all_waits(timed: Pass) -> Ints:
    waits = np.zeros_like(timed.start)
    waits[timed.program.collectives] = timed.wait
    return waits


def _covered(starts: Ints, ends: Ints) -> Ints:
    """Time that the intervals of every column cover together."""
    if not len(starts):
        return np.zeros(starts.shape[1], dtype=np.int64)
    starts, ends = np.sort(starts, axis=0), np.sort(ends, axis=0)
    holes = np.maximum(starts[1:] - ends[:-1], 0).sum(axis=0)
    covered: Ints = ends[-1] - starts[0] - holes
    return covered
