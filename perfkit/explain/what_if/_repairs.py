"""Repairs: what a change does to the pieces of recorded steps: durations of nodes, and idle times before them.

Every repair takes the steps and their durations and lags, and gives them back changed; what it was compared with is always like
with like. A change that nothing in the run corresponds to raises ValueError with the reason.
"""

from __future__ import annotations

import fnmatch
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import pandas as pd

from perfkit.core import clock, placement
from perfkit.core.run import Run
from perfkit.core.shortening import enumerated
from perfkit.core.units import format_change, format_entry, format_ns, format_ratio, significant
from perfkit.explain.idle import DATA_NAMES
from perfkit.explain.links import slow_links
from perfkit.explain.what_if._changes import Change
from perfkit.explain.what_if._steps import BEGIN, END, Ints, Steps
from perfkit.record.events.graph import causal_graph
from perfkit.record.overlap import union

STALLED = 1.5
"""Input that takes this many times the lower quartile of all ranks and steps is stalled."""
LEAST_PEERS = 3
NUMBERED = r"[_/#.]?\d+(?=$|[_/#.])"


@dataclass(frozen=True, kw_only=True, slots=True)
class Changed:
    """Steps with the durations and lags that they have after some changes, and a sentence for each of those.

    `faster` has of each change of operators its words, how many kernels it is of, and their share of the time of all kernels.
    """

    steps: Steps
    duration_ns: Ints
    lag_ns: Ints
    sentences: tuple[str, ...] = ()
    faster: tuple[tuple[str, int, float], ...] = ()

    @classmethod
    def of(cls, steps: Steps) -> Changed:
        """The steps as recorded."""
        return cls(steps=steps, duration_ns=steps.graph.nodes["duration_ns"].to_numpy(dtype=np.int64), lag_ns=steps.graph.lag_ns)

    def timed(self) -> Steps:
        """The steps timed anew."""
        return self.steps.timed(self.duration_ns, self.lag_ns)


def repaired(run: Run, before: Changed, change: Change) -> Changed:
    """The steps after one change of what was recorded."""
    kinds = {"operator": _operator, "rank": _rank, "link": _link, "data": _data, "host": _host, "overlap": _overlap}
    return kinds[change.kind](run, before, change)


def _operator(run: Run, before: Changed, change: Change) -> Changed:
    nodes = before.steps.graph.nodes
    own = nodes["kind"].isin(["computing", "communication", "copy"]).to_numpy(dtype=bool)
    names = nodes["name"].astype(str)
    wanted = _wanted(run, names.unique(), change.name)
    chosen = own & names.isin(wanted).to_numpy(dtype=bool)
    if not chosen.any():
        raise ValueError(f"no kernel has a name or type like {change.name!r}")
    duration = np.where(chosen, np.rint(before.duration_ns / change.factor).astype(np.int64), before.duration_ns)
    count, share = int(chosen.sum()), float(before.duration_ns[chosen].sum() / max(1, before.duration_ns[own].sum()))
    of = f"{format_ratio(share)} of the time of kernels, communication and copies"
    text = f"{count} kernels ({of}) become {format_entry(change.factor)} times faster"
    told, faster = (*before.sentences, text), (*before.faster, (change.text, count, share))
    return replace(before, duration_ns=duration, sentences=told, faster=faster)


def _wanted(run: Run, names: Iterable[str], pattern: str) -> set[str]:
    """The names of kernels that a pattern means: where a name or a type is the pattern, only these; else all like it."""
    rows = run.frame("kernels", columns=["name", "type"]).drop_duplicates().dropna().astype(str).to_dict("records")
    types: dict[str, set[str]] = {}
    for row in rows:
        types.setdefault(row["name"], set()).add(row["type"])
    texts = {name: {name, *types.get(name, ())} for name in names}
    exact = {name for name, known in texts.items() if pattern.lower() in {text.lower() for text in known}}
    return exact or {name for name, known in texts.items() if any(matches(text, pattern) for text in known)}


