"""Module tree: time by module of the network and by annotation of the user, with and without what is inside.

Modules come from recorded stacks (`nn.Module: Linear_3`), annotations from record_function, NVTX and mstx. Both nest on their
thread. Device time is that of what was launched inside: a launch belongs to the innermost one around it on its own thread.
"""

from __future__ import annotations

import re

import numpy as np
import numpy.typing as npt
import pandas as pd

from perfkit.core.errors import NotMeasuredError
from perfkit.core.run import Run
from perfkit.record.readers.host import NONE, innermost

Ints = npt.NDArray[np.int64]
HOW_TO_COLLECT = "record with_stack=True or with_modules=True, or annotate the code with record_function, NVTX or mstx"
_MODULE = re.compile(r"nn\.Module: ")
_STEP = re.compile(r"ProfilerStep#\d+$")
_BETWEEN = " / "
COLUMNS = ("rank", "path", "depth", "count", "host_ns", "own_host_ns", "device_ns", "own_device_ns")


def module_tree(run: Run, rank: int, step: int | None = None) -> pd.DataFrame:
    """The modules of one rank, in all steps or in one: the columns of `Run.modules`. NotMeasuredError if none was recorded."""
    spans = _spans(run, rank, step)
    if spans.empty:
        raise NotMeasuredError(f"which module did what on rank {rank}", how_to_collect=HOW_TO_COLLECT)
    starts = spans["start_ns"].to_numpy(dtype=np.int64)
    ends = starts + spans["duration_ns"].to_numpy(dtype=np.int64)
    parents = _parents(spans["thread"].tolist(), starts.tolist(), ends.tolist())
    own_host = spans["duration_ns"].to_numpy(dtype=np.int64).copy()
    inner = parents >= 0
    np.subtract.at(own_host, parents[inner], spans["duration_ns"].to_numpy(dtype=np.int64)[inner])
    own_device = _launched_in(run, rank, spans, starts, ends)
    device = own_device.copy()
    for span in range(len(spans) - 1, -1, -1):  # inner ones follow outer ones
        if parents[span] >= 0:
            device[parents[span]] += device[span]
    told = spans.assign(
        own_host_ns=own_host, device_ns=device, own_device_ns=own_device, path=_paths(spans["name"].tolist(), parents)
    )
    groups = told.groupby("path", sort=False)
    table = groups[["duration_ns", "own_host_ns", "device_ns", "own_device_ns"]].sum().rename(columns={"duration_ns": "host_ns"})
    table.insert(0, "count", groups.size())
    table.insert(0, "depth", [str(path).count(_BETWEEN) for path in table.index])
    return table.reset_index().assign(rank=rank).loc[:, list(COLUMNS)]


def _spans(run: Run, rank: int, step: int | None) -> pd.DataFrame:
    """The modules and annotations in order of thread and time, outer ones first; those that began in one step."""
    columns = ["name", "kind", "thread", "start_ns", "duration_ns"]
    host = run.frame("host", ranks=[rank], columns=columns)
    names = {name: (_MODULE.search(str(name)) is not None, _STEP.match(str(name)) is not None) for name in host["name"].unique()}
    told = host["name"].map(lambda name: names[name][0]).to_numpy(dtype=bool)
    marks = host["name"].map(lambda name: names[name][1]).to_numpy(dtype=bool)
    spans = host[(told | (host["kind"] == "mark").to_numpy(dtype=bool)) & ~marks]
    if step is not None:
        mark = host[(host["name"].astype(str) == f"ProfilerStep#{step}").to_numpy(dtype=bool)]
        begin, end = (int(mark["start_ns"].iloc[0]), int(mark["duration_ns"].iloc[0])) if len(mark) else (0, 0)
        spans = spans[(spans["start_ns"] >= begin) & (spans["start_ns"] < begin + end)]
    spans = spans.assign(name=spans["name"].astype(str), thread=spans["thread"].astype(str))
    order = ["thread", "start_ns", "duration_ns"]
    ordered: pd.DataFrame = spans.sort_values(order, ascending=[True, True, False], kind="stable", ignore_index=True)
    return ordered


def _parents(threads: list[str], starts: list[int], ends: list[int]) -> Ints:
    """The span around each one on its thread, by position; NONE for an outermost one."""
    parents: list[int] = []
    stack: list[int] = []
    for span, (thread, start) in enumerate(zip(threads, starts, strict=True)):
        while stack and (threads[stack[-1]] != thread or ends[stack[-1]] <= start):
            stack.pop()
        parents.append(stack[-1] if stack else NONE)
        stack.append(span)
    return np.array(parents, dtype=np.int64)


def _paths(names: list[str], parents: Ints) -> list[str]:
    paths: list[str] = []
    for name, parent in zip(names, parents.tolist(), strict=True):
        paths.append(name if parent == NONE else paths[parent] + _BETWEEN + name)
    return paths


def _launched_in(run: Run, rank: int, spans: pd.DataFrame, starts: Ints, ends: Ints) -> Ints:
    """The summed device time of what each span launched itself."""
    rows = run.frame("launches", ranks=[rank], columns=["thread", "launch_ns", "duration_ns"]).dropna(
        subset=["launch_ns", "thread"]
    )
    codes = pd.factorize(pd.concat([spans["thread"].astype("object"), rows["thread"].astype("object")], ignore_index=True))[0]
    moments = rows["launch_ns"].to_numpy(dtype=np.int64)
    around = innermost(starts, ends, codes[: len(spans)].astype(np.int64), moments, codes[len(spans) :].astype(np.int64))
    total = np.zeros(len(spans), dtype=np.int64)
    inside = around != NONE
    np.add.at(total, around[inside], rows["duration_ns"].to_numpy(dtype=np.int64)[inside])
    return total
