"""Operator compare: the operators of page 12 beside those of another run, for example the same model on a GPU.

Shares of the computing time need no scaling by the speed of the devices: an operator with 1.5 times the share that it has in the
other run, and 1 % of the computing time more, is slower here than its share.
"""

from __future__ import annotations

import pandas as pd

from perfkit.core.run import Run
from perfkit.explain.compare.operators import GAP_RATIO, GAP_SHARE, OperatorComparison
from perfkit.face.charts.operators import share_bars, share_rows
from perfkit.face.widgets.chart import Figure
from perfkit.face.widgets.table import Table

SHOWN = 100
MOST_BARS = 12
MOST_NAMED = 3


def by_operator(found: OperatorComparison) -> pd.DataFrame:
    """One row an operator, all shapes together, largest difference first.

    `operator`, `count_a`, `count_b`, `share_a`, `share_b` of the computing time, `times` (share here over share there, null where
    the other run has none) and `slower` (than its share in the other run).
    """
    columns = ["count_a", "count_b", "share_a", "share_b"]
    rows = found.operators.groupby("operator", sort=False)[columns].sum().astype("float64").reset_index()
    both = (rows["count_a"] > 0) & (rows["count_b"] > 0)
    rows = rows.assign(times=(rows["share_a"] / rows["share_b"]).where(both & (rows["share_b"] > 0)))
    slower = both & (rows["times"] >= GAP_RATIO) & (rows["share_a"] - rows["share_b"] >= GAP_SHARE)
    rows = rows.assign(slower=slower, apart=(rows["share_a"] - rows["share_b"]).abs())
    return rows.sort_values("apart", ascending=False, kind="stable", ignore_index=True).drop(columns="apart")


def compare_figures(found: OperatorComparison, run: Run, other: Run) -> dict[str, Figure]:
    """The shares of the operators that differ most, here and there."""
    rows = by_operator(found).head(MOST_BARS)
    if rows.empty:
        return {}
    return {
        "shares": Figure(
            chart=share_bars(share_rows(rows)),
            title=f"Share of the computing time: this run, and {other.name}",
            sources=[f"measured: kernels of {run.name} and of {other.name}, a step and rank"],
            wide=True,
        )
    }


def compare_tables(found: OperatorComparison) -> dict[str, Table]:
    """What is slower here than its share, all operators, those that only one run has, and what is fused in one of them."""
    rows = found.operators.rename(columns={"ratio": "call_times", "share_a": "a_ratio", "share_b": "b_ratio"})
    columns = ["operator", "shape", "count_a", "count_b", "mean_a_ns", "mean_b_ns", "call_times", "a_ratio", "b_ratio"]
    if not rows["shape"].astype("object").fillna("").astype(str).str.len().any():
        columns.remove("shape")
    tables = {}
    slower = by_operator(found).query("slower").drop(columns="slower")
    labels = {"count_a": "calls a", "count_b": "calls b", "a_ratio": "share a", "b_ratio": "share b"}
    if len(slower):
        tables["slower"] = Table(
            frame=slower.rename(columns={"share_a": "a_ratio", "share_b": "b_ratio"}),
            title="Slower here than their share in the other run",
            labels={**labels, "times": "share, a / b"},
        )
    tables["compared"] = Table(
        frame=rows[columns].head(SHOWN),
        title="a: this run, b: the other",
        labels={**labels, "call_times": "a call, b / a"},
    )
    for name, frame in (("only in a", found.missing), ("only in b", found.extra)):
        if len(frame):
            alone = frame[["operator", "operator_class", "count", "total_ns", "share"]].head(SHOWN)
            tables[name] = Table(frame=alone, title=f"Operators {name}", labels={"operator_class": "class", "count": "calls"})
    if len(found.fusions):
        tables["fusions"] = Table(
            frame=found.fusions, title="Fused on one side, several operators on the other", labels={"parts": "on the other side"}
        )
    return tables


def compare_sentence(found: OperatorComparison, other: Run) -> str:
    """What is slower here than its share there, and what is fused there and in parts here."""
    slower = by_operator(found).query("slower").sort_values("share_a", ascending=False)
    named = [
        f"{row['operator']} ({row['share_a']:.1%} of the computing time here, {row['share_b']:.1%} there)"
        for row in slower.head(MOST_NAMED).to_dict("records")
    ]
    more = f" and {len(slower) - MOST_NAMED} more" if len(slower) > MOST_NAMED else ""
    told = (
        f"Beside {other.name}, slower here than their share: {', '.join(named)}{more}."
        if named
        else f"Beside {other.name}, no operator takes {GAP_RATIO:g} times its share."
    )
    fused = [str(row["fused"]) for row in found.fusions.to_dict("records") if row["fused_in"] == "b"]
    return told + (f" Fused there and in parts here: {', '.join(fused)}." if fused else "")
