"""Moves: a layout from layers alone, and what moving a single layer would change.

Given the layers of every chunk, recomputation is the fastest mix that fits into the stage, and the leanest one where nothing fits.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import lru_cache

import numpy as np
import pandas as pd

from perfkit.core.errors import InputError
from perfkit.predict.plans.balance._evaluator import Evaluator, Ints
from perfkit.predict.plans.balance._options import OptionTable
from perfkit.predict.plans.balance.problem import Layout, PipelineProblem, layers_of

Layers = Sequence[Sequence[int]]
"""Layers by chunk and stage."""

MAX_MOVES = 4_000
_BLOCK = 256
"""Moves that are evaluated between two questions whether to go on: some 10 ms."""

_KEPT = 20_000
"""Stages that are remembered of one kind of layers."""

_Stages = dict[tuple[object, ...], Ints]


class LayerPlanner:
    """Turns layers by chunk and stage into layouts of one problem; stages that were seen before are looked up.

    A stage is as before in another problem too if the layers are and its memory is used alike, as when only the micro batches
    become more.
    """

    def __init__(self, problem: PipelineProblem) -> None:
        self.problem = problem
        self.evaluator = Evaluator(problem)
        self._table = OptionTable(self.evaluator)
        layers = tuple((part.fwd_ns, part.param_bytes, tuple(part.kinds.items()), part.forward_first) for part in problem.body)
        self._known = _known_stages(problem.schedule == "zbh1", problem.memory_limit_bytes, problem.const_bytes, layers)
        self._ends = np.stack(list(self.evaluator.fixed.values()))

    def even(self) -> list[list[int]]:
        """As equal as it goes, the remainder to the later chunks and stages."""
        return even_split(self.problem.num_layers, self.problem.num_chunks, self.problem.num_stages)

    def layout(self, layers: Layers) -> Layout:
        """The layout of these layers; raises InputError if they are no split of the body."""
        problems = self._problems(layers)
        if problems:
            raise InputError("layers per stage", problems)
        return np.asarray(self.layouts(np.array(layers, dtype=np.int64)[None])[0])

    def layouts(self, layers: Ints) -> Ints:
        """The layouts of many splits of the body, shape (splits, chunks, stages)."""
        typed = self._typed(layers)
        found = np.empty((len(layers), len(self.problem.varieties), *layers.shape[1:]), dtype=np.int64)
        for stage in range(self.problem.num_stages):
            first, which = _alike(typed[..., stage].reshape(len(layers), -1))
            different = np.swapaxes(typed[first, :, :, stage], 1, 2).tolist()
            found[..., stage] = np.stack([self._stage(stage, tuple(map(tuple, chunks))) for chunks in different])[which]
        return found

    def moves(self, layout: Layout, *, most: int | None = None, check: Callable[[], None] = lambda: None) -> pd.DataFrame:
        """Every move of one layer to another chunk or stage, or the `most` best ones, best first.

        Columns: `from`, `to` (as "stage" or "stage.chunk"), `change_ns` of the makespan, `fits`, `layers` (text of the result).
        `check` is called now and then; what it raises ends the work.
        """
        sources, targets, moved = self.single_moves(layers_of(layout))
        now_ns = int(self.evaluator.makespans_ns(layout[None])[0])
        makespans_ns, fits = np.zeros(len(moved), dtype=np.int64), np.zeros(len(moved), dtype=np.bool_)
        for start in range(0, len(moved), _BLOCK):
            check()
            block = slice(start, start + _BLOCK)
            layouts = self.layouts(moved[block])
            makespans_ns[block], fits[block] = self.evaluator.makespans_ns(layouts), self.evaluator.fits(layouts)
        order = np.lexsort((makespans_ns, ~fits))[:most]
        return pd.DataFrame(
            {
                "from": [self._place(source) for source in sources[order].tolist()],
                "to": [self._place(target) for target in targets[order].tolist()],
                "change_ns": makespans_ns[order] - now_ns,
                "fits": fits[order],
                "layers": [layers_text(layers) for layers in moved[order].tolist()],
            }
        )

    def single_moves(self, layers: Layers) -> tuple[Ints, Ints, Ints]:
        """Where a layer can be taken from and put to (chunk x stages + stage), and all layers after it; at most 4 000 moves."""
        cells = np.array(layers, dtype=np.int64).reshape(-1)
        sources, targets = np.nonzero(~np.eye(len(cells), dtype=np.bool_))
        sources, targets = sources[:MAX_MOVES], targets[:MAX_MOVES]
        possible = cells[sources] > self.problem.min_layers_per_chunk
        sources, targets = sources[possible], targets[possible]
        moved = np.repeat(cells[None], len(sources), axis=0)
        moved[np.arange(len(moved)), sources] -= 1
        moved[np.arange(len(moved)), targets] += 1
        return sources, targets, moved.reshape(-1, self.problem.num_chunks, self.problem.num_stages)

    def _place(self, cell: int) -> str:
        chunk, stage = divmod(cell, self.problem.num_stages)
        return str(stage) if self.problem.num_chunks == 1 else f"{stage}.{chunk}"

    def _problems(self, layers: Layers) -> list[str]:
        problem = self.problem
        shape = [len(row) for row in layers]
        if shape != [problem.num_stages] * problem.num_chunks:
            return [f"there are rows of {shape} numbers; {problem.num_chunks} chunks of {problem.num_stages} stages are needed"]
        problems = []
        total = sum(map(sum, layers))
        if total != problem.num_layers:
            problems.append(f"the numbers sum to {total}; the model has {problem.num_layers} layers")
        least = min(min(row) for row in layers)
        if least < problem.min_layers_per_chunk:
            problems.append(f"a chunk has {least} layers; at least {problem.min_layers_per_chunk} are needed")
        return problems

    def _typed(self, layers: Ints) -> Ints:
        """Layers by split, type, chunk and stage: the types follow each other through the positions."""
        ends = np.cumsum(layers.reshape(len(layers), -1), axis=1)
        borders = np.concatenate([np.zeros_like(ends[:, :1]), ends], axis=1)
        types = np.repeat(np.arange(len(self.problem.body)), [part.count for part in self.problem.body])
        per_type = [np.diff(np.concatenate([[0], np.cumsum(types == index)])[borders]) for index in range(len(self.problem.body))]
        return np.stack(per_type, axis=1).reshape(len(layers), -1, *layers.shape[1:])

    def _stage(self, stage: int, counts: tuple[tuple[int, ...], ...]) -> Ints:
        """Layers by variety and chunk of a stage with these layers by chunk and type."""
        evaluator = self.evaluator
        own = (self._ends[..., stage], evaluator.vectors[stage], evaluator.stage_bytes[:, stage])
        key = (counts, stage == 0, *(amounts.tobytes() for amounts in own))
        found = self._known.get(key)
        if found is None:
            if len(self._known) >= _KEPT:
                self._known.clear()
            found = self._known[key] = self._fill_stage(stage, counts)
        return found

    def _fill_stage(self, stage: int, counts: tuple[tuple[int, ...], ...]) -> Ints:
        if (fastest := self._table.fastest(stage, counts)) is not None:
            return fastest
        leanest = np.zeros((len(self.problem.varieties), self.problem.num_chunks), dtype=np.int64)
        for index in range(len(self.problem.body)):
            rows = np.flatnonzero(self.evaluator.type == index)
            row = rows[int(self.evaluator.act_bytes[rows].argmin())]
            leanest[row] = [chunk[index] for chunk in counts]
        return leanest


@lru_cache(maxsize=8)
def _known_stages(*_amounts: object) -> _Stages:
    """What stages of layers with these amounts hold, by their layers and by what decides their memory."""
    return {}


def _alike(rows: Ints) -> tuple[Ints, Ints]:
    """Of rows of small numbers, the place of one of each kind, and the kind of every row."""
    if len(rows) == 1:
        return np.zeros(1, dtype=np.int64), np.zeros(1, dtype=np.int64)
    code = rows[:, 0]
    for column in rows.T[1:]:
        code = np.unique(code, return_inverse=True)[1] * (int(column.max()) + 1) + column
    _, first, which = np.unique(code, return_index=True, return_inverse=True)
    return first, which


def even_split(num_layers: int, num_chunks: int, num_stages: int) -> list[list[int]]:
    """Layers by chunk and stage, as equal as it goes, the remainder to the later chunks and stages."""
    positions = num_chunks * num_stages
    layers, more = divmod(num_layers, positions)
    flat = [layers + (position >= positions - more) for position in range(positions)]
    return [flat[start : start + num_stages] for start in range(0, positions, num_stages)]


def layers_text(layers: Layers) -> str:
    """Layers as text: stages separated by spaces, chunks by semicolons."""
    return "; ".join(" ".join(str(count) for count in row) for row in layers)


def parse_layers(text: str) -> list[list[int]]:
    """Layers from text as `layers_text` writes it; commas do as well as spaces. Raises InputError for anything else."""
    rows = [re.split(r"[\s,]+", row.strip()) for row in text.split(";")]
    wrong = [word for row in rows for word in row if not re.fullmatch(r"\d{1,6}", word)]
    if wrong:
        raise InputError("layers per stage", [f"{word[:20]!r} is no number of layers" for word in wrong[:5]])
    return [[int(word) for word in row] for row in rows]
