"""Shapes: what the operators of typical ranks had to compute, from recorded shapes and types."""

from __future__ import annotations

import re

import pandas as pd

from perfkit.explain.diagnose.case import Case
from perfkit.explain.roofline import operator_costs

MOST_ROLES = 4
PRODUCTS = re.compile(r"mat_?mul|(?:^|::)(?:mm|bmm|addmm|baddbmm|linear)$|(?<!fb)gemm|conv(?!ert)|attention|sdpa", re.IGNORECASE)
"""Operators that a matrix unit runs."""


def typical_costs(case: Case) -> pd.DataFrame:
    """Rows of `operator_costs` of one rank for each role, with `rank` and `per_step_ns`, its time a step."""
    if case.costs is None:
        case.costs = _costs(case)
    return case.costs


def _costs(case: Case) -> pd.DataFrame:
    firsts: dict[int, int] = {}
    for rank in case.detail_ranks:
        firsts.setdefault(case.roles.get(rank, 0), rank)
    steps = case.all_steps.groupby("rank")["step"].nunique()
    frames = []
    for rank in list(firsts.values())[:MOST_ROLES]:
        rows = operator_costs(case.run, rank=rank)
        frames.append(rows.assign(rank=rank, per_step_ns=rows["total_ns"] / max(1, int(steps.get(rank, 1)))))
    return pd.concat(frames, ignore_index=True)


def less_by_rank(case: Case, rows: pd.DataFrame, less_ns: pd.Series) -> dict[int, float]:
    """What every rank is busy for less a step if the ranks of its role save `less_ns`, given by row of `typical_costs`."""
    by_rank = less_ns.astype("float64").groupby(rows["rank"]).sum()
    by_role = {case.roles.get(int(str(rank)), 0): float(amount) for rank, amount in by_rank.items()}
    return {rank: by_role[role] for rank, role in case.roles.items() if role in by_role}
