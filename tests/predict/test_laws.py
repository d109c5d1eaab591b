"""Laws of a predicted step, over many plans: no device does more than it can, and more to do never takes less time."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from perfkit.core import catalog
from perfkit.core.errors import InputError
from perfkit.core.spec.parallel import ParallelPlan
from perfkit.core.spec.plan import Plan
from perfkit.core.spec.recompute import RecomputePlan
from perfkit.core.spec.software import SoftwareSpec
from perfkit.predict.cost.operators import ATTAINABLE
from perfkit.predict.cost.releases import priced_release
from perfkit.predict.estimate import estimate, estimates
from tests.predict.random_plans import random_plans

RELEASES = ("0.1", "0.7", "1.0", "1.3", "1.5.0", "1.6", "1.8", "1.10", "1.99")
OTHERS = ("", "2", "2.3.1", "2.10", "2024.1", "9999.9999")
"""What is no release of MindFormers."""


@pytest.fixture(scope="module")
def plans() -> list[Plan]:
    """Dense and mixed ones on four devices, every other one with overlaps stated."""
    drawn = random_plans(400)
    overlapped = SoftwareSpec(overlap_dp=True, overlap_tp=True, overlap_pp=True, overlap_ep=True)
    found = [replace(one, software=overlapped) if index % 2 else one for index, one in enumerate(drawn)]
    return found + [swapping(one) for one in found if one.software == overlapped and one.parallel.data_parallel_size > 1]


def swapping(plan: Plan) -> Plan:
    """One micro batch, whose layers are all copied to the host and back beside the same computing as gradients are sent."""
    work, parallel = plan.workload, plan.parallel
    batch = work.micro_batch_size * parallel.data_parallel_size * parallel.micro_batch_interleave_size
    return replace(plan, workload=replace(work, global_batch_size=batch), recompute=RecomputePlan(swapped_layers=plan.stage_layers))


def seconds(plans: list[Plan]) -> np.ndarray:
    return np.array([one.step_time_s for one in estimates(plans)])


def test_no_release_of_the_software_makes_a_device_faster_than_it_is(plans):
    device = catalog.hardware_named("Ascend-910B2")
    own = [replace(one, hardware=device) for one in plans[:100]]
    own.append(replace(own[0], model=catalog.model("llama2-70b"), recompute=RecomputePlan(), parallel=ParallelPlan()))
    times = []
    for release in (*RELEASES, *OTHERS):
        found = estimates([replace(one, software=SoftwareSpec(framework="mindspore", release=release)) for one in own])
        assert max(one.hfu for one in found) <= ATTAINABLE
        times.append([one.step_time_s for one in found])
    ordered, others = np.array(times[: len(RELEASES)]), np.array(times[len(RELEASES) :])
    assert (np.diff(ordered, axis=0) <= 0).all()
    assert (others == ordered[RELEASES.index("1.3")]).all()


@pytest.mark.parametrize("release", [*RELEASES, *OTHERS])
def test_a_release_that_was_not_measured_is_told_with_the_one_that_is_taken(release):
    one = replace(random_plans(1)[0], hardware=catalog.hardware_named("Ascend-910B2"))
    found = [item for item in estimate(replace(one, software=SoftwareSpec(release=release))).assumed if item.field == "release"]
    measured = release in ("0.7", "1.0", "1.3", "1.5.0", "1.6")
    assert [item.value for item in found] == ([] if measured else [priced_release(release)])
    assert not found or not release or release in found[0].why


def test_a_device_without_a_peak_in_16_bits_is_not_priced_with_one():
    plan = random_plans(1)[0]
    device = replace(catalog.hardware_named("H100-80GB-SXM"), peak_flops_per_s={"float8": 2e15})
    with pytest.raises(InputError, match="no peak in 16 bits"):
        estimate(replace(plan, hardware=device, workload=replace(plan.workload, dtype="float8")))


@pytest.mark.parametrize(("dtype", "held"), [("float8", "bfloat16"), ("float4", "bfloat16"), ("bfloat16", "bfloat16")])
def test_the_width_of_weights_that_is_told_is_the_one_that_is_counted(dtype, held):
    plan = replace(random_plans(1)[0], hardware=catalog.hardware_named("B200-180GB-SXM"))
    plan = replace(plan, workload=replace(plan.workload, dtype=dtype))
    (told,) = (one.value for one in estimate(plan).assumed if one.field == "parameter_dtype")
    assert told == held
    stated = replace(plan, optimizer=replace(plan.optimizer, parameter_dtype=held))
    assert estimate(stated).memory == estimate(plan).memory


def longer(plan: Plan) -> Plan:
    return replace(plan, workload=replace(plan.workload, seq_length=2 * plan.workload.seq_length))


def larger(plan: Plan) -> Plan:
    work = plan.workload
    return replace(
        plan,
        workload=replace(work, micro_batch_size=2 * work.micro_batch_size, global_batch_size=2 * work.global_batch_size),
    )


def more(plan: Plan) -> Plan:
    return replace(plan, workload=replace(plan.workload, global_batch_size=2 * plan.workload.global_batch_size))


def more_experts_a_token(plan: Plan) -> Plan:
    model = plan.model
    return replace(plan, model=replace(model, num_experts_per_token=min(model.num_experts_per_token + 1, model.num_experts)))


def fuller(plan: Plan) -> Plan:
    model = plan.model
    return (
        replace(plan, model=replace(model, expert_capacity_factor=1.1 * (model.expert_capacity_factor or 1.0)))
        if model.num_experts
        else plan
    )


def slower(plan: Plan) -> Plan:
    device = plan.hardware
    peaks = {dtype: peak / 2 for dtype, peak in device.peak_flops_per_s.items()}
    return replace(plan, hardware=replace(device, peak_flops_per_s=peaks))


@pytest.mark.parametrize("change", [longer, larger, more, more_experts_a_token, fuller, slower], ids=lambda one: one.__name__)
def test_more_to_do_never_takes_less_time(plans, change: Callable[[Plan], Plan]):
    # Megatron's fused softmax takes matrices of scores by fours: two more of them can be faster, as was measured.
    own = [one for one in plans if one.workload.attention_kernel == "flash" or change is not larger]
    before, after = seconds(own), seconds([change(one) for one in own])
    assert (after >= before * (1 - 1e-12)).all(), [own[row] for row in np.flatnonzero(after < before)[:2]]
