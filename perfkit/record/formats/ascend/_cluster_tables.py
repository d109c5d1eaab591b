"""Tables of a cluster analysis, whether it was written as text or as a database: groups, steps of all ranks, collectives.

Rows of type `rank` are steps of a rank; rows of type `stage` are maxima over the ranks of a stage, column by column, so their parts
do not add up and only their order and their ranks are used: stages follow one another in the pipeline.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import pandas as pd

from perfkit.core.placement import members_text
from perfkit.core.run import Position
from perfkit.record import store
from perfkit.record.format import Sink
from perfkit.record.formats.ascend import steps as _ascend_steps
from perfkit.record.formats.ascend._layout import placement, rank_list
from perfkit.record.formats.ascend.communication import Operation, is_rank
from perfkit.record.listing import File
from perfkit.record.readers.kinds import operation_of
from perfkit.record.steps import add_summary_steps

COLUMNS: dict[str, store.Cell] = {
    **_ascend_steps.COLUMNS,
    "Type": "text",
    "Index": "text",
    "DP Index": "int",
    "PP Index": "int",
    "TP Index": "int",
}
_NUMBER = re.compile(r"\b\d{1,6}\b")


class Layout:
    """What the files say about groups: their ranks by hash, the stages in order, and the groups by name."""

    def __init__(self) -> None:
        self.members: dict[str, tuple[int, ...]] = {}
        self.ordered_stages: list[tuple[int, ...]] = []
        self.named: list[tuple[str, tuple[int, ...]]] = []

    def stages(self) -> dict[int, int]:
        """The pipeline stage of every rank that a stage names; the first one counts."""
        stages: dict[int, int] = {}
        for stage, members in enumerate(self.ordered_stages):
            for rank in members:
                stages.setdefault(rank, stage)
        return stages


def add_groups(lists: Mapping[str, list[tuple[int, ...]]], groups: Layout, file: File, sink: Sink) -> set[int]:
    """Add the placement that groups tell, which are listed as "collective" and "p2p" and perhaps named; gives their ranks."""
    stages = sorted(lists["p2p"], key=min)
    if len(stages) > 1 and len({rank for stage in stages for rank in stage}) == sum(map(len, stages)):
        groups.ordered_stages = [tuple(sorted(stage)) for stage in stages]
    ranks = {rank for members in (*lists["collective"], *lists["p2p"], *groups.members.values()) for rank in members}
    for name, fact in (("tp", "tensor"), ("pp", "pipeline"), ("dp", "data"), ("cp", "context")):
        sizes = {len(members) for kind, members in groups.named if kind == name}
        if len(sizes) == 1:
            sink.fact(f"{fact}_parallel_size", sizes.pop(), f"{file.label}: ranks of the groups named {name}")
    sink.placement.update(placement(groups.named, ranks, sink.facts))
    _add_members(groups, sink)
    if not groups.named and not groups.ordered_stages:
        sink.note(f"{file.label} lists {len(lists['collective'])} groups, but no names of theirs and no pipeline stages")
    return ranks


def _add_members(groups: Layout, sink: Sink) -> None:
    labels = {members: name for name, members in groups.named}
    hashes = {members: group for group, members in groups.members.items()}
    for members in dict.fromkeys([*hashes, *labels]):
        if members:
            sink.add(
                "groups",
                rank=list(members),
                group=hashes.get(members),
                label=labels.get(members),
                members=members_text(members),
            )


def add_steps(frame: pd.DataFrame, where: str, groups: Layout, file: File, sink: Sink) -> tuple[set[int], int, bool]:
    """Add the rows of type rank with the `COLUMNS`; gives the ranks, the rows kept, and whether none was refused."""
    stage_rows = frame[frame["Type"] == "stage"]
    if len(stage_rows):
        first = stage_rows[stage_rows["Step"].fillna("") == stage_rows["Step"].fillna("").iloc[0]]
        groups.ordered_stages = [ranks_in(str(text)) for text in first["Index"]]
        sink.fact("pipeline_parallel_size", len(first), f"{file.label}: rows of type stage")
    of_ranks = frame[(frame["Type"] == "rank") & frame["Index"].str.fullmatch(r"\d{1,6}", na=False)]
    sink.drop("row that is neither of a rank nor of a stage", len(frame) - len(stage_rows) - len(of_ranks), file)
    ranks = of_ranks["Index"].astype("int64")
    for rank, data, pipeline, tensor in zip(ranks, *(of_ranks[f"{name} Index"] for name in ("DP", "PP", "TP")), strict=True):
        if not (pd.isna(data) and pd.isna(pipeline) and pd.isna(tensor)):
            sink.placement[int(rank)] = Position(data=_int(data), pipeline=_int(pipeline), tensor=_int(tensor))
    stages = {**groups.stages(), **{rank: at.pipeline for rank, at in sink.placement.items() if at.pipeline is not None}}
    steps = _ascend_steps.summary(of_ranks).assign(rank=ranks, pipeline_stage=ranks.map(stages).astype("Int64"))
    _ascend_steps.check_sums(sink, steps, where)
    kept = add_summary_steps(sink, steps, file)
    absent = set(groups.stages()) - {int(rank) for rank in ranks}
    if absent:
        sink.note(f"{file.label} has no row of {rank_list(absent)}, though a pipeline stage names them")
    return {int(rank) for rank in ranks}, len(kept), len(kept) == len(of_ranks)


def add_collectives(found: list[tuple[str, Operation]], groups: Layout, file: File, sink: Sink) -> None:
    """Add operations, each with the text of its group, such as "(0, 1, 2)" or "p2p"."""
    if not found:
        return
    members = {text: ranks_in(text) for text, _ in found if text != "p2p"}
    sizes = [len(groups.members.get(item.group or "", members.get(text, ()))) or None for text, item in found]
    sink.add(
        "collectives",
        source=file,
        rank=[item.rank for _, item in found],
        step=[item.step for _, item in found],
        name=[item.name for _, item in found],
        operation=[operation_of(item.name) for _, item in found],
        group=[item.group or text for text, item in found],
        group_size=sizes,
        start_ns=[item.start_ns for _, item in found],
        duration_ns=[item.duration_ns for _, item in found],
        transit_ns=[item.transit_ns for _, item in found],
        wait_ns=[item.wait_ns for _, item in found],
        bytes=[item.size_bytes for _, item in found],
    )


def _int(value: Any) -> int | None:
    return None if pd.isna(value) or not is_rank(int(value)) else int(value)


def ranks_in(text: str) -> tuple[int, ...]:
    """The ranks of a text such as "(0, 1, 2)"."""
    return tuple(int(rank) for rank in _NUMBER.findall(text))
