"""Recordings of Ascend ranks: what was read of each one, and the tables that follow from it, whatever files it came from.

Files are known by what they answer (STEPS, KERNELS, COLLECTIVES, LINKS), so that text and database output end in equal tables.
"""

from __future__ import annotations

import itertools
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pandas as pd

from perfkit.core.placement import members_text
from perfkit.record.format import Sink, stacked
from perfkit.record.formats.ascend import _layout
from perfkit.record.formats.ascend import steps as _ascend_steps
from perfkit.record.formats.ascend._collectives import as_table, matched, told_of, unmatched
from perfkit.record.formats.ascend.communication import Link, Operation, add_links
from perfkit.record.formats.ascend.folders import COLLECTIVES, KERNELS, LINKS, STEPS, Rank
from perfkit.record.listing import File
from perfkit.record.placing import account_of, spans_of
from perfkit.record.steps import Window, add_summary_steps, add_window_steps, windows_until


@dataclass(frozen=True, slots=True)
class Names:
    """What a user calls the sources of the steps, the kernels and the links."""

    steps: str = STEPS
    kernels: str = KERNELS
    links: str = LINKS
    collectives: str = COLLECTIVES


TEXT_NAMES = Names()


@dataclass
class Recording:
    """What was read of one rank: steps of the summary file, kernels, operations, links; `rows` read and files `cut`, by name.

    `lost` counts executions of a database that could not be read.

    `keys` has the numbers of each kernel of a database: `connection` leads to its launch, `task` to its counters.
    """

    rank: Rank
    stage: int | None
    steps: pd.DataFrame | None = None
    kernels: pd.DataFrame | None = None
    keys: pd.DataFrame | None = None
    operations: list[Operation] = field(default_factory=list)
    links: list[Link] = field(default_factory=list)
    rows: dict[str, int] = field(default_factory=dict)
    cut: set[str] = field(default_factory=set)
    lost: int = 0


def add_kernels(recording: Recording, kernels: pd.DataFrame, source: File, sink: Sink, *, lost: int) -> None:
    """Add the kernels of a rank, of which `lost` rows could not be read.

    Those of a recording without a schedule are one step, numbered by its summary if that has one.
    """
    if kernels["step"].isna().all():
        numbers = set() if recording.steps is None else {int(step) for step in recording.steps["step"]}
        kernels["step"] = kernels["step"].fillna(numbers.pop() if len(numbers) == 1 else 0)
    recording.kernels = kernels
    columns: dict[str, Any] = {name: kernels[name] for name in kernels.columns}
    recording.rows[KERNELS] = sink.add("kernels", source=source, **columns)
    sink.account(recording.rank.rank, source, account_of(kernels, lost))


def add_steps(recordings: Sequence[Recording], sink: Sink, names: Names = TEXT_NAMES) -> None:
    """Add the steps of the summaries, and from the kernels those that they do not tell.

    Where nothing of the summaries is lost, those of all ranks are added at once: one by one they take ten times as long.
    """
    spans = {recording.rank.rank: spans_of(recording.kernels) for recording in recordings}
    told = [
        (recording, _with_starts(recording.steps, spans[recording.rank.rank]))
        for recording in recordings
        if recording.steps is not None
    ]
    at_once = len(told) > 1 and _added_at_once(told, sink)
    for recording, rows in told:
        recording.steps = rows if at_once else add_summary_steps(sink, rows, recording.rank.source.files[STEPS])
        if len(recording.steps) < len(rows):
            recording.cut.add(STEPS)
    for recording in recordings:
        _add_left(recording, spans[recording.rank.rank], sink, names)


def _with_starts(summary: pd.DataFrame, spans: list[Window]) -> pd.DataFrame:
    """The steps of a summary with their starts: of those in a row so that none is over the next, else that of the first kernel.

    Steps in a row leave no gap between them, so all starts follow from one. The earliest is taken at which each lasts until
    its last kernel has ended: what a device waits before its first kernel is then in the step that the summary counts it in.
    """
    windows = {window.step: window for window in spans}
    starts = {step: window.start_ns for step, window in windows.items()}
    whole = summary["computing"] + summary["exposed"] + summary["free"]
    lengths = {int(step): int(ns) for step, ns in zip(summary["step"], whole, strict=True) if pd.notna(ns)}
    for row in _in_a_row(sorted(lengths.keys() & windows.keys())):
        before = dict(zip(row, itertools.accumulate((lengths[step] for step in row), initial=0), strict=False))
        first = max(windows[step].end_ns - before[step] - lengths[step] for step in row)
        if len(row) > 1 and all(first + before[step] <= windows[step].start_ns for step in row):
            starts |= {step: first + before[step] for step in row}
    return summary.assign(start=summary["step"].map(pd.Series(starts, dtype="Int64")).astype("Int64"))


def _in_a_row(steps: Sequence[int]) -> list[list[int]]:
    rows: list[list[int]] = []
    for step in steps:
        if not rows or rows[-1][-1] + 1 != step:
            rows.append([])
        rows[-1].append(step)
    return rows


def _added_at_once(told: Sequence[tuple[Recording, pd.DataFrame]], sink: Sink) -> bool:
    """Add the summaries of some ranks as one table, unless something of them is refused, which is to be counted by file."""
    trial = Sink()
    add_summary_steps(trial, stacked([rows for _, rows in told]), told[0][0].rank.source.files[STEPS])
    if not trial.dropped:
        sink.absorb(trial)
    return not trial.dropped


