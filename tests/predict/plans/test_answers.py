"""What is said of a layout: its layers, which of them are recomputed, and the step; short also where there are many stages."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from perfkit.core.resources import data_folder
from perfkit.predict.plans.answers import layout_answer
from perfkit.predict.plans.balance.case_file import read_problem
from perfkit.predict.plans.balance.laid_out import laid_out

MOST_LETTERS = 130


def test_layers_and_their_recomputation_are_told_with_the_step():
    drawn = laid_out(read_problem(data_folder() / "plans" / "dense_moe_4_stages.json"), "6 7 8 7")
    assert layout_answer(drawn).startswith("Layers 6 7 8 7, ")
    assert " ms a step; stage " in layout_answer(drawn)
    for busy_ns, told in (
        ((3, 9, 9, 1), "stages 1, 2 work longest."),
        ((9,) * 4, "all stages work equally long."),
        ((1, 2, 9, 3), "stage 2 works longest."),
    ):
        assert layout_answer(replace(drawn, schedule=replace(drawn.schedule, stage_busy_ns=busy_ns))).endswith(told)
    tight = replace(drawn, peak_bytes=tuple(2 * (drawn.problem.memory_limit_bytes or 0) for _ in drawn.peak_bytes))
    assert layout_answer(tight).endswith(", do not fit (stages: 0, 1 and 2 more).")


@pytest.mark.parametrize(
    ("full", "some", "again"),
    [
        ((0, 0), (0, 0), "none of them recomputed"),
        ((14, 14), (0, 0), "all recomputed in full"),
        ((0, 0), (14, 14), "all recomputed in part"),
        ((4, 0), (0, 0), "of which recomputed in full 4 0"),
        ((0, 0), (4, 0), "of which recomputed in part 4 0"),
        ((4, 0), (10, 14), "of which recomputed in full 4 0, in part 10 14"),
    ],
)
def test_every_mix_of_recomputation_has_its_words(full: tuple[int, int], some: tuple[int, int], again: str):
    drawn = laid_out(read_problem(data_folder() / "plans" / "dense_moe_4_stages.json"), "7 7 7 7")
    kinds = [variety.kind for variety in drawn.problem.varieties]
    layout = np.zeros((len(kinds), 1, 2), dtype=np.int64)
    layout[[kinds.index(kind) for kind in ("full", "select", "none")], 0] = [full, some, np.subtract(14, np.add(full, some))]
    assert layout_answer(replace(drawn, layout=layout)).startswith(f"Layers 14 14, {again}: ")


def test_many_stages_are_told_within_a_line():
    drawn = laid_out(read_problem(data_folder() / "plans" / "llama_96_layers_16_stages.json"), " ".join(["6"] * 16))
    assert layout_answer(drawn).startswith("Layers 6 6 6 … 6, ")
    kinds = [variety.kind for variety in drawn.problem.varieties]
    layout = np.zeros_like(drawn.layout)
    layout[[kinds.index("none"), kinds.index("full")]] = 10
    for peak in (1, 2**60):
        assert len(layout_answer(replace(drawn, layout=layout, peak_bytes=(peak,) * 16))) <= MOST_LETTERS
