"""Questions: what a run answers, as methods of it. Each gives a pandas frame whose columns its docstring names, times in int ns.

The answers are those of `perfkit.explain`, which the pages show too; `.plot()` draws each (`perfkit.core.answer`). The core knows
none of the other rooms, so the module that answers is looked up when somebody asks. `perfkit ask` asks the same in a terminal.
"""

from __future__ import annotations

import difflib
import importlib
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pandas as pd

ANSWERS = "perfkit.explain.answers"
ASKED = "question"
"""Where the attributes of a frame say to which question it is the answer; parts and sorted copies of it still do."""


class Questions:
    """The questions that a run answers about itself."""

    __slots__ = ()

    def kernels(self, *, rank: int | None = None, step: int | None = None, by: str = "name") -> pd.DataFrame:
        """What ran on the devices: one row a `by` (name, type, core, kind or stream), the most time first.

        Columns: that of `by`, `kind`, `core` (that of the first), `num_ranks`, `count`, `total_ns`, `mean_ns`, `std_ns` (0 for one
        call), `min_ns`, `max_ns`, `share` (of the summed time of all rows, 0 to 1).
        """
        return _answer("kernels", self, rank=rank, step=step, by=by)

    def collectives(self, *, step: int | None = None) -> pd.DataFrame:
        """Communication, one row an operation over all of its members: who came last, who waited how long, how fast data moved.

        Columns: `instance`, `step`, `name`, `operation`, `group`, `group_size`, `num_seen`, `bytes`, `start_ns`, `end_ns`,
        `latest_rank`, `latest_start_ns`, `late_ns` (behind the second latest), `spread_ns` (behind the first), `wait_ns`
        (summed over members), `transfer_ns`, `algorithm_bytes_per_s`, `bus_bytes_per_s`, `basis`.
        """
        return _answer("collectives", self, step=step)

    def waiting(self, *, step: int | None = None) -> pd.DataFrame:
        """Who waits and who is waited for: one row a rank, the rank that others wait for longest first.

        Columns: `rank`, `wait_ns` (its own), `transfer_ns` (data moved), `other_ns`, `total_ns` (the three together), `wait_ratio`
        (of the first two together), `caused_ns` (what its peers waited for it), `times_last`, `operations`, `num_steps` (with
        communication), `late` (how it is known that the others wait for it; null for those that nobody waits for).
        """
        return _answer("waiting", self, step=step)

    def idle(self, *, rank: int | None = None, step: int | None = None) -> pd.DataFrame:
        """The gaps of the device timelines with their causes, in order of time.

        Columns: `rank`, `step`, `start_ns`, `duration_ns`, `cause` (copying, data, host, collective, device, unknown),
        `detail`, `next_kernel`.
        """
        return _answer("idle", self, rank=rank, step=step)

    def critical_path(self, *, step: int | None = None, ranks: Iterable[int] | None = None) -> pd.DataFrame:
        """The chain of work that a step (by default one of median length) could not have been shorter than, in order of time.

        Columns: `rank`, `name`, `kind` (computing, communication, copy, host; launch, graph or delay for pauses after a call,
        of a CUDA graph and others; unlinked), `start_ns`, `duration_ns`, which sum to the step.
        """
        return _answer("critical_path", self, step=step, ranks=ranks)

    def queue_length(self, *, rank: int | None = None) -> pd.DataFrame:
        """How many executions had been launched but had not begun, by stream: one row a change.

        Columns: `rank`, `stream`, `time_ns`, `length`, `duration_ns` (until the next change).
        """
        return _answer("queue_length", self, rank=rank)

    def full_queue(self, *, rank: int | None = None, capacity: int = 1_022) -> pd.DataFrame:
        """How long launch queues were full and blocked the host: one row a rank and stream, the longest full first.

        Columns: `rank`, `stream`, `most` (largest length), `full_ns` (time with `capacity` or more launches that had not begun;
        CUDA takes 1,022), `blocked_ns` (of it the host was in a launch call of that stream), `recorded_ns` (from the first
        launch to the last begin), `full_ratio` = full_ns / recorded_ns.
        """
        return _answer("full_queue", self, rank=rank, capacity=capacity)

    def modules(self, *, rank: int | None = None, step: int | None = None) -> pd.DataFrame:
        """Time by module and annotation (`nn.Module` stacks, record_function, NVTX, mstx), as a tree in order of first use.

        Columns: `rank`, `path` (outer to inner, joined by " / "), `depth`, `count`, `host_ns`, `own_host_ns` (without inner
        ones), `device_ns` (of what was launched inside), `own_device_ns`, and `backward_device_ns`,
        `own_backward_device_ns` (of what autograd launched for operators that ran inside; 0 without sequence numbers).
        """
        return _answer("modules", self, rank=rank, step=step)

    def kernel_sequences(
        self, *, operator: str = "", rank: int | None = None, step: int | None = None, least: int = 3
    ) -> pd.DataFrame:
        """Which kernels operators launch one after the other, and how often: candidates for fusion, the most frequent first.

        `operator` is part of the names of operators to look at, "" all outermost ones. Columns: `rank`, `operator`, `sequence`
        (names joined by " | "), `num_kernels` (at least `least`), `count`, `device_ns`, `host_ns` (of the operators).
        """
        return _answer("kernel_sequences", self, operator=operator, rank=rank, step=step, least=least)

    def kernel_counters(self, *, rank: int | None = None, step: int | None = None, by: str = "name") -> pd.DataFrame:
        """What the device counted in kernels (CUPTI, Ascend PMU): one row a `by` and counter.

        `by` is name, type, operator or outer_operator. Columns: `by`'s, `counter` (with its unit as recorded), `num_ranks`,
        `count` (calls), `total` (means nothing for ratios and rates), `mean`, `least`, `most` of a call.
        """
        return _answer("kernel_counters", self, rank=rank, step=step, by=by)

    def host_calls(self, *, rank: int | None = None, step: int | None = None) -> pd.DataFrame:
        """Calls of the runtime (CUDA, HIP, CANN by layer): one row a layer and name, the most time first.

        Columns: `layer` (AscendCL, Model, Node, Hccl, Runtime; null elsewhere), `name`, `num_ranks`, `count`, `total_ns`,
        `mean_ns`, `std_ns`, `min_ns`, `max_ns`. Layers call one another: their times overlap.
        """
        return _answer("host_calls", self, rank=rank, step=step)

    def copies(self, *, rank: int | None = None, step: int | None = None) -> pd.DataFrame:
        """What moved between the memories of host and device: one row a rank and name of copies, the longest first.

        Columns: `rank`, `kind` (HtoD, DtoH, DtoD, PtoP, HtoH, Memset), `name`, `count`, `bytes`, `total_ns`, `bytes_per_s`
        (bytes over the time of copies with a size), `least_bytes_per_s`, `most_bytes_per_s` of one copy. Null: sizes were not
        recorded.
        """
        return _answer("copies", self, rank=rank, step=step)

    def copy_bandwidth(self, *, rank: int | None = None, step: int | None = None) -> pd.DataFrame:
        """How fast copies moved data over time, by kind: one row a change; rates of copies at the same time add up.

        Columns: `rank`, `kind`, `time_ns`, `duration_ns` (until the next change), `bytes_per_s`. Rate times duration sums to
        bytes.
        """
        return _answer("copy_bandwidth", self, rank=rank, step=step)

    def frequency(self, *, rank: int | None = None, step: int | None = None) -> pd.DataFrame:
        """How fast the cores of the device were clocked: one row a stretch of one frequency, in order of time.

        Columns: `rank`, `name` (of the counter), `step` (null outside of all), `time_ns`, `duration_ns`, `frequency_mhz`,
        `ratio` (of the highest of that rank, 0 to 1).
        """
        return _answer("frequency", self, rank=rank, step=step)

    def expert_load(self, *, step: int | None = None) -> pd.DataFrame:
        """How evenly experts are loaded: one row a rank with grouped matrix products or all-to-all exchanges.

        Columns: `rank`, `group` (ranks that share experts), `tokens` (input rows of grouped products), `tokens_ratio` (over the
        mean of its group; 1 is even), `matmul_ns`, `matmul_ratio`, `exchanged_bytes`, `exchanged_ratio`, `exchange_ns`. Null:
        not told.
        """
        return _answer("expert_load", self, step=step)

    def memory(self, *, rank: int | None = None) -> pd.DataFrame:
        """Memory held over time, one row a sample.

        Columns: `rank`, `component`, `time_ns`, `allocated_bytes`, `reserved_bytes`, `active_bytes` (null: not recorded).
        Raises NotMeasuredError if there is no sample.
        """
        return _answer("memory", self, rank=rank)

    def counters(self, *, rank: int | None = None, name: str | None = None) -> pd.DataFrame:
        """Counters over time, one row a sample; only those whose name contains `name`, if it is given.

        Columns: `rank`, `name`, `unit`, `time_ns`, `value` (in `unit`). Raises NotMeasuredError if there is no sample,
        InputError that tells the names found if `name` is in none.
        """
        return _answer("counters", self, rank=rank, name=name)

    def sql(self, query: str) -> pd.DataFrame:
        """The answer to a SELECT over the tables of the run, such as "SELECT name, SUM(duration_ns) FROM kernels GROUP BY name".

        Tables and columns are those of `perfkit.core.schema`; only tables that the query names are read, and nothing is
        changed. Raises InputError that names the nearest tables and columns for a wrong one.
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
    frame.attrs[ASKED] = question
    return frame


def nearest(name: str, known: Iterable[str], what: str = "column") -> str:
    """What to say of a name that is none of the known ones."""
    names = list(known)
    close = difflib.get_close_matches(name, names, n=2, cutoff=0.5) or [each for each in names if name in each][:2]
    hint = f", do you mean {' or '.join(map(repr, close))}?" if close else "."
    return f"{name!r} is no {what}{hint} There are {', '.join(names)}"
