"""Moving single layers: what is said to change is what changes."""

import time
from dataclasses import replace

import numpy as np
import pytest

from perfkit.core.errors import InputError
from perfkit.predict.plans.balance import _options
from perfkit.predict.plans.balance.balance import balance
from perfkit.predict.plans.balance.case_file import read_problem
from perfkit.predict.plans.balance.moves import LayerPlanner, _known_stages, layers_text, parse_layers
from perfkit.predict.plans.balance.problem import layers_of, layout_problems
from tests.predict.plans.case_documents import CASES


def problem(name):
    (path,) = CASES.glob(f"{name}_*.json")
    return read_problem(path)


@pytest.mark.parametrize("name", ["d05", "d09", "d10", "d15"])
def test_layers_alone_give_a_valid_layout_with_these_layers(name):
    planner = LayerPlanner(problem(name))
    layout = planner.layout(planner.even())
    assert layout_problems(planner.problem, layout) == []
    assert layers_of(layout) == planner.even()


def test_every_move_has_the_makespan_of_its_layout():
    planner = LayerPlanner(problem("d10"))
    layout = planner.layout([[8, 7, 7, 6]])
    moves = planner.moves(layout)
    assert len(moves) == 4 * 3
    now = int(planner.evaluator.makespans_ns(layout[None])[0])
    for row in moves.to_dict("records"):
        moved = planner.layout(parse_layers(row["layers"]))
        assert int(planner.evaluator.makespans_ns(moved[None])[0]) == now + row["change_ns"]
        assert bool(planner.evaluator.fits(moved[None])[0]) == row["fits"]
    assert moves[moves["fits"]]["change_ns"].is_monotonic_increasing


def test_no_move_improves_on_a_proven_optimum():
    result = balance(problem("d10"))
    moves = LayerPlanner(result.problem).moves(result.layout)
    assert (moves[moves["fits"]]["change_ns"] >= 0).all()


def test_recomputation_follows_the_memory_that_is_left():
    case = problem("d10")
    rich = LayerPlanner(replace(case, memory_limit_bytes=None))
    poor = LayerPlanner(replace(case, memory_limit_bytes=1))
    kinds = [variety.kind for variety in case.varieties]
    even = rich.even()
    assert all(not layer.any() for kind, layer in zip(kinds, rich.layout(even), strict=True) if kind != "none")
    assert all(not layer.any() for kind, layer in zip(kinds, poor.layout(even), strict=True) if kind != "full")
    assert not poor.evaluator.fits(poor.layout(even)[None])[0]


def with_chunks(num_chunks):
    """Two stages of many small chunks under a limit that asks for some recomputation."""
    case = problem("d09")
    layers = replace(case.body[0], count=2 * num_chunks + 2)
    case = replace(case, num_chunks=num_chunks, num_stages=2, body=(layers,))
    ends = []
    for limit in (None, 1):
        planner = LayerPlanner(replace(case, memory_limit_bytes=limit))
        ends.append(int(planner.evaluator.peaks_bytes(planner.layout(planner.even())[None]).max()))
    return replace(case, memory_limit_bytes=sum(ends) // 2)


@pytest.mark.parametrize("num_chunks", [2, 3, 6, 9])
def test_of_too_many_mixes_one_is_taken_that_fits_and_is_near_the_fastest(num_chunks, monkeypatch):
    case = with_chunks(num_chunks)
    exact = LayerPlanner(case)
    fastest = exact.layout(exact.even())
    _known_stages.cache_clear()
    monkeypatch.setattr(_options, "_MAX_MIXES", 0)
    near = LayerPlanner(case)
    layout = near.layout(near.even())
    assert layers_of(layout) == layers_of(fastest)
    assert near.evaluator.fits(layout[None])[0] == exact.evaluator.fits(fastest[None])[0]
    assert near.evaluator.makespans_ns(layout[None])[0] <= 1.05 * exact.evaluator.makespans_ns(fastest[None])[0]


def test_many_chunks_take_no_more_than_a_few_do():
    """All mixes of 19 chunks were listed: 70 s and gigabytes for two kinds of recomputation, more than any memory for three."""
    few, many = (with_chunks(num_chunks) for num_chunks in (9, 19))
    begin = time.process_time()
    balance(few, time_limit_s=2)
    between = time.process_time()
    result = balance(many, time_limit_s=2)
    assert result.makespan_ns > 0
    assert time.process_time() - between < 10 * (between - begin)


@pytest.mark.parametrize("layers", [[[1, 2], [3, 4]], [[10]]])
def test_layers_survive_their_text(layers):
    assert parse_layers(layers_text(layers)) == layers


@pytest.mark.parametrize("text", ["", "a b", "1 -2", "1.5 2", "<img src=x>", "9999999 1"])
def test_text_without_numbers_is_refused(text):
    with pytest.raises(InputError):
        parse_layers(text)


@pytest.mark.parametrize(
    ("layers", "words"), [([[7, 7, 7]], "rows of"), ([[7, 7, 7, 8]], "sum to 29"), ([[0, 9, 9, 10]], "at least 1")]
)
def test_layers_that_are_no_split_say_why(layers, words):
    with pytest.raises(InputError, match=words):
        LayerPlanner(problem("d10")).layout(layers)


def test_chunks_are_named_with_their_stage():
    planner = LayerPlanner(problem("d09"))
    moves = planner.moves(planner.layout([[2, 1], [1, 2]]))
    assert set(moves["from"]) == {"0.0", "1.1"}
    assert np.issubdtype(moves["change_ns"].dtype, np.integer)
