"""Arrows of a timeline: from a launch to its kernel, between the members of a collective, from a send to its receive."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import pandas as pd

from perfkit.core.clock import Clock
from perfkit.face.widgets.timelines.data import Timeline, Unit
from perfkit.face.widgets.timelines.events import cells, column, placed
from perfkit.record.events.graph import causal_graph

MAX_ARROWS = 400
MAX_OF_SLICE = 60


@dataclass(frozen=True, kw_only=True, slots=True)
class End:
    """One end of an arrow: a moment on the common clock, on the thread or stream that is called so."""

    rank: int
    process: str
    thread: str
    start_ns: int
    name: str


Link = tuple[str, End, End]


def arrows(timeline: Timeline, links: Sequence[Link]) -> list[dict[str, Any]]:
    """Links as the page draws them, `from` and `to` as (unit, lane, ns from the base), where the units of both ends are open."""
    units = {(unit.rank, unit.process, unit.thread): unit for unit in timeline.units}
    by_unit: dict[int, list[End]] = {}
    for _, *ends in links:
        for end in ends:
            if (unit := units.get((end.rank, end.process, end.thread))) is not None:
                by_unit.setdefault(unit.id, []).append(end)
    lanes: dict[End, tuple[int, int]] = {}
    for number, ends in by_unit.items():
        found = placed(timeline.units[number], [end.start_ns for end in ends], [end.name for end in ends])
        lanes.update({end: (number, lane) for end, lane in zip(ends, found, strict=True) if lane is not None})
    return [
        {"kind": kind, "from": [*lanes[a], timeline.offset(a.start_ns)], "to": [*lanes[b], timeline.offset(b.start_ns)]}
        for kind, a, b in links
        if a in lanes and b in lanes
    ]


def launch_links(timeline: Timeline, rank: int, start_ns: int, end_ns: int, *, side: str, limit: int) -> tuple[list[Link], int]:
    """Launches whose kernel (`side` "start_ns"), call ("launch_ns") or either ("any") begins in a window, and how many do."""
    run, shift = timeline.run, timeline.run.clock.get(rank, 0)
    if "launches" not in run.tables:
        return [], 0
    inside = [
        column(run, "launches", rank, name).between(start_ns - shift, end_ns - shift, inclusive="left").fillna(False).to_numpy(bool)
        for name in (("start_ns", "launch_ns") if side == "any" else (side,))
    ]
    linked = column(run, "launches", rank, "launch_ns").notna().to_numpy(bool)
    timed = column(run, "launches", rank, "start_ns").notna().to_numpy(bool)
    positions = np.flatnonzero(np.logical_or.reduce(inside) & linked & timed)
    total = len(positions)
    if total > limit:
        positions = positions[np.linspace(0, total - 1, limit).astype(np.int64)]
    rows = cells(run, "launches", rank, positions, ["name", "stream", "start_ns", "call", "thread", "launch_ns"])
    return [_launch(rank, shift, row) for row in rows.to_dict("records")], total


def _launch(rank: int, shift: int, row: Mapping[Any, Any]) -> Link:
    call = End(
        rank=rank, process="host", thread=_text(row["thread"]), start_ns=int(row["launch_ns"]) + shift, name=_text(row["call"])
    )
    kernel = End(
        rank=rank, process="device", thread=_text(row["stream"]), start_ns=int(row["start_ns"]) + shift, name=_text(row["name"])
    )
    return "launch", call, kernel


def _text(value: object) -> str:
    return "" if pd.isna(value) else str(value)  # type: ignore[call-overload]


def members(timeline: Timeline) -> pd.DataFrame:
    """The members of all collectives on the clock on which the lanes are drawn, without those whose start is not known."""
    run = timeline.run
    if not run.has("collectives"):
        return causal_graph(run).members(ranks=[], clocks={})
    clocks = {rank: Clock(rank, -shift, 0.0, 0, 0.0, 0.0, 0) for rank, shift in run.clock.items()}
    rows = causal_graph(run).members(clocks=clocks, tasks=False)  # which are in the timelines of all ranks
    return rows[rows["start_ns"].notna().to_numpy(bool)]


def collective_links(timeline: Timeline, rows: pd.DataFrame) -> list[Link]:
    """One arrow from each member of an operation to the next rank's; `rows` are members of whole operations."""
    ends = dict(zip(rows.index, _ends(timeline, rows), strict=True))
    links: list[Link] = []
    for _, group in rows.groupby("instance", sort=True):
        turn = {"send": 0, "receive": 1}
        ordered = sorted(group.to_dict("index").items(), key=lambda item: (turn.get(item[1]["operation"], 0), item[1]["rank"]))
        kind = "send" if any(row["operation"] in turn for _, row in ordered) else "collective"
        links += [(kind, ends[a], ends[b]) for (a, _), (b, _) in pairwise(ordered)]
    return links