def _add_left(recording: Recording, spans: list[Window], sink: Sink, names: Names) -> None:
    """Add the steps that only the kernels of a rank tell."""
    if recording.kernels is None:
        return
    told = set() if recording.steps is None else {int(step) for step in recording.steps["step"]}
    ends = {window.step: window.end_ns for window in spans}
    left = [window for window in windows_until(spans, ends) if window.step not in told]
    if left:
        add_window_steps(sink, rank=recording.rank.rank, windows=left, kernels=recording.kernels, pipeline_stage=recording.stage)
        sink.note(
            f"steps that {names.steps} does not tell were computed from the kernels between the first and the last of each step"
        )


def compare(recordings: list[Recording], sink: Sink, names: Names = TEXT_NAMES) -> None:
    """Note where the parts of a step do not add up, and where the summary and the kernels differ."""
    summaries = [recording.steps for recording in recordings if recording.steps is not None and len(recording.steps)]
    if not summaries:
        return
    steps = pd.concat(summaries, ignore_index=True)
    kernels = [recording.kernels for recording in recordings if recording.kernels is not None]
    _ascend_steps.check_sums(sink, steps, names.steps)
    _ascend_steps.compare_with_kernels(sink, steps, kernels, kernels_name=names.kernels, steps_name=names.steps)
    operations = [str(name) for frame in kernels for name in frame.loc[frame["kind"] == "communication", "name"].unique()]
    if any("batchsendrecv" in name.lower() for name in operations) and not steps["bubble"].fillna(0).any():
        sink.note("Bubble is 0, but it does not count the combined sends and receives (hcom_batchSendRecv) of this run")


def add_communication(
    recordings: list[Recording], named: list[tuple[str, tuple[int, ...]]], sink: Sink, names: Names = TEXT_NAMES
) -> None:
    """Add the collectives and links of all ranks; `named` are the process groups that the run names."""
    groups = groups_of_users(recordings, named)
    add_collectives(recordings, groups, sink, names)
    add_groups(groups, named, sink)
    peers = add_all_links(recordings, groups, sink, names)
    fact = sink.facts.get("num_devices")
    if sentence := _layout.missing_ranks(groups.found, int(fact.value) if fact else None, peers, names.links):
        sink.note(sentence)


def groups_of_users(recordings: list[Recording], named: list[tuple[str, tuple[int, ...]]]) -> _layout.Groups:
    """The groups that the operations and links of all ranks use."""
    used: dict[int, set[str | None]] = {recording.rank.rank: set() for recording in recordings}
    for recording in recordings:
        used[recording.rank.rank].update(item.group for item in recording.operations)
        used[recording.rank.rank].update(item.group for item in recording.links)
    return groups_of_use(used, named)


def groups_of_use(used: Mapping[int, Collection[str | None]], named: list[tuple[str, tuple[int, ...]]]) -> _layout.Groups:
    """The groups by the names of those that every rank used."""
    users: dict[str, set[int]] = {}
    for rank, groups in used.items():
        for group in sorted(
            group for group in groups if group is not None
        ):  # the last of equal members names them: always the same
            users.setdefault(group, set()).add(rank)
    distinct = tuple(dict.fromkeys(members for _, members in named))
    return _layout.Groups({group: frozenset(ranks) for group, ranks in users.items()}, distinct, frozenset(used))


def add_groups(groups: _layout.Groups, named: list[tuple[str, tuple[int, ...]]], sink: Sink) -> None:
    """Add the process groups: those that the run names, with the hash that collectives use where one group fits it."""
    hashes = {members: group for group in groups.users if (members := groups.members(group)) is not None}
    texts = {members: members_text(members) for _, members in named}
    rows = [(rank, label, members) for label, members in named for rank in members if rank in groups.found]
    if rows:
        sink.add(
            "groups",
            rank=[rank for rank, _, _ in rows],
            group=[hashes.get(members) for _, _, members in rows],
            label=[label for _, label, _ in rows],
            members=[texts[members] for _, _, members in rows],
        )


def add_collectives(recordings: list[Recording], groups: _layout.Groups, sink: Sink, names: Names = TEXT_NAMES) -> None:
    """Add the collectives of some ranks, and say where their files and their kernels are not of the same operations."""
    told = told_of([(recording.rank.rank, recording.operations) for recording in recordings])
    both = matched(told, [(item.rank.rank, item.kernels) for item in recordings if item.kernels is not None])
    without, untold = unmatched(both)
    if without or untold:
        sink.note(
            f"{names.collectives} and {names.kernels} differ: {without} operation(s) stand in the former alone and {untold} in the "
            "latter alone; all are counted"
        )
    add_rows(as_table(both, groups), sink)


def add_rows(rows: pd.DataFrame, sink: Sink) -> None:
    """Add rows of the table `collectives`."""
    columns: dict[str, Any] = {name: rows[name] for name in rows.columns}
    if len(rows):
        sink.add("collectives", **columns)


def add_all_links(recordings: list[Recording], groups: _layout.Groups, sink: Sink, names: Names = TEXT_NAMES) -> set[int]:
    """Add the links of all ranks and return the ranks at their ends."""
    links, lost = _layout.to_global([link for recording in recordings for link in recording.links], groups)
    sink.drop("link between ranks that are numbered inside an unknown group", lost, names.links)
    add_links(sink, links)
    return {end for link in links for end in (link.source, link.target)}
