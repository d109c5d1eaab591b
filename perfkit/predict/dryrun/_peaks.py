"""Logged peaks: what a memory statistic says of one rank, against the memory that the framework may use.

A file with several statistics does not say whether they are ranks, or before and after a change; who reads them must.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import pandas as pd

from perfkit.core.errors import InputError, NotMeasuredError
from perfkit.core.run import Run

Meaning = Literal["not said", "ranks", "before and after"]
HOW = "run with MS_MEMORY_STATISTIC=1 and keep the log, or simulate the run (DryRun) with the commands of page 19"


@dataclass(frozen=True, kw_only=True, slots=True)
class LoggedPeak:
    """One statistic in bytes; null where the log does not say.

    `used_bytes` is the largest sum of blocks in use, `actual_bytes` includes the gaps between them. `limit_bytes` is what the
    framework may use of `device_bytes`. `requested_bytes` is a request that failed. `label` says which statistic of which file.
    """

    rank: int | None
    label: str
    file: str
    line: int
    used_bytes: int | None = None
    actual_bytes: int | None = None
    limit_bytes: int | None = None
    device_bytes: int | None = None
    static_bytes: int | None = None
    dynamic_bytes: int | None = None
    requested_bytes: int | None = None

    @property
    def peak_bytes(self) -> int | None:
        """The peak that must fit: with gaps where stated, else without; static + dynamic + the request of one that failed."""
        for found in (self.actual_bytes, self.used_bytes):
            if found is not None:
                return found if self.requested_bytes is None else found + self.requested_bytes
        if self.static_bytes is None:
            return None
        return self.static_bytes + (self.dynamic_bytes or 0) + (self.requested_bytes or 0)

    @property
    def fragments_bytes(self) -> int | None:
        """Gaps between blocks at the peak; 0 where a log prints a used peak above the actual one."""
        if self.used_bytes is None or self.actual_bytes is None:
            return None
        return max(0, self.actual_bytes - self.used_bytes)

    @property
    def fragmentation(self) -> float | None:
        """Gaps as a share of the actual peak."""
        return self.fragments_bytes / self.actual_bytes if self.fragments_bytes is not None and self.actual_bytes else None

    def headroom_bytes(self, limit_bytes: int | None = None) -> int | None:
        """Limit minus peak, negative if it does not fit; `limit_bytes` replaces the logged limit."""
        limit = self.limit_bytes if limit_bytes is None else limit_bytes
        return None if limit is None or self.peak_bytes is None else limit - self.peak_bytes


def read_peaks(run: Run, meaning: Meaning = "not said", ranks: Sequence[int] = ()) -> tuple[LoggedPeak, ...]:
    """The statistics of a run in their order.

    One statistic in a file is of the file's rank. Of several, `meaning` "ranks" takes them for `ranks` (0, 1, ... unless given),
    "before and after" for the file's rank each, "not said" leaves the rank open. Raises NotMeasuredError without any statistic and
    InputError if the number of `ranks` is another than that of the statistics.
    """
    rows = run.frame("memory_reports").to_dict("records")
    if not rows:
        raise NotMeasuredError("a peak of device memory", how_to_collect=HOW)
    several = {name for name in (row["file"] for row in rows) if sum(row["file"] == name for row in rows) > 1}
    blocks = [row for row in rows if row["file"] in several]
    numbers = list(ranks) or list(range(len(blocks)))
    if meaning == "ranks" and len(numbers) != len(blocks):
        raise InputError(run.name, [f"{len(numbers)} ranks are named for {len(blocks)} statistics"])
    named = iter(numbers)
    found = []
    for row in rows:
        rank: int | None = int(row["rank"])
        label = f"rank {rank}"
        if row["file"] in several:
            label = f"statistic {int(row['block']) + 1} of {row['file']}"
            if meaning == "ranks":
                rank = next(named)
                label = f"rank {rank}"
            elif meaning == "not said":
                rank = None
        found.append(_peak(row, rank, label))
    _refuse_twins(run.name, [peak.rank for peak in found if meaning != "before and after"])
    return tuple(found)


def has_several(run: Run) -> bool:
    """Whether a file of the run holds several statistics, so that their meaning must be asked."""
    return bool(run.frame("memory_reports", columns=["file"]).astype("object").duplicated().any())


def _peak(row: dict[Any, Any], rank: int | None, label: str) -> LoggedPeak:
    names = {"used_bytes": "used_peak_bytes", "actual_bytes": "actual_peak_bytes", "limit_bytes": "budget_bytes"}
    names |= {name: name for name in ("device_bytes", "static_bytes", "dynamic_bytes", "requested_bytes")}
    values: dict[str, Any] = {field: None if pd.isna(row[name]) else int(row[name]) for field, name in names.items()}
    return LoggedPeak(rank=rank, label=label, file=str(row["file"]), line=int(row["line"]), **values)


def _refuse_twins(subject: str, ranks: Sequence[int | None]) -> None:
    twins = sorted({rank for rank in ranks if rank is not None and ranks.count(rank) > 1})
    if twins:
        problems = [
            f"rank {rank} has {ranks.count(rank)} statistics; logs of different ranks are called rank_N.log" for rank in twins
        ]
        raise InputError(subject, problems)
