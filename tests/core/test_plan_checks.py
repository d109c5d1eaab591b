"""What contradicts itself between the parts of a plan is told by the plan, whatever dialect states it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from perfkit.core.errors import InputError
from perfkit.core.spec.parallel import ParallelPlan
from perfkit.core.spec.recompute import RecomputePlan
from tests.predict.simulate.plans import plan_of

PLAN = plan_of("gpt-7.5b", 8, dp=2, pp=2)


def test_recomputed_layers_beyond_stages_are_told_all_at_once_with_the_nearest_right_counts():
    with pytest.raises(InputError) as error:
        replace(
            PLAN,
            recompute=RecomputePlan(
                full_layers=((19, 0),), communication=((1, 1, 1),), operators={r"feed_forward\.mul": ((1, 40),)}
            ),
        )
    assert error.value.problems == (
        "recompute.full_layers = [19, 0] is more than the layers there; nearest is [18, 0]",
        "recompute.communication = [1, 1, 1] must have 1 rows (chunks) of 2 counts (stages)",
        r"recompute.feed_forward\.mul = [1, 40] is more than the layers there; nearest is [1, 18]",
    )


def test_counts_are_those_of_the_layers_that_lie_on_each_stage():
    uneven = replace(PLAN.parallel, layers_per_stage=((30, 6),))
    again = RecomputePlan(full_layers=((30, 0),))
    assert replace(PLAN, parallel=uneven, recompute=again).recompute is again
    with pytest.raises(InputError, match=r"nearest is \[18, 0\]"):
        replace(PLAN, recompute=again)


def test_experts_are_split_only_where_there_are_some():
    with pytest.raises(InputError, match="expert_parallel_size = 2, but the model has no experts; nearest is 1"):
        replace(PLAN, parallel=ParallelPlan(data_parallel_size=2, expert_parallel_size=2))
