"""Questions: what a run answers, as methods of it. Each gives a pandas frame whose columns its docstring names, times in int ns.

The answers are those of `perfkit.explain`, which the pages show too. The core knows none of the other rooms, so the module that
answers is looked up when somebody asks.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pandas as pd

ANSWERS = "perfkit.explain.answers"


class Questions:
    """The questions that a run answers about itself."""

    __slots__ = ()

    def kernels(self, *, rank: int | None = None, step: int | None = None, by: str = "name") -> pd.DataFrame:
        """What ran on the devices: one row a `by` (name, type, core, kind or stream), the most time first.

        Columns: `by`'s, `kind`, `num_ranks`, `count`, `total_ns`, `mean_ns`, `std_ns` (0 for one call), `min_ns`, `max_ns`, `share`
        (of the summed time of all rows, 0 to 1).
        """
        return _answer("kernels", self, rank=rank, step=step, by=by)

    def collectives(self, *, step: int | None = None) -> pd.DataFrame:
        """Communication, one row an operation over all of its members: who came last, who waited how long, how fast data moved.

        Columns: `instance`, `step`, `name`, `operation`, `group`, `group_size`, `num_seen`, `bytes`, `start_ns`, `end_ns`,
        `latest_rank`, `latest_start_ns`, `late_ns` (behind the second latest), `spread_ns` (behind the first), `wait_ns` (summed
        over members), `transfer_ns`, `algorithm_bytes_per_s`, `bus_bytes_per_s`, `basis`.
        """
        return _answer("collectives", self, step=step)

    def waiting(self, *, step: int | None = None) -> pd.DataFrame:
        """Who waits and who is waited for: one row a rank, the rank that others wait for longest first.

        Columns: `rank`, `wait_ns` (its own), `caused_ns` (what its peers waited for it), `times_last`, `operations`.
        """
        return _answer("waiting", self, step=step)

    def idle(self, *, rank: int | None = None, step: int | None = None) -> pd.DataFrame:
        """The gaps of the device timelines with their causes, in order of time.

        Columns: `rank`, `step`, `start_ns`, `duration_ns`, `cause` (copying, data, host, collective, device, unknown), `detail`,
        `next_kernel`.
        """
        return _answer("idle", self, rank=rank, step=step)

    def critical_path(self, *, step: int | None = None, ranks: Iterable[int] | None = None) -> pd.DataFrame:
        """The chain of work that a step (by default one of median length) could not have been shorter than, in order of time.

        Columns: `rank`, `name`, `kind` (computing, communication, copy, host; launch, graph or delay for pauses after a call,
        within what one call launched and others; unlinked), `start_ns`, `duration_ns`, which sum to the step.
        """
        return _answer("critical_path", self, step=step, ranks=ranks)

    def queue_length(self, *, rank: int | None = None) -> pd.DataFrame:
        """How many executions had been launched but had not begun, by stream: one row a change.

        Columns: `rank`, `stream`, `time_ns`, `length`, `duration_ns` (until the next change). A device queue that is full (1,024
        launches on CUDA) blocks the host: `q.loc[q["length"] >= 1024, "duration_ns"].sum()`.
        """
        return _answer("queue_length", self, rank=rank)

    def modules(self, *, rank: int | None = None, step: int | None = None) -> pd.DataFrame:
        """Time by module and annotation (`nn.Module` stacks, record_function, NVTX, mstx), as a tree in order of first use.

        Columns: `rank`, `path` (outer to inner, joined by " / "), `depth`, `count`, `host_ns`, `own_host_ns` (without inner ones),
        `device_ns` (of what was launched inside), `own_device_ns`. What the autograd thread launches is in no module.
        """
        return _answer("modules", self, rank=rank, step=step)

    def memory(self, *, rank: int | None = None) -> pd.DataFrame:
        """Memory held over time: `rank`, `component`, `time_ns`, `allocated_bytes`, `reserved_bytes`, `active_bytes`."""
        return _answer("memory", self, rank=rank)

    def counters(self, *, rank: int | None = None, name: str | None = None) -> pd.DataFrame:
        """Counters over time: `rank`, `name`, `unit`, `time_ns`, `value`; only those whose name contains `name`, if it is given."""
        return _answer("counters", self, rank=rank, name=name)

    def sql(self, query: str) -> pd.DataFrame:
        """The answer to a SELECT over the tables of the run, such as "SELECT name, SUM(duration_ns) FROM kernels GROUP BY name".

        Tables and columns are those of `perfkit.core.schema`; only tables that the query names are read, and nothing is changed.
        Raises InputError that names the nearest tables and columns for a wrong one.
        """
        return _answer("sql", self, query)

    def export_chrome(self, path: str | Path, *, ranks: Iterable[int] | None = None) -> Path:
        """Write the timeline as a Chrome trace (gzip if the name ends with .gz), which Perfetto and chrome://tracing open.

        It holds kernels, the host, flows from launches to kernels, counters and the marks of steps. Returns the path. Raises
        NotMeasuredError if the run has no events.
        """
        written: Path = importlib.import_module(ANSWERS).export_chrome(self, path, ranks=ranks)
        return written


def _answer(question: str, *arguments: Any, **options: Any) -> pd.DataFrame:
    frame: pd.DataFrame = getattr(importlib.import_module(ANSWERS), question)(*arguments, **options)
    return frame
