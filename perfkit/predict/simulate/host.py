"""Host: what the host did in a simulated run: launches, operators, fetching of input, synchronisations and pauses.

The host runs ahead of the device: a launch comes as soon as the one before is done, until the launch queue is full. Where the
device waited for the host, the launch ends just before the kernel starts, and the host runs ahead from there.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pandas as pd

from perfkit.core.units import NS_PER_S
from perfkit.predict.simulate.events import StageEvents
from perfkit.predict.simulate.operators import CODE, COLLECTIVES, OPERATORS, SHOWN
from perfkit.predict.simulate.program import Op
from perfkit.predict.simulate.stages import SYNC_S
from perfkit.predict.simulate.tables import Columns, Recorded, sorted_events, text_of

Ints = npt.NDArray[np.int64]

LEAD_NS = 2_000
"""From the end of a launch to the earliest start of its kernel."""
MIN_LAUNCH_NS = 2_000
QUEUE = 1024
"""Launches that the host may be ahead of the device."""
LAUNCHED_OPERATORS = 12
"""Operators whose launch the prediction's time of a layer stands for."""

THREAD = "main"
DATA = "enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__"
PAUSE = "gc: collect generation 2"


def _calls(device: str) -> dict[str, str]:
    """Names of the runtime's calls on a device."""
    if device.startswith("Ascend"):
        return {"launch": "aclrtLaunchKernel", "sync": "aclrtSynchronizeStream", "free": "aclrtFree", "malloc": "aclrtMalloc"}
    return {"launch": "cudaLaunchKernel", "sync": "cudaStreamSynchronize", "free": "cudaFree", "malloc": "cudaMalloc"}


def host_name(op: Op) -> str:
    """The operator of the host that launches an operator or collective."""
    return OPERATORS[op.code].host if op.code >= 0 else f"c10d::{SHOWN[COLLECTIVES[-1 - op.code]].lower()}_"


def launches(recorded: Recorded, stage: int, ranks: Sequence[int]) -> list[Columns]:
    """Every execution on the device with the call that launched it."""
    pieces = []
    for place, step in enumerate(recorded.steps):
        events = recorded.events(place, stage)
        start, duration, gap, op = sorted_events(recorded, events, stage, ranks, ("start", "duration", "host_gap"))
        launch, call_ns = _launched(recorded, start, gap.astype(bool), len(events.op))
        talking = [item.code < 0 for item in events.ops]
        kinds = [
            "communication" if talk else "copy" if item.code == CODE["Copy"] else "computing"
            for item, talk in zip(events.ops, talking, strict=True)
        ]
        pieces.append(
            {
                "rank": np.repeat(np.array(ranks, dtype=np.int64), len(events.op)),
                "step": step,
                "name": text_of(op, [item.name for item in events.ops]),
                "kind": text_of(op, kinds),
                "stream": text_of(op, [item.group or "computing" for item in events.ops]),
                "start_ns": start,
                "duration_ns": duration,
                "call": _same(_names(recorded)["launch"], len(start)),
                "thread": _same(THREAD, len(start)),
                "launch_ns": launch,
                "launch_duration_ns": np.full(len(start), call_ns, dtype=np.int64),
                "operator": text_of(op, [host_name(item) for item in events.ops]),
                "input_shapes": text_of(op, [item.shapes or None for item in events.ops]),
                "input_dtypes": text_of(op, ["DT_BF16;DT_BF16" if item.shapes else None for item in events.ops]),
            }
        )
    return pieces


def _launched(recorded: Recorded, start: Ints, gap: npt.NDArray[np.bool_], rows: int) -> tuple[Ints, int]:
    """When each kernel was launched, rank by rank, and how long a call takes."""
    period = max(MIN_LAUNCH_NS, round(recorded.disturbances.job.costs.launch_s() * NS_PER_S / LAUNCHED_OPERATORS))
    call_ns = max(1_000, period * 2 // 5)
    starts, late = start.reshape(-1, rows), gap.reshape(-1, rows).copy()
    late[:, 0] = True
    turn = np.arange(rows)
    origin = np.maximum.accumulate(np.where(late, turn, 0), axis=1)
    ends = np.take_along_axis(starts, origin, axis=1) - LEAD_NS + (turn - origin) * period
    if rows > QUEUE:
        ends[:, QUEUE:] = np.maximum(ends[:, QUEUE:], starts[:, :-QUEUE])
    return (np.minimum(ends, starts - LEAD_NS) - call_ns).reshape(-1), call_ns


def host_events(recorded: Recorded, stage: int, ranks: Sequence[int]) -> list[Columns]:
    """Step marks, fetching of input, operators that launch, synchronisations, pauses and retries of the allocator."""
    at = recorded.columns_of(stage, ranks)
    names = _names(recorded)
    pieces: list[Columns] = []
    operators: list[Columns] = []

    def add(name: str, kind: str, start: Ints, duration: Ints, which: Ints) -> None:
        rank = np.array(ranks, dtype=np.int64)[which]
        texts = {key: _same(text, len(rank)) for key, text in (("name", name), ("kind", kind), ("thread", THREAD))}
        pieces.append({"rank": rank, **texts, "start_ns": start + recorded.skews(ranks)[which], "duration_ns": duration})

    everyone = np.arange(len(ranks))
    for place, step in enumerate(recorded.steps):
        times, events = recorded.times[place][stage], recorded.events(place, stage)
        add(f"ProfilerStep#{step}", "mark", times.start[at], times.duration[at], everyone)
        add(DATA, "operator", times.start[at], np.maximum(times.data[at] - 2 * LEAD_NS, 0), everyone)
        for row in np.flatnonzero(np.array([item.sync for item in events.ops])[events.op]):
            length = np.full(len(ranks), round(SYNC_S * NS_PER_S), dtype=np.int64)
            add(names["sync"], "call", events.start[row, at] - length, length, everyone)
        for pause in recorded.disturbances.pauses(place, stage):
            struck = np.flatnonzero(pause.pause_ns[at] > 0)
            length = pause.pause_ns[at][struck]
            first, width = events.places[pause.chunk, pause.kind]
            begin = events.start[first + pause.place * width + pause.micro_batch, at][struck] - length
            if pause.what == "gc":
                add(PAUSE, "python", begin, length, struck)
            else:
                add(names["free"], "call", begin, length * 6 // 10, struck)
                add(names["malloc"], "call", begin + length * 6 // 10, length - length * 6 // 10, struck)
        operators.append(_operators(recorded, events, stage, ranks))
    return [*pieces, *operators]


def _operators(recorded: Recorded, events: StageEvents, stage: int, ranks: Sequence[int]) -> Columns:
    """The operators that launch in a step; their calls are in the table `launches`."""
    start, gap, op = sorted_events(recorded, events, stage, ranks, ("start", "host_gap"))
    launch, call_ns = _launched(recorded, start, gap.astype(bool), len(events.op))
    return {
        "rank": np.repeat(np.array(ranks, dtype=np.int64), len(events.op)),
        "name": text_of(op, [host_name(item) for item in events.ops]),
        "kind": _same("operator", len(launch)),
        "thread": _same(THREAD, len(launch)),
        "start_ns": launch - call_ns // 4,
        "duration_ns": np.full(len(launch), call_ns + call_ns // 4, dtype=np.int64),
    }


def _same(text: str, count: int) -> pd.Categorical:
    return text_of(np.zeros(count, dtype=np.int64), [text])


def _names(recorded: Recorded) -> dict[str, str]:
    hardware = recorded.disturbances.job.costs.plan.hardware
    return _calls(hardware.name if hardware else "")
