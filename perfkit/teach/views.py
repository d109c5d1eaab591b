"""Views of the game: what a look at today's run beside last week's shows, one table each; times in ns."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import pandas as pd

from perfkit.core.run import Run

MAX_ROWS = 14


def look(view: str, today: Run, last_week: Run) -> pd.DataFrame:
    """The table of a view."""
    return VIEWS[view](today, last_week)


def _steps(today: Run, last_week: Run) -> pd.DataFrame:
    def slowest(run: Run) -> pd.Series:
        return run.steps().groupby("step")["duration_ns"].max()

    return _beside(slowest(today), slowest(last_week), "duration_ns")


def _ranks(today: Run, last_week: Run) -> pd.DataFrame:
    columns = ["computing_ns", "exposed_communication_ns", "bubble_ns", "free_ns"]
    now, then = (run.steps().groupby("rank")[columns].median().astype("int64") for run in (today, last_week))
    now["computing_last_week_ns"] = then["computing_ns"]
    return now.reset_index()


def _free(today: Run, last_week: Run) -> pd.DataFrame:
    def free(run: Run) -> pd.DataFrame:
        parts = run.frame("step_parts")
        kept = parts[parts["path"].str.startswith("free")]
        return kept.pivot_table(index=["rank", "step"], columns="path", values="amount_ns", aggfunc="sum").fillna(0).astype("int64")

    now = free(today).rename(columns=lambda path: f"{path.replace('/', '_')}_ns")
    now["last_week_ns"] = free(last_week).sum(axis="columns")
    return now.reset_index()


def _kernels(today: Run, last_week: Run) -> pd.DataFrame:
    def by_type(run: Run) -> pd.DataFrame:
        kernels = run.frame("kernels", columns=["type", "duration_ns"])
        return kernels.groupby("type")["duration_ns"].agg(["sum", "size", "std"]).fillna(0).astype("int64")

    now, then = by_type(today), by_type(last_week)
    table = pd.DataFrame({"total_ns": now["sum"], "total_last_week_ns": then["sum"], "count": now["size"]})
    table = table.assign(count_last_week=then["size"], scatter_ns=now["std"], scatter_last_week_ns=then["std"])
    return table.sort_values("total_ns", ascending=False).head(MAX_ROWS).fillna(0).astype("int64").reset_index()


def _collectives(today: Run, last_week: Run) -> pd.DataFrame:
    def by_rank(run: Run) -> pd.DataFrame:
        return run.frame("collectives").groupby(["rank", "operation"])[["wait_ns", "transit_ns"]].sum()

    now, then = by_rank(today), by_rank(last_week)
    counts = today.frame("collectives").groupby(["rank", "operation"]).size()
    counts_then = last_week.frame("collectives").groupby(["rank", "operation"]).size()
    table = now.assign(transit_last_week_ns=then["transit_ns"], calls=counts, calls_last_week=counts_then)
    return table.fillna(0).astype("int64").reset_index()


def _links(today: Run, last_week: Run) -> pd.DataFrame:
    def speed(run: Run) -> pd.Series:
        sums = run.frame("links").groupby(["source_rank", "target_rank"])[["bytes", "transit_ns"]].sum()
        return sums["bytes"] / sums["transit_ns"].clip(lower=1)  # bytes/ns are GB/s

    return pd.DataFrame({"GB/s": speed(today), "GB/s last week": speed(last_week)}).round(1).reset_index()


def _host(today: Run, last_week: Run) -> pd.DataFrame:
    def launches(run: Run) -> pd.Series:
        return run.frame("host").groupby("rank")["duration_ns"].median()

    def longest(run: Run) -> pd.Series:
        return run.frame("host").groupby("rank")["duration_ns"].max()

    table = _beside(launches(today), launches(last_week), "typical_call_ns")
    return table.assign(longest_call_ns=longest(today).to_numpy(), longest_call_last_week_ns=longest(last_week).to_numpy())


def _memory(today: Run, last_week: Run) -> pd.DataFrame:
    def most(run: Run) -> pd.DataFrame:
        return run.frame("memory_curve").groupby("rank")[["allocated_bytes", "reserved_bytes"]].max()

    now, then = most(today), most(last_week)
    return now.assign(reserved_last_week_bytes=then["reserved_bytes"]).reset_index()


def _beside(now: pd.Series, then: pd.Series, name: str) -> pd.DataFrame:
    base = name.removesuffix("_ns")
    table = pd.DataFrame({name: now, f"{base}_last_week_ns": then})
    return table.round().astype("int64").reset_index()


VIEWS: Mapping[str, Callable[[Run, Run], pd.DataFrame]] = {
    "steps": _steps,
    "memory": _memory,
    "ranks": _ranks,
    "free": _free,
    "links": _links,
    "host": _host,
    "kernels": _kernels,
    "collectives": _collectives,
}
