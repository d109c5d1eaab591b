"""Operators: which kernels and collectives of a rank cost most, which are many and short, and what a faster one would win."""

from __future__ import annotations

from typing import Any, Literal

import pandas as pd

from perfkit.core.demangled import demangled
from perfkit.core.errors import InputError, NotMeasuredError
from perfkit.core.looks import brief
from perfkit.core.run import Run
from perfkit.core.shortening import shortened
from perfkit.core.texts import joined, say
from perfkit.core.units import NS_PER_US, format_entry, format_ratio

Grouping = Literal["name", "type", "core"]
COMPUTING, ALL, UNKNOWN = "computing", "all", "unknown"
MANY = 20
SMALL_US = 10.0
"""Calls from which small kernels of one operator are many."""
_NOT_COMPUTING = ("communication", "copy")
_NAMED, _IN_LEAD = 60, 36


def largest_kernels(run: Run, *, rank: int, step: int | None = None, by: Grouping = "name", top: int = 20) -> pd.DataFrame:
    """The kernels that compute longest on a rank, in one step or in all.

    One row a group: `by`'s column, `type`, `core`, `count`, `total_ns`, `mean_ns`, `max_ns`, `share` (0 to 1 of the summed time
    of all computing kernels, which is more than the computing time where kernels run side by side). Largest first.
    """
    kernels = run.frame("kernels", ranks=[rank], steps=None if step is None else [step])
    return _totals(kernels[kernels["kind"] == "computing"], [by], {"type": "first", "core": "first"}, top)


def largest_collectives(run: Run, *, rank: int, step: int | None = None, top: int = 20) -> pd.DataFrame:
    """The communication of a rank that takes longest, in one step or in all.

    One row an operation and group: `operation`, `group`, `group_size`, `count`, `total_ns`, `mean_ns`, `max_ns`, `share`,
    `wait_ns` and `bytes` (null unless every call has them). Largest first.
    """
    calls = run.frame("collectives", ranks=[rank], steps=None if step is None else [step])
    keys = ["operation", "group", "group_size"]
    totals = _totals(calls, keys, {}, top)
    sums = calls.groupby(keys, observed=True, dropna=False)[["wait_ns", "bytes"]].sum(skipna=False)
    return totals.merge(sums.reset_index(), on=keys, how="left")


def kernel_ranks(run: Run) -> list[int]:
    """The ranks whose kernels were recorded; raises NotMeasuredError if none were."""
    if not run.has("kernels"):
        raise NotMeasuredError(
            f"kernels of {run.name}", how_to_collect="record a profile with device activities; page 10 writes the lines for it"
        )
    return sorted(int(rank) for rank in run.distinct("kernels", columns=["rank"])["rank"])


def core_choices(run: Run) -> list[tuple[str, str]]:
    """The units that kernels ran on, as label and value, after all that compute and all."""
    rows = run.frame("kernels", columns=["core", "kind"]).drop_duplicates().astype("object")
    cores = sorted({core_label(row["core"], row["kind"]) for row in rows.to_dict("records")})
    return [("all that compute", COMPUTING), ("all", ALL), *((core, core) for core in cores)]


def core_label(core: Any, kind: Any) -> str:
    """The unit that a kernel ran on, in words that hold for every device."""
    if kind in ("communication", "copy"):
        return str(kind)
    text = str(core).upper() if isinstance(core, str) else ""
    if "CPU" in text:
        return "AI CPU"
    if text.startswith("MIX"):
        return "mixed"
    if "VECTOR" in text or text.endswith("AIV"):
        return "vector"
    return "cube" if text.startswith(("AI_CORE", "AI_CUBE", "AIC")) else UNKNOWN


def operator_totals(run: Run, *, rank: int, by: Grouping = "name", core: str = COMPUTING) -> pd.DataFrame:
    """The kernels of a rank in all recorded steps: one row a `by`, the most time first.

    Columns: `name` (of the group), `type`, `core` (in the words of `core_label`), `count`, `total_ns`, `mean_ns`, `share` (of the
    kernels chosen, 0 to 1), `gain_without_ratio` (share s / (1 - s): what throughput gains at most without it). `core` chooses one
    unit, all that compute, or all. Raises InputError if there are no such kernels.
    """
    rows = run.frame("kernels", ranks=[rank], columns=["name", "type", "core", "kind", "duration_ns"])
    cores = [core_label(*pair) for pair in zip(rows["core"].astype("object"), rows["kind"].astype("object"), strict=True)]
    named = rows["name"].astype("object")
    types = rows["type"].astype("object").where(rows["type"].notna(), named)
    keys = {"name": named, "type": types, "core": pd.Series(cores, index=rows.index)}
    frame = pd.DataFrame({"name": keys[by], "type": types, "core": cores, "duration_ns": rows["duration_ns"]})
    if core == COMPUTING:
        frame = frame[~frame["core"].isin(_NOT_COMPUTING)]
    elif core != ALL:
        frame = frame[frame["core"] == core]
    if frame.empty:
        raise InputError("operators", [f"rank {rank} has no kernels of core {core!r}"])
    groups = frame.groupby("name", sort=False)
    table = groups.agg(
        type=("type", "first"), core=("core", "first"), count=("duration_ns", "size"), total_ns=("duration_ns", "sum")
    ).reset_index()
    table["mean_ns"] = (table["total_ns"] / table["count"]).round().astype("int64")
    table["share"] = table["total_ns"] / max(1, int(table["total_ns"].sum()))
    table["gain_without_ratio"] = (table["share"] / (1 - table["share"])).where(table["share"] < 1)
    return table.sort_values("total_ns", ascending=False, kind="stable", ignore_index=True)


