"""Answers: what a run says when it is asked (`perfkit.core.questions` tells what each frame holds).

A frame that is asked for a column that it has not names the nearest ones.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pandas as pd

from perfkit.core.errors import InputError, NotMeasuredError
from perfkit.core.run import Run
from perfkit.core.schema import TABLES
from perfkit.explain import chrome_trace
from perfkit.explain import collectives as meetings
from perfkit.explain import critical_path as paths
from perfkit.explain import idle as gaps
from perfkit.explain.module_tree import module_tree
from perfkit.explain.queue_length import queue_lengths
from perfkit.record.events.graph import causal_graph
from perfkit.record.store import select

_GROUPS = ("name", "type", "core", "kind", "stream")


class Answer(pd.DataFrame):
    """A frame that knows its columns: asked for another one it names the nearest."""

    @property
    def _constructor(self) -> type[Answer]:
        return Answer

    def __getitem__(self, key: Any) -> Any:
        try:
            return super().__getitem__(key)
        except KeyError:
            wanted = [key] if isinstance(key, str) else list(key) if isinstance(key, (list, tuple)) else []
            wrong = [str(name) for name in wanted if name not in self.columns]
            if not wrong:
                raise
            raise KeyError("; ".join(nearest(name, map(str, self.columns)) for name in wrong)) from None


def nearest(name: str, known: Iterable[str]) -> str:
    """What to say of a name that is none of the known ones."""
    names = list(known)
    close = difflib.get_close_matches(name, names, n=2, cutoff=0.5) or [each for each in names if name in each][:2]
    hint = f", do you mean {' or '.join(map(repr, close))}?" if close else "."
    return f"{name!r} is no column{hint} There are {', '.join(names)}"


def kernels(run: Run, *, rank: int | None = None, step: int | None = None, by: str = "name") -> pd.DataFrame:
    """Statistics of executions; see `Run.kernels`."""
    if by not in _GROUPS:
        raise InputError("Run.kernels", [nearest(by, _GROUPS)])
    columns = list(dict.fromkeys(["rank", by, "kind", "duration_ns"]))
    rows = run.frame("kernels", ranks=_chosen(run, rank), steps=_steps(run, step), columns=columns)
    groups = rows.groupby(list(dict.fromkeys([by, "kind"])), observed=True, dropna=False, sort=False)
    took = groups["duration_ns"]
    table = pd.DataFrame(
        {
            "num_ranks": groups["rank"].nunique(),
            "count": took.size(),
            "total_ns": took.sum(),
            "mean_ns": took.mean().round().astype("int64"),
            "std_ns": took.std().fillna(0).round().astype("int64"),
            "min_ns": took.min(),
            "max_ns": took.max(),
        }
    ).reset_index()
    table["share"] = table["total_ns"] / max(int(table["total_ns"].sum()), 1)
    return Answer(table.sort_values("total_ns", ascending=False, kind="stable", ignore_index=True))


def collectives(run: Run, *, step: int | None = None) -> pd.DataFrame:
    """Operations over their members; see `Run.collectives`."""
    return Answer(meetings.collectives(run, steps=_steps(run, step)))


def waiting(run: Run, *, step: int | None = None) -> pd.DataFrame:
    """Who waits for whom; see `Run.waiting`."""
    return Answer(meetings.waiting(causal_graph(run).members(steps=_steps(run, step))))


def idle(run: Run, *, rank: int | None = None, step: int | None = None) -> pd.DataFrame:
    """Gaps with their causes; see `Run.idle`."""
    chosen, steps = _chosen(run, rank), _steps(run, step)
    pairs = run.frame("steps", ranks=chosen, steps=steps)[["rank", "step"]].sort_values(["rank", "step"])
    found = [gaps.idle_gaps(run, rank=int(of), step=int(number)) for of, number in pairs.itertuples(index=False)]
    if not found:
        raise NotMeasuredError("the device timeline", how_to_collect=gaps.HOW_TO_COLLECT)
    return Answer(pd.concat(found, ignore_index=True))


def critical_path(run: Run, *, step: int | None = None, ranks: Iterable[int] | None = None) -> pd.DataFrame:
    """The critical path; see `Run.critical_path`."""
    _steps(run, step)
    return Answer(paths.critical_path(run, step=_median_step(run) if step is None else step, ranks=ranks))


def queue_length(run: Run, *, rank: int | None = None) -> pd.DataFrame:
    """Launched but not begun; see `Run.queue_length`."""
    return Answer(pd.concat([queue_lengths(run, each) for each in _chosen(run, rank)], ignore_index=True))


def modules(run: Run, *, rank: int | None = None, step: int | None = None) -> pd.DataFrame:
    """Time by module; see `Run.modules`."""
    _steps(run, step)
    return Answer(pd.concat([module_tree(run, each, step) for each in _chosen(run, rank)], ignore_index=True))


def memory(run: Run, *, rank: int | None = None) -> pd.DataFrame:
    """Memory over time; see `Run.memory`."""
    return Answer(run.frame("memory_curve", ranks=_chosen(run, rank)))


def counters(run: Run, *, rank: int | None = None, name: str | None = None) -> pd.DataFrame:
    """Counters over time; see `Run.counters`."""
    rows = run.frame("counters", ranks=_chosen(run, rank))
    return Answer(rows if name is None else rows[rows["name"].astype(str).str.contains(name, case=False, regex=False)])


def sql(run: Run, query: str) -> pd.DataFrame:
    """The answer to a query; see `Run.sql`."""
    return Answer(select(query, run.frame, TABLES))


def export_chrome(run: Run, path: str | Path, *, ranks: Iterable[int] | None = None) -> Path:
    """Write a Chrome trace; see `Run.export_chrome`."""
    return chrome_trace.write(run, Path(path), run.ranks if ranks is None else ranks)


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
