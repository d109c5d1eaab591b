"""Rank rows: one rank of a run as plain columns, which the writers of profilers' files go through line by line."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any

import numpy as np

from perfkit.core.run import Run


@dataclass(frozen=True)
class RankRows:
    """Kernels of a rank in the order of their starts, each with its launch; collectives by the place of their kernel."""

    rank: int
    kernels: list[dict[str, Any]]
    collectives: dict[int, dict[str, Any]]
    steps: list[dict[str, Any]]
    host: list[dict[str, Any]]
    memory: list[dict[str, Any]]
    links: list[dict[str, Any]]


@dataclass(frozen=True)
class Group:
    """A process group of a run."""

    name: str
    label: str
    members: tuple[int, ...]

    @property
    def number(self) -> str:
        """A number of 64 bits that stands for it, as file formats do that name groups by a hash."""
        return str(int.from_bytes(blake2b(self.name.encode(), digest_size=8).digest(), "big") >> 1)


def rank_rows(run: Run, rank: int) -> RankRows:
    """The rows of one rank."""
    kernels = run.frame("kernels", ranks=[rank])
    launches = run.frame("launches", ranks=[rank])
    frame = kernels.assign(
        **{name: launches[name].to_numpy() for name in ("call", "launch_ns", "launch_duration_ns", "operator")}
    ).astype(object)
    talking = np.flatnonzero((kernels["kind"] == "communication").to_numpy())
    found = _records(run.frame("collectives", ranks=[rank]))
    host = run.frame("host", ranks=[rank])
    launched = set(launches["call"].cat.categories) | set(launches["operator"].cat.categories)
    return RankRows(
        rank=rank,
        kernels=_records(frame),
        collectives=dict(zip(talking.tolist(), found, strict=True)),
        steps=_records(run.steps()[lambda rows: rows["rank"] == rank]),
        host=_records(host[~host["name"].isin(list(launched))]),
        memory=_records(run.frame("memory_curve", ranks=[rank])),
        links=_records(run.frame("links", ranks=[rank])),
    )


def groups_of(run: Run, rank: int) -> list[Group]:
    """The process groups of one rank."""
    rows = _records(run.frame("groups", ranks=[rank]))
    return [Group(str(row["group"]), str(row["label"]), tuple(map(int, str(row["members"]).split(",")))) for row in rows]


def us(ns: int) -> str:
    """Microseconds with three decimals, exact."""
    return f"{ns // 1000}.{ns % 1000:03d}"


def _records(frame: Any) -> list[dict[str, Any]]:
    plain = frame.astype(object)
    records: list[dict[str, Any]] = plain.where(frame.notna(), None).to_dict("records")
    return records


def batches(rows: list[Any], size: int) -> Iterator[list[Any]]:
    """The rows in lists of at most `size`."""
    for start in range(0, len(rows), size):
        yield rows[start : start + size]
