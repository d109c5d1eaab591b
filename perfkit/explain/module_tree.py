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
HOW_TO_COLLECT = "record with_stack=True or with_modules=True, or annotate the code with record_function, NVTX or mstx"
_MODULE = re.compile(r"nn\.Module: ")
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


def _spans(host: HostEvents, step: int | None) -> Ints:
    """The modules and annotations in order of thread and time, outer ones first; those that began in one step."""
    marks = host.named(STEP_MARK)
    chosen = (host.named(_MODULE) | host.of_kind("mark")) & ~marks
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


def _paths(names: list[str], parents: Ints) -> list[str]:
    paths: list[str] = []
    for name, parent in zip(names, parents.tolist(), strict=True):
        paths.append(name if parent == NONE else paths[parent] + _BETWEEN + name)
    return paths


def _launched_in(events: RankEvents, spans: HostEvents, thread: str, moments_ns: Ints) -> Ints:
    """The summed device time of what belongs to moments that lie in each span itself, on the threads of a column of `launches`."""
    lanes = {name: lane for lane, name in enumerate(spans.threads)}
    threads = np.array([lanes.get(name, NONE) for name in events.launches[thread]], dtype=np.int64)
    launched: Ints = np.flatnonzero((moments_ns != UNKNOWN_NS) & (threads != NONE))
    around = innermost(spans.starts, spans.ends, spans.lanes, moments_ns[launched], threads[launched])
    total = np.zeros(len(spans.starts), dtype=np.int64)
    inside = around != NONE
    np.add.at(total, around[inside], (events.ends - events.starts)[launched[inside]])
    return total
