"""Steps: the recorded steps of a run as one graph of dependencies, on which a change of one piece moves all that follows.

The graphs of single steps (`perfkit.explain.dependencies`) are chained: every rank has a node where a step begins and one where it
ends (0 ns), so that a rank that is late takes its lateness into the next step. Where the host does little, it is not what holds the
device up: then its launches are left out, and a time that the device was idle before a kernel stays before that kernel. Where the
host is busy for most of the step its launches stay as recorded.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from perfkit.core import clock, robust
from perfkit.core.errors import NotMeasuredError
from perfkit.core.run import Run
from perfkit.explain.dependencies import MEETING, Dependencies, dependencies, retime, with_lags
from perfkit.explain.idle import BLOCKING_NAMES, HOW_TO_COLLECT
from perfkit.record.events.graph import causal_graph
from perfkit.record.overlap import overlap_ns, union

Ints = npt.NDArray[np.int64]
BEGIN, END = "begin", "end"
MOST_STEPS = 6
MOST_KERNELS = 400_000
"""Kernels of all ranks and steps that one question looks at; of longer runs it takes fewer steps."""
BUSY_HOST = 0.5
"""A host that works for more than this share of the step is taken to set the pace where the device waited for it."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Steps:
    """The chained graph: its `nodes` have `step` too; `begin` and `end` are positions of the nodes of every rank and step.

    `waits_ns` is by node how long the device was idle before it because the host had not launched it (0: not at all, or not known);
    `rigid` says whether the host's launches are in the graph.
    """

    graph: Dependencies
    begin: pd.DataFrame
    waits_ns: Ints
    rigid: bool
    steps: tuple[int, ...]
    ranks: tuple[int, ...]
    clocks: Mapping[int, clock.Clock]

    @property
    def durations_ns(self) -> Ints:
        """How long every step takes on the rank that needs longest."""
        starts = self.graph.nodes["start_ns"].to_numpy(dtype=np.int64)
        lengths = starts[self.begin["end"].to_numpy()] - starts[self.begin["begin"].to_numpy()]
        return np.asarray(pd.Series(lengths).groupby(self.begin["step"].to_numpy()).max(), dtype=np.int64)

    @property
    def step_ns(self) -> int:
        """The mean over steps of the rank that needs longest."""
        return round(float(self.durations_ns.mean()))

    def longest(self) -> tuple[int, int]:
        """The rank and step that are looked at: the step nearest to the mean, on the rank that needs longest in it."""
        durations = self.durations_ns
        step = self.steps[int(np.argmin(np.abs(durations - durations.mean())))]
        starts = self.graph.nodes["start_ns"].to_numpy(dtype=np.int64)
        mine = self.begin[self.begin["step"] == step]
        lengths = starts[mine["end"].to_numpy()] - starts[mine["begin"].to_numpy()]
        return int(mine["rank"].iloc[int(lengths.argmax())]), step

    def timed(self, duration_ns: Ints, lag_ns: Ints | None = None) -> Steps:
        """The steps with other durations of nodes and lags of edges."""
        graph = self.graph if lag_ns is None else replace(self.graph, lag_ns=lag_ns)
        return replace(self, graph=retime(graph, duration_ns))

    def with_edges(self, keep: npt.NDArray[np.bool_]) -> Steps:
        """Only some of the edges; what held a node up by the others is then the lag behind the last that is left.

        What none leads a rank to any more follows the beginning of its step.
        """
        graph = self.graph
        edges = pd.DataFrame({"node": graph.targets, "rank": graph.edge_ranks, "due_ns": graph.due_ns})
        gone = edges[~keep].drop_duplicates(["node", "rank"])
        lost = gone[
            ~pd.MultiIndex.from_frame(gone[["node", "rank"]]).isin(pd.MultiIndex.from_frame(edges.loc[keep, ["node", "rank"]]))
        ]
        lost = lost.assign(step=graph.nodes["step"].to_numpy()[lost["node"]]).merge(self.begin, on=["rank", "step"], how="left")
        lost = lost[(lost["node"] != lost["begin"]).to_numpy(dtype=bool)]
        added = [lost[name].to_numpy(dtype=np.int64) for name in ("begin", "node", "rank", "due_ns")]
        known = (graph.sources, graph.targets, graph.edge_ranks, graph.due_ns)
        return replace(
            self, graph=with_lags(graph, *(np.concatenate([old[keep], new]) for old, new in zip(known, added, strict=True)))
        )


