"""Plans in columns: the same plans, whatever is taken of them and wherever they come from."""

from __future__ import annotations

from dataclasses import fields, replace
from pathlib import Path

import numpy as np
import pytest

from perfkit.config.dialects import read_config
from perfkit.core.errors import InputError
from perfkit.core.plan_columns import FIELDS, PARTS, Coded, PlanColumns, combined, distinct
from perfkit.core.spec.plan import Plan
from tests.predict.random_plans import adapted_plans, random_plans

ROOT = Path(__file__).resolve().parents[2]
CONFIGS = sorted((ROOT / "data" / "configs").glob("*"))


@pytest.fixture(scope="module")
def plans():
    return [*random_plans(700), *adapted_plans(100)]


def test_plans_come_back_from_columns_as_they_were(plans):
    columns = PlanColumns.of(plans)
    assert [columns.plan(row) for row in range(len(plans))] == plans


@pytest.mark.parametrize("path", CONFIGS, ids=lambda path: path.name)
def test_a_configuration_comes_back_without_its_document(path):
    try:
        plan = read_config(path)
    except InputError:
        pytest.skip("no configuration of its own")
    assert PlanColumns.of([plan]).plan(0) == replace(plan, document=None)


def test_every_field_of_a_plan_is_a_column():
    columns = {item.name for item in fields(PlanColumns) if item.init}
    of_parts = sum(len(fields(part)) for part in PARTS.values())
    of_plan = [item.name for item in fields(Plan) if item.name not in (*PARTS, "document")]
    assert columns == set(FIELDS)
    assert len(columns) == of_parts + len(of_plan)


def test_parts_of_a_table_are_its_plans(plans):
    columns = PlanColumns.of(plans)
    rows = np.random.default_rng(0).permutation(len(plans))[:50]
    taken = columns.take(rows)
    assert [taken.plan(row) for row in range(50)] == [plans[row] for row in rows]
    pieces = list(columns.chunks(300))
    assert [piece.plan(0) for piece in pieces] == plans[::300]
    assert sum(map(len, pieces)) == len(plans)
    np.testing.assert_array_equal(columns.num_devices, [plan.num_devices for plan in plans])
    np.testing.assert_array_equal(columns.num_micro_batches, [plan.num_micro_batches for plan in plans])


def test_a_single_plan_has_numbers_where_a_table_has_arrays(plans):
    table = PlanColumns.of(plans[:50])
    for row, plan in enumerate(plans[:50]):
        alone = PlanColumns.one(plan)
        assert len(alone) == 1
        assert alone.single is plan
        for name in FIELDS:
            column, cell = getattr(table, name), getattr(alone, name)
            assert np.ndim(cell.codes if isinstance(cell, Coded) else cell) == 0, name
            np.testing.assert_equal(cell[0] if isinstance(cell, Coded) else cell, column[row], err_msg=name)
        assert alone.program[0] == table.program[row]
        assert replace(alone, seq_length=np.float64(7.0)).single is None, "of what has changed it is not the plan"


def test_no_plans_are_an_empty_table():
    assert len(PlanColumns.of([])) == 0


def test_a_row_that_contradicts_itself_names_every_problem(plans):
    columns = PlanColumns.of(plans[:1])
    wrong = replace(columns, hidden_size=np.zeros(1), micro_batch_size=np.zeros(1), optimizer_shard_level=np.full(1, 7.0))
    with pytest.raises(InputError) as caught:
        wrong.plan(0)
    assert [any(word in problem for problem in caught.value.problems) for word in ("hidden", "micro_batch", "shard_level")] == [
        True
    ] * 3


def test_coded_columns_keep_their_values():
    words = ["a", "b", "a", "c"] * 10
    column = Coded.of(words)
    assert [column[row] for row in range(len(column))] == words
    assert column.is_("a", "c").tolist() == [word != "b" for word in words]
    assert column.numbers(ord).tolist() == [ord(word) for word in words]
    many = Coded.of(range(100))
    assert len(many.take(np.array([3, 3, 70])).values) == 2
    both = combined(column, Coded.same("x", len(words)))
    assert [both[row] for row in range(len(words))] == [(word, "x") for word in words]


@pytest.mark.parametrize("bound", [1, 3, 40, 10**6])
@pytest.mark.parametrize("count", [1, 2, 50, 3000])
def test_different_codes_are_those_of_numpy_counted_or_sorted(bound: int, count: int):
    codes = np.random.default_rng(count).integers(0, bound, count)
    wanted, places = np.unique(codes, return_inverse=True)
    kept, own = distinct(codes, bound)
    assert kept.tolist() == wanted.tolist()
    assert own.tolist() == places.tolist()


def test_combinations_of_columns_are_those_that_rows_have():
    columns = [Coded.of(np.random.default_rng(seed).integers(0, 2 + seed, 200).tolist()) for seed in range(4)]
    found = combined(*columns)
    rows = list(zip(*(map(column.__getitem__, range(200)) for column in columns), strict=True))
    assert [found[row] for row in range(200)] == rows
    assert set(found.values) == set(rows), "and no other"
