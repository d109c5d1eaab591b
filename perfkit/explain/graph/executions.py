"""Executions: what a recording has of the operators of a graph, and of all operators of a line of code."""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd

from perfkit.core.run import Run
from perfkit.explain.graph.model import GraphFile, Node
from perfkit.explain.graph.search import SCOPES, operator_of

_TABLES = ("kernels", "collectives")
_COLUMNS = ["rank", "name", "start_ns", "duration_ns"]


def executions(run: Run, nodes: Sequence[Node]) -> pd.DataFrame:
    """The kernels and collectives of `run` that are executions of `nodes`: `rank`, `name`, `start_ns`, `duration_ns`, `stream`.

    `start_ns` is on the common clock. Without executions the frame is empty: they were not recorded, or have names without scopes.
    """
    wanted = {node.scope for node in nodes if node.scope}
    bare = {scope.rpartition("/")[2] for scope in wanted}
    parts = []
    for table in _TABLES:
        for rank in run.ranks if run.has(table) else ():
            columns = [*_COLUMNS, *(["stream"] if table == "kernels" else [])]
            rows = run.frame(table, ranks=[rank], columns=columns)
            names = rows["name"].astype("category").cat
            operators = [operator_of(str(name)) for name in names.categories]
            own = [at for at, name in enumerate(operators) if name in (wanted if name.startswith(SCOPES) else bare)]
            found = rows[names.codes.isin(own).to_numpy()].dropna(subset=["start_ns", "duration_ns"]).astype({"name": "object"})
            parts.append(found.assign(start_ns=found["start_ns"] + run.clock.get(rank, 0)))
    filled = [part for part in parts if len(part)]
    if not filled:
        return pd.DataFrame(columns=[*_COLUMNS, "stream"])
    # A collective may be a kernel, too: it is one execution.
    return pd.concat(filled, ignore_index=True).drop_duplicates(["rank", "name", "start_ns"])


def by_rank(rows: pd.DataFrame) -> pd.DataFrame:
    """Executions by `rank` and `name`: `count`, `total_ns`, and of the longest one `longest_ns`, `start_ns` and `stream`."""
    return _summed(rows, ["rank", "name"])


def by_line(run: Run, file: GraphFile, node: Node) -> pd.DataFrame:
    """The source lines of `node`, the innermost first, each with all operators that come from it and their executions.

    Columns: `source`, `operators` of the graph, then of their executions `count`, `total_ns` over all ranks, and of the longest
    one `rank`, `name`, `longest_ns`, `start_ns`, `stream`. A line whose operators were not recorded is left out.
    """
    parts = []
    for line in dict.fromkeys(reversed(node.sources)):
        nodes = [other for other in file.nodes() if line in other.sources]
        parts.append(executions(run, nodes).assign(source=line, operators=len(nodes)))
    rows = pd.concat(parts, ignore_index=True) if parts else pd.DataFrame(columns=[*_COLUMNS, "stream", "source", "operators"])
    return _summed(rows, ["source", "operators"], ordered=False)


def _summed(rows: pd.DataFrame, by: list[str], *, ordered: bool = True) -> pd.DataFrame:
    longest = rows.sort_values("duration_ns", ascending=False, kind="stable").drop_duplicates(by)
    sums = rows.groupby(by, sort=False, observed=True)["duration_ns"].agg(count="size", total_ns="sum").reset_index()
    found = sums.merge(longest.rename(columns={"duration_ns": "longest_ns"}), on=by)
    return found.sort_values("total_ns", ascending=False, ignore_index=True) if ordered else found