def steps_of(run: Run, *, steps: Sequence[int] | None = None, ranks: Sequence[int] | None = None) -> Steps:
    """The graph of some steps, by default of those after warm-up (at most MOST_STEPS in a row), of all ranks that have kernels.

    Raises NotMeasuredError where no kernels with times were recorded.
    """
    chosen = _chosen(run, steps, ranks)
    clocks = causal_graph(run).clocks if len(run.ranks) > 1 else {}
    graphs = [dependencies(run, step=step, ranks=ranks, known_clocks=clocks) for step in chosen]
    windows = _windows(run, graphs, chosen, clocks)
    whole, begin = _chained(graphs, chosen, windows)
    steps_graph = Steps(
        graph=whole,
        begin=begin,
        waits_ns=_host_waits(whole),
        rigid=True,
        steps=chosen,
        ranks=tuple(sorted(int(rank) for rank in begin["rank"].unique())),
        clocks=clocks,
    )
    return steps_graph if _host_share(run, steps_graph, clocks) > BUSY_HOST else without_host(steps_graph)


def without_host(steps: Steps) -> Steps:
    """The steps with idle times kept before their kernels, and no launch that could hold a kernel up."""
    host = (steps.graph.nodes["kind"] == "host").to_numpy(dtype=bool)
    keep = ~(host[steps.graph.sources] & ~host[steps.graph.targets])
    return replace(steps.with_edges(keep), rigid=False)


