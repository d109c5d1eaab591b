"""Cluster rows: the data sets of the pictures of a cluster, from steps, links and placement of a run."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict

import pandas as pd

from perfkit.core import placement
from perfkit.core.run import Position, Run
from perfkit.core.units import NS_PER_MS, format_ns, format_si, significant
from perfkit.explain.cluster import RankComparison
from perfkit.explain.stragglers import stage_name
from perfkit.face.charts import theme
from perfkit.face.charts.cluster import RELATIONS, Rows

NODE_SIZE = 8


def node_of(rank: int, position: Position | None) -> int:
    """The node of a rank; nodes of eight in the order of the ranks where the run does not say."""
    return position.node if position is not None and position.node is not None else rank // NODE_SIZE


def place_note(position: Position | None) -> str:
    """Where a rank stands, in words."""
    known = {} if position is None else {name: at for name, at in asdict(position).items() if at is not None}
    return ", ".join(f"{name} {at}" for name, at in known.items()) or "not known"


def places(ranks: Sequence[int], rows_of: Mapping[int, str]) -> dict[int, tuple[int, str]]:
    """For every rank its place (0, 1, ...) within its row, and the row."""
    counts: dict[str, int] = {}
    found = {}
    for rank in sorted(ranks):
        row = rows_of[rank]
        found[rank] = (counts.get(row, 0), row)
        counts[row] = counts.get(row, 0) + 1
    return found


def grid_rows(ranks: RankComparison, run: Run, *, axes: str, scale: str) -> Rows:
    """The data set of `rank_grid`; above 5 000 ranks those that are furthest from their stage."""
    table = ranks.table
    positions = placement.positions(run)
    rows_of = {
        int(row["rank"]): stage_name(int(row["stage"]))
        if axes == "stage"
        else str(node_of(int(row["rank"]), positions.get(int(row["rank"]))))
        for row in table.to_dict("records")
    }
    where = places(list(rows_of), rows_of)
    largest = max(1, int(table["value_ns"].max()))
    cells = []
    for row in (
        table.loc[(table["over_stage"] - 1).abs().sort_values(ascending=False).index].head(theme.MAX_MARKS).to_dict("records")
    ):
        rank = int(row["rank"])
        value = {"ms": row["value_ns"] / NS_PER_MS, "max": row["value_ns"] / largest, "median": row["over_stage"] - 1}[scale]
        place, in_row = where[rank]
        cells.append(
            {
                "rank": rank,
                "place": place,
                "row": in_row,
                "value": None if pd.isna(value) else float(value),
                "shown": f"{format_ns(row['value_ns'])}, {significant(row['over_stage'], 4)} × its stage's median",
                "note": place_note(positions.get(rank)),
            }
        )
    return {"grid": sorted(cells, key=lambda cell: (_as_number(cell["row"]), cell["place"]))}


def dot_rows(ranks: RankComparison, slow: Sequence[int]) -> Rows:
    """The data sets of `stage_dots`; `slow` are the ranks that the rule names."""
    ordered = ranks.table.sort_values(["stage", "rank"])
    dots = [
        {
            "rank": int(row["rank"]),
            "stage": stage_name(int(row["stage"])),
            "value_ms": row["value_ns"] / NS_PER_MS,
            "state": "slow rank" if row["rank"] in slow else "stands out" if row["stands_out"] else "like its stage",
            "over_stage": None if pd.isna(row["over_stage"]) else float(row["over_stage"]),
            "z": None if pd.isna(row["z"]) else float(row["z"]),
        }
        for row in ordered.to_dict("records")
    ]
    shown = sorted(dots, key=lambda dot: dot["state"] == "like its stage")[: theme.MAX_MARKS]
    bands = []
    for stage, rows in ordered.groupby("stage"):
        median = float(rows["stage_median_ns"].iloc[0]) / NS_PER_MS
        factor = math.exp(ranks.band or 0.0)
        bands.append(
            {"stage": stage_name(int(str(stage))), "median_ms": median, "low_ms": median / factor, "high_ms": median * factor}
        )
    return {"ranks": sorted(shown, key=lambda dot: (_as_number(dot["stage"]), dot["rank"])), "bands": bands}


def flops_rows(table: pd.DataFrame) -> Rows:
    """The data set of `flops_map` from `explain.rank_flops.flops_by_rank`."""
    found = []
    shown = table.head(theme.MAX_MARKS // 3)
    for metric, column in (("FLOPs", "flops"), ("FLOP/s", "flops_per_s"), ("computing time", "computing_ns")):
        values = shown[column].astype("float64")
        for rank, value in zip(shown["rank"], values, strict=True):
            known = not pd.isna(value)
            text = format_ns(value) if column == "computing_ns" else format_si(value, metric) if known else ""
            found.append(
                {
                    "rank": int(rank),
                    "metric": metric,
                    "over_mean": float(value / values.mean() - 1) if known else None,
                    "shown": text if known else "not measured",
                }
            )
    return {"flops": found}


def layout_axis(run: Run) -> str:
    """What the rows of a layout are: "stage", or "node" where no stage is known."""
    return "stage" if any(position.pipeline is not None for position in placement.positions(run).values()) else "node"


def layout_rows(run: Run, chosen: int) -> Rows:
    """The data set of `layout_map`: rows by `layout_axis`, relation to the chosen rank by its groups."""
    positions, staged = placement.positions(run), layout_axis(run) == "stage"
    rows_of = {
        rank: str(positions[rank].pipeline)
        if staged and rank in positions and positions[rank].pipeline is not None
        else str(node_of(rank, positions.get(rank)))
        for rank in run.ranks
    }
    shared: dict[int, str] = {}
    order = list(RELATIONS)
    for group in placement.groups(run):
        if chosen in group.members and group.dimension in RELATIONS:
            for rank in group.members:
                if rank not in shared or order.index(group.dimension) < order.index(shared[rank]):
                    shared[rank] = group.dimension
    where = places(run.ranks, rows_of)
    cells = [
        {
            "rank": rank,
            "place": place,
            "row": row,
            "relation": "chosen" if rank == chosen else shared.get(rank, "other"),
            "note": place_note(positions.get(rank)),
        }
        for rank, (place, row) in sorted(where.items(), key=lambda item: (_as_number(item[1][1]), item[1][0]))
    ]
    return {"layout": cells[: theme.MAX_MARKS]}


def _as_number(text: str) -> float:
    return float(text) if text.lstrip("-").isdigit() else -1.0
