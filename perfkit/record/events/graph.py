"""Graph: the events of a recording, and what each of them had to wait for.

`causal_graph(run)` is the door; what it reads stays with the run, and each part is made when it is asked for. Nodes of a rank are
numbered: its executions on the device in order of their start (`device`), then what its host did (`host`), then calls that only
what they launched tells of. Edges of one kind are two arrays of node numbers:

- `LAUNCH`: the call -> what it launched, which starts after the call began.
- `STREAM`: an execution -> the next one of its stream.
- `OTHER_STREAM`: an execution -> one of another stream that started after it had ended, the last such one: it may have waited.
- `CALLS`: a call -> the next call of its thread.
- `HANDOVER`: the end of a thread's stretch of work -> the begin of another thread's that went on after it (`threads`).
- `DEVICE_WAIT`: an execution -> the call that returned only when it had ended.

Ranks meet in collectives, and in sends and receives: `CausalGraph.members` has them with who came last (`meetings.arrivals`), and
`CausalGraph.member_nodes` says which execution of its rank each member is. Times are int64 ns on the clock of the rank, those of
members on the common one; `CausalGraph.clocks` leads from one to the other.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from threading import RLock

import numpy as np
import numpy.typing as npt
import pandas as pd

from perfkit.core import clock
from perfkit.core.run import Run
from perfkit.record.events import meetings
from perfkit.record.events.threads import HostEvents, device_waits, handovers
from perfkit.record.format import joined_categories
from perfkit.record.overlap import Intervals

Ints = npt.NDArray[np.int64]
LAUNCH, STREAM, OTHER_STREAM = "launch", "stream", "other stream"
CALLS, HANDOVER, DEVICE_WAIT = "calls", "handover", "device wait"
KINDS = (LAUNCH, STREAM, OTHER_STREAM, CALLS, HANDOVER, DEVICE_WAIT)
"""The kinds of edges within a rank."""
NONE = -1
UNKNOWN_NS = int(np.iinfo(np.int64).min)
_MOST_NODES = 4_000_000
"""Events of all ranks that are kept; of larger recordings the ranks asked for last."""
_MOST_MEMBERS = 200_000
"""Members of operations that are kept, about 30 MB; of more they are matched anew."""
_DEVICE = ["rank", "step", "name", "kind", "stream", "start_ns", "duration_ns"]
_HOST = ["name", "kind", "thread", "start_ns", "duration_ns"]
_LAUNCH = [
    "stream",
    "start_ns",
    "call",
    "operator",
    "thread",
    "launch_ns",
    "launch_duration_ns",
    "forward_thread",
    "forward_ns",
    "bytes",
]


@dataclass(frozen=True, slots=True)
class Edges:
    """Edges of one kind: `sources` and `targets` are node numbers, int64 of equal length."""

    sources: Ints
    targets: Ints


@dataclass(frozen=True, slots=True)
class Neighbors:
    """The neighbours of every node: those of node n are `nodes[offsets[n]:offsets[n + 1]]`, with `kinds`, positions in `KINDS`."""

    offsets: Ints
    nodes: Ints
    kinds: npt.NDArray[np.int8]

    def of(self, node: int) -> Ints:
        """The neighbours of one node."""
        return self.nodes[self.offsets[node] : self.offsets[node + 1]]


class RankEvents:
    """The events of one rank, or the part of them that some of its executions are.

    `device` has a row an execution in order of start: `rank`, `step`, `name`, `kind`, `stream` ("" where it is not known),
    `start_ns`, `duration_ns`. `launches` has a row each of them: `call`, `operator`, `thread`, `launch_ns`, `launch_duration_ns`,
    null where no call is known, and `bytes` of a copy. `host` is the whole host of the rank.
    """

    def __init__(self, run: Run, rank: int, device: pd.DataFrame, launches: pd.DataFrame | None, host: HostEvents | None) -> None:
        self.rank = rank
        self.device = device
        self._run, self._launches, self._host = run, launches, host
        self._edges: dict[str, Edges] = {}

    @classmethod
    def of(cls, run: Run, rank: int) -> RankEvents:
        """All events of a rank; launches and host are read when they are asked for."""
        device = run.frame("kernels", ranks=[rank], columns=_DEVICE)
        device = device[device["start_ns"].notna().to_numpy(dtype=bool)].astype({"start_ns": "int64"})
        device = device.assign(stream=device["stream"].astype("object").fillna(""))
        return cls(run, rank, device.sort_values("start_ns", kind="stable", ignore_index=True), None, None)

    @property
    def num_read(self) -> int:
        """How many events it holds."""
        return len(self.device) + (0 if self._host is None else len(self._host.rows))

    def part(self, positions: Ints) -> RankEvents:
        """The events that some executions are, in order, with the same host; only edges between them are left."""
        launches = self.launches.iloc[positions].reset_index(drop=True)
        return RankEvents(self._run, self.rank, self.device.iloc[positions].reset_index(drop=True), launches, self.host)

    @cached_property
    def starts(self) -> Ints:
        """When the executions start."""
        return self.device["start_ns"].to_numpy(dtype=np.int64)

    @cached_property
    def ends(self) -> Ints:
        """When the executions end."""
        ends: Ints = self.starts + self.device["duration_ns"].to_numpy(dtype=np.int64)
        return ends

    @cached_property
    def launches(self) -> pd.DataFrame:
        """One row an execution: the call that launched it."""
        if self._launches is None:
            self._launches = _launches(self._run, self.rank, self.device)
        return self._launches

    @cached_property
    def launch_ns(self) -> Ints:
        """When the call of each execution began; `UNKNOWN_NS` where none is known."""
        return self.launches["launch_ns"].fillna(UNKNOWN_NS).to_numpy(dtype=np.int64)

    @property
    def host(self) -> HostEvents:
        """What the host did."""
        if self._host is None:
            self._host = HostEvents(self._run.frame("host", ranks=[self.rank], columns=_HOST))
        return self._host

    @cached_property
    def threads(self) -> tuple[str, ...]:
        """The threads that launched something."""
        return tuple(str(thread) for thread in self.launches["thread"].dropna().unique())

    @cached_property
    def handovers(self) -> pd.DataFrame:
        """How these threads handed over to one another: `giver`, `given_ns`, `taker`, `taken_ns`."""
        return handovers(self._working)

    @cached_property
    def device_waits(self) -> pd.DataFrame:
        """Calls that waited for these executions: `thread`, `end_ns`, `call` (row of the host), `kernel` (position in `device`)."""
        return device_waits(self.host, self.launches, self.device)

    @property
    def _working(self) -> Mapping[str, Intervals]:
        return self.host.working_times(self.threads)

    @cached_property
    def _unrecorded(self) -> tuple[pd.DataFrame, Ints]:
        """Calls that only their launches tell of, and the node of the call of each execution (`NONE`: not known)."""
        rows = self.launches
        known = np.flatnonzero(rows["launch_ns"].notna().to_numpy(dtype=bool))
        nodes = np.full(len(rows), NONE, dtype=np.int64)
        calls = np.flatnonzero(self.host.of_kind("call"))
        lanes = joined_categories([self.host.rows["thread"].iloc[calls], rows["thread"].iloc[known]]).codes.astype(np.int64)
        recorded = pd.DataFrame({"lane": lanes[: len(calls)], "at": self.host.starts[calls], "node": calls})
        asked = pd.DataFrame({"lane": lanes[len(calls) :], "at": self.launch_ns[known]})
        found = asked.merge(recorded.drop_duplicates(["lane", "at"]), on=["lane", "at"], how="left")["node"]
        missing = found.isna().to_numpy(dtype=bool)
        numbers = asked[missing].groupby(["lane", "at"], sort=False).ngroup().to_numpy(dtype=np.int64)
        nodes[known] = found.fillna(0).to_numpy(dtype=np.int64) + len(self.device)
        nodes[known[missing]] = len(self.device) + len(self.host.rows) + numbers
        first = known[missing][~asked[missing].duplicated(["lane", "at"]).to_numpy(dtype=bool)]
        return rows.iloc[first].reset_index(drop=True), nodes

    @cached_property
    def call_nodes(self) -> Ints:
        """By execution the node of its call; `NONE` where none is known."""
        return self._unrecorded[1]

    @cached_property
    def nodes(self) -> pd.DataFrame:
        """All nodes: `name`, `kind` (computing, communication, copy, operator, call, mark, python), `lane` (stream or thread).

        Also `step` (of an execution, null on the host), `start_ns` and `duration_ns`.
        """
        calls, _ = self._unrecorded
        columns = {"call": "name", "thread": "lane", "launch_ns": "start_ns", "launch_duration_ns": "duration_ns"}
        alone = calls.assign(launch_duration_ns=calls["launch_duration_ns"].fillna(0), kind="call").rename(columns=columns)
        parts = [self.device.rename(columns={"stream": "lane"}), self.host.rows.rename(columns={"thread": "lane"}), alone]
        dtypes = {**dict.fromkeys(("name", "kind", "lane"), "object"), "step": "Int64", "start_ns": "int64", "duration_ns": "int64"}
        return pd.concat([part.reindex(columns=list(dtypes)).astype(dtypes) for part in parts], ignore_index=True)

    def edges(self, kind: str) -> Edges:
        """The edges of one of `KINDS`."""
        if kind not in self._edges:
            self._edges[kind] = {
                LAUNCH: self._launch_edges,
                STREAM: self._stream_edges,
                OTHER_STREAM: self._other_stream_edges,
                CALLS: self._call_edges,
                HANDOVER: self._handover_edges,
                DEVICE_WAIT: self._wait_edges,
            }[kind]()
        return self._edges[kind]

    @cached_property
    def predecessors(self) -> Neighbors:
        """What leads to each node, by edges of all kinds."""
        return self._neighbors(to_sources=True)

    @cached_property
    def successors(self) -> Neighbors:
        """What each node leads to, by edges of all kinds."""
        return self._neighbors(to_sources=False)

    def _neighbors(self, *, to_sources: bool) -> Neighbors:
        every = [self.edges(kind) for kind in KINDS]
        sources, targets = (np.concatenate([getattr(edges, side) for edges in every]) for side in ("sources", "targets"))
        kinds = np.repeat(np.arange(len(KINDS), dtype=np.int8), [len(edges.sources) for edges in every])
        own, other = (targets, sources) if to_sources else (sources, targets)
        order = np.argsort(own, kind="stable")
        counts = np.bincount(own, minlength=len(self.nodes))
        return Neighbors(np.concatenate([[0], np.cumsum(counts)]).astype(np.int64), other[order], kinds[order])

    def _launch_edges(self) -> Edges:
        launched = np.flatnonzero(self.call_nodes != NONE)
        return Edges(self.call_nodes[launched], launched)

    def _stream_edges(self) -> Edges:
        return _chains(pd.factorize(self.device["stream"])[0], np.arange(len(self.device)))

    def _other_stream_edges(self) -> Edges:
        order = np.argsort(self.ends, kind="stable")
        at = np.searchsorted(self.ends[order], self.starts, side="right") - 1
        last = order[np.maximum(at, 0)]
        streams = pd.factorize(self.device["stream"])[0]
        targets = np.flatnonzero((at >= 0) & (streams[last] != streams) & (last != np.arange(len(self.starts))))
        before = self.starts[last[targets]] < self.starts[targets]
        return Edges(last[targets][before], targets[before])

    def _call_edges(self) -> Edges:
        nodes = self.nodes
        calls = np.flatnonzero((nodes["kind"] == "call").to_numpy(dtype=bool) & nodes["lane"].notna().to_numpy(dtype=bool))
        rows = nodes.iloc[calls]
        ordered = calls[np.argsort(rows["start_ns"].to_numpy(dtype=np.int64), kind="stable")]
        return _chains(pd.factorize(nodes["lane"].iloc[ordered])[0], ordered)

    def _handover_edges(self) -> Edges:
        given = self.handovers
        places = {thread: at for at, thread in enumerate(self.host.threads)}
        work = np.flatnonzero(self.host.working)
        lanes, starts, ends = self.host.lanes[work], self.host.starts[work], self.host.ends[work]
        sides = []
        for who, when, moments, outer in (("giver", "given_ns", ends, starts), ("taker", "taken_ns", starts, -ends)):
            order = np.lexsort((outer, moments, lanes))
            rows = pd.DataFrame({"lane": lanes[order], "at": moments[order], "node": work[order]}).drop_duplicates(["lane", "at"])
            asked = pd.DataFrame({"lane": given[who].map(places).astype("int64"), "at": given[when]})
            sides.append(asked.merge(rows, on=["lane", "at"], how="left")["node"].to_numpy(dtype=np.int64) + len(self.device))
        return Edges(sides[0], sides[1])

    def _wait_edges(self) -> Edges:
        waits = self.device_waits
        kernels, calls = waits["kernel"].to_numpy(dtype=np.int64), waits["call"].to_numpy(dtype=np.int64)
        return Edges(kernels, np.where(calls == NONE, self.call_nodes[kernels], calls + len(self.device)))


class CausalGraph:
    """The graph of a run: its ranks (`rank`), their clocks, and where they meet."""

    def __init__(self, run: Run) -> None:
        self._run = run
        self._ranks: dict[int, RankEvents] = {}
        self._members: pd.DataFrame | None = None
        self._lock = RLock()

    def rank(self, rank: int) -> RankEvents:
        """The events of one rank; those asked for last are kept."""
        with self._lock:
            events = self._ranks.pop(rank, None) or RankEvents.of(self._run, rank)
            self._ranks[rank] = events
            while len(self._ranks) > 1 and sum(kept.num_read for kept in self._ranks.values()) > _MOST_NODES:
                del self._ranks[next(iter(self._ranks))]
            return events

    @cached_property
    def clocks(self) -> Mapping[int, clock.Clock]:
        """The clocks of the ranks that share collectives."""
        return clock.estimate(self._run)

    def members(
        self,
        *,
        ranks: Iterable[int] | None = None,
        steps: Iterable[int] | None = None,
        clocks: Mapping[int, clock.Clock] | None = None,
        tasks: bool = True,
    ) -> pd.DataFrame:
        """Collectives, sends and receives, one row a member: see `meetings.members`; by default all, on the clocks of the run."""
        is_whole = tasks and ranks is None and steps is None and (clocks is None or clocks is vars(self).get("clocks"))
        if not is_whole:
            known = self.clocks if clocks is None else clocks
            return meetings.members(self._run, known, ranks=ranks, steps=steps, tasks=tasks)
        with self._lock:
            found = meetings.members(self._run, self.clocks) if self._members is None else self._members
            self._members = found if len(found) <= _MOST_MEMBERS else None
            return found.copy(deep=False)

    def member_nodes(self, rows: pd.DataFrame, clocks: Mapping[int, clock.Clock] | None = None) -> Ints:
        """By row of `members` its execution as a position in `rank(...).device`; `NONE` where it is not among them.

        A send and a receive may start together on a rank: their durations tell them apart.
        """
        found = np.full(len(rows), NONE, dtype=np.int64)
        times = rows[["rank", "start_ns", "duration_ns"]].reset_index(drop=True).astype("Int64").fillna(NONE).astype("int64")
        for rank, asked in times.groupby("rank"):
            events = self.rank(int(str(rank)))
            known = (self.clocks if clocks is None else clocks).get(events.rank)
            talking = np.flatnonzero((events.device["kind"] == "communication").to_numpy(dtype=bool))
            starts = events.starts[talking] if known is None else known.common_ns(events.starts[talking])
            lengths = (events.ends - events.starts)[talking]
            exact = dict(zip(zip(starts.tolist(), lengths.tolist(), strict=True), talking.tolist(), strict=True))
            rough = {start: node for (start, _), node in exact.items()}
            pairs = zip(asked["start_ns"].tolist(), asked["duration_ns"].tolist(), strict=True)
            found[asked.index] = [exact.get(pair, rough.get(pair[0], NONE)) for pair in pairs]
        return found


def causal_graph(run: Run) -> CausalGraph:
    """The graph of a run, made once and kept with it."""
    graph: CausalGraph = run.derived.setdefault("causal graph", CausalGraph(run))
    return graph


def _chains(lanes: Ints, nodes: Ints) -> Edges:
    """Each node to the next one of its lane, of nodes in order."""
    order = np.argsort(lanes, kind="stable")
    same = lanes[order][1:] == lanes[order][:-1]
    return Edges(nodes[order[:-1][same]], nodes[order[1:][same]])


def _launches(run: Run, rank: int, device: pd.DataFrame) -> pd.DataFrame:
    columns = {"launch_ns": "Int64", "launch_duration_ns": "Int64", "forward_ns": "Int64", "bytes": "Int64"}
    if "launches" not in run.tables:
        return pd.DataFrame(index=device.index, columns=_LAUNCH[2:], dtype="object").astype(columns)
    rows = run.frame("launches", ranks=[rank], columns=_LAUNCH)
    rows = rows[rows["start_ns"].notna().to_numpy(dtype=bool)]
    streams = joined_categories([device["stream"], rows["stream"].astype("object").fillna("")]).codes.astype(np.int64)
    table = pd.DataFrame({"stream": streams[len(device) :], "start_ns": rows["start_ns"].to_numpy(dtype=np.int64)})
    asked = pd.DataFrame({"stream": streams[: len(device)], "start_ns": device["start_ns"].to_numpy(dtype=np.int64)})
    keys = ["stream", "start_ns"]
    asked, table = (each.assign(turn=each.groupby(keys, sort=False).cumcount()) for each in (asked, table))
    table = table.assign(row=np.arange(len(rows)))
    found = asked.merge(table, on=[*keys, "turn"], how="left")["row"].fillna(NONE).to_numpy(dtype=np.int64)
    texts = dict.fromkeys(("call", "operator", "thread", "forward_thread"), "object")
    return rows[_LAUNCH[2:]].astype({**texts, **columns}).reset_index(drop=True).reindex(found).reset_index(drop=True)