def matches(name: str, pattern: str) -> bool:
    """Whether a name is like a pattern, whatever its case: equal with `*` and `?`, or without those a part of the name."""
    name, pattern = name.lower(), pattern.lower()
    if any(mark in pattern for mark in "*?") and fnmatch.fnmatchcase(name, pattern.replace("[", "[[]")):
        return True
    return pattern in name


def _rank(run: Run, before: Changed, change: Change) -> Changed:
    nodes = before.steps.graph.nodes
    computing = (nodes["kind"] == "computing").to_numpy(dtype=bool)
    mine = computing & (nodes["rank"] == change.rank).to_numpy(dtype=bool)
    if not mine.any():
        raise ValueError(f"rank {change.rank} has no kernels in the recorded steps; there are {enumerated(before.steps.ranks, 8)}")
    rows = pd.DataFrame(
        {
            "rank": nodes["rank"],
            "step": nodes["step"],
            "operator": nodes["name"].astype(str).str.replace(NUMBERED, "", regex=True),
            "duration": before.duration_ns,
        }
    )[computing]
    ratios = _slowness(rows, int(change.rank or 0), _like(run, before.steps.ranks, int(change.rank or 0)))
    factor = nodes["step"].map(ratios).fillna(1.0).to_numpy(dtype=np.float64)
    duration = np.where(mine, np.rint(before.duration_ns / factor).astype(np.int64), before.duration_ns)
    typical = float(np.median(list(ratios.values())))
    against = format_change(typical - 1)
    text = f"rank {change.rank} computes {against} against ranks of equal work in the middle step, and then as they do"
    return replace(before, duration_ns=duration, sentences=(*before.sentences, text))


def _like(run: Run, ranks: Iterable[int], rank: int) -> list[int]:
    """Other ranks of the same stage, if there are enough; else all others."""
    others = [other for other in ranks if other != rank]
    places = {**placement.positions(run), **run.placement}
    stage = places[rank].pipeline if rank in places else None
    same = [other for other in others if other in places and places[other].pipeline == stage]
    return same if len(same) + 1 >= LEAST_PEERS else others


def _slowness(rows: pd.DataFrame, rank: int, peers: list[int]) -> dict[int, float]:
    """By step how much longer the kernels of a rank take than those of its peers: the middle over operators, by their time."""
    means = rows.groupby(["step", "operator", "rank"])["duration"].agg(["mean", "sum"]).reset_index()
    typical = means[means["rank"].isin(peers)].groupby(["step", "operator"])["mean"].median().rename("typical").reset_index()
    own = means[means["rank"] == rank].merge(typical, on=["step", "operator"])
    own = own[own["typical"] > 0]
    if own.empty:
        raise ValueError(f"no other rank runs the operators of rank {rank}, so nothing says how fast it should be")
    own = own.assign(ratio=own["mean"] / own["typical"]).sort_values("ratio", kind="stable")
    found = {}
    for step, group in own.groupby("step"):
        half = np.searchsorted(group["sum"].cumsum().to_numpy(), group["sum"].sum() / 2)
        found[int(str(step))] = max(1.0, float(group["ratio"].iloc[min(int(half), len(group) - 1)]))
    return found


def _link(run: Run, before: Changed, change: Change) -> Changed:
    assert change.link is not None
    low, high = change.link
    rows = _members(run, before.steps)
    both = rows[rows["rank"].isin(change.link)].groupby("instance")["rank"].nunique()
    through = (
        rows["instance"].isin(both.index[(both == 2).to_numpy()]).to_numpy(dtype=bool) & rows["transfer_ns"].notna().to_numpy()
    )
    if not through.any():
        raise ValueError(f"ranks {low} and {high} exchange nothing in the recorded steps")
    factors = _link_factors(run, rows, through, change.link)
    node = rows["node"].to_numpy(dtype=np.int64)
    found = through & (node >= 0)
    duration = before.duration_ns.copy()
    duration[node[found]] = np.rint(duration[node[found]] / factors[found]).astype(np.int64)
    text = (
        f"operations over the link {low}-{high} take {significant(np.median(factors[found]))} times as long as equal ones "
        "elsewhere, and then as long"
    )
    return replace(before, duration_ns=duration, sentences=(*before.sentences, text))


