"""Answers: what a run says when it is asked (`perfkit.core.questions` tells what each frame holds)."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path

import pandas as pd

from perfkit.core.answer import Answer
from perfkit.core.errors import InputError, NotMeasuredError
from perfkit.core.questions import nearest
from perfkit.core.run import Run
from perfkit.core.schema import TABLES
from perfkit.explain import chrome_trace, communication, memory_use
from perfkit.explain import collectives as meetings
from perfkit.explain import copies as moved
from perfkit.explain import critical_path as paths
from perfkit.explain import expert_load as experts
from perfkit.explain import host_calls as calls
from perfkit.explain import idle as gaps
from perfkit.explain import kernel_counters as counted
from perfkit.explain.frequency import frequencies
from perfkit.explain.full_queue import CAPACITY, full_queues
from perfkit.explain.kernel_sequences import kernel_sequences as sequences
from perfkit.explain.module_tree import module_tree
from perfkit.explain.queue_length import queue_lengths
from perfkit.explain.statistics import statistics
from perfkit.record.events.graph import causal_graph
from perfkit.record.store import select

_HOW_COUNTERS = (
    "on Ascend record at level 1 or 2, which writes counters of the device and its links into trace_view.json or the database"
)
_GROUPS = ("name", "type", "core", "kind", "stream")


def kernels(run: Run, *, rank: int | None = None, step: int | None = None, by: str = "name") -> pd.DataFrame:
    """Statistics of executions; see `Run.kernels`."""
    if by not in _GROUPS:
        raise InputError("Run.kernels", [nearest(by, _GROUPS, "group")])
    keys = list(dict.fromkeys([by, "kind"]))
    columns = list(dict.fromkeys(["rank", *keys, "core", "duration_ns"]))
    rows = run.frame("kernels", ranks=_chosen(run, rank), steps=_steps(run, step), columns=columns)
    table = statistics(rows, keys)
    if "core" not in keys:
        first = rows.astype({"core": "object"}).groupby(keys, observed=True, dropna=False, sort=False)["core"].first()
        table.insert(
            len(keys), "core", first.reindex(pd.MultiIndex.from_frame(table[keys]) if len(keys) > 1 else table[by]).to_numpy()
        )
    return Answer(table.assign(share=table["total_ns"] / max(int(table["total_ns"].sum()), 1)))


def collectives(run: Run, *, step: int | None = None) -> pd.DataFrame:
    """Operations over their members; see `Run.collectives`."""
    return Answer(meetings.collectives(run, steps=_steps(run, step)))


def waiting(run: Run, *, step: int | None = None) -> pd.DataFrame:
    """Who waits for whom; see `Run.waiting`."""
    members = causal_graph(run).members(steps=_steps(run, step))
    late = communication.late_rank(members)
    table = communication.waiting_by_rank(members).assign(num_steps=communication.num_steps(members), late=None)
    if late is None:
        return Answer(table)
    if late[0] not in set(table["rank"]):  # it was not recorded, and those that were waited for it
        unread = table.iloc[:0].reindex([0]).assign(rank=late[0], operations=0, num_steps=communication.num_steps(members))
        table = pd.concat([table, unread.astype(table.dtypes)], ignore_index=True)
    table.loc[table["rank"] == late[0], "late"] = str(late[1])
    return Answer(table)


def idle(run: Run, *, rank: int | None = None, step: int | None = None) -> pd.DataFrame:
    """Gaps with their causes; see `Run.idle`."""
    steps = _steps(run, step)

    def gaps_of(each: int) -> pd.DataFrame:
        numbers = sorted(map(int, run.frame("steps", ranks=[each], steps=steps, columns=["step"])["step"]))
        if not numbers:
            raise NotMeasuredError(f"the device timeline of rank {each}", how_to_collect=gaps.HOW_TO_COLLECT)
        return gaps.idle_gaps_of(run, rank=each, steps=numbers)

    return _by_rank(run, rank, gaps_of)


def critical_path(run: Run, *, step: int | None = None, ranks: Iterable[int] | None = None) -> pd.DataFrame:
    """The critical path; see `Run.critical_path`."""
    _steps(run, step)
    return Answer(paths.critical_path(run, step=_median_step(run) if step is None else step, ranks=ranks))


def queue_length(run: Run, *, rank: int | None = None) -> pd.DataFrame:
    """Launched but not begun; see `Run.queue_length`."""
    return _by_rank(run, rank, lambda each: queue_lengths(run, each))


def full_queue(run: Run, *, rank: int | None = None, capacity: int = CAPACITY) -> pd.DataFrame:
    """How long queues were full; see `Run.full_queue`."""
    if capacity < 1:
        raise InputError("Run.full_queue", [f"capacity = {capacity} must be positive; that of CUDA is {CAPACITY}"])
    return _by_rank(run, rank, lambda each: full_queues(run, each, capacity))


def modules(run: Run, *, rank: int | None = None, step: int | None = None) -> pd.DataFrame:
    """Time by module; see `Run.modules`."""
    _steps(run, step)
    return _by_rank(run, rank, lambda each: module_tree(run, each, step))


def kernel_sequences(
    run: Run, *, operator: str = "", rank: int | None = None, step: int | None = None, least: int = 3
) -> pd.DataFrame:
    """What operators launch in a row; see `Run.kernel_sequences`."""
    _steps(run, step)
    if least < 1:
        raise InputError("Run.kernel_sequences", [f"least = {least} must be positive"])
    return _by_rank(run, rank, lambda each: sequences(run, each, operator, step=step, least=least))


def kernel_counters(run: Run, *, rank: int | None = None, step: int | None = None, by: str = "name") -> pd.DataFrame:
    """What the device counted in kernels; see `Run.kernel_counters`."""
    if by not in counted.GROUPS:
        raise InputError("Run.kernel_counters", [nearest(by, counted.GROUPS, "group")])
    return Answer(counted.kernel_counters(run, _chosen(run, rank), steps=_steps(run, step), by=by))


def host_calls(run: Run, *, rank: int | None = None, step: int | None = None) -> pd.DataFrame:
    """Calls of the runtime; see `Run.host_calls`."""
    _steps(run, step)
    return Answer(calls.host_calls(run, _chosen(run, rank), step=step))


def copies(run: Run, *, rank: int | None = None, step: int | None = None) -> pd.DataFrame:
    """What copies moved; see `Run.copies`."""
    return Answer(moved.copies(run, _chosen(run, rank), steps=_steps(run, step)))


def copy_bandwidth(run: Run, *, rank: int | None = None, step: int | None = None) -> pd.DataFrame:
    """How fast copies moved it over time; see `Run.copy_bandwidth`."""
    return Answer(moved.copy_bandwidth(run, _chosen(run, rank), steps=_steps(run, step)))


def frequency(run: Run, *, rank: int | None = None, step: int | None = None) -> pd.DataFrame:
    """How fast the cores were clocked; see `Run.frequency`."""
    _steps(run, step)
    return Answer(frequencies(run, _chosen(run, rank), step=step))


def expert_load(run: Run, *, step: int | None = None) -> pd.DataFrame:
    """How evenly experts are loaded; see `Run.expert_load`."""
    return Answer(experts.expert_load(run, steps=_steps(run, step)))


def memory(run: Run, *, rank: int | None = None) -> pd.DataFrame:
    """Memory over time; see `Run.memory`."""
    rows = run.frame("memory_curve", ranks=_chosen(run, rank))
    if rows.empty:
        raise NotMeasuredError(f"memory of {_subject(run, rank)} over time", how_to_collect=memory_use.HOW)
    return Answer(rows)


def counters(run: Run, *, rank: int | None = None, name: str | None = None) -> pd.DataFrame:
    """Counters over time; see `Run.counters`."""
    rows = run.frame("counters", ranks=_chosen(run, rank))
    if rows.empty:
        raise NotMeasuredError(f"counters of {_subject(run, rank)} over time", how_to_collect=_HOW_COUNTERS)
    if name is None:
        return Answer(rows)
    texts = rows["name"].astype(str)
    if not (named := texts.str.contains(name, case=False, regex=False)).any():
        raise InputError("Run.counters", [nearest(name, sorted(set(texts)), "part of the name of a counter")])
    return Answer(rows[named])


def sql(run: Run, query: str) -> pd.DataFrame:
    """The answer to a query; see `Run.sql`."""
    return Answer(select(query, run.frame, TABLES))


def export_chrome(run: Run, path: str | Path, *, ranks: Iterable[int] | None = None) -> Path:
    """Write a Chrome trace; see `Run.export_chrome`."""
    return chrome_trace.write(run, Path(path), run.ranks if ranks is None else ranks)


def _by_rank(run: Run, rank: int | None, ask: Callable[[int], pd.DataFrame]) -> Answer:
    """The answers of one rank, or of all that can tell; raises NotMeasuredError if none can."""
    found: list[pd.DataFrame] = []
    missing: NotMeasuredError | None = None
    for each in _chosen(run, rank):
        try:
            found.append(ask(each))
        except NotMeasuredError as error:
            missing = missing or error
    if not found:
        raise missing or NotMeasuredError(f"ranks of {run.name}", how_to_collect=gaps.HOW_TO_COLLECT)
    return Answer(pd.concat(found, ignore_index=True))


def _subject(run: Run, rank: int | None) -> str:
    return run.name if rank is None else f"rank {rank}"


def _chosen(run: Run, rank: int | None) -> list[int]:
    """One rank, or all of them. Raises InputError that names the ranks found if `rank` is none of them."""
    if rank is None:
        return list(run.ranks)
    if rank not in run.ranks:
        raise InputError(run.name, [f"rank {rank} is not in the run; ranks found: {', '.join(map(str, run.ranks[:20])) or 'none'}"])
    return [rank]


def _steps(run: Run, step: int | None) -> list[int] | None:
    """One step, or None for all. Raises InputError that names the steps found if `step` is none of them."""
    if step is None:
        return None
    found = sorted({int(number) for number in run.frame("steps", columns=["step"])["step"]})
    if step not in found:
        raise InputError(run.name, [f"step {step} is not in the run; steps found: {', '.join(map(str, found[:20])) or 'none'}"])
    return [step]


def _median_step(run: Run) -> int:
    """The step whose mean length over ranks is the median one."""
    lengths = run.frame("steps", columns=["step", "duration_ns"]).groupby("step")["duration_ns"].mean().sort_values()
    if lengths.empty:
        raise NotMeasuredError("the steps of the run", how_to_collect=gaps.HOW_TO_COLLECT)
    return int(str(lengths.index[len(lengths) // 2]))
