"""Inferred groups: which ranks communicated with each other, where the recording does not say but has all ranks of the job.

The members of a collective leave it together: the ends of the same operations on two ranks are one constant apart, the offset of
their clocks, to within some microseconds. Streams of two ranks with the same operations whose ends are so are of one group. It is
taken for true only if the groups found hold every rank once and are equally large, and never of fewer than `MIN_OPERATIONS`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pandas as pd

MIN_OPERATIONS = 3
_TOGETHER_NS = 50_000
_MOST_RANKS = 256
_EXCHANGE = "send_receive"

Ints = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Lane:
    """The operations of one rank on one stream in order: their names, their ends, and their positions among the rank's."""

    rank: int
    operations: tuple[str, ...]
    ends_ns: Ints
    rows: Ints


def inferred_groups(operations: Mapping[int, pd.DataFrame]) -> list[list[Lane]]:
    """The groups, each as the lanes of its members in order of rank.

    `operations` has those of every rank of the job that state no group: `operation`, `stream`, `start_ns`, `duration_ns`.
    """
    if not 1 < len(operations) <= _MOST_RANKS:
        return []
    alike: dict[tuple[str, ...], list[Lane]] = {}
    for rank, rows in sorted(operations.items()):
        for lane in _lanes(rank, rows):
            alike.setdefault(lane.operations, []).append(lane)
    return [group for lanes in alike.values() for group in _partition(lanes, len(operations))]


def operation_in(group: list[Lane], operation: str) -> str:
    """What an operation is among these members: an exchange of more than two, left together, is an all-to-all."""
    return "all_to_all" if operation == _EXCHANGE and len(group) > 2 else operation


def _lanes(rank: int, rows: pd.DataFrame) -> list[Lane]:
    found = []
    ordered = rows.reset_index(drop=True).sort_values("start_ns", kind="stable")
    for _, own in ordered.groupby(ordered["stream"].astype("object").to_numpy(), dropna=False):
        if len(own) >= MIN_OPERATIONS:
            ends = (own["start_ns"] + own["duration_ns"]).to_numpy(dtype=np.int64)
            found.append(Lane(rank, tuple(own["operation"].astype(str)), ends, own.index.to_numpy(dtype=np.int64)))
    return found


def _partition(lanes: list[Lane], num_ranks: int) -> list[list[Lane]]:
    """Lanes of equal operations as groups; none if they do not hold every rank once in equally large groups."""
    groups: list[list[Lane]] = []
    for lane in lanes:
        home = next((group for group in groups if _together(group[0], lane)), None)
        if home is None:
            groups.append([lane])
        else:
            home.append(lane)
    ranks = [lane.rank for lane in lanes]
    whole = len(set(ranks)) == len(ranks) == num_ranks
    even = len({len(group) for group in groups}) == 1 and len(groups[0]) > 1
    return groups if whole and even else []


def _together(a: Lane, b: Lane) -> bool:
    apart_ns = b.ends_ns - a.ends_ns
    return float(np.median(np.abs(apart_ns - np.sort(apart_ns)[len(apart_ns) // 2]))) <= _TOGETHER_NS
