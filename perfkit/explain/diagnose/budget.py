"""Budget: printed statistics of device memory against what may be used, for the rules about runs that do not fit."""

from __future__ import annotations

import pandas as pd

from perfkit.core.errors import NotMeasuredError
from perfkit.core.texts import say
from perfkit.explain.diagnose.case import Case
from perfkit.explain.diagnose.collecting import MEMORY_BY
from perfkit.explain.diagnose.rule import Finding, Threshold

OUT_OF_MEMORY_STATIC = Threshold(
    name="oom-static-share",
    value=0.6,
    unit="static memory over the budget",
    origin="chosen: from here on less than 40 % is left for activations, so they are not the cause",
)


def reports(case: Case) -> pd.DataFrame:
    """The last statistic of each rank that has a budget and a peak: `rank`, `budget`, `peak`, `static_share` (0 to 1 of budget).

    `over` marks ranks above the budget or with a request that failed. Raises NotMeasuredError if there is none.
    """
    rows = case.run.frame("memory_reports")
    budget = rows["budget_bytes"].fillna(rows["device_bytes"])
    peak = rows["actual_peak_bytes"].fillna(rows["used_peak_bytes"])
    peak = peak.fillna(rows["static_bytes"] + rows["dynamic_bytes"]) + rows["requested_bytes"].fillna(0)
    found = rows.assign(budget=budget, peak=peak, static_share=rows["static_bytes"].astype("Float64") / budget)
    found = found[found["budget"].notna() & found["peak"].notna()].drop_duplicates("rank", keep="last")
    if found.empty:
        raise NotMeasuredError("a peak of memory and its budget", how_to_collect=MEMORY_BY)
    return found.assign(over=(found["peak"] > found["budget"]).to_numpy(dtype=bool))


def evidence_of(rows: pd.DataFrame) -> dict[str, float]:
    """Peak, budget and static share of the rank nearest to its budget or farthest above it."""
    worst = rows.iloc[int((rows["peak"] / rows["budget"]).to_numpy(dtype=float).argmax())]
    found = {"peak_bytes": float(worst["peak"]), "budget_bytes": float(worst["budget"])}
    return found if pd.isna(worst["static_share"]) else {**found, "static_over_budget": float(worst["static_share"])}


def over(case: Case, rows: pd.DataFrame, *, static: bool) -> pd.DataFrame:
    """Ranks that do not fit, because of static memory or for another reason."""
    mostly = (rows["static_share"].fillna(0.0) >= case.limit(OUT_OF_MEMORY_STATIC)).to_numpy(dtype=bool)
    found: pd.DataFrame = rows[rows["over"].to_numpy(dtype=bool) & (mostly == static)]
    return found


def finding(rule: str, rows: pd.DataFrame, what: str, actions: tuple[str, ...]) -> Finding:
    """Ranks that do not fit, with the peak of the worst."""
    numbers = evidence_of(rows)
    return Finding(
        rule=rule,
        title=say("Peak {peak_bytes} over the limit of {budget_bytes}, {what}", what=what, **numbers),
        subject={"ranks": tuple(int(rank) for rank in rows["rank"])},
        evidence=numbers,
        actions=actions,
        severity="high",
        next=("04_memory", "15_memory_profile"),
    )
