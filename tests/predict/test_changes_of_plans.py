"""Every door that changes a plan changes any plan, or says why not in words that are true of the change."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import pytest

from perfkit.config.dialects import read_config
from perfkit.core import catalog
from perfkit.core.errors import InputError
from perfkit.core.spec.plan import Plan, even_layers
from perfkit.core.spec.recompute import Counts, RecomputePlan
from perfkit.core.spec.relaid import relaid, respread
from perfkit.explain.what_if._changes import parse_changes
from perfkit.explain.what_if._plans import changed_plan
from perfkit.predict.changes import AS_PLANNED, RECOMPUTATIONS
from perfkit.predict.changes import changed_plan as resized_plan
from perfkit.predict.memory.settings import settings_for
from perfkit.predict.memory.switches import switches
from perfkit.predict.studies.features import parallel_features
from tests.predict.random_plans import random_plans
from tests.predict.test_limits import CONFIGS

NOT_ASKED = ("recompute.", "layers_per_stage")
"""Fields that nobody changed: counts and layouts follow the change by themselves."""
SIZES = tuple(f"{name}_parallel_size" for name in ("data", "tensor", "pipeline", "virtual_pipeline", "context", "expert"))


def on_device(plan: Plan) -> Plan:
    return replace(plan, hardware=catalog.hardware_named("Ascend-910B2"), memory_limit=None)


@pytest.mark.parametrize("path", CONFIGS, ids=lambda path: path.name)
def test_a_bundled_configuration_takes_every_feature_switch_size_and_layout(path):
    plan = on_device(read_config(path))
    refused = list(parallel_features(plan, more_devices=True)["why_not"])
    refused += [switch.why_not for switch in switches(plan, settings_for(plan))]
    for name in SIZES:
        for size in (1, 2, 4, 8):
            refused += problems_of(lambda name=name, size=size: resized_plan(plan, **{name: size}))
    stages, layers = plan.parallel.pipeline_parallel_size, plan.model.num_layers
    even = ",".join(str(sum(column)) for column in zip(*even_layers(layers, stages, 1), strict=True))
    for asked in ("pp:2", "pp:4", "vpp:2", f"layers:{even}"):
        refused += problems_of(lambda asked=asked: changed_plan(plan, parse_changes([asked])))
    assert not [why for why in refused if any(word in why for word in NOT_ASKED)]


def test_what_is_not_named_does_not_change(plans):
    for plan in plans:
        assert resized_plan(plan) == plan
        same = {name: getattr(plan.parallel, name) for name in SIZES}
        level = plan.parallel.optimizer_shard_level if plan.parallel.optimizer_shard_size > 1 else 0
        work = {name: getattr(plan.workload, name) for name in ("micro_batch_size", "seq_length", "attention_kernel")}
        found = resized_plan(plan, **same, **work, optimizer_shard_level=level, framework=plan.program, recompute=AS_PLANNED)
        assert found == plan


def test_a_change_and_its_opposite_give_the_plan_again(plans):
    for plan in plans:
        size = plan.parallel.data_parallel_size
        group = replace(plan.parallel, optimizer_shard_size=size * plan.parallel.context_parallel_size)
        shared = replace(plan, parallel=replace(group, expert_tensor_parallel_size=0))
        twice = resized_plan(
            shared, data_parallel_size=2 * size, global_batch_size=2 * plan.workload.global_batch_size, optimizer_shard_level=1
        )
        assert twice.parallel.optimizer_shard_size == 2 * group.optimizer_shard_size
        level = shared.parallel.optimizer_shard_level if shared.parallel.optimizer_shard_size > 1 else 0
        back = resized_plan(
            twice, data_parallel_size=size, global_batch_size=plan.workload.global_batch_size, optimizer_shard_level=level
        )
        assert replace(back.parallel, optimizer_shard_level=1) == replace(shared.parallel, optimizer_shard_level=1)
        assert back.workload == shared.workload


def test_every_name_that_is_no_field_is_told_with_the_nearest():
    plan = read_config(CONFIGS[0])
    with pytest.raises(InputError) as error:
        resized_plan(plan, tensor_parallel=2, seqlength=8, recompute="everything")
    text = str(error.value)
    assert "'tensor_parallel' is no field of a plan, do you mean 'tensor_parallel_size'" in text
    assert "'seqlength'" in text
    assert all(name in text for name in (AS_PLANNED, *RECOMPUTATIONS))


def problems_of(change) -> list[str]:
    try:
        change()
    except InputError as error:
        return list(error.problems)
    return []


@pytest.fixture(scope="module")
def plans() -> list[Plan]:
    return [plan for plan in random_plans(400) if plan.recompute != RecomputePlan()]


@pytest.mark.parametrize(("stages", "chunks"), [(1, 1), (2, 1), (3, 2), (8, 1)])
def test_what_layers_recompute_follows_them_to_other_stages(plans, stages, chunks):
    for plan in plans:
        after = even_layers(plan.model.num_layers, stages, chunks)
        assert respread(plan.recompute, plan.stage_layers, plan.stage_layers) == plan.recompute
        if after == plan.stage_layers:
            continue
        found = respread(plan.recompute, plan.stage_layers, after)
        assert found.problems(after) == []
        for name, counts in plan.recompute.named_counts.items():
            now = found.named_counts[name]
            assert bool(now) == bool(counts)
            if counts and name != "swapped_layers":
                assert abs(total(now) - total(counts)) <= Fraction(stages * chunks, 2), name
        for full, swapped, layers in zip(found.full_layers, found.swapped_layers, after, strict=False):
            assert all(one + other <= held for one, other, held in zip(full, swapped, layers, strict=True))


def total(counts: Counts) -> int:
    return sum(map(sum, counts))


def test_all_layers_stay_all_and_none_stay_none():
    before, after = ((10, 2),), ((3, 3, 3, 3),)
    found = respread(RecomputePlan(full_layers=before, communication=((0, 0),)), before, after)
    assert (found.full_layers, found.communication) == (after, ((0, 0, 0, 0),))


def test_a_layout_by_hand_stays_while_its_stages_do(plans):
    for plan in plans:
        if plan.parallel.layers_per_stage is None:
            continue
        same = relaid(plan, sequence_chunks=2 * plan.parallel.sequence_chunks)
        assert (same.parallel.layers_per_stage, same.recompute) == (plan.parallel.layers_per_stage, plan.recompute)