def _ends(timeline: Timeline, rows: pd.DataFrame) -> Iterable[End]:
    """Where each member is drawn: on the stream of its kernel, or on the lane of its group where no kernels are recorded."""
    streams: dict[tuple[int, int], str] = {}
    drawn_as: dict[int, str] = {}
    for rank in {int(rank) for rank in rows["rank"]}:
        processes = {unit.process for unit in timeline.units if unit.rank == rank}
        drawn_as[rank] = "device" if "device" in processes else "communication"
        if "device" in processes:
            streams |= _streams(timeline, rank, rows.loc[rows["rank"] == rank, "start_ns"])
    for row in rows.to_dict("records"):
        rank, start_ns = int(row["rank"]), int(row["start_ns"])
        thread = streams.get((rank, start_ns), "") if drawn_as[rank] == "device" else _text(row["group"])
        yield End(rank=rank, process=drawn_as[rank], thread=thread, start_ns=start_ns, name=_text(row["name"]))


def _streams(timeline: Timeline, rank: int, starts: pd.Series) -> dict[tuple[int, int], str]:
    run, shift = timeline.run, timeline.run.clock.get(rank, 0)
    recorded = column(run, "kernels", rank, "start_ns")
    wanted = starts.astype("int64") - shift
    found = cells(
        run, "kernels", rank, np.flatnonzero(recorded.isin(wanted.tolist()).to_numpy(bool)), ["start_ns", "stream", "kind"]
    )
    ordered = sorted(found.to_dict("records"), key=lambda row: row["kind"] == "communication")
    return {(rank, int(row["start_ns"]) + shift): _text(row["stream"]) for row in ordered}


def of_slice(timeline: Timeline, unit: Unit, start_ns: int, end_ns: int, known: pd.DataFrame) -> list[Link]:
    """The arrows of one event: what it launched or what launched it, and its fellow members if it is a collective."""
    if unit.process == "host":
        links, _ = launch_links(timeline, unit.rank, start_ns, end_ns, side="launch_ns", limit=MAX_OF_SLICE)
        return [link for link in links if link[1].thread == unit.thread]
    links, _ = launch_links(timeline, unit.rank, start_ns, start_ns + 1, side="start_ns", limit=MAX_OF_SLICE)
    links = [link for link in links if link[2].thread == unit.thread]
    mine = known.loc[(known["rank"] == unit.rank) & (known["start_ns"] == start_ns), "instance"]
    return [*links, *collective_links(timeline, known[known["instance"].isin(mine)])]


def of_window(timeline: Timeline, start_ns: int, end_ns: int, known: pd.DataFrame) -> tuple[list[Link], int]:
    """All arrows with an end in a window, evenly thinned to `MAX_ARROWS`, and how many there are."""
    touching = known[(known["start_ns"] < end_ns) & (known["start_ns"] + known["duration_ns"] > start_ns)]["instance"].unique()
    links = collective_links(timeline, known[known["instance"].isin(touching[:MAX_ARROWS])])
    total = len(links) + max(0, len(touching) - MAX_ARROWS)
    for rank in sorted(timeline.opened):
        more, count = launch_links(timeline, rank, start_ns, end_ns, side="any", limit=MAX_ARROWS)
        links, total = links + more, total + count
    kept = links if len(links) <= MAX_ARROWS else [links[at] for at in np.linspace(0, len(links) - 1, MAX_ARROWS).astype(int)]
    return kept, total
