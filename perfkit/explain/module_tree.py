"""Module tree: time by module of the network and by annotation of the user, with and without what is inside.

Modules come from recorded stacks (`nn.Module: Linear_3`), annotations from record_function, NVTX and mstx. Both nest on their
thread. Device time is that of what was launched inside: a launch belongs to the innermost one around it on its own thread. What the
autograd thread launches belongs, as device time of the backward pass, to the one in which its forward operator ran.
"""

from __future__ import annotations

import re

import numpy as np
import numpy.typing as npt
import pandas as pd

from perfkit.core.errors import NotMeasuredError
from perfkit.core.run import Run
from perfkit.record.events.graph import UNKNOWN_NS, RankEvents, causal_graph
from perfkit.record.events.host_steps import STEP_MARK
from perfkit.record.events.threads import HostEvents
from perfkit.record.readers.host import NONE, innermost

Ints = npt.NDArray[np.int64]
Objects = npt.NDArray[np.object_]
HOW_TO_COLLECT = "record with_stack=True or with_modules=True, or annotate the code with record_function, NVTX or mstx"
_MODULE = re.compile(r"nn\.Module: ")
_SCOPE = re.compile(r"^(?:Gradients/)?Default/(?P<path>.+?)(?:/grad[A-Z][^/]*)?/[^/]+$")
"""The name that MindSpore gives an operator: the cells around it, then its own; that of a gradient names the same cells."""
_BETWEEN = " / "
_AMOUNTS = ("host_ns", "own_host_ns", "device_ns", "own_device_ns", "backward_device_ns", "own_backward_device_ns")
COLUMNS = ("rank", "path", "depth", "count", *_AMOUNTS)


def module_tree(run: Run, rank: int, step: int | None = None) -> pd.DataFrame:
    """The modules of one rank, in all steps or in one: the columns of `Run.modules`. NotMeasuredError if none was recorded."""
    events = causal_graph(run).rank(rank)
    places = _spans(events.host, step)
    if not len(places):
        raise NotMeasuredError(f"which module did what on rank {rank}", how_to_collect=HOW_TO_COLLECT)
    spans = HostEvents(events.host.rows.iloc[places])
    parents, ends = _nested(spans)
    inner = parents != NONE
    lasts = ends - spans.starts
    own_host = lasts.copy()
    np.subtract.at(own_host, parents[inner], lasts[inner])
    own_device = _launched_in(events, spans, "thread", events.launch_ns)
    forward_ns = events.launches["forward_ns"].fillna(UNKNOWN_NS).to_numpy(dtype=np.int64)
    own_backward = _launched_in(events, spans, "forward_thread", forward_ns)
    device, backward = own_device.copy(), own_backward.copy()
    for span in range(len(places) - 1, -1, -1):  # inner ones follow outer ones
        if inner[span]:
            device[parents[span]] += device[span]
            backward[parents[span]] += backward[span]
    amounts = (lasts, own_host, device, own_device, backward, own_backward)
    told = pd.DataFrame(dict(zip(_AMOUNTS, amounts, strict=True)))
    told.insert(0, "path", _paths(spans.rows["name"].astype(str).tolist(), parents))
    groups = told.groupby("path", sort=False)
    table = groups.sum()
    table.insert(0, "count", groups.size())
    table.insert(0, "depth", [str(path).count(_BETWEEN) for path in table.index])
    return table.reset_index().assign(rank=rank).loc[:, list(COLUMNS)]


def is_module(host: HostEvents) -> npt.NDArray[np.bool_]:
    """Which rows are modules or annotations; the mark of a step is none."""
    return (host.named(_MODULE) | host.of_kind("mark")) & ~host.named(STEP_MARK)


