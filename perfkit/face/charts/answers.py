"""Answers as pictures: what `.plot()` of a run's answer draws (`perfkit.core.answer`).

Where a page shows an answer it is that page's chart: kernels (operators), collectives and waiting (communication), memory (memory
profile). The others are bars of the longest rows, values over time, or lanes. At most `theme.MAX_MARKS` marks are drawn.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

import numpy as np
import pandas as pd

from perfkit.core.demangled import demangled
from perfkit.core.errors import InputError
from perfkit.core.questions import ASKED
from perfkit.core.shortening import shortened
from perfkit.core.units import GIGA, NS_PER_MS
from perfkit.explain.memory_use import curve_of
from perfkit.explain.operators import core_label
from perfkit.face.charts import communication, memory_profile, operators, plain, theme

TOP = 20
LABEL = 44
_Picture = Callable[[pd.DataFrame], Any]


def picture(answer: pd.DataFrame) -> Any:
    """The Altair chart of an answer; raises InputError if it has none, or if no row is left to draw."""
    question = answer.attrs.get(ASKED)
    draw = PICTURES.get(str(question))
    if draw is None:
        what = f"the answer to {question}" if question else "a frame that no question of a run gave"
        raise InputError("plot", [f"{what} has no picture; there are pictures of {', '.join(PICTURES)}"])
    if answer.empty:
        raise InputError("plot", [f"no row of {question} is left to draw"])
    return draw(answer)


def _steps(rows: pd.DataFrame) -> Any:
    """The longest steps of all ranks, in their order."""
    shown = rows.nlargest(TOP, "duration_ns").sort_values(["rank", "step"])
    names = ("computing", "exposed_communication", "bubble", "free")
    parts = {name.replace("_", " "): f"{name}_ns" for name in names if shown[f"{name}_ns"].notna().any()}
    labels = _series(shown, "rank", "step")
    return _bars(shown.assign(label=labels), "label", parts or {"step": "duration_ns"}, "step (ms)")


def _kernels(rows: pd.DataFrame) -> Any:
    shown = rows.head(TOP)
    cores = shown["core"] if "core" in shown else pd.Series([None] * len(shown), index=shown.index)
    labels = [core_label(core, kind) for core, kind in zip(cores, shown["kind"], strict=True)]
    frame = pd.DataFrame(shown).assign(name=shown[shown.columns[0]].astype("object"), core=labels)
    return operators.total_bars(operators.operator_rows(frame))


def _collectives(rows: pd.DataFrame) -> Any:
    points = communication.size_rows(rows)
    if points["calls"]:
        return communication.size_time(points)
    late = rows.assign(label=rows["name"].astype("object") + " of " + rows["group"].astype("object").fillna("all"))
    return _bars(late, "label", {"behind the first": "spread_ns"}, "arrival of the last behind the first (ms)")


def _waiting(rows: pd.DataFrame) -> Any:
    late = [(int(rank), str(why)) for rank, why in rows[["rank", "late"]].dropna().itertuples(index=False)]
    read = rows[rows["wait_ns"].notna()]
    bars = communication.wait_rows(read, late[0] if late else None, num_steps=int(rows["num_steps"].iloc[0]))
    return communication.wait_bars(bars)


def _memory(rows: pd.DataFrame) -> Any:
    return memory_profile.curve_chart(curve_of(pd.DataFrame(rows[rows["rank"] == rows["rank"].iloc[0]])))


def _idle(rows: pd.DataFrame) -> Any:
    sums = rows.groupby(["rank", "cause"], observed=True)["duration_ns"].sum().reset_index()
    bars = [
        {"label": f"rank {rank}", "value": took / NS_PER_MS, "part": str(cause), "detail": f"rank {rank}"}
        for rank, cause, took in sums.itertuples(index=False)
    ]
    return plain.ranked_bars({"bars": bars}, title="idle (ms)")


def _critical_path(rows: pd.DataFrame) -> Any:
    begin = int(rows["start_ns"].min())
    longest = rows.nlargest(theme.MAX_MARKS, "duration_ns").sort_values(["rank", "start_ns"])
    stretches = [
        {
            "label": f"rank {row['rank']}",
            "begin_ms": (int(row["start_ns"]) - begin) / NS_PER_MS,
            "end_ms": (int(row["start_ns"]) + int(row["duration_ns"]) - begin) / NS_PER_MS,
            "part": str(row["kind"]),
            "detail": str(row["name"])[:200],
        }
        for row in longest.to_dict("records")
    ]
    return plain.lanes({"stretches": stretches})


def _modules(rows: pd.DataFrame) -> Any:
    shown = rows.assign(other=rows["host_ns"] - rows["own_host_ns"]).nlargest(TOP, "host_ns")
    parts = {"own": "own_host_ns", "inner modules": "other"}
    return _bars(shown, "path", parts, "time of the host (ms)", short=lambda path: path.rpartition(" / ")[2])


def _bars(
    rows: pd.DataFrame,
    label: str,
    parts: Mapping[str, str],
    title: str,
    *,
    scale: float = NS_PER_MS,
    short: Callable[[str], str] = str,
) -> Any:
    """Bars of the first rows; equal short labels are numbered, so that they do not become one bar."""
    bars, seen = [], set[str]()
    for place, row in enumerate(rows.head(TOP).to_dict("records")):
        detail = str(row[label])[:400]
        name = shortened(short(demangled(detail)), LABEL)
        name = name if name not in seen else f"{place + 1}. {name}"
        seen.add(name)
        bars += [
            {"label": name, "value": float(row[column]) / scale, "part": part, "detail": detail}
            for part, column in parts.items()
            if not pd.isna(row[column])
        ]
    return plain.ranked_bars({"bars": bars}, title=title)


def _by_stream(rows: pd.DataFrame) -> Any:
    free = rows.assign(label=_series(rows, "rank", "stream"), unblocked=rows["full_ns"] - rows["blocked_ns"])
    return _bars(free, "label", {"blocked": "blocked_ns", "full": "unblocked"}, "time with a full queue (ms)")


def _counted(rows: pd.DataFrame) -> Any:
    """Of several counters the first."""
    shown = rows[rows["counter"] == rows["counter"].iloc[0]].sort_values("mean", ascending=False)
    return _bars(shown, str(shown.columns[0]), {"mean of a call": "mean"}, str(shown["counter"].iloc[0]), scale=1.0)


def _changes(rows: pd.DataFrame) -> Any:
    moved = rows.assign(change_ns=rows["total_b_ns"] - rows["total_a_ns"])
    bars = [
        {"label": name, "value": took / NS_PER_MS, "part": change, "detail": f"{where}: {name}"}
        for where, name, change, took in moved.head(TOP)[["where", "name", "change", "change_ns"]].itertuples(index=False)
    ]
    return plain.ranked_bars({"bars": bars}, title="b - a, a step and rank (ms)")


def _loads(rows: pd.DataFrame) -> Any:
    known = next((name for name in ("tokens_ratio", "matmul_ratio", "exchanged_ratio") if rows[name].notna().any()), None)
    if known is None:
        return _bars(rows.assign(label=_series(rows, "rank")), "label", {"exchange": "exchange_ns"}, "all-to-all (ms)")
    return _bars(rows.assign(label=_series(rows, "rank")), "label", {known: known}, "over the mean of the group", scale=1.0)


def _over_time(rows: pd.DataFrame, value: str, series: tuple[str, ...], title: str, scale: float = 1.0) -> Any:
    """The values of each series over time; of many the largest of each part of the time."""
    names = _series(rows, *series)
    times = rows["time_ns"].to_numpy(dtype=np.int64)
    begin, span = int(times.min()), max(int(times.max()) - int(times.min()), 1)
    parts = max(theme.MAX_MARKS // max(names.nunique(), 1), 2)
    table = pd.DataFrame(
        {"part": names.to_numpy(), "time_ns": times, "value": rows[value].to_numpy(dtype=np.float64) / scale}
    ).sort_values("value", ascending=False, kind="stable")
    table["bucket"] = (table["time_ns"] - begin) * (parts - 1) // span if len(table) > theme.MAX_MARKS else table["time_ns"]
    kept = table.drop_duplicates(["part", "bucket"]).sort_values(["part", "time_ns"])
    steps = [
        {"ms": (time - begin) / NS_PER_MS, "value": value, "part": part}
        for part, time, value in kept[["part", "time_ns", "value"]].itertuples(index=False)
    ]
    return plain.time_steps({"steps": steps}, title=title)


def _series(rows: pd.DataFrame, *columns: str) -> pd.Series:
    """One text a row: what it is of; the rank only where there are several."""
    shown = [name for name in columns if name != "rank" or rows["rank"].nunique() > 1 or columns == ("rank",)]
    texts = [(f"{name} " if name in ("rank", "step", "stream") else "") + rows[name].astype("object").astype(str) for name in shown]
    joined = texts[0]
    for text in texts[1:]:
        joined = joined + ", " + text
    return joined


PICTURES: Mapping[str, _Picture] = MappingProxyType(
    {
        "steps": _steps,
        "kernels": _kernels,
        "collectives": _collectives,
        "waiting": _waiting,
        "idle": _idle,
        "critical_path": _critical_path,
        "queue_length": lambda rows: _over_time(rows, "length", ("rank", "stream"), "launched and not begun"),
        "full_queue": _by_stream,
        "modules": _modules,
        "kernel_sequences": lambda rows: _bars(rows, "sequence", {"on the device": "device_ns"}, "on the device (ms)"),
        "kernel_counters": _counted,
        "host_calls": lambda rows: _bars(rows, "name", {"in the call": "total_ns"}, "in the call (ms)"),
        "copies": lambda rows: _bars(rows, "name", {"copying": "total_ns"}, "copying (ms)"),
        "copy_bandwidth": lambda rows: _over_time(rows, "bytes_per_s", ("rank", "kind"), "GB/s", GIGA),
        "frequency": lambda rows: _over_time(rows, "frequency_mhz", ("rank", "name"), "MHz"),
        "expert_load": _loads,
        "memory": _memory,
        "counters": lambda rows: _over_time(rows, "value", ("rank", "name"), "value in the unit of the counter"),
        "compare_names": _changes,
    }
)
"""What draws the answer to each question; `sql` has no picture."""
