"""Steps: the recorded steps of a run as one graph of dependencies, on which a change of one piece moves all that follows.

The graphs of single steps (`perfkit.trace.dependencies`) are chained: every rank has a node where a step begins and one where it
ends (0 ns), so that a rank that is late takes its lateness into the next step. Where the host does little, it is not what holds the
device up: then its launches are left out, and a time that the device was idle before a kernel stays before that kernel. Where the
host is busy for most of the step its launches stay as recorded.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import pandas as pd

from perfkit.errors import NotMeasuredError
from perfkit.run import Run
from perfkit.trace import clock
from perfkit.trace.dependencies import MEETING, Dependencies, dependencies, retime
from perfkit.trace.idle import BLOCKING_NAMES, HOW_TO_COLLECT
from perfkit.trace.overlap import overlap_ns, union

Ints = npt.NDArray[np.int64]
BEGIN, END = "begin", "end"
MOST_STEPS = 6
MOST_KERNELS = 400_000
"""Kernels of all ranks and steps that one question looks at; of longer runs it takes fewer steps."""
BUSY_HOST = 0.5
"""A host that works for more than this share of the step is taken to set the pace where the device waited for it."""
WARM_UP = 1.5


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

        A node with none left follows the beginning of its step.
        """
        graph = self.graph
        sources, targets = graph.sources[keep], graph.targets[keep]
        left = np.setdiff1d(np.setdiff1d(graph.targets, targets), self.begin["begin"].to_numpy())
        keys = graph.nodes.loc[left, ["rank", "step"]].merge(self.begin, on=["rank", "step"], how="left")
        sources = np.concatenate([sources, keys["begin"].to_numpy(dtype=np.int64)])
        return replace(self, graph=_lagged(graph, sources, np.concatenate([targets, left])))


def steps_of(run: Run, *, steps: Sequence[int] | None = None, ranks: Sequence[int] | None = None) -> Steps:
    """The graph of some steps, by default of those after warm-up (at most MOST_STEPS in a row), of all ranks that have kernels.

    Raises NotMeasuredError where no kernels with times were recorded.
    """
    chosen = _chosen(run, steps, ranks)
    clocks = clock.estimate(run) if len(run.ranks) > 1 else {}
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
    lengths = rows[rows["step"].isin(known)].groupby("step")["duration_ns"].median().sort_index()
    if len(lengths) > 2 and lengths.iloc[0] > WARM_UP * lengths.iloc[1:].median():
        known = known[1:]
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
    nodes, sources, targets, places = [], [], [], []
    offset = 0
    last_end: dict[int, int] = {}
    for graph, step in zip(graphs, chosen, strict=True):
        ranks = sorted(rank for rank, number in windows if number == step)
        count = len(graph.nodes)
        begins = {rank: offset + at for at, rank in enumerate(ranks)}
        first = offset + len(ranks)
        ends = {rank: first + count + at for at, rank in enumerate(ranks)}
        frames = [_marks(ranks, [windows[rank, step][0] for rank in ranks], BEGIN), graph.nodes]
        frames.append(_marks(ranks, [windows[rank, step][1] for rank in ranks], END))
        nodes.append(pd.concat(frames, ignore_index=True).assign(step=step))
        sources += [graph.sources + first]
        targets += [graph.targets + first]
        roots = np.setdiff1d(np.arange(count), graph.targets)
        of_rank = graph.nodes["rank"].to_numpy()
        sources.append(np.array([begins[int(rank)] for rank in of_rank[roots]], dtype=np.int64))
        targets.append(roots + first)
        tails = _tails(graph, {rank: windows[rank, step][1] for rank in ranks})
        sources.append(tails + first)
        targets.append(np.array([ends[int(rank)] for rank in of_rank[tails]], dtype=np.int64))
        known = [rank for rank in ranks if rank in last_end]
        sources.append(np.array([last_end[rank] for rank in known], dtype=np.int64))
        targets.append(np.array([begins[rank] for rank in known], dtype=np.int64))
        places += [{"rank": rank, "step": step, "begin": begins[rank], "end": ends[rank]} for rank in ranks]
        last_end, offset = ends, offset + count + 2 * len(ranks)
    whole = pd.concat(nodes, ignore_index=True)
    span = min(window[0] for window in windows.values()), max(window[1] for window in windows.values())
    none = np.zeros(0, dtype=np.int64)
    graph = Dependencies(whole, none, none, none, *span)
    return _lagged(graph, np.concatenate(sources), np.concatenate(targets)), pd.DataFrame(places)


def _marks(ranks: Sequence[int], moments: Sequence[int], kind: str) -> pd.DataFrame:
    return pd.DataFrame(
        {"rank": list(ranks), "name": kind, "kind": kind, "stream": "", "start_ns": list(moments), "duration_ns": 0}
    )


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


def _lagged(graph: Dependencies, sources: Ints, targets: Ints) -> Dependencies:
    """The graph with these edges; the binding one of each node has the time that lies between as its lag.

    A mark may lie a little before the end of what it follows (rounded clocks): then the lag is negative, as recorded.
    """
    starts, ends = graph.nodes["start_ns"].to_numpy(dtype=np.int64), graph.ends_ns
    lag = np.minimum(starts[targets] - ends[sources], 0)
    frame = pd.DataFrame({"target": targets, "end": ends[sources]})
    binding = (frame["end"] == frame.groupby("target")["end"].transform("max")).to_numpy(dtype=bool)
    lag = np.where(binding, starts[targets] - ends[sources], lag)
    return replace(graph, sources=sources, targets=targets, lag_ns=lag.astype(np.int64))


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
