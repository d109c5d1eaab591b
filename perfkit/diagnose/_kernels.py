"""Kernels by what they are: a finding about all kernels of a kind, with what a step would win without them."""

from __future__ import annotations

import re

import numpy as np
import pandas as pd

from perfkit.diagnose import _work
from perfkit.diagnose._case import Case


def matching(case: Case, pattern: re.Pattern[str], column: str = "op") -> pd.DataFrame:
    """The computing kernels whose `column` matches."""
    rows = case.computing
    values = rows[column].astype("category")
    wanted = np.array([bool(pattern.search(str(value))) for value in values.cat.categories], dtype=bool)
    codes = values.cat.codes.to_numpy()
    return rows[(codes >= 0) & wanted[codes]] if len(wanted) else rows.iloc[:0]


def share_of_step(case: Case, rows: pd.DataFrame) -> float:
    """The largest share of the step that any rank spends in `rows`."""
    if rows.empty:
        return 0.0
    total = rows.groupby("rank")["duration_ns"].sum().max()
    return float(total) / max(1, len(case.step_numbers)) / (case.step_ns or 1)


def largest(rows: pd.DataFrame, top: int = 5) -> tuple[str, ...]:
    """The names of the operators in `rows` that take longest."""
    sums = rows.groupby("op", observed=True)["duration_ns"].sum().sort_values(ascending=False)
    return tuple(str(name) for name in sums.index[:top])


def won_ns(case: Case, rows: pd.DataFrame, fraction: float | pd.Series = 1.0) -> int:
    """What a step would win without a fraction of `rows`."""
    return _work.won_ns(case, rows, fraction=fraction)
