"""Moving single layers: what is said to change is what changes."""

from dataclasses import replace

import numpy as np
import pytest

from perfkit.core.errors import InputError
from perfkit.predict.plans.balance.balance import balance
from perfkit.predict.plans.balance.case_file import read_problem
from perfkit.predict.plans.balance.moves import LayerPlanner, layers_text, parse_layers
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