def _members(run: Run, steps: Steps) -> pd.DataFrame:
    """Members of the collectives of the steps with their `node` (-1: none)."""
    rows = causal_graph(run).members(ranks=steps.ranks, steps=steps.steps, clocks=steps.clocks)
    nodes = steps.graph.nodes
    talking = nodes[(nodes["kind"] == "communication").to_numpy(dtype=bool)]
    columns = [talking[name].to_numpy(dtype=np.int64).tolist() for name in ("rank", "start_ns", "duration_ns")]
    # A send and a receive may start together on a rank: their durations tell them apart.
    places = dict(zip(zip(*columns, strict=True), talking.index.tolist(), strict=True))
    numbers = {name: rows[name].fillna(0).to_numpy(dtype=np.int64) for name in ("rank", "start_ns", "duration_ns", "wait_ns")}
    rank, start, length, wait = (values.tolist() for values in numbers.values())
    node = [
        places.get((who, at + lost, takes - lost), places.get((who, at, takes), -1))
        for who, at, takes, lost in zip(rank, start, length, wait, strict=True)
    ]
    return rows.assign(node=node)


def _link_factors(run: Run, rows: pd.DataFrame, through: npt.NDArray[np.bool_], link: tuple[int, int]) -> npt.NDArray[np.float64]:
    """By row how many times longer it takes than equal operations (or links like it) elsewhere; 1 where it is not slower."""
    kind = ["operation", "group_size", "bytes"]
    like = rows[~through].dropna(subset=["transfer_ns"]).groupby(kind, dropna=False, observed=True)["transfer_ns"].median()
    own = rows[through].groupby(kind, dropna=False, observed=True)["transfer_ns"].median()
    ratio = pd.merge(own.rename("own").reset_index(), like.rename("like").reset_index(), on=kind, how="left")
    ratio["factor"] = ratio["own"].astype("float64") / ratio["like"].astype("float64").where(ratio["like"] > 0)
    if ratio["factor"].isna().any():
        table = slow_links(run)
        ends = {link, link[::-1]}
        mine = np.array([(row["source_rank"], row["target_rank"]) in ends for row in table.to_dict("records")], dtype=bool)
        # Links of which only this one was recorded are compared with themselves, which tells nothing.
        told = table[mine & (table["num_like"] > len(ends)).to_numpy(dtype=bool)]["slowness"].max()
        known = told if pd.notna(told) else ratio["factor"].median()
        if pd.isna(known):
            raise ValueError(f"no operation elsewhere is like those over the link {link[0]}-{link[1]}, so its time cannot be told")
        ratio["factor"] = ratio["factor"].fillna(known)
    table = rows[kind].merge(ratio[[*kind, "factor"]], on=kind, how="left")
    factors: npt.NDArray[np.float64] = np.maximum(table["factor"].fillna(1.0).to_numpy(dtype=np.float64), 1.0)
    return factors


