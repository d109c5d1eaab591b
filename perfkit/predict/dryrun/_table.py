"""The table of ranks: logged and predicted peaks with and without gaps, against the limit."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pandas as pd

from perfkit.predict.dryrun._parts import ranks_of_interest, stage_of
from perfkit.predict.dryrun._peaks import LoggedPeak
from perfkit.predict.dryrun._substitute import Substitute

LOGGED, PREDICTED = "logged", "predicted"


@dataclass(frozen=True, kw_only=True, slots=True)
class Row:
    """A rank: its peak without gaps (`used_bytes`), with them (`actual_bytes`), and what is left of the limit."""

    label: str
    rank: int | None
    stage: int | None
    origin: str
    used_bytes: int | None
    actual_bytes: int | None
    limit_bytes: int | None
    headroom_bytes: int | None
    fragmentation_ratio: float | None
    predicted_bytes: int | None
    error_ratio: float | None
    note: str

    @property
    def begun(self) -> str:
        """Its label, as a sentence begins with it."""
        return self.label[:1].upper() + self.label[1:]

    @property
    def peak_bytes(self) -> int | None:
        """What must fit."""
        return None if self.headroom_bytes is None or self.limit_bytes is None else self.limit_bytes - self.headroom_bytes


def rank_rows(peaks: Sequence[LoggedPeak], predicted: Substitute | None = None, limit_bytes: int | None = None) -> tuple[Row, ...]:
    """Every log as a row; with a substitute also the ranks of interest that have no log.

    `limit_bytes` is max_device_memory; without it each log's own limit is used, and the lowest of them for predictions.
    `error_ratio` is the substitute's peak without gaps over the logged one, minus 1.
    """
    rows = [_logged(peak, predicted, limit_bytes) for peak in peaks]
    if predicted is not None:
        limits = [peak.limit_bytes for peak in peaks if peak.limit_bytes is not None]
        limit = limit_bytes if limit_bytes is not None else min(limits, default=None)
        seen = {peak.rank for peak in peaks}
        rows += [_predicted(rank, predicted, limit) for rank in ranks_of_interest(predicted.plan) if rank not in seen]
    return tuple(sorted(rows, key=lambda row: (row.rank is None, row.rank or 0)))


def table(peaks: Sequence[LoggedPeak], predicted: Substitute | None = None, limit_bytes: int | None = None) -> pd.DataFrame:
    """`rank_rows` as a frame: one row a rank, sizes in bytes, nulls where nothing is known."""
    names = list(Row.__dataclass_fields__)
    return pd.DataFrame(
        [{name: getattr(row, name) for name in names} for row in rank_rows(peaks, predicted, limit_bytes)], columns=names
    )


def fullest(rows: Sequence[Row]) -> Row | None:
    """The row with the least room; the one with the largest peak where no limit is known; None if no row has a peak."""
    judged = [row for row in rows if row.headroom_bytes is not None]
    if judged:
        return min(judged, key=lambda row: row.headroom_bytes or 0)
    known = [row for row in rows if row.actual_bytes or row.used_bytes]
    return max(known, key=lambda row: row.actual_bytes or row.used_bytes or 0, default=None)


def _logged(peak: LoggedPeak, predicted: Substitute | None, limit_bytes: int | None) -> Row:
    limit = peak.limit_bytes if limit_bytes is None else limit_bytes
    guess = predicted.of_rank(peak.rank).used_bytes if predicted is not None and peak.rank is not None else None
    notes = []
    if peak.requested_bytes is not None:
        notes.append("out of memory")
    if peak.peak_bytes is None:
        notes.append("no peak stated")
    if peak.used_bytes is not None and peak.actual_bytes is not None and peak.used_bytes > peak.actual_bytes:
        notes.append("used peak above the actual one")
    return Row(
        label=peak.label,
        rank=peak.rank,
        stage=stage_of(peak.rank, predicted.plan) if predicted is not None and peak.rank is not None else None,
        origin=LOGGED,
        used_bytes=peak.used_bytes,
        actual_bytes=peak.actual_bytes if peak.actual_bytes is not None or peak.used_bytes is not None else peak.peak_bytes,
        limit_bytes=limit,
        headroom_bytes=peak.headroom_bytes(limit),
        fragmentation_ratio=peak.fragmentation,
        predicted_bytes=guess,
        error_ratio=guess / peak.used_bytes - 1 if guess is not None and peak.used_bytes else None,
        note=", ".join(notes),
    )


def _predicted(rank: int, predicted: Substitute, limit: int | None) -> Row:
    found = predicted.of_rank(rank)
    ratio = predicted.calibration.fragments_ratio
    return Row(
        label=f"rank {rank}",
        rank=rank,
        stage=found.stage,
        origin=PREDICTED,
        used_bytes=found.used_bytes,
        actual_bytes=found.actual_bytes,
        limit_bytes=limit,
        headroom_bytes=None if limit is None else limit - found.peak_bytes,
        fragmentation_ratio=None if ratio is None else ratio / (1 + ratio),
        predicted_bytes=found.used_bytes,
        error_ratio=None,
        note="",
    )
