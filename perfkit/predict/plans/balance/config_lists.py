"""Config lists: a layout as MindFormers, MindSpeed-Core-MS and Megatron write it.

MindFormers counts from a chunk's first layer: a layer below `recompute` is recomputed in full; the others are `select` below the
select count and `comm` below the comm count, so these counts include the full layers. MindSpeed-Core-MS counts what follows the
full layers. Megatron's layout string has one entry a chunk and stage, chunk 0 of every stage first; E is the embedding, L the loss.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from perfkit.config.dialects.megatron_stages import layout_text
from perfkit.core.units import format_bytes, format_ns
from perfkit.predict.plans.balance._evaluator import Evaluator
from perfkit.predict.plans.balance.problem import Layout, PipelineProblem, layers_of

_WEAKER = {
    "full": ("full", "both", "select", "comm", "none"),
    "both": ("both", "select", "comm", "none", "full"),
    "select": ("select", "none", "comm", "both", "full"),
    "comm": ("comm", "none", "select", "both", "full"),
    "none": ("none", "select", "comm", "both", "full"),
}
"""What a layer type does when a kind is asked of it, the first that it has."""

Rows = list[list[int]]
"""One list a chunk with one entry a stage."""


@dataclass(frozen=True, kw_only=True, slots=True)
class MindFormersLists:
    """Lists by chunk and stage; `notes` says what they cannot express and what the layout that they give costs."""

    offset: Rows
    recompute: Rows
    select_recompute: Rows
    select_comm_recompute: Rows
    notes: tuple[str, ...] = ()


def mindformers_lists(problem: PipelineProblem, layout: Layout) -> MindFormersLists:
    """`offset` and recompute lists of a layout.

    A chunk with select-only and comm-only layers has no such lists: a pair of them becomes one layer with both and one with none,
    which keeps the recomputation and moves memory. The note then has the makespan and peak of what the lists give.
    """
    full, both, select, comm = (_of_kind(problem, layout, kind) for kind in ("full", "both", "select", "comm"))
    layers = layout.sum(axis=0)
    base = problem.num_layers // (problem.num_chunks * problem.num_stages)
    lists = {
        "recompute": full,
        "select_recompute": select + both + full,
        "select_comm_recompute": comm + both + full,
    }
    return MindFormersLists(
        offset=_rows(layers - base),
        recompute=_rows(full),
        select_recompute=_rows(lists["select_recompute"]),
        select_comm_recompute=_rows(lists["select_comm_recompute"]),
        notes=_notes(problem, layout, lists),
    )


def layout_of_lists(problem: PipelineProblem, layers: Layout, recompute: Layout, select: Layout, comm: Layout) -> Layout:
    """What MindFormers makes of lists (chunks, stages); `layers` has shape (types, chunks, stages).

    A pattern that a layer type does not have matches nothing there, so such a layer is recomputed less.
    """
    row_of = {(variety.type, variety.kind): index for index, variety in enumerate(problem.varieties)}
    layout = np.zeros((len(row_of), problem.num_chunks, problem.num_stages), dtype=np.int64)
    for chunk, stage in np.ndindex(problem.num_chunks, problem.num_stages):
        types = np.repeat(np.arange(len(problem.body)), layers[:, chunk, stage])
        for place, kind_type in enumerate(types.tolist()):
            kind = _kind_at(place, int(recompute[chunk, stage]), int(select[chunk, stage]), int(comm[chunk, stage]))
            row = next(row_of[kind_type, name] for name in _WEAKER[kind] if (kind_type, name) in row_of)
            layout[row, chunk, stage] += 1
    return layout


def mindformers_text(lists: MindFormersLists) -> str:
    """The lists as lines of a MindFormers YAML."""
    shown = {name: _short(getattr(lists, name)) for name in ("recompute", "select_recompute", "select_comm_recompute")}
    lines = ["model:", "  model_config:", f"    offset: {_short(lists.offset)}", "recompute_config:"]
    lines += [f"  {name}: {value}" for name, value in shown.items()]
    return "\n".join([*(f"# {note}" for note in lists.notes), *lines])


def megatron_layout(layout: Layout) -> str:
    """The value of `--pipeline-model-parallel-layout`, for example "Et*5|t*6|t*5L"."""
    return layout_text(layers_of(layout))


def _kind_at(place: int, full: int, select: int, comm: int) -> str:
    if place < full:
        return "full"
    return {(True, True): "both", (True, False): "select", (False, True): "comm", (False, False): "none"}[
        place < select, place < comm
    ]


def _notes(problem: PipelineProblem, layout: Layout, lists: dict[str, Layout]) -> tuple[str, ...]:
    types = np.array([variety.type for variety in problem.varieties])
    per_type = np.stack([layout[types == index].sum(axis=0) for index in range(len(problem.body))])
    given = layout_of_lists(problem, per_type, lists["recompute"], lists["select_recompute"], lists["select_comm_recompute"])
    if (given == layout).all():
        return ()
    evaluator = Evaluator(problem)
    makespan_ns, peak = int(evaluator.makespans_ns(given[None])[0]), int(evaluator.peaks_bytes(given[None]).max())
    fits = "" if bool(evaluator.fits(given[None])[0]) else ", which does not fit"
    return (
        f"Prefix lists cannot express this layout exactly; these give a step of {format_ns(makespan_ns, 4)} "
        f"and a peak of {format_bytes(peak)}{fits}.",
    )


def _of_kind(problem: PipelineProblem, layout: Layout, kind: str) -> Layout:
    rows = [index for index, variety in enumerate(problem.varieties) if variety.kind == kind]
    return np.asarray(layout[rows].sum(axis=0), dtype=np.int64)


def _rows(counts: Layout) -> Rows:
    return [[int(count) for count in row] for row in counts]


def _short(rows: Rows) -> str:
    return str(rows[0] if len(rows) == 1 else rows)
