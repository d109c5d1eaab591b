"""Dependencies: what had to end before each piece of a step could start, on one rank or on all, and what follows if pieces change.

Nodes are executions on the device, stretches of the host up to a launch (`host_stretches`), and one meeting (0 ns) per matched
collective at the moment when its latest member arrives. Edges are: launch -> kernel, kernel -> next kernel of its stream, kernel ->
kernel of another stream that began when it ended, stretch -> next stretch of the host, also on the thread that it handed over to,
kernel -> stretch after the call that waited for it, and every member's predecessors -> meeting -> transfer on all members. The
predecessor that ended last is the binding one; the time between it and the node (`lag_ns`) stays when the graph is timed anew, all
other edges only demand that their end comes first. At a meeting each member has a binding one of its own, with the time until that
member arrived. So unchanged durations give the recorded starts exactly.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import pandas as pd

from perfkit.core import clock
from perfkit.core.run import Run
from perfkit.explain.host_stretches import host_stretches
from perfkit.explain.idle import step_window, timed_events
from perfkit.record.events.graph import NONE, OTHER_STREAM, STREAM, causal_graph
from perfkit.record.events.transfers import TOGETHER_NS

Ints = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]
_NODES = ["rank", "name", "kind", "stream", "start_ns", "duration_ns"]
MEETING = "meeting"


@dataclass(frozen=True, slots=True)
class Dependencies:
    """The graph of a step: `nodes` (rank, name, kind, stream, start_ns, duration_ns) in order of start, and edges between them.

    `sources`, `targets` are positions in `nodes`, `lag_ns` the least time between the end of a source and the start of its target.
    An edge belongs to a rank (`edge_ranks`: the member, where it leads to a meeting), which came to its target at `due_ns`. `roots`
    are (`node`, `rank`, `due_ns`) of the ranks that nothing on record led to a node. `kind` is computing, communication, copy, host
    or meeting. Times are on the common clock if there are several ranks.
    `begins_ns` says when each rank began the step.
    """

    nodes: pd.DataFrame
    sources: Ints
    targets: Ints
    lag_ns: Ints
    edge_ranks: Ints
    due_ns: Ints
    roots: pd.DataFrame
    start_ns: int
    end_ns: int
    begins_ns: Mapping[int, int]

    @property
    def ends_ns(self) -> Ints:
        """When each node ends."""
        return (self.nodes["start_ns"] + self.nodes["duration_ns"]).to_numpy(dtype=np.int64)


def dependencies(
    run: Run, *, step: int, ranks: Iterable[int] | None = None, known_clocks: Mapping[int, clock.Clock] | None = None
) -> Dependencies:
    """The dependency graph of one step, of some ranks or of all that have kernels in it.

    `start_ns` and `end_ns` are those of the step on the rank that ends it last. Ranks whose clock cannot be compared with the
    others are left out if there are several; `known_clocks` are those of the run where they were estimated before. Raises
    NotMeasuredError if no rank has kernels with times.
    """
    known = run.frame("kernels", steps=[step], ranks=ranks, columns=["rank"])["rank"].unique()
    wanted = sorted(int(rank) for rank in known)
    clocks = {} if len(wanted) < 2 else causal_graph(run).clocks if known_clocks is None else known_clocks
    if clocks:
        wanted = [rank for rank in wanted if rank in clocks]
    if not wanted:
        wanted = list(run.ranks if ranks is None else ranks)[:1]
    pieces = [_rank_pieces(run, rank, step, clocks.get(rank)) for rank in wanted]
    nodes = pd.concat([piece.nodes for piece in pieces], ignore_index=True)
    offsets = np.cumsum([0, *(len(piece.nodes) for piece in pieces)])[:-1]
    edges = [(piece.sources + at, piece.targets + at) for piece, at in zip(pieces, offsets, strict=True)]
    sources, targets = (np.concatenate([edge[side] for edge in edges]) for side in (0, 1))
    last = max(pieces, key=lambda piece: piece.end_ns)
    graph = _Graph.of(nodes, sources, targets)
    if len(wanted) > 1:
        places = {rank: (int(at), piece.positions) for rank, at, piece in zip(wanted, offsets, pieces, strict=True)}
        graph = _met(run, step, places, clocks, graph)
    whole = _bound(graph, (last.start_ns, last.end_ns))
    return replace(whole, begins_ns={rank: piece.start_ns for rank, piece in zip(wanted, pieces, strict=True)})


def retime(graph: Dependencies, duration_ns: Ints) -> Dependencies:
    """The graph with other durations of its nodes (int64 ns, one a node): each starts when its predecessors allow it.

    A node without a predecessor keeps its start. `end_ns` moves with the last node. With the recorded durations nothing changes.
    """
    lists: list[list[int]] = [[] for _ in range(len(graph.nodes))]
    for edge, target in enumerate(graph.targets.tolist()):
        lists[target].append(edge)
    starts = graph.nodes["start_ns"].to_numpy(dtype=np.int64).tolist()
    ends = [0] * len(starts)
    sources, lags, durations = graph.sources.tolist(), graph.lag_ns.tolist(), duration_ns.tolist()
    for node in range(len(starts)):
        if lists[node]:
            starts[node] = max(ends[sources[edge]] + lags[edge] for edge in lists[node])
        ends[node] = starts[node] + durations[node]
    moved = max(ends, default=graph.end_ns) - int(graph.ends_ns.max(initial=graph.start_ns))
    nodes = graph.nodes.assign(start_ns=np.array(starts, dtype=np.int64), duration_ns=duration_ns)
    return replace(graph, nodes=nodes, end_ns=graph.end_ns + (moved if len(starts) else 0))


@dataclass(frozen=True, slots=True)
class _Pieces:
    """The part of one rank: its first nodes are the executions at `positions` in the graph of the run."""

    nodes: pd.DataFrame
    sources: Ints
    targets: Ints
    start_ns: int
    end_ns: int
    positions: Ints


def _rank_pieces(run: Run, rank: int, step: int, known: clock.Clock | None) -> _Pieces:
    """Nodes and edges of one rank; edges whose source is not in the step are left out."""
    every = timed_events(run, rank)
    start_ns, end_ns = step_window(run, rank, step, every.device)
    positions = np.flatnonzero(every.device["step"].eq(step).fillna(False).to_numpy(dtype=bool))
    if not len(positions):
        positions = np.flatnonzero((every.starts >= start_ns) & (every.starts < end_ns))
    events = every.part(positions)
    host, host_edges = host_stretches(events, step, (start_ns, end_ns))
    device_edges = [events.edges(kind) for kind in (STREAM, OTHER_STREAM)]
    nodes = pd.concat([events.device[_NODES].astype({"name": "object", "kind": "object"}), host[_NODES]], ignore_index=True)
    sources = np.concatenate([*(edges.sources for edges in device_edges), host_edges[0]]).astype(np.int64)
    targets = np.concatenate([*(edges.targets for edges in device_edges), host_edges[1]]).astype(np.int64)
    if known is not None:
        nodes["start_ns"] = known.common_ns(nodes["start_ns"].to_numpy(dtype=np.int64))
        start_ns, end_ns = (int(moment) for moment in known.common_ns(np.array([start_ns, end_ns], dtype=np.int64)))
    return _Pieces(nodes, sources, targets, start_ns, end_ns, positions)


@dataclass(frozen=True, slots=True)
class _Graph:
    """Nodes and edges: `arrivals` has a row (`node`, `rank`, `due_ns`) a node and rank that comes to it, `arrival` by edge."""

    nodes: pd.DataFrame
    sources: Ints
    arrival: Ints
    arrivals: pd.DataFrame

    @classmethod
    def of(cls, nodes: pd.DataFrame, sources: Ints, targets: Ints) -> _Graph:
        """Before any meeting: every node is reached by its own rank alone."""
        arrivals = pd.DataFrame({"node": np.arange(len(nodes)), "rank": nodes["rank"], "due_ns": nodes["start_ns"]})
        return cls(nodes, sources, targets, arrivals)


def _met(run: Run, step: int, places: Mapping[int, tuple[int, Ints]], clocks: Mapping[int, clock.Clock], graph: _Graph) -> _Graph:
    """The graph with a meeting for every collective whose order of arrival is known.

    `places` has by rank its first node, and the positions of its executions in the graph of the run.
    """
    nodes, events = graph.nodes, causal_graph(run)
    rows = events.members(ranks=list(places), steps=[step], clocks=clocks)
    rows = rows[(rows["basis"] == "arrival").to_numpy(dtype=bool)]
    rows = rows.assign(node=_nodes_of(rows["rank"].to_numpy(dtype=np.int64), events.member_nodes(rows, clocks), places))
    whole = rows.groupby("instance")["node"].transform("min") >= 0
    rows = rows[whole.to_numpy(dtype=bool)]
    if rows.empty:
        return graph
    came = (rows["start_ns"] + rows["wait_ns"]).to_numpy(dtype=np.int64)
    latest = rows["start_ns"].groupby(rows["instance"]).transform("max").to_numpy(dtype=np.int64)
    number = pd.factorize(rows["instance"])[0]
    first = rows.drop_duplicates("instance")
    meetings = pd.DataFrame(
        {
            "rank": first["rank"].to_numpy(),
            "name": first["name"].astype("object").to_numpy(),
            "kind": MEETING,
            "stream": "",
            "start_ns": latest[np.flatnonzero(~rows["instance"].duplicated().to_numpy())],
            "duration_ns": 0,
        }
    )
    # A send that does not wait for its receive keeps its own predecessors and times.
    met = (came == latest) & ~_goes_ahead(rows)
    node, hub = rows["node"].to_numpy(dtype=np.int64), number + len(nodes)
    starts, durations = nodes["start_ns"].to_numpy(dtype=np.int64).copy(), nodes["duration_ns"].to_numpy(dtype=np.int64).copy()
    starts[node[met]] += rows["wait_ns"].to_numpy(dtype=np.int64)[met]
    durations[node[met]] = rows["transfer_ns"].to_numpy(dtype=np.int64)[met]
    joined = pd.concat([nodes.assign(start_ns=starts, duration_ns=durations), meetings], ignore_index=True)
    return _with_hubs(graph, joined, (node, hub, met))


def _nodes_of(ranks: Ints, found: Ints, places: Mapping[int, tuple[int, Ints]]) -> Ints:
    """The nodes of executions that are given by their ranks and their positions in the graph of the run; `NONE` for others."""
    nodes = np.full(len(found), NONE, dtype=np.int64)
    for rank, (first, positions) in places.items():
        mine = np.flatnonzero(ranks == rank)
        mine = mine[np.isin(found[mine], positions)]
        nodes[mine] = first + np.searchsorted(positions, found[mine])
    return nodes


def _with_hubs(graph: _Graph, joined: pd.DataFrame, found: tuple[Ints, Ints, Flags]) -> _Graph:
    """The graph in which members (nodes) come to their hubs first, and those that have met go on from there."""
    node, hub, met = found
    count = len(graph.nodes)
    # The arrival of a member at its hub is numbered by its place, that of a node after its hub is a row of its own.
    come = graph.arrivals.iloc[node].assign(node=hub)
    after = pd.DataFrame({"node": np.arange(count), "rank": graph.nodes["rank"], "due_ns": joined["start_ns"].iloc[:count]})
    arrivals = pd.concat([after, come], ignore_index=True)
    of_node = np.full(count, -1, dtype=np.int64)
    of_node[node] = count + np.arange(len(node))
    stays = np.ones(count, dtype=bool)
    stays[node[met]] = False
    at_hub = np.flatnonzero(of_node[graph.arrival] >= 0)
    own = np.flatnonzero(stays[graph.arrival])
    sources = np.concatenate([graph.sources[own], graph.sources[at_hub], hub[met]])
    arrival = np.concatenate([graph.arrival[own], of_node[graph.arrival[at_hub]], node[met]])
    return _Graph(joined, sources, arrival, arrivals)


def _goes_ahead(rows: pd.DataFrame) -> Flags:
    """Which rows are sends of a run whose sends do not wait: of those that came first, most ended before their receive.

    Where all receives came first, nothing tells, and a send is taken to wait for nobody.
    """
    send = (rows["operation"] == "send").to_numpy(dtype=bool)
    ends = pd.DataFrame({"instance": rows["instance"], "start": rows["start_ns"], "end": rows["start_ns"] + rows["duration_ns"]})
    talk = ends[send].merge(ends[(rows["operation"] == "receive").to_numpy(dtype=bool)], on="instance", suffixes=("", "_there"))
    first = talk[(talk["start"] + TOGETHER_NS < talk["start_there"]).to_numpy(dtype=bool)]
    waited = (first["end"] + TOGETHER_NS >= first["end_there"]).to_numpy(dtype=bool)
    return send if 2 * waited.sum() <= len(first) else np.zeros(len(rows), dtype=bool)


def _bound(graph: _Graph, window: tuple[int, int]) -> Dependencies:
    """Nodes in an order in which every edge leads onwards, with the lag of the binding edge of each arrival; others have none."""
    nodes, arrivals = graph.nodes, graph.arrivals
    starts = nodes["start_ns"].to_numpy(dtype=np.int64)
    ends = starts + nodes["duration_ns"].to_numpy(dtype=np.int64)
    rank_of_kind = nodes["kind"].map({"host": 0, MEETING: 1}).fillna(2).to_numpy(dtype=np.int64)
    order = np.lexsort((ends, rank_of_kind, starts))
    place = np.empty(len(order), dtype=np.int64)
    place[order] = np.arange(len(order))
    at, of_rank, due = (arrivals[name].to_numpy(dtype=np.int64) for name in ("node", "rank", "due_ns"))
    sources, arrival = graph.sources, graph.arrival
    # An edge from what ended after its target began cannot have held it back, so it is none.
    real = (ends[sources] <= due[arrival]) & (place[sources] < place[at[arrival]])
    sources, arrival = sources[real], arrival[real]
    alone = np.setdiff1d(np.arange(len(at)), arrival)
    roots = pd.DataFrame({"node": place[at[alone]], "rank": of_rank[alone], "due_ns": due[alone]})
    sorted_nodes = nodes.iloc[order].reset_index(drop=True)[_NODES]
    none = np.zeros(0, dtype=np.int64)
    bare = Dependencies(sorted_nodes, none, none, none, none, none, roots, *window, {})
    return with_lags(bare, place[sources], place[at[arrival]], of_rank[arrival], due[arrival])


def with_lags(graph: Dependencies, sources: Ints, targets: Ints, edge_ranks: Ints, due_ns: Ints) -> Dependencies:
    """The graph with these edges: the binding one of each arrival has the time until then as its lag.

    A mark may lie a little before the end of what it follows (rounded clocks): then the lag is negative, as recorded. What no edge
    explains of the wait of a node is the lag of those that come closest, so that unchanged durations give the recorded starts.
    """
    starts, ends = graph.nodes["start_ns"].to_numpy(dtype=np.int64), graph.ends_ns
    lag = np.minimum(due_ns - ends[sources], 0)
    frame = pd.DataFrame({"target": targets, "rank": edge_ranks, "end": ends[sources]})
    binding = (frame["end"] == frame.groupby(["target", "rank"])["end"].transform("max")).to_numpy(dtype=bool)
    lag = np.where(binding, due_ns - ends[sources], lag).astype(np.int64)
    held = ends[sources] + lag
    latest = np.full(len(starts), np.iinfo(np.int64).min)
    np.maximum.at(latest, targets, held)
    short = np.where(held == latest[targets], starts[targets] - held, 0)
    return replace(graph, sources=sources, targets=targets, lag_ns=lag + short, edge_ranks=edge_ranks, due_ns=due_ns)
