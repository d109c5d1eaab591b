"""Plans of a search side by side: what was chosen by its name, the best and the rule of thumb, one by hand."""

from __future__ import annotations

from dataclasses import replace

import pytest

from perfkit.core import catalog
from perfkit.core.errors import InputError
from perfkit.core.spec import Plan, Workload
from perfkit.core.units import GIB
from perfkit.predict.plans.search.comparison import compare_plans
from perfkit.predict.plans.search.search import Scored, search_plans
from perfkit.predict.plans.search.search_text import plan_text


@pytest.fixture(scope="module")
def base():
    work = Workload(seq_length=4096, micro_batch_size=1, global_batch_size=256)
    return Plan(model=catalog.model("llama2-13b"), workload=work, hardware=catalog.hardware_named("Ascend-910B2"))


@pytest.fixture(scope="module")
def found(base):
    return search_plans(base, devices=16, memory_limit_bytes=58 * GIB)


def test_the_best_two_and_the_rule_of_thumb_are_compared_until_others_are_chosen(found):
    compared = compare_plans(found)
    assert [one.role for one in compared.plans] == ["plan", "plan", "rule of thumb"]
    assert compared.first.plan == found.plans[0].plan
    chosen = [plan_text(found.plans[index].plan) for index in (3, 1)]
    assert [plan_text(one.plan) for one in compare_plans(found, chosen).plans] == chosen
    one = compare_plans(found, chosen[:1])
    assert [plan_text(two.plan) for two in one.plans] == [chosen[0], plan_text(found.plans[0].plan)], "beside the best"
    assert len(compare_plans(found, [plan_text(one.plan) for one in found.plans], by_hand={}).plans) == 4


def test_every_mark_has_the_name_and_the_figures_of_its_plan(found):
    assert len(found.marks) > 50
    for name, mark in list(found.marks.items())[::40]:
        plan, predicted = found.named(name)
        assert plan_text(plan) == name
        assert predicted.step_time_s == pytest.approx(mark.step_time_s)
        assert predicted.peak_memory_bytes == pytest.approx(mark.peak_memory_bytes, abs=1)
        assert mark.peak_memory_bytes <= found.memory_limit_bytes
    assert {plan_text(point.plan) for point in found.pareto} >= {name for name, mark in found.marks.items() if mark.front}
    assert found.named("dp 3") is None


def test_a_plan_by_hand_stands_beside_the_others_or_says_all_that_is_wrong(found):
    own = {"tp": 2, "pp": 2, "zero": 1, "recompute": "full"}
    last = compare_plans(found, by_hand=own).plans[-1]
    assert last.name == "4 by hand: data 4 × tensor 2 × pipeline 2"
    assert last.plan.recompute.all_layers
    wrong = compare_plans(found, by_hand={**own, "tp": 16, "vpp": 3})
    assert "tensor × context × pipeline does not divide the devices" in wrong.told()[-1]
    assert "attention heads" in wrong.told()[-1]
    assert len(wrong.plans) == 3


def test_where_nothing_fits_the_nearest_plan_and_its_parts_are_told(base):
    none = search_plans(base, devices=8, memory_limit_bytes=6 * GIB)
    assert none.told()[0].startswith("No plan fits 6.00 GiB. The nearest is")
    assert any("What fills its fullest stage" in text for text in none.told())
    assert compare_plans(none).to_frame()["fits"].iloc[0].startswith("no, ")


def test_another_limit_only_filters_what_a_search_has_kept(base):
    scored, asked = Scored(), []
    for gib in (58, 50):
        limited = replace(base, memory_limit=search_plans(base, devices=8, memory_limit_bytes=gib * GIB).memory_limit)
        search_plans(limited, devices=8, scored=scored, progress=lambda _what, _done, total: asked.append(total))
    assert sum(asked[1:]) < asked[0] / 4, "times of strategies that fit the larger limit are known"


def test_a_smaller_tensor_parallel_and_another_batch_are_those_that_are_asked_for(base):
    asked = search_plans(base, devices=16, global_batch_size=128, largest_tensor=2)
    assert asked.plans[0].plan.workload.global_batch_size == 128
    assert set(asked.candidates["tp"]) <= {1, 2}
    usual, node = (search_plans(base, devices=16, largest_tensor=largest) for largest in (None, 8))
    assert {**usual.to_dict(), "seconds": 0} == {**node.to_dict(), "seconds": 0}, "a node is the usual bound"
    with pytest.raises(InputError):
        search_plans(base, devices=16, global_batch_size=0)
