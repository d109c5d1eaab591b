"""Peers: which ranks have equal work and may be compared, and which are worth a closer look."""

from __future__ import annotations

from collections.abc import Collection, Mapping

import numpy as np
import pandas as pd

SAME_WORK = 0.05
"""Ranks whose numbers of operators differ by less, summed over operators and relative to all of them, have equal work."""


def roles(steps: pd.DataFrame, operators: pd.DataFrame | None) -> Mapping[int, int]:
    """A number for every rank, equal for ranks of one pipeline stage whose operators are the same in kind and count.

    `operators` has `rank`, `op` and `count`; ranks that are not in it are grouped by stage alone, with those of their stage.
    """
    stages = steps.drop_duplicates("rank")[["rank", "stage"]].to_dict("records")
    counts = (
        None
        if operators is None
        else operators.pivot_table(index="rank", columns="op", values="count", observed=True, aggfunc="sum").fillna(0.0)
    )
    clusters: list[tuple[int, np.ndarray | None]] = []
    found: dict[int, int] = {}
    for rank, stage in sorted((int(row["rank"]), int(row["stage"])) for row in stages):
        mine = counts.loc[rank].to_numpy() if counts is not None and rank in counts.index else None
        found[rank] = _place(stage, mine, clusters)
    return found


def _place(stage: int, mine: np.ndarray | None, clusters: list[tuple[int, np.ndarray | None]]) -> int:
    for number, (other_stage, other) in enumerate(clusters):
        if other_stage != stage:
            continue
        if mine is None or other is None or np.abs(mine - other).sum() <= SAME_WORK * max(mine.sum(), other.sum()):
            if other is None:
                clusters[number] = (stage, mine)
            return number
    clusters.append((stage, mine))
    return len(clusters) - 1


def suspects(steps: pd.DataFrame, limit: int, among: Collection[int] | None = None) -> tuple[int, ...]:
    """The ranks that stand out in the summaries of many: most computing and free time of their stage, least communication.

    Typical ranks come with them: of every stage (up to a third of the limit) the one in the middle. All are `among` some ranks if
    those are given: there is nothing to look at of the others.
    """
    means = steps.groupby(["stage", "rank"])[["computing_ns", "free_ns", "exposed_communication_ns"]].mean().astype("float64")
    apart = means - means.groupby("stage").transform("median")
    if among is not None:
        apart = apart[apart.index.get_level_values("rank").isin(list(among))]
    each = max(1, limit // 4)
    chosen: list[int] = []
    for column, largest in (("computing_ns", True), ("free_ns", True), ("exposed_communication_ns", False)):
        ordered = apart[column].dropna().sort_values(ascending=not largest, kind="stable")
        chosen += [int(rank) for _, rank in ordered.index[:each]]
    typical = apart["computing_ns"].abs().sort_values(kind="stable").reset_index().drop_duplicates("stage")
    chosen += [int(rank) for rank in typical["rank"][: max(1, limit // 3)]]
    return tuple(sorted(dict.fromkeys(chosen).keys() & set(list(dict.fromkeys(chosen))[:limit])))
