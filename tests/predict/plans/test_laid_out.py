"""Layers of a pipeline laid out: the figures of the simulation, memory that adds up, and what moving a layer changes."""

from __future__ import annotations

from dataclasses import replace

import pytest

from perfkit.core.errors import InputError
from perfkit.core.resources import data_folder
from perfkit.core.units import GIB
from perfkit.predict.plans.balance.balance import balance
from perfkit.predict.plans.balance.case_file import read_problem
from perfkit.predict.plans.balance.laid_out import (
    SCHEDULES,
    changed_problem,
    chunks_of,
    laid_out,
    moves_table,
    moves_told,
    schedules_of,
    stages_of,
    transfers_of,
)
from perfkit.predict.plans.balance.moves import even_split, layers_text
from perfkit.predict.plans.balance.problem import BALANCED


@pytest.fixture(scope="module")
def dense():
    return read_problem(data_folder() / "plans" / "dense_moe_4_stages.json")


def even(problem):
    return layers_text(even_split(problem.num_layers, problem.num_chunks, problem.num_stages))


def test_an_even_split_and_edited_layers_are_what_is_drawn(dense):
    assert even(dense) == "7 7 7 7"
    drawn = laid_out(dense, even(dense))
    assert drawn.told()[0].startswith("The step takes 5.155 ms")
    assert "than with an even split" not in drawn.told()[0]
    edited = laid_out(dense, "6 7 8 7")
    assert list(edited.stages()["layers"]) == ["6", "7", "8", "7"]
    assert "than with an even split" in edited.told()[0]
    with pytest.raises(InputError, match="sum to 29; the model has 28 layers"):
        laid_out(dense, "8 7 7 7")


def test_a_move_changes_the_step_as_promised(dense):
    before = laid_out(dense, "6 7 8 7")
    moves = before.moves()
    after = laid_out(dense, moves["layers"].iloc[0])
    assert after.schedule.makespan_ns - before.schedule.makespan_ns == moves["change_ns"].iloc[0] < 0
    assert moves_told(moves, "6 7 8 7").startswith("From 6 7 8 7: one layer from ")
    assert set(moves_table(moves)["memory"]) <= {"fits", "too much"}


def test_memory_parts_sum_to_the_peaks_and_stages_that_cannot_fit_are_named(dense):
    drawn = laid_out(dense, even(dense))
    assert tuple(map(sum, zip(*drawn.memory_parts().values(), strict=True))) == drawn.peak_bytes
    assert (drawn.stages()["busy_ns"] + drawn.stages()["idle_ns"]).nunique() == 1, "every stage lasts as long as the step"
    whole = laid_out(replace(dense, closing_ns=123_456), even(dense)).stages()
    lasts = whole[["busy_ns", "idle_ns", "after_the_pipeline_ns"]].sum(axis="columns")
    assert (lasts == whole["step_time_ns"]).all()
    assert whole["step_time_ns"].iloc[0] == drawn.step_ns + 123_456
    tight = changed_problem(dense, limit_gib=1.0, p2p_us=0.0)
    assert (tight.memory_limit_bytes, tight.memory_limit_source) == (GIB, "limit_gib = 1")
    assert "Does not fit: stages 0, 1, 2, 3" in laid_out(tight, even(tight)).told()[-1]
    assert "the smallest limit that works is" in balance(tight).told()[0]
    free = changed_problem(dense, limit_gib=0.0, p2p_us=1.5, num_microbatches=8)
    assert laid_out(free, even(free)).stages()["free_bytes"].isna().all()
    assert (free.p2p_ns, free.num_microbatches) == (1500, 8)
    own = {"limit_gib": (dense.memory_limit_bytes or 0) / GIB, "p2p_us": dense.p2p_ns / 1000}
    assert changed_problem(dense, **own) == dense


def test_a_solved_layout_is_drawn_and_written_as_configuration():
    problem = read_problem(data_folder() / "plans" / "gpt_175b_16_stages.json")
    best = balance(problem)
    solved = laid_out(best.problem, best.layout)
    assert solved.schedule.makespan_ns == best.makespan_ns
    assert "faster than the even split" in solved.gain_text()
    mindformers, megatron = solved.exports()
    assert "offset: [" in mindformers.text
    assert megatron.text.startswith("--pipeline-model-parallel-layout 'Et*")


def test_choices_follow_each_other(dense):
    assert [name for _, name in schedules_of(dense, 2)] == ["vpp", "vpp_lm"]
    assert set(SCHEDULES) == set(BALANCED)
    assert "rendezvous" not in [name for _, name in transfers_of("vpp")]
    for stages in stages_of(dense, 2):
        assert stages * 2 <= dense.num_layers
        assert 2 in chunks_of(dense, stages)
