"""Moves: a layout from layers alone, and what moving a single layer would change.

Given the layers of every chunk, recomputation is the fastest mix that fits into the stage, and the leanest one where nothing fits.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from functools import lru_cache

import numpy as np
import pandas as pd

from perfkit.errors import InputError
from perfkit.plans._evaluator import Evaluator, Ints
from perfkit.plans._options import OptionTable
from perfkit.plans.problem import Layout, PipelineProblem, layers_of

Layers = Sequence[Sequence[int]]
"""Layers by chunk and stage."""

MAX_MOVES = 4_000


class LayerPlanner:
    """Turns layers by chunk and stage into layouts of one problem; stages that were seen before are looked up."""

    def __init__(self, problem: PipelineProblem) -> None:
        self.problem = problem
        self.evaluator = Evaluator(problem)
        self._table = OptionTable(self.evaluator)
        self._stage = lru_cache(maxsize=None)(self._fill_stage)

    def even(self) -> list[list[int]]:
        """As equal as it goes, the remainder to the later chunks and stages."""
        positions = self.problem.num_chunks * self.problem.num_stages
        layers, more = divmod(self.problem.num_layers, positions)
        flat = [layers + (position >= positions - more) for position in range(positions)]
        return [flat[start : start + self.problem.num_stages] for start in range(0, positions, self.problem.num_stages)]

    def layout(self, layers: Layers) -> Layout:
        """The layout of these layers; raises InputError if they are no split of the body."""
        problems = self._problems(layers)
        if problems:
            raise InputError("layers per stage", problems)
        typed = self._typed(layers)
        stages = [
            self._stage(stage, tuple(tuple(typed[:, chunk, stage].tolist()) for chunk in range(self.problem.num_chunks)))
            for stage in range(self.problem.num_stages)
        ]
        return np.stack(stages, axis=-1)

    def moves(self, layout: Layout) -> pd.DataFrame:
        """Every move of one layer to another chunk or stage, best first.

        Columns: `from`, `to` (as "stage" or "stage.chunk"), `change_ns` of the makespan, `fits`, `layers` (text of the result).
        """
        layers = layers_of(layout)
        found = list(self.single_moves(layers))
        if not found:
            return pd.DataFrame({"from": [], "to": [], "change_ns": [], "fits": [], "layers": []})
        layouts = np.stack([self.layout(moved) for _, _, moved in found])
        now_ns = int(self.evaluator.makespans_ns(layout[None])[0])
        frame = pd.DataFrame(
            {
                "from": [self._place(source) for source, _, _ in found],
                "to": [self._place(target) for _, target, _ in found],
                "change_ns": self.evaluator.makespans_ns(layouts) - now_ns,
                "fits": self.evaluator.fits(layouts),
                "layers": [layers_text(moved) for _, _, moved in found],
            }
        )
        return frame.sort_values(["fits", "change_ns"], ascending=[False, True], kind="stable", ignore_index=True)

    def single_moves(self, layers: Layers) -> Iterator[tuple[tuple[int, int], tuple[int, int], list[list[int]]]]:
        """Every (from, to, layers after it), places as (chunk, stage); at most 4 000."""
        cells = [(chunk, stage) for chunk in range(self.problem.num_chunks) for stage in range(self.problem.num_stages)]
        pairs = [(source, target) for source in cells for target in cells if source != target]
        for source, target in pairs[:MAX_MOVES]:
            if layers[source[0]][source[1]] > self.problem.min_layers_per_chunk:
                moved = [list(row) for row in layers]
                moved[source[0]][source[1]] -= 1
                moved[target[0]][target[1]] += 1
                yield source, target, moved

    def _place(self, cell: tuple[int, int]) -> str:
        chunk, stage = cell
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

    def _typed(self, layers: Layers) -> Ints:
        """Layers by type, chunk and stage: the types follow each other through the positions."""
        borders = np.concatenate([[0], np.cumsum(np.array(layers, dtype=np.int64).reshape(-1))])
        types = np.repeat(np.arange(len(self.problem.body)), [part.count for part in self.problem.body])
        per_type = [np.diff(np.concatenate([[0], np.cumsum(types == index)])[borders]) for index in range(len(self.problem.body))]
        return np.stack(per_type).reshape(-1, self.problem.num_chunks, self.problem.num_stages)

    def _fill_stage(self, stage: int, counts: tuple[tuple[int, ...], ...]) -> Ints:
        options = self._table.for_layers(stage, counts)
        if options is not None:
            fastest = int(options.times_ns.sum(axis=(1, 2)).argmin())
            return np.asarray(options.counts[fastest])
        leanest = np.zeros((len(self.problem.varieties), self.problem.num_chunks), dtype=np.int64)
        for index in range(len(self.problem.body)):
            rows = np.flatnonzero(self.evaluator.type == index)
            row = rows[int(self.evaluator.act_bytes[rows].argmin())]
            leanest[row] = [chunk[index] for chunk in counts]
        return leanest


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