def _chosen(run: Run, steps: Sequence[int] | None, ranks: Sequence[int] | None) -> tuple[int, ...]:
    rows = run.steps()
    kernels = run.frame("kernels", ranks=ranks, columns=["step"])["step"]
    known = sorted(int(step) for step in kernels.dropna().unique())
    if not known:
        raise NotMeasuredError("kernels of a recorded step", how_to_collect=HOW_TO_COLLECT)
    if steps is not None:
        return tuple(step for step in known if step in set(steps)) or tuple(known[-1:])
    cut = robust.warm_up(rows)
    known = [step for step in known if step not in cut] or known
    most = max(1, MOST_KERNELS * len(known) // max(1, len(kernels)))
    return tuple(known[-min(MOST_STEPS, most) :])


def _windows(
    run: Run, graphs: Sequence[Dependencies], chosen: Sequence[int], clocks: Mapping[int, clock.Clock]
) -> dict[tuple[int, int], tuple[int, int]]:
    """Start and end of every step on every rank, on the common clock; from the first to the last kernel if no start is recorded."""
    rows = run.steps()
    known = {(int(row["rank"]), int(row["step"])): row for row in rows.to_dict("records")}
    found = {}
    for graph, step in zip(graphs, chosen, strict=True):
        device = graph.nodes[~graph.nodes["kind"].isin(["host", MEETING]).to_numpy(dtype=bool)]
        ends = device["start_ns"] + device["duration_ns"]
        spans = pd.DataFrame({"rank": device["rank"], "start": device["start_ns"], "end": ends}).groupby("rank")
        for rank, first, last in zip(spans["start"].min().index, spans["start"].min(), spans["end"].max(), strict=True):
            row = known.get((int(rank), step))
            start_ns, end_ns = int(first), int(last)
            if row is not None and not pd.isna(row["start_ns"]):
                moments = np.array([row["start_ns"], row["start_ns"] + row["duration_ns"]], dtype=np.int64)
                mine = clocks.get(int(rank))
                start_ns, end_ns = (int(moment) for moment in (moments if mine is None else mine.common_ns(moments)))
            found[int(rank), step] = start_ns, end_ns
    return found


def _chained(
    graphs: Sequence[Dependencies], chosen: Sequence[int], windows: dict[tuple[int, int], tuple[int, int]]
) -> tuple[Dependencies, pd.DataFrame]:
    """All steps after one another with the nodes of their beginnings and ends, and where those are."""
    nodes, edges, places = [], [], []
    offset = 0
    last_end: dict[int, int] = {}
    for graph, step in zip(graphs, chosen, strict=True):
        ranks = sorted(rank for rank, number in windows if number == step)
        count = len(graph.nodes)
        begins = {rank: offset + at for at, rank in enumerate(ranks)}
        first = offset + len(ranks)
        ends = {rank: first + count + at for at, rank in enumerate(ranks)}
        opened, closed = ({rank: windows[rank, step][side] for rank in ranks} for side in (0, 1))
        frames = [_marks(opened, BEGIN), graph.nodes, _marks(closed, END)]
        nodes.append(pd.concat(frames, ignore_index=True).assign(step=step))
        edges.append((graph.sources + first, graph.targets + first, graph.edge_ranks, graph.due_ns))
        roots = graph.roots
        edges.append(_edges(roots["rank"].map(begins), roots["node"] + first, roots["rank"], roots["due_ns"]))
        tails = _tails(graph, closed)
        of_tail = graph.nodes["rank"].iloc[tails]
        edges.append(_edges(tails + first, of_tail.map(ends), of_tail, of_tail.map(closed)))
        known = pd.Series([rank for rank in ranks if rank in last_end], dtype=np.int64)
        edges.append(_edges(known.map(last_end), known.map(begins), known, known.map(opened)))
        places += [{"rank": rank, "step": step, "begin": begins[rank], "end": ends[rank]} for rank in ranks]
        last_end, offset = ends, offset + count + 2 * len(ranks)
    whole = pd.concat(nodes, ignore_index=True)
    span = min(window[0] for window in windows.values()), max(window[1] for window in windows.values())
    graph = replace(graphs[0], nodes=whole, start_ns=span[0], end_ns=span[1])
    return with_lags(graph, *(np.concatenate(column) for column in zip(*edges, strict=True))), pd.DataFrame(places)


def _edges(sources: Any, targets: Any, ranks: Any, due_ns: Any) -> tuple[Ints, Ints, Ints, Ints]:
    found = tuple(np.asarray(column, dtype=np.int64) for column in (sources, targets, ranks, due_ns))
    return found[0], found[1], found[2], found[3]


def _marks(moments: Mapping[int, int], kind: str) -> pd.DataFrame:
    columns = {"rank": list(moments), "name": kind, "kind": kind, "stream": "", "start_ns": list(moments.values())}
    return pd.DataFrame({**columns, "duration_ns": 0})


def _tails(graph: Dependencies, until_ns: Mapping[int, int]) -> Ints:
    """The last piece of every stream of the device before the step ends; the last of a rank where none has ended by then.

    What runs on past the end of a step (its marks are the host's in some formats) has not held that end up.
    """
    nodes = graph.nodes.assign(end=graph.ends_ns)
    device = nodes[~nodes["kind"].isin(["host", MEETING]).to_numpy(dtype=bool)].sort_values("end", kind="stable")
    within = device[(device["end"] <= device["rank"].map(until_ns)).to_numpy(dtype=bool)]
    lonely = device[~device["rank"].isin(within["rank"].unique()).to_numpy(dtype=bool)].drop_duplicates("rank", keep="last")
    last = within.drop_duplicates(["rank", "stream"], keep="last")
    return np.sort(np.concatenate([last.index.to_numpy(dtype=np.int64), lonely.index.to_numpy(dtype=np.int64)]))


def _host_waits(graph: Dependencies) -> Ints:
    """By node how long it came after everything on the device that it follows, where its launch came even later."""
    host = (graph.nodes["kind"] == "host").to_numpy(dtype=bool)
    starts, ends = graph.nodes["start_ns"].to_numpy(dtype=np.int64), graph.ends_ns
    least = np.iinfo(np.int64).min
    launched, ready = np.full(len(starts), least), np.full(len(starts), least)
    of_host = host[graph.sources] & ~host[graph.targets]
    np.maximum.at(launched, graph.targets[of_host], ends[graph.sources[of_host]])
    others = ~host[graph.sources]
    np.maximum.at(ready, graph.targets[others], ends[graph.sources[others]])
    late = (launched > ready) & (ready > least)
    return np.where(late, np.maximum(starts - ready, 0), 0).astype(np.int64)


def _host_share(run: Run, steps: Steps, clocks: Mapping[int, clock.Clock]) -> float:
    """The share of the steps in which the host of the median rank does something that was recorded."""
    if "host" not in run.tables or not (steps.graph.nodes["kind"] == "host").any():
        return 0.0
    starts = steps.graph.nodes["start_ns"].to_numpy(dtype=np.int64)
    shares = []
    for rank, rows in steps.begin.groupby("rank"):
        host = run.frame("host", ranks=[int(str(rank))], columns=["name", "kind", "start_ns", "duration_ns"])
        working = host["kind"].isin(["operator", "call", "python"]).to_numpy(dtype=bool)
        texts = host["name"].astype(str)
        blocking = {name: BLOCKING_NAMES.search(name) is not None for name in texts.unique()}
        host = host[working & ~texts.map(blocking).to_numpy(dtype=bool)]
        begins = host["start_ns"].to_numpy(dtype=np.int64)
        known = clocks.get(int(str(rank)))
        begins = begins if known is None else known.common_ns(begins)
        busy = union(begins, begins + host["duration_ns"].to_numpy(dtype=np.int64))
        windows = union(starts[rows["begin"].to_numpy()], starts[rows["end"].to_numpy()])
        shares.append(overlap_ns(busy, windows) / max(1, windows.total_ns))
    return float(np.median(shares)) if shares else 0.0
