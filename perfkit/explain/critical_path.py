"""Critical path: the chain of work, on one rank or across ranks, that a step could not have been shorter than.

The path is walked back from the end of the step: from each node to the predecessor that ended last, over the graph of
`dependencies`. At a collective it continues on the rank that arrived last, so that waiting for a slow rank is that rank's work, not
communication. Segments follow one another without a gap and sum to the step exactly. The time between the end of a predecessor and
the start of the next node is `launch` where that was launched by it, `graph` where the device starts or works through a CUDA graph
(between two executions of one call, or before one of a call that launched many), and else `delay`; `unlinked` is what no recorded
dependency explains.
Where the path leads to a rank that came late into the step, the rest is its host, which was still in the step before.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
import pandas as pd

from perfkit.core.run import Run
from perfkit.explain.dependencies import MEETING, Dependencies, dependencies

KINDS = ("computing", "communication", "copy", "host", "launch", "graph", "delay", "unlinked")

ROUNDED_NS = 1
"""Up to here a gap is what rounding left of two times, which no clock tells: it belongs to what ended before it."""
GRAPH_LEAST = 8
"""A call that launched so many executions launched a graph; an operator's own call launches a few at the most."""


def critical_path(run: Run, *, step: int, ranks: Iterable[int] | None = None) -> pd.DataFrame:
    """The segments of the critical path of a step in order of time.

    `rank`, `name`, `kind` (of KINDS), `start_ns`, `duration_ns`; their durations sum to the step of the rank that ends it last (on
    the common clock), or to that of the one rank asked for. Raises NotMeasuredError if no kernel has a time.
    """
    return path_of(dependencies(run, step=step, ranks=ranks))


def path_of(graph: Dependencies) -> pd.DataFrame:
    """The critical path of a graph of dependencies, also of one that was timed anew."""
    nodes = graph.nodes
    starts, ends = nodes["start_ns"].to_numpy(dtype=np.int64), graph.ends_ns
    names, kinds, ranks = nodes["name"].astype(str).tolist(), nodes["kind"].astype(str).tolist(), nodes["rank"].tolist()
    before, launchers = _binding(graph, starts, ends), _launchers(graph, kinds)
    launched = np.bincount(launchers[launchers >= 0], minlength=len(kinds))
    segments: list[tuple[int, str, str, int, int]] = []
    inside = np.flatnonzero((ends <= graph.end_ns) & (ends > graph.start_ns) & (nodes["kind"] != MEETING).to_numpy(dtype=bool))
    node, after = int(inside[np.argmax(ends[inside])]) if len(inside) else -1, -1
    at_ns = graph.end_ns
    rank = ranks[node] if node >= 0 else -1
    while node >= 0 and at_ns > graph.start_ns:
        if at_ns - ends[node] > ROUNDED_NS:
            rank = ranks[node]
            known = bool(segments)
            kind = _between(node, after, kinds, launchers, launched) if known else "unlinked"
            begin = max(int(ends[node]), graph.start_ns)
            segments.append((rank, names[node] if not known else segments[-1][1], kind, begin, at_ns - begin))
            at_ns = begin
        begin = max(int(starts[node]), graph.start_ns)
        rank = ranks[node]
        if begin < at_ns and kinds[node] != MEETING:
            segments.append((rank, names[node], kinds[node], begin, at_ns - begin))
            at_ns = begin
        node, after = int(before[node]), node
    if at_ns > graph.start_ns:
        earlier = at_ns <= graph.begins_ns.get(rank, graph.start_ns)
        name, kind = ("the step before", "host") if earlier else ("", "unlinked")
        segments.append((rank, name, kind, graph.start_ns, at_ns - graph.start_ns))
    columns = ["rank", "name", "kind", "start_ns", "duration_ns"]
    return pd.DataFrame(segments[::-1], columns=columns).astype({"start_ns": "int64", "duration_ns": "int64"})


def path_operators(path: pd.DataFrame) -> pd.DataFrame:
    """The path by operator: `name`, `kind`, `count`, `total_ns`, `share` (of the path, 0 to 1), `num_ranks`. Largest first."""
    grouped = path.groupby(["name", "kind"])
    table = grouped.agg(count=("duration_ns", "size"), total_ns=("duration_ns", "sum"), num_ranks=("rank", "nunique")).reset_index()
    whole = int(path["duration_ns"].sum())
    table["share"] = table["total_ns"] / whole if whole else 0.0
    return table.sort_values("total_ns", ascending=False, kind="stable", ignore_index=True)


def _launchers(graph: Dependencies, kinds: Sequence[str]) -> np.ndarray:
    """By node the stretch of the host that launched it; -1 for none."""
    host = np.array(kinds, dtype=object) == "host"
    launched = host[graph.sources] & ~host[graph.targets]
    found = np.full(len(kinds), -1, dtype=np.int64)
    found[graph.targets[launched]] = graph.sources[launched]
    return found


def _between(node: int, after: int, kinds: Sequence[str], launchers: np.ndarray, launched: np.ndarray) -> str:
    """What the time between a node and the one that it led to is."""
    if kinds[node] == "host":
        return "launch"
    together = launchers[node] == launchers[after] or launched[launchers[after]] >= GRAPH_LEAST
    return "graph" if launchers[after] >= 0 and together else "delay"


def _binding(graph: Dependencies, starts: np.ndarray, ends: np.ndarray) -> np.ndarray:
    """The predecessor that each node started right after: the one whose end and lag come last; -1 for none."""
    before = np.full(len(starts), -1, dtype=np.int64)
    held = ends[graph.sources] + graph.lag_ns
    order = np.lexsort((ends[graph.sources], held))
    before[graph.targets[order]] = graph.sources[order]  # the last assignment of a target counts
    return before