def known(totals: pd.DataFrame) -> pd.DataFrame:
    """Totals by name without columns that tell nothing: types that are the names or not recorded, cores of which none is known."""
    if totals.empty or "name" not in totals:
        return totals
    names, types, cores = (totals[column].astype("object") for column in ("name", "type", "core"))
    told = {"type": types[types != names], "core": cores[cores != UNKNOWN]}
    shown = totals.drop(columns=[column for column, values in told.items() if values.isna().all()])
    return brief(shown, "name", "count", "total_ns", "mean_ns", "share")


def largest_told(totals: pd.DataFrame) -> tuple[str, ...]:
    """The operator that takes most and how many could be one, in a sentence, then its calls; `totals` is of `operator_totals`."""
    largest, small = totals.iloc[0], small_operators(totals, small_us=SMALL_US)["name"].tolist()
    others = len(small) - (largest["name"] in small)
    short = say("none is short and called often, so fusing gains little")
    if others:
        form = "1 other is short and called often: fuse it" if others == 1 else "{num} others are short and called often: fuse them"
        short = say(form, num=str(others))
    elif small:
        short = say("it is short and called often: fuse its calls")
    lead = "{name} takes {share} of operators' time; {short}."
    calls = "It takes {total_ns} in {calls} call." if largest["count"] == 1 else "It takes {total_ns} in {calls} calls."
    name, times = shortened(demangled(str(largest["name"])), _IN_LEAD), str(int(largest["count"]))
    return (
        say(lead, name=name, share=float(largest["share"]), short=short),
        say(calls, total_ns=int(largest["total_ns"]), calls=times),
    )


def won_told(name: str, factor: float, won: str) -> str:
    """The sentence `won` of a what-if with the operator that it asks about, by the name that people read."""
    operator = shortened(demangled(name), _IN_LEAD)
    return say("{operator}, {factor} times faster. {won}", operator=operator, factor=format_entry(factor), won=won)


def ran_told(kernels: pd.DataFrame, collectives: pd.DataFrame, by: Grouping = "name") -> str:
    """What a rank computed most and where it communicated most, in sentences; of `largest_kernels`, `largest_collectives`."""
    told = []
    if len(kernels):
        first = kernels.iloc[0]
        name = shortened(demangled(str(first[by])), _NAMED)
        told.append(say("It computed {name} most, for {total_ns}.", name=name, total_ns=int(first["total_ns"])))
    if len(collectives):
        first = collectives.iloc[0]
        group = "" if pd.isna(first["group"]) else shortened(str(first["group"]), _IN_LEAD)
        form = "It communicated most in group {group}: {operation}, {total_ns}."
        if not group:
            form = "It communicated most by {operation}, {total_ns}."
        told.append(say(form, operation=str(first["operation"]), group=group, total_ns=int(first["total_ns"])))
    return joined(told)


def small_operators(totals: pd.DataFrame, *, small_us: float) -> pd.DataFrame:
    """The rows of `operator_totals` that are short vector kernels called many times."""
    short = (totals["mean_ns"] < small_us * NS_PER_US) & totals["core"].isin(["vector", UNKNOWN]) & (totals["count"] >= MANY)
    return totals[short].reset_index(drop=True)


def small_told(totals: pd.DataFrame, *, small_us: float) -> list[str]:
    """Sentences on what is many and short, and on what runs on the device's CPU; `totals` is of `operator_totals`."""
    told = []
    small, slow = small_operators(totals, small_us=small_us), totals[totals["core"] == "AI CPU"]
    if len(small):
        calls, share, names = int(small["count"].sum()), float(small["share"].sum()), ", ".join(map(_named, small["name"].head(3)))
        told.append(
            f"{calls} calls are short vector kernels ({format_ratio(share)} of the time; {names}): a fused operator replaces many."
        )
    if len(slow):
        names = ", ".join(map(_named, slow["name"].head(3)))
        told.append(f"{names} run on the device's CPU: replace them, or change their type of data.")
    return told or [f"No operator is called {MANY} times or more for less than {format_entry(small_us)} µs."]


def _named(name: object) -> str:
    text = str(name)
    return text if len(text) <= _NAMED else f"{text[: _NAMED - 1]}…"


def _totals(rows: pd.DataFrame, keys: list[str], firsts: dict[str, str], top: int) -> pd.DataFrame:
    groups = rows.groupby(keys, observed=True, dropna=False)
    totals = groups.agg(
        **{name: (name, how) for name, how in firsts.items() if name not in keys},
        count=("duration_ns", "size"),
        total_ns=("duration_ns", "sum"),
        max_ns=("duration_ns", "max"),
    )
    totals = totals.reset_index().sort_values("total_ns", ascending=False, kind="stable", ignore_index=True)
    whole = totals["total_ns"].sum()
    totals["mean_ns"] = (totals["total_ns"] / totals["count"]).round().astype("int64")
    totals["share"] = totals["total_ns"] / whole if whole else 0.0
    return totals.head(top)