def _data(run: Run, before: Changed, change: Change) -> Changed:
    steps, graph = before.steps, before.steps.graph
    ranks = steps.ranks if change.rank is None else [change.rank]
    spans = {rank: _fetching(run, rank, steps.clocks) for rank in steps.ranks}
    ends, of_step = graph.ends_ns, graph.nodes["step"].to_numpy(dtype=np.int64)
    idle = np.flatnonzero(before.lag_ns > 0)
    of_rank = graph.edge_ranks[idle]
    shared = np.zeros(len(idle), dtype=np.int64)
    for rank, (begins, stops) in spans.items():
        mine = np.flatnonzero(of_rank == rank)
        shared[mine] = _covered(begins, stops, ends[graph.sources[idle[mine]]], graph.due_ns[idle[mine]])
    table = pd.DataFrame({"edge": idle, "rank": of_rank, "step": of_step[graph.targets[idle]], "stall": shared})
    sums = table.groupby(["rank", "step"])["stall"].max()
    every = pd.MultiIndex.from_product([steps.ranks, steps.steps], names=["rank", "step"])
    whole = sums.reindex(every, fill_value=0)
    if not whole.max():
        raise ValueError("the recorded host events show no time in which a device waited for input")
    usual = float(whole.quantile(0.25))
    usual = usual if whole.max() > STALLED * usual else 0.0
    lag = before.lag_ns.copy()
    stalled = table[table["rank"].isin(list(ranks)).to_numpy(dtype=bool) & (table["stall"] > usual).to_numpy(dtype=bool)]
    removed = stalled["stall"].to_numpy(dtype=np.int64) - round(usual)
    lag[stalled["edge"].to_numpy()] -= removed
    gone = format_ns(removed.sum() / max(1, len(steps.steps)))
    text = f"{gone} of waiting for input a step (mean), over all ranks, are gone"
    return replace(before, lag_ns=lag, sentences=(*before.sentences, text))


def _fetching(run: Run, rank: int, clocks: Mapping[int, clock.Clock]) -> tuple[Ints, Ints]:
    """When the host of a rank fetched input, on the common clock."""
    none = np.zeros(0, dtype=np.int64)
    if "host" not in run.tables:
        return none, none
    host = run.frame("host", ranks=[rank], columns=["name", "start_ns", "duration_ns"])
    names = host["name"].astype(str)
    wanted = {name: DATA_NAMES.search(name) is not None for name in names.unique()}
    rows = host[names.map(wanted).to_numpy(dtype=bool)]
    begins = rows["start_ns"].to_numpy(dtype=np.int64)
    known = clocks.get(rank)
    begins = begins if known is None else known.common_ns(begins)
    spans = union(begins, begins + rows["duration_ns"].to_numpy(dtype=np.int64))
    return spans.starts, spans.ends


def _covered(begins: Ints, stops: Ints, lows: Ints, highs: Ints) -> Ints:
    """How much of each stretch from low to high the intervals cover."""
    if not len(begins):
        return np.zeros(len(lows), dtype=np.int64)
    whole = np.concatenate([[0], np.cumsum(stops - begins)])

    def until(moments: Ints) -> Ints:
        at = np.searchsorted(begins, moments, side="right") - 1
        first = at.clip(min=0)
        return np.where(at >= 0, whole[first] + np.minimum(moments, stops[first]) - begins[first], 0)

    inside: Ints = np.maximum(until(highs) - until(lows), 0)
    return inside


def _host(run: Run, before: Changed, change: Change) -> Changed:
    steps, graph = before.steps, before.steps.graph
    of_rank = graph.nodes["rank"].to_numpy(dtype=np.int64)
    if change.rank is not None:
        return _host_as_peers(run, before, change.rank)
    if not (graph.nodes["kind"] == "host").any():
        raise ValueError("launches were not recorded, so which idle times the host caused cannot be told")
    late = steps.waits_ns > 0
    host = (graph.nodes["kind"] == "host").to_numpy(dtype=bool)
    keep = ~(host[graph.sources] & late[graph.targets])
    fewer = steps.with_edges(keep)
    lag = np.where(late[fewer.graph.targets], np.minimum(fewer.graph.lag_ns, 0), fewer.graph.lag_ns)
    # Earlier changes of lags are by edge; where an edge is left it keeps what they made of it.
    kept = np.flatnonzero(keep)
    changed = before.lag_ns[kept] != graph.lag_ns[kept]
    lag[: len(kept)][changed] = np.minimum(lag[: len(kept)][changed], before.lag_ns[kept][changed])
    text = f"{int(late.sum())} kernels on {len(np.unique(of_rank[late]))} ranks no longer wait for their launch"
    return replace(before, steps=fewer, lag_ns=lag.astype(np.int64), sentences=(*before.sentences, text))


