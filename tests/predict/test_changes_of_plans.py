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
from perfkit.face.panels import _plan_state as plan_state
from perfkit.predict.memory.settings import settings_for
from perfkit.predict.memory.switches import switches
from perfkit.predict.studies.features import parallel_features
from tests.predict.random_plans import random_plans
from tests.predict.test_limits import CONFIGS

NOT_ASKED = ("recompute.", "layers_per_stage")
"""Fields that nobody changed: counts and layouts follow the change by themselves."""


def on_device(plan: Plan) -> Plan:
    return replace(plan, hardware=catalog.hardware_named("Ascend-910B2"), memory_limit=None)


@pytest.mark.parametrize("path", CONFIGS, ids=lambda path: path.name)
def test_a_bundled_configuration_takes_every_feature_switch_size_and_layout(path):
    plan = on_device(read_config(path))
    refused = list(parallel_features(plan, more_devices=True)["why_not"])
    refused += [switch.why_not for switch in switches(plan, settings_for(plan))]
    state = plan_state.State(preset=str(path))
    for name in plan_state.SIZES:
        for size in (1, 2, 4, 8):
            refused += problems_of(lambda name=name, size=size: plan_state.plan_of(replace(state, **{name: size})))
    stages, layers = plan.parallel.pipeline_parallel_size, plan.model.num_layers
    even = ",".join(str(sum(column)) for column in zip(*even_layers(layers, stages, 1), strict=True))
    for asked in ("pp:2", "pp:4", "vpp:2", f"layers:{even}"):
        refused += problems_of(lambda asked=asked: changed_plan(plan, parse_changes([asked])))
    assert not [why for why in refused if any(word in why for word in NOT_ASKED)]


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
