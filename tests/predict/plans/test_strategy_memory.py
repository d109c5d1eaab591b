"""Memory and step time of many strategies at once are those of every plan on its own."""

from __future__ import annotations

import random
from dataclasses import replace

import numpy as np
import pytest

from perfkit.core import catalog
from perfkit.core.plan_columns import Coded
from perfkit.core.spec import Plan, Workload
from perfkit.predict.cost.cost_columns import cost_columns, costs_of
from perfkit.predict.memory.memory import peak_memory
from perfkit.predict.memory.settings import settings_for
from perfkit.predict.memory.table import ALL, fullest_bytes
from perfkit.predict.plans.search._search_space import space_of
from perfkit.predict.plans.search._strategy_plans import StrategyPlans
from perfkit.predict.plans.search.strategy_space import enumerate_strategies

CASES = {
    "llama with grouped queries": ("llama2-70b", "A100-80GB-SXM", 64, {"cp": (1, 2)}, {}),
    "MindSpore, uneven stages": ("llama2-13b", "Ascend-910B2", 24, {"pp": (1, 3, 6, 12), "zero": (0, 1, 3)}, {}),
    "experts, split over groups": ("mixtral-8x7b", "H100-80GB-SXM", 64, {"ep": (1, 2, 8), "cp": (1,)}, {}),
    "experts after dense layers": ("deepseek-v3", "H100-80GB-SXM", 128, {"ep": (8, 16), "cp": (1,), "vpp": (1,)}, {}),
    "dropout and stored scores": ("gpt3-175b", "A100-80GB-SXM", 128, {}, {"dropout": True, "attention_kernel": "unfused"}),
    "sharing in groups": ("llama2-7b", "Ascend-910B2", 32, {"shard": (0, 2, 8)}, {}),
}


def searched(name):
    model, device, devices, choices, work = CASES[name]
    workload = Workload(seq_length=4096, micro_batch_size=1, global_batch_size=devices * 6, **work)
    base = Plan(model=catalog.model(model), workload=workload, hardware=catalog.hardware_named(device))
    settings = settings_for(base)
    space = space_of(base, devices, choices, settings)
    return StrategyPlans(base=base, space=space), enumerate_strategies(space).columns, settings


def sample(columns):
    rows = range(len(columns["tp"]))
    return random.Random(7).sample(rows, min(60, len(rows)))


def memory_of(name):
    plans, columns, settings = searched(name)
    rows = plans.plans(columns)
    return plans, columns, settings, fullest_bytes(rows, Coded.same(settings, len(rows)), ALL, ("static",))


@pytest.mark.parametrize("name", CASES)
def test_the_strategies_as_columns_are_their_plans(name):
    plans, columns, _ = searched(name)
    rows = np.array(sample(columns))
    found = plans.plans({key: values[rows] for key, values in columns.items()})
    for index, row in enumerate(rows.tolist()):
        assert found.plan(index) == replace(plans.plan(plans.row(columns, row)), document=None)


@pytest.mark.parametrize("name", CASES)
def test_the_peak_of_every_strategy_is_that_of_its_plan(name):
    plans, columns, settings, (peaks, _) = memory_of(name)
    for row in sample(columns):
        assert peaks[row] == peak_memory(plans.plan(plans.row(columns, row)), settings=settings).peak.total


@pytest.mark.parametrize("name", CASES)
def test_the_columns_of_the_strategies_are_those_of_their_plans(name):
    plans, columns, _ = searched(name)
    rows = np.array(sample(columns))
    found = cost_columns(plans.plans({key: values[rows] for key, values in columns.items()}))
    exact = costs_of([plans.plan(plans.row(columns, int(row))) for row in rows])
    for field in exact.__dataclass_fields__:
        np.testing.assert_array_equal(numbers(getattr(found, field)), numbers(getattr(exact, field)), err_msg=field)


def numbers(column):
    """A column as numbers: what the layers of a plan are is told by their sums."""
    if not isinstance(column, Coded):
        return column
    return np.concatenate([np.ravel(getattr(value, "amounts", value)) for value in column])


def test_static_memory_alone_is_never_more_than_the_peak():
    *_, (peak, static) = memory_of("llama with grouped queries")
    assert (static < peak).all()
