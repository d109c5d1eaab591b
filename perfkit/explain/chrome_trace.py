"""Chrome trace: a run as the JSON that Perfetto and chrome://tracing open, with flows from launches to what they launched.

Every rank has a process for its devices (a thread a stream) and one for its host (a thread each). Categories are those of Kineto,
so that other analysers, and perfkit itself, read the file again. Times are us since the first event with three decimals;
`baseTimeNanoseconds` tells when that was, because viewers hold times as doubles.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterable, Iterator, Mapping
from itertools import chain
from pathlib import Path
from typing import IO, Any

import pandas as pd

from perfkit.core.errors import NotMeasuredError
from perfkit.core.run import Run
from perfkit.core.units import NS_PER_US

_DEVICE = {"computing": "kernel", "communication": "kernel", "copy": "gpu_memcpy"}
_HOST = {"operator": "cpu_op", "call": "cuda_runtime", "mark": "user_annotation", "python": "python_function"}
_DEVICE_PROCESS, _HOST_PROCESS = 0, 1


def write(run: Run, path: Path, ranks: Iterable[int]) -> Path:
    """Write the events of some ranks, on one clock where their offsets are known. NotMeasuredError if there are none."""
    chosen = list(ranks)
    starts = [run.frame(table, ranks=chosen, columns=["start_ns"])["start_ns"].min() for table in ("kernels", "host")]
    known = [int(start_ns) for start_ns in starts if pd.notna(start_ns)]
    if not known:
        raise NotMeasuredError("the events of the run", how_to_collect="record a profile; page 10 writes the configuration")
    # Nothing starts at 0: readers, perfkit's too, take that for a start that is missing.
    base_ns = min(known) - max((abs(run.clock.get(rank, 0)) for rank in chosen), default=0) - NS_PER_US
    head: dict[str, Any] = {"producer": "perfkit", "baseTimeNanoseconds": base_ns, "displayTimeUnit": "ms"}
    if len(chosen) == 1:
        head["distributedInfo"] = {"rank": chosen[0], **_world(run)}
    with _opened(path) as file:
        file.write(json.dumps(head)[:-1] + ', "traceEvents": [\n')
        first = True
        for event in chain.from_iterable(_RankEvents(run, rank, base_ns).all() for rank in chosen):
            file.write(("" if first else ",\n") + event)
            first = False
        file.write("\n]}\n")
    return path


def _world(run: Run) -> dict[str, Any]:
    fact = run.facts.get("num_devices")
    return {} if fact is None else {"world_size": fact.value}


def _opened(path: Path) -> IO[str]:
    if path.suffix == ".gz":
        return gzip.open(path, "wt", encoding="utf-8")
    return path.open("w", encoding="utf-8")


class _RankEvents:
    """The events of one rank as lines of JSON."""

    def __init__(self, run: Run, rank: int, base_ns: int) -> None:
        self._run, self._rank = run, rank
        self._shift_ns = run.clock.get(rank, 0) - base_ns
        self._lanes: dict[tuple[int, str], int] = {}

    def all(self) -> Iterator[str]:
        """Spans, flows and counters, then the names of processes and threads that they used."""
        yield from self._device()
        yield from self._host()
        yield from self._steps()
        yield from self._counters()
        yield from self._names()

    def _device(self) -> Iterator[str]:
        """Executions, the calls that launched them, and flows between both; what one call launched has one correlation."""
        launches = self._launches()
        calls: dict[tuple[tuple[int, str], int], int] = {}
        rows = self._run.frame("kernels", ranks=[self._rank]).dropna(subset=["start_ns"])
        # Several ranks share one file, so that numbers go on from rank to rank.
        for number, row in enumerate(rows.to_dict("records"), 1 + (self._rank << 32)):
            stream = "" if pd.isna(row["stream"]) else str(row["stream"])
            launch = launches.get((stream, int(row["start_ns"])))
            correlation = number
            if launch is not None:
                thread, moment_ns = (_HOST_PROCESS, str(launch["thread"])), int(launch["start_ns"])
                correlation = calls.setdefault((thread, moment_ns), number)
                if correlation == number:
                    yield self._span(launch, "cuda_runtime", thread, {"correlation": correlation})
                yield self._flow("s", number, thread, moment_ns)
                yield self._flow("f", number, (_DEVICE_PROCESS, stream), int(row["start_ns"]))
            args = {"stream": stream, "correlation": correlation, "device": 0}
            yield self._span(row, _DEVICE[str(row["kind"])], (_DEVICE_PROCESS, stream), args)

    def _launches(self) -> dict[tuple[str, int], dict[str, Any]]:
        """The call that launched each execution, by stream and start."""
        if not self._run.has("launches"):
            return {}
        columns = ["stream", "start_ns", "call", "thread", "launch_ns", "launch_duration_ns"]
        rows = self._run.frame("launches", ranks=[self._rank], columns=columns).dropna(subset=["start_ns", "launch_ns", "thread"])
        found = {}
        for row in rows.astype({"stream": "object", "call": "object"}).to_dict("records"):
            length_ns = 0 if pd.isna(row["launch_duration_ns"]) else int(row["launch_duration_ns"])
            call = {"name": row["call"], "start_ns": row["launch_ns"], "duration_ns": length_ns, "thread": row["thread"]}
            found["" if pd.isna(row["stream"]) else str(row["stream"]), int(row["start_ns"])] = call
        return found

    def _host(self) -> Iterator[str]:
        """What the host did; calls that launched something were written with what they launched."""
        if not self._run.has("host"):
            return
        told = {(call["thread"], int(call["start_ns"])) for call in self._launches().values()}
        for row in self._run.frame("host", ranks=[self._rank]).to_dict("records"):
            if row["kind"] != "call" or (row["thread"], int(row["start_ns"])) not in told:
                yield self._span(row, _HOST[str(row["kind"])], (_HOST_PROCESS, str(row["thread"])), {})

    def _steps(self) -> Iterator[str]:
        """Marks of the steps, where the host recorded none."""
        host = self._run.frame("host", ranks=[self._rank], columns=["name"])["name"].astype(str)
        if host.str.startswith("ProfilerStep#").any():
            return
        for row in self._run.frame("steps", ranks=[self._rank]).dropna(subset=["start_ns"]).to_dict("records"):
            mark = {**row, "name": f"ProfilerStep#{row['step']}"}
            yield self._span(mark, "user_annotation", (_HOST_PROCESS, "steps"), {})

    def _counters(self) -> Iterator[str]:
        for row in self._run.frame("counters", ranks=[self._rank]).to_dict("records"):
            event = {"ph": "C", "pid": 2 * self._rank + _DEVICE_PROCESS, "name": str(row["name"])}
            yield self._line({**event, "args": {str(row["unit"]): row["value"]}}, int(row["time_ns"]))

    def _names(self) -> Iterator[str]:
        for process, kind in ((_DEVICE_PROCESS, "device"), (_HOST_PROCESS, "host")):
            yield _named("process_name", f"rank {self._rank} {kind}", 2 * self._rank + process, 0)
        for (process, lane), number in self._lanes.items():
            label = f"stream {lane}" if process == _DEVICE_PROCESS else f"thread {lane}"
            yield _named("thread_name", label, 2 * self._rank + process, number)

    def _span(self, row: Mapping[Any, Any], category: str, lane: tuple[int, str], args: dict[str, Any]) -> str:
        event = {"ph": "X", "cat": category, "name": str(row["name"]), **self._place(lane), "args": args}
        return self._line(event, int(row["start_ns"]), f', "dur": {_us(int(row["duration_ns"]))}')

    def _flow(self, phase: str, number: int, lane: tuple[int, str], moment_ns: int) -> str:
        event = {"ph": phase, "bp": "e", "cat": "ac2g", "name": "launch", "id": f"{self._rank}.{number}", **self._place(lane)}
        return self._line(event, moment_ns)

    def _place(self, lane: tuple[int, str]) -> dict[str, int]:
        return {"pid": 2 * self._rank + lane[0], "tid": self._lanes.setdefault(lane, len(self._lanes) + 1)}

    def _line(self, event: dict[str, Any], moment_ns: int, more: str = "") -> str:
        """An event with its time as an exact number, which no float would be."""
        return f'{json.dumps(event)[:-1]}, "ts": {_us(moment_ns + self._shift_ns)}{more}}}'


def _us(time_ns: int) -> str:
    whole, rest = divmod(time_ns, NS_PER_US)
    return f"{whole}.{rest:03d}"


def _named(kind: str, name: str, pid: int, tid: int) -> str:
    return json.dumps({"ph": "M", "name": kind, "pid": pid, "tid": tid, "args": {"name": name}})
