"""MindSpore Insight (MindInsight): the legacy `profiler/` folder, several ranks side by side, recognised by its file names.

What each file means is told in the modules that read it: `_mindinsight_steps`, `_mindinsight_collectives` and
`_mindinsight_kernels`; `_mindinsight_files` says which file belongs to which rank.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from perfkit.core.errors import InputError
from perfkit.record.accounts import Account
from perfkit.record.format import Format, Match, Sink
from perfkit.record.formats.mindinsight._collectives import add_collectives
from perfkit.record.formats.mindinsight._files import RankFiles, group_files, one_folder_a_rank, read_layouts
from perfkit.record.formats.mindinsight._kernels import Kernels, read_kernels
from perfkit.record.formats.mindinsight._queues import add_queues
from perfkit.record.formats.mindinsight._steps import StepTrace, add_steps, read_step_trace
from perfkit.record.formats.mindinsight.flops import add_flops
from perfkit.record.listing import Listing
from perfkit.record.placing import Marks, account_of
from perfkit.record.steps import Window, add_window_steps

_OTHER_PARTS = {
    "step split": ("pipeline split", "model split", "data split"),
    "operator totals": ("operator detail", "operator type"),
    "AI CPU operators": ("ai cpu",),
    "dataset pipeline": ("dataset pipeline", "pipeline profile"),
    "data queues": ("device queue", "dataset iterator", "data queue"),
    "FLOPs": ("flops",),
    "parallel strategy": ("strategy",),
}


def detect(listing: Listing) -> Match | None:
    """Claim every file of a folder that holds MindSpore Insight files."""
    groups = group_files(listing)
    files = tuple(file for group in groups for file in group.files.values())
    return Match(files=files, details=groups) if files else None


def read(match: Match, sink: Sink) -> None:
    """Read every rank: its steps, their parts, communication, links and kernels, as far as the files go."""
    groups = one_folder_a_rank(match.details, sink)
    layouts = read_layouts(groups, sink)
    for group in groups:
        layout, trace = layouts.get(group.rank), _step_trace(group, sink)
        if trace is not None:
            add_steps(trace, group, layout.stage(group.rank) if layout else None, sink)
        operations = add_collectives(group, trace, layout, sink)
        kernels = read_kernels(group, sink)
        add_queues(group, sink)
        add_flops(group, sink)
        executions = 0 if kernels is None else _add_kernels(group.rank, trace, kernels, sink)
        _cover(
            group, sink, {"step times": 0 if trace is None else len(trace.rows), "collectives": operations, "kernels": executions}
        )
        sink.advance(f"rank {group.rank}", sum(file.size_bytes for file in group.files.values()))


def _step_trace(group: RankFiles, sink: Sink) -> StepTrace | None:
    file = group.get("step trace")
    if file is None:
        return None
    try:
        return read_step_trace(file, sink)
    except InputError as error:
        for problem in error.problems:
            sink.drop(problem, 1, file)
        return None


def _add_kernels(rank: int, trace: StepTrace | None, kernels: Kernels, sink: Sink) -> int:
    """Add the kernels with their steps, 0 if there is no step trace, none if their clock is another; returns their number."""
    rows = kernels.rows
    if trace is None or trace.rows.empty:
        if len(rows):
            start_ns, end_ns = int(rows["start_ns"].min()), int((rows["start_ns"] + rows["duration_ns"]).max())
            add_window_steps(sink, rank=rank, windows=[Window(0, start_ns, end_ns)], kernels=rows)
        rows = rows.assign(step=0)
    elif kernels.on_step_clock:
        ends_ns = trace.rows["start_ns"] + trace.rows["duration_ns"]
        spans = zip(trace.rows["step"], trace.rows["start_ns"], ends_ns, strict=True)
        marks = Marks([Window(int(step), int(start_ns), int(end_ns)) for step, start_ns, end_ns in spans])
        rows = rows.assign(step=marks.steps(marks.places(rows["start_ns"].to_numpy(dtype=np.int64))))
    else:
        sink.drop("kernel on a clock of its own, which tells no step", len(rows), kernels.file)
        sink.account(rank, kernels.file, Account(in_file=len(rows) + kernels.lost, lost=len(rows) + kernels.lost))
        sink.note(f"rank {rank}: the timeline starts at its own zero, so that its kernels belong to no step")
    if "step" in rows:
        sink.account(rank, kernels.file, account_of(rows, kernels.lost))
    return sink.add("kernels", source=kernels.file, rank=rank, **{str(name): rows[name] for name in rows.columns})


def _cover(group: RankFiles, sink: Sink, rows: Mapping[str, int]) -> None:
    files = group.files
    main = {
        "step times": files.get("step trace"),
        "collectives": files.get("hccl") or (files.get("step trace") if rows["collectives"] else None),
        "kernels": files.get("timeline data") or files.get("timeline display"),
    }
    for part, file in main.items():
        state = "partial" if file is not None and file.size_bytes and not rows[part] else None
        sink.cover(group.rank, part, file, rows=rows[part] if file else None, state=state)
    for part, kinds in _OTHER_PARTS.items():
        for kind in kinds:
            if kind in files:
                sink.cover(group.rank, part, files[kind])


FORMAT = Format(
    name="mindinsight",
    title="MindSpore Insight profiler folder",
    looks_for="files such as step_trace_raw_0_detail_time.csv, hccl_raw_0.csv, ascend_cluster_analyse_*, timeline_display_0.json, "
    "parallel_strategy_0.json",
    detail=2,
    detect=detect,
    read=read,
)