def _host_as_peers(run: Run, before: Changed, rank: int) -> Changed:
    graph, nodes = before.steps.graph, before.steps.graph.nodes
    if rank not in before.steps.ranks:
        raise ValueError(f"rank {rank} has no kernels in the recorded steps; there are {enumerated(before.steps.ranks, 8)}")
    peers = _like(run, before.steps.ranks, rank)
    device = ~nodes["kind"].isin([BEGIN, END, "host"]).to_numpy(dtype=bool)
    edges = np.flatnonzero((before.lag_ns > 0) & device[graph.targets])
    table = pd.DataFrame(
        {
            "edge": edges,
            "rank": graph.edge_ranks[edges],
            "operator": nodes["name"].astype(str).str.replace(NUMBERED, "", regex=True).to_numpy()[graph.targets[edges]],
            "wait": before.lag_ns[edges],
        }
    )
    usual = table[table["rank"].isin(peers)].groupby("operator")["wait"].median()
    mine = table[table["rank"] == rank]
    allowed = mine["operator"].map(usual).fillna(0.0).to_numpy(dtype=np.float64)
    shorter = np.minimum(mine["wait"].to_numpy(dtype=np.int64), np.rint(allowed).astype(np.int64))
    lag = before.lag_ns.copy()
    lag[mine["edge"].to_numpy()] = shorter
    gone = int(mine["wait"].sum() - shorter.sum()) / max(1, len(before.steps.steps))
    text = f"rank {rank} is idle between kernels for {format_ns(gone)} a step (mean) more than its peers, and then as they are"
    return replace(before, lag_ns=lag, sentences=(*before.sentences, text))


def _overlap(run: Run, before: Changed, change: Change) -> Changed:
    """Gradient messages leave as soon as they are ready, and nothing but what comes after the last of them waits for them."""
    steps, graph = before.steps, before.steps.graph
    rows = _members(run, steps)
    dimensions = {(group.name, rank): group.dimension for group in placement.groups(run) for rank in group.members}
    names = rows["group"].astype("object").where(rows["group"].notna(), None)
    told = [dimensions.get((name, int(rank))) for name, rank in zip(names, rows["rank"], strict=True)]
    gradients = np.array([dimension == "data" for dimension in told], dtype=bool) & (rows["node"] >= 0).to_numpy(dtype=bool)
    if not gradients.any():
        raise ValueError("no communication between data-parallel ranks is known in the recorded steps")
    talk = np.zeros(len(graph.nodes), dtype=bool)
    talk[rows["node"].to_numpy(dtype=np.int64)[gradients]] = True
    starts = graph.nodes["start_ns"].to_numpy(dtype=np.int64)
    last = pd.Series(np.where(talk, starts, -1)).groupby([graph.nodes["rank"], graph.nodes["step"]]).transform("max").to_numpy()
    computing = (graph.nodes["kind"] == "computing").to_numpy(dtype=bool)
    free = computing & (starts < last)
    keep = ~(talk[graph.sources] & free[graph.targets])
    if keep.all():
        raise ValueError("no computing waits for gradient communication before the last message: what could overlap already does")
    fewer = steps.with_edges(keep)
    kept = np.flatnonzero(keep)
    lag = fewer.graph.lag_ns.copy()
    lag[: len(kept)] = np.where(before.lag_ns[kept] != graph.lag_ns[kept], before.lag_ns[kept], lag[: len(kept)])
    # What these kernels had to wait for is gone, so that nothing is left before them but what they follow.
    freed = np.isin(fewer.graph.targets, graph.targets[~keep])
    lag[freed] = np.minimum(lag[freed], 0)
    text = f"{int((~keep).sum())} kernels no longer wait for gradient communication"
    return replace(before, steps=fewer, lag_ns=lag, sentences=(*before.sentences, text))