def modules_of(run: Run, rank: int, *, host: bool = True) -> Objects | None:
    """The innermost module of the network by execution of a rank, in order of start, as a path; "" where none is known.

    Of what the backward pass computes it is the one in which its forward operator ran. None if no module was recorded: MindSpore
    names the cells with each operator, elsewhere the host's stacks tell, which are read if `host`.
    """
    events = causal_graph(run).rank(rank)
    names = events.device["name"].astype("category").cat
    scopes = [_SCOPE.match(str(name)) for name in names.categories.tolist()]
    if any(scopes):
        found: Objects = np.array([*(scope["path"] if scope else "" for scope in scopes), ""], dtype=object)[names.codes.to_numpy()]
        return found
    if not (host and run.has("launches") and run.has("host")):
        return None
    # Of a host with hundreds of thousands of events the names tell in no time whether there is anything to look for.
    known = run.frame("host", ranks=[rank], columns=["name"])["name"].astype("category").cat.categories
    if not any(_MODULE.match(str(name)) for name in known.tolist()):
        return None
    places = _spans(events.host, None)
    places = places[events.host.named(_MODULE)[places]]
    spans = HostEvents(events.host.rows.iloc[places])
    parents, _ = _nested(spans)
    paths = _paths([_MODULE.sub("", str(name)) for name in spans.rows["name"].tolist()], parents, "/")
    inside: Objects = np.array([*paths, ""], dtype=object)
    forward_ns = events.launches["forward_ns"].fillna(UNKNOWN_NS).to_numpy(dtype=np.int64)
    own, before = (_around(events, spans, *asked) for asked in (("thread", events.launch_ns), ("forward_thread", forward_ns)))
    told: Objects = inside[np.where(own != NONE, own, before)]
    return told


def _spans(host: HostEvents, step: int | None) -> Ints:
    """The modules and annotations in order of thread and time, outer ones first; those that began in one step."""
    chosen = is_module(host)
    if step is not None:
        mark = np.flatnonzero(host.named(re.compile(f"^ProfilerStep#{step}$")))[:1]
        begin, end = (int(host.starts[mark[0]]), int(host.ends[mark[0]])) if len(mark) else (0, 0)
        chosen &= (host.starts >= begin) & (host.starts < end)
    places = np.flatnonzero(chosen)
    threads = np.argsort(np.argsort([*host.threads, "nan"]))[host.lanes[places]]
    ordered: Ints = places[np.lexsort((host.starts[places] - host.ends[places], host.starts[places], threads))]
    return ordered


def _nested(spans: HostEvents) -> tuple[Ints, Ints]:
    """Parents and ends of spans in order: one that outlives what it began in is of it only while that lasts."""
    parents, ends = spans.parents.copy(), spans.ends.copy()
    for span in np.flatnonzero(parents != NONE).tolist():
        while parents[span] != NONE and ends[parents[span]] <= spans.starts[span]:
            parents[span] = parents[parents[span]]
        if parents[span] != NONE:
            ends[span] = min(ends[span], ends[parents[span]])
    return parents, ends


def _paths(names: list[str], parents: Ints, between: str = _BETWEEN) -> list[str]:
    paths: list[str] = []
    for name, parent in zip(names, parents.tolist(), strict=True):
        paths.append(name if parent == NONE else paths[parent] + between + name)
    return paths


def _around(events: RankEvents, spans: HostEvents, thread: str, moments_ns: Ints) -> Ints:
    """By execution the innermost span around its moment on its thread, a column of `launches`; NONE where there is none."""
    lanes = {name: lane for lane, name in enumerate(spans.threads)}
    threads = np.array([lanes.get(name, NONE) for name in events.launches[thread]], dtype=np.int64)
    launched: Ints = np.flatnonzero((moments_ns != UNKNOWN_NS) & (threads != NONE))
    found = np.full(len(threads), NONE, dtype=np.int64)
    found[launched] = innermost(spans.starts, spans.ends, spans.lanes, moments_ns[launched], threads[launched])
    return found


def _launched_in(events: RankEvents, spans: HostEvents, thread: str, moments_ns: Ints) -> Ints:
    """The summed device time of what belongs to moments that lie in each span itself, on the threads of a column of `launches`."""
    around = _around(events, spans, thread, moments_ns)
    total = np.zeros(len(spans.starts), dtype=np.int64)
    inside = around != NONE
    np.add.at(total, around[inside], (events.ends - events.starts)[inside])
    return total
