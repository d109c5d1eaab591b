"""Cluster analysis: the folder cluster_analysis_output, in which Ascend's cluster tool sums up all ranks of a run.

cluster_step_trace_time.csv has rows of type `rank` and `stage`; a stage row is the maximum over its ranks column by column, so its
parts do not add up and only its order and its ranks are used: stages follow one another in the pipeline. The JSON files hold
{"p2p" or ranks of the group: {step: {operation: {rank or "source-target": ...}}}}. Any of the files may be missing. In `links`,
"Total Op Info" sums up the other operations of its group: add either those or the rest.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from perfkit.core.errors import InputError
from perfkit.core.run import Position
from perfkit.record import store
from perfkit.record.format import Format, Match, Sink
from perfkit.record.formats.ascend import steps as _ascend_steps
from perfkit.record.formats.ascend._cluster_tables import COLUMNS, Layout, add_collectives, add_groups, add_steps
from perfkit.record.formats.ascend.communication import (
    TOTAL,
    Losses,
    Operation,
    add_links,
    entries,
    is_rank,
    link,
    operation,
    step_number,
)
from perfkit.record.formats.ascend.json import read_json
from perfkit.record.listing import File, Listing

STEPS, COLLECTIVES, LINKS, GROUPS = (
    "cluster_step_trace_time.csv",
    "cluster_communication.json",
    "cluster_communication_matrix.json",
    "communication_group.json",
)
PARTS = {STEPS: "step times", COLLECTIVES: "collectives", LINKS: "links", GROUPS: "layout"}


def detect(listing: Listing) -> Match | None:
    """The folder that has most of the four files; a folder is not recognised by its own name."""
    folders: dict[str, dict[str, File]] = {}
    for file in listing.named(*PARTS):
        folders.setdefault(str(file.path.parent), {})[file.name] = file
    if not folders:
        return None
    best = max(folders.values(), key=len)
    return Match(files=tuple(best.values()), details=(best, len(folders)))


def read(match: Match, sink: Sink) -> None:
    """Read what is there; a file that cannot be read is counted in `dropped` and shown as partial in `coverage`."""
    files: dict[str, File] = match.details[0]
    if match.details[1] > 1:
        sink.note(f"{match.details[1]} cluster analyses were found; the one with {match.files[0].label} was read")
    rows: dict[str, int] = {}
    states: dict[str, str] = {}
    ranks: set[int] = set()
    groups = Layout()
    for name, load in ((GROUPS, _read_groups), (STEPS, _read_steps), (COLLECTIVES, _read_collectives), (LINKS, _read_links)):
        if (file := files.get(name)) is None:
            states[name] = "missing"
            continue
        try:
            found, rows[name], whole = load(file, groups, sink)
            ranks |= found
            states[name] = "present" if whole else "partial"
        except InputError as error:
            sink.drop("; ".join(error.problems), 1, file)
            states[name] = "partial" if file.size_bytes else "empty"
        sink.advance(file.label, file.size_bytes)
    for rank, stage in groups.stages().items():
        ranks.add(rank)
        sink.placement.setdefault(rank, Position(pipeline=stage))
    _add_coverage(sink, sorted(ranks), files, rows, states)


def _add_coverage(
    sink: Sink, ranks: list[int], files: Mapping[str, File], rows: Mapping[str, int], states: Mapping[str, str]
) -> None:
    pairs = [(rank, name) for rank in ranks for name in PARTS]
    if pairs:
        sink.add(
            "coverage",
            rank=[rank for rank, _ in pairs],
            part=[PARTS[name] for _, name in pairs],
            state=[states[name] for _, name in pairs],
            file=[files[name].label if name in files else None for _, name in pairs],
            bytes=[files[name].size_bytes if name in files else None for _, name in pairs],
            rows=[rows.get(name) for _, name in pairs],
        )


def _read_groups(file: File, groups: Layout, sink: Sink) -> tuple[set[int], int, bool]:
    content, dropped_bytes = read_json(file, depth=2)
    sink.drop("bytes after the break of a cut file", dropped_bytes, file)
    if not isinstance(content, Mapping):
        raise InputError(file.label, ["is no JSON object"])
    described = content.get("comm_group_parallel_info")
    for group in described if isinstance(described, list) else ():
        members = _ranks(group.get("rank_set")) if isinstance(group, Mapping) else ()
        if members and isinstance(group.get("group_name"), str) and group["group_name"]:
            groups.members[group["group_name"]] = members
            if isinstance(group.get("pg_name"), str):
                groups.named.append((group["pg_name"], members))
    lists = {kind: [members for entry in content.get(kind) or () if (members := _ranks(entry))] for kind in ("collective", "p2p")}
    ranks = add_groups(lists, groups, file, sink)
    return ranks, len(lists["collective"]) + len(lists["p2p"]), not dropped_bytes


def _ranks(value: Any) -> tuple[int, ...]:
    return tuple(value) if isinstance(value, list) and all(map(is_rank, value)) else ()


def _read_steps(file: File, groups: Layout, sink: Sink) -> tuple[set[int], int, bool]:
    csv = store.read_csv(file, COLUMNS, required=("Type", "Index", *_ascend_steps.REQUIRED))
    for what, count in csv.losses().items():
        sink.drop(what, count, file)
    ranks, kept, whole = add_steps(csv.frame, STEPS, groups, file, sink)
    return ranks, kept, whole and not csv.losses()


def _operations(content: Any, losses: Losses) -> Iterator[tuple[str, int, str, str, Any]]:
    """Every (group text, step, operation, rank or link, blocks) of a file."""
    for group, steps in entries(content, losses):
        for step, operations in entries(steps, losses):
            for name, parts in entries(operations, losses):
                for key, info in entries(parts, losses):
                    yield group, step_number(step), name, key, info


def _read_collectives(file: File, groups: Layout, sink: Sink) -> tuple[set[int], int, bool]:
    content, dropped_bytes = read_json(file, depth=4)
    sink.drop("bytes after the break of a cut file", dropped_bytes, file)
    losses = Losses()
    found: list[tuple[str, Operation]] = []
    for text, step, name, key, info in _operations(content, losses):
        if name == TOTAL:
            continue
        if not re.fullmatch(r"\d{1,6}", key):
            losses.add("operation of something that is no rank")
        elif (read := operation(int(key), step, name, info, losses)) is not None:
            found.append((text, read))
    for what, count in losses.counts.items():
        sink.drop(what, count, file)
    add_collectives(found, groups, file, sink)
    return {item.rank for _, item in found}, len(found), not dropped_bytes and not losses.counts


def _read_links(file: File, groups: Layout, sink: Sink) -> tuple[set[int], int, bool]:
    content, dropped_bytes = read_json(file, depth=4)
    sink.drop("bytes after the break of a cut file", dropped_bytes, file)
    losses = Losses()
    found = [
        read
        for _, step, name, key, info in _operations(content, losses)
        if (read := link(step, name, key, info, losses)) is not None
    ]
    for what, count in losses.counts.items():
        sink.drop(what, count, file)
    add_links(sink, found, file)
    return {item.rank for item in found}, len(found), not dropped_bytes and not losses.counts


FORMAT = Format(
    name="cluster-analysis",
    title="Ascend cluster analysis",
    looks_for=", ".join(PARTS),
    detail=2,
    detect=detect,
    read=read,
)
