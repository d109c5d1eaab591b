"""Page 06 without a browser: even, edited and solved layouts, single moves, cancelling."""

from __future__ import annotations

import threading
from dataclasses import replace

import pytest

from perfkit.core.errors import InputError
from perfkit.face.panels import _pipeline_solve, open_panel, pipeline_balance
from perfkit.face.panels._pipeline_state import State, case_options, transfer_options
from perfkit.face.panels.pipeline_balance import PANEL, compute, move, view
from perfkit.face.widgets.worker import Progress


def state(index=0, **values) -> State:
    return replace(State(case=case_options()[index][1]), **values)


def test_the_even_split_is_drawn_first():
    assert pipeline_balance.start().layout == "even"
    answer = view(compute(state())).whole()
    assert answer.text.startswith("The step takes 5.15550 ms")
    assert list(answer.tables["stages"].frame["layers"]) == ["7", "7", "7", "7"]


def test_solving_says_that_no_layout_is_faster_and_writes_it_as_configuration():
    answer = view(compute(state(2, layout="solved"))).whole()
    assert "The step takes 104.004 ms; no layout is faster." in answer.text
    mindformers, megatron = answer.code
    assert "offset: [" in mindformers.text
    assert megatron.text.startswith("--pipeline-model-parallel-layout 'Et*")


def test_editing_layers_makes_the_layout_edited():
    edited = state(layers="6 7 8 7")
    assert edited.layout == "edited"
    assert list(view(compute(edited)).whole().tables["stages"].frame["layers"]) == ["6", "7", "8", "7"]
    assert replace(edited, layout="even").layout == "even"


def test_the_layers_shown_follow_the_number_of_stages_until_they_are_edited():
    fewer = replace(state(), num_stages=2)
    assert (fewer.layout, fewer.layers) == ("even", "14 14")
    assert replace(fewer, num_stages=4).layers == "7 7 7 7"
    edited = replace(state(layers="6 7 8 7"), num_stages=2)
    assert (edited.layout, edited.layers) == ("edited", "6 7 8 7")


def test_choosing_a_move_makes_it_and_the_step_changes_as_promised():
    before = compute(state(layers="6 7 8 7"))
    row = view(before).whole().tables["moves"].row(0)
    after = compute(move(before.state, "moves", row))
    assert after.schedule.makespan_ns - before.schedule.makespan_ns == int(before.moves["change_ns"].iloc[0]) < 0


def test_another_case_fills_sizes_and_layers():
    changed = replace(state(layers="6 7 8 7"), case=case_options()[3][1])
    assert (changed.num_stages, changed.num_chunks, changed.schedule, changed.layout) == (16, 3, "vpp_lm", "even")


def test_memory_parts_sum_to_the_peaks_and_the_limit_is_drawn():
    result = compute(state(1))
    data = view(result).charts["memory"].chart.datasets
    for stage, peak in enumerate(result.peak_bytes):
        assert sum(row["gib"] for row in data["memory"] if row["stage"] == str(stage)) == pytest.approx(peak / 2**30)
    assert data["limit"][0]["gib"] == pytest.approx(53_000 / 1024)


def test_stages_that_cannot_fit_are_named():
    notes = view(compute(state(limit_gib=1.0))).notes
    assert any(note.startswith("Does not fit: stages 0, 1, 2, 3") for note in notes)
    solved = view(compute(state(limit_gib=1.0, layout="solved")))
    assert "the smallest limit that works is" in solved.text


def test_layers_that_do_not_add_up_are_an_error_in_words():
    with pytest.raises(InputError, match="sum to 29; the model has 28 layers"):
        compute(state(layers="8 7 7 7"))


def test_options_follow_the_sizes():
    view_ = open_panel(PANEL, state=state())
    view_.wait()
    view_.set({"num_chunks": 2})
    view_.wait()
    assert view_.state.schedule == "vpp"
    assert "rendezvous" not in [value for _, value in transfer_options(view_.state)]


def test_a_cancelled_solve_shows_its_best_layout_with_the_gap():
    _pipeline_solve._solved.clear()
    shown = threading.Event()
    progress = Progress(lambda _what, _done, _total: shown.set() or progress.cancel(by_visitor=True))
    result = compute(state(3, layout="solved", time_limit_s=60), progress)
    assert shown.is_set()
    progress.check()  # the cancellation was heeded: what there is may be shown
    assert result.solved.status == "time_limit"
    assert "leaves a gap of" in view(result).text
    assert not _pipeline_solve._solved, "an early end must not stand for the answer"
