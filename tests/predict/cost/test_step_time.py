"""Step times against measured runs, closed forms of the pipeline, and the laws that any prediction obeys."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from perfkit.core import catalog
from perfkit.core.breakdown import Breakdown
from perfkit.core.errors import InputError
from perfkit.core.spec.optimizer import OptimizerSpec
from perfkit.core.spec.parallel import ParallelPlan
from perfkit.core.spec.plan import Plan
from perfkit.core.spec.recompute import RecomputePlan
from perfkit.core.spec.workload import Workload
from perfkit.predict.cost.collectives import Network, all_reduce_s, gather_s
from perfkit.predict.cost.cost_columns import costs_of
from perfkit.predict.cost.efficiency import Efficiency
from perfkit.predict.cost.operators import Device, product_s
from perfkit.predict.cost.step_time import breakdown
from perfkit.predict.estimate import efficiency_of

A100 = catalog.hardware_named("A100-80GB-SXM")
PLAN = Plan(
    model=catalog.model("gpt-7.5b"),
    workload=Workload(seq_length=2048, micro_batch_size=2, global_batch_size=64),
    parallel=ParallelPlan(data_parallel_size=2, tensor_parallel_size=4, pipeline_parallel_size=4),
    recompute=RecomputePlan(all_layers=True),
    hardware=A100,
)


def usual(**changes: float) -> Efficiency:
    """The default calibration's efficiencies of an A100 with Megatron, some of them changed."""
    return replace(efficiency_of(PLAN), **changes)


def step_time(plan: Plan, efficiency: Efficiency | None = None) -> Breakdown:
    return breakdown(costs_of([plan]), efficiency or usual())


def device(**changes: float) -> Device:
    numbers = {"flops_per_s": 312e12, "bytes_per_s": 2e12, "units": 108.0, "half_depth": 0.0, "misaligned": 1.4, **changes}
    numbers.setdefault("most_flops_per_s", numbers["flops_per_s"])
    return Device(**{name: np.array([value]) for name, value in numbers.items()})


def one(value: float) -> np.ndarray:
    return np.array([float(value)])


def network(**changes: float | bool) -> Network:
    numbers = {
        "intra_bytes_per_s": 228e9,
        "node_bytes_per_s": 100e9,
        "intra_latency_s": 0.0,
        "inter_latency_s": 0.0,
        "devices_per_node": 8.0,
        "mesh": False,
        "pair": 1.0,
        "quad": 1.0,
        **changes,
    }
    return Network(**{name: np.array([value]) for name, value in numbers.items()})


def test_a_product_of_whole_tiles_in_whole_waves_runs_at_the_ceiling():
    side = 128.0 * 108
    seconds = product_s(one(256 * 4), one(side), one(8192), device())
    assert seconds[0] == pytest.approx(2 * 1024 * side * 8192 / 312e12, rel=1e-9)


def test_one_row_too_many_costs_a_whole_row_of_tiles():
    assert product_s(one(1025), one(13824), one(8192), device())[0] > 1.1 * product_s(one(1024), one(13824), one(8192), device())[0]


def test_a_thin_product_takes_as_long_as_its_bytes():
    seconds = product_s(one(1), one(8192), one(8192), device())
    assert seconds[0] >= 2 * 8192 * 8192 / 2e12


@pytest.mark.parametrize(("depth", "factor"), [(128, 1.0), (96, 1.4), (100, 1.96)])
def test_misaligned_rows_cost_and_those_off_the_matrix_unit_cost_twice(depth, factor):
    big = device(bytes_per_s=1e18)
    aligned = product_s(one(2048), one(2048), one(depth), device(bytes_per_s=1e18, misaligned=1.0))
    assert product_s(one(2048), one(2048), one(depth), big)[0] / aligned[0] == pytest.approx(factor)


def test_an_all_reduce_moves_its_ring_volume():
    assert all_reduce_s(one(1e9), one(8), one(1), network())[0] == pytest.approx(2 * 7 / 8 * 1e9 / 228e9)


@pytest.mark.parametrize(
    ("intra_bytes_per_s", "size", "slowest_bytes_per_s"), [(228e9, 16, 100e9), (30e9, 16, 30e9), (30e9, 8, 30e9)]
)
def test_a_ring_that_leaves_its_node_is_as_slow_as_the_slower_of_link_and_network(intra_bytes_per_s, size, slowest_bytes_per_s):
    found = gather_s(one(1e9), one(size), one(1), network(intra_bytes_per_s=intra_bytes_per_s))[0]
    assert found == pytest.approx((size - 1) / size * 1e9 / slowest_bytes_per_s)


def test_groups_that_leave_a_node_share_its_network():
    alone = gather_s(one(1e9), one(16), one(1), network())
    beside_seven = gather_s(one(1e9), one(16), one(8), network())
    assert beside_seven[0] / alone[0] == pytest.approx(8.0)


def test_a_pair_in_a_mesh_has_one_link_of_seven():
    whole = gather_s(one(1e9), one(2), one(1), network())
    assert gather_s(one(1e9), one(2), one(1), network(mesh=True))[0] / whole[0] == pytest.approx(7.0)


@pytest.mark.parametrize("devices", [2, 4, 8])
def test_a_group_that_fills_its_node_uses_all_of_its_links(devices):
    """What `pair` and `quad` take from a group of a larger node: 23 and 88 of 150 GB/s of the V100s of a DGX-1."""
    small = {"pair": 0.20, "quad": 0.78}
    own = network(devices_per_node=float(devices), **small)
    assert gather_s(one(1e9), one(devices), one(1), own)[0] == pytest.approx((devices - 1) / devices * 1e9 / 228e9)
    if devices < 8:
        assert (
            gather_s(one(1e9), one(devices), one(1), network(**small))[0] > 1.2 * gather_s(one(1e9), one(devices), one(1), own)[0]
        )


def test_all_reduce_times_are_those_measured_in_one_node():
    rows = [(2, 64 * 2**20, 405e-6), (4, 64 * 2**20, 544e-6), (8, 64 * 2**20, 580e-6), (8, 8 * 2**20, 134e-6)]  # vTrain, A100
    eff = usual()
    links = network(intra_bytes_per_s=300e9 * 0.75, intra_latency_s=float(eff.intra_latency_s), pair=0.83, quad=0.93)
    for ranks, size, measured in rows:
        assert all_reduce_s(one(size), one(ranks), one(1), links)[0] == pytest.approx(measured, rel=0.25)


def test_the_leaves_sum_to_the_step_with_the_first_levels_of_a_measured_one():
    split = step_time(PLAN)
    assert isinstance(split, Breakdown)
    assert set(split.collapse(1).parts) == {"computing", "communication", "bubble", "free"}


def test_equal_stages_wait_for_p_minus_one_micro_batches():
    ideal = usual(intra_latency_s=0.0, inter_latency_s=0.0, send_host_s=0.0, step_host_s=0.0, straggler=0.0, layer_host_s=0.0)
    tiny = replace(PLAN, model=replace(PLAN.model, vocab_size=128))
    split = step_time(tiny, ideal)
    other = split.total - split.amount("bubble") - split.amount("computing/optimizer")
    other -= split.amount("communication/exposed/dp") + split.amount("communication/exposed/pp")
    assert split.amount("bubble") / other == pytest.approx(3 / 16, rel=0.02)


def test_the_head_of_a_vocabulary_off_the_grain_costs_more_only_where_nobody_pads_it():
    head = replace(PLAN, model=replace(PLAN.model, vocab_size=50257), parallel=ParallelPlan(data_parallel_size=32))
    even = replace(head, model=replace(head.model, vocab_size=50256))
    unpadded = usual(unpadded=3.0)
    assert step_time(head, unpadded).total > step_time(head).total
    assert step_time(even, unpadded).total == step_time(even).total


def test_device_and_host_of_equal_time_wait_for_each_other_a_little():
    none, some = usual(host_rounding=0.01), usual(host_rounding=0.3)
    small = replace(PLAN, parallel=ParallelPlan(data_parallel_size=32))
    assert step_time(small, some).amount("free") > step_time(small, none).amount("free")
    assert step_time(small, some).total < step_time(small, none).total * 1.35


def test_the_host_wait_of_a_group_that_fills_a_node_is_multiplied():
    slow, waiting = usual(layer_host_s=1.0), usual(layer_host_s=1.0, node_wait=2.0)
    whole = replace(PLAN, parallel=ParallelPlan(data_parallel_size=4, tensor_parallel_size=8))
    half = replace(PLAN, parallel=ParallelPlan(data_parallel_size=8, tensor_parallel_size=4))
    assert step_time(half, waiting).total == step_time(half, slow).total
    assert step_time(whole, waiting).amount("free") == pytest.approx(2 * step_time(whole, slow).amount("free"), rel=0.01)


def test_chunks_divide_the_bubble():
    chunked = replace(PLAN, parallel=replace(PLAN.parallel, virtual_pipeline_parallel_size=3))
    assert step_time(chunked).amount("bubble") < 0.4 * step_time(PLAN).amount("bubble")


def test_recomputation_costs_about_the_forward_pass():
    split, plain = step_time(PLAN), step_time(replace(PLAN, recompute=RecomputePlan()))
    layers = split.amount("computing/recompute")
    assert plain.amount("computing/recompute") == 0
    assert layers == pytest.approx(split.amount("computing/forward"), rel=0.25)


def long_sequence(**sizes: int | str) -> Plan:
    work = replace(PLAN.workload, seq_length=32768, micro_batch_size=1, global_batch_size=16)
    return replace(PLAN, workload=work, parallel=ParallelPlan(**{"data_parallel_size": 2, "pipeline_parallel_size": 2, **sizes}))


def test_heads_exchanged_in_one_group_of_all_ranks_are_the_exchange_alone():
    def exposed(**sizes: int | str) -> float:
        return float(step_time(long_sequence(context_parallel_size=8, **sizes)).amount("communication/exposed/cp"))

    alone = exposed(context_parallel_algorithm="ulysses")
    assert exposed(context_parallel_algorithm="hybrid", ulysses_size=8) == alone
    assert exposed(context_parallel_algorithm="hybrid", ulysses_size=1) == exposed(context_parallel_algorithm="ring")
    # Each of 8 ranks sends 7/8 of 4 tensors of its tokens, twice; a ring carries 7/8 of 2 tensors of all tokens, three times.
    assert exposed(context_parallel_algorithm="ring") > 3 * alone


def test_pieces_of_a_sequence_shorten_the_bubble():
    whole, cut = step_time(long_sequence()), step_time(long_sequence(sequence_chunks=4))
    assert cut.amount("bubble") == pytest.approx(whole.amount("bubble") / 4, rel=0.1)
    assert cut.amount("computing/forward") == pytest.approx(whole.amount("computing/forward"), rel=0.1)


def test_scores_that_are_stored_take_longer_than_flash_attention():
    unfused = replace(PLAN, workload=replace(PLAN.workload, attention_kernel="unfused"))
    assert step_time(unfused).amount("computing/forward/attention") > step_time(PLAN).amount("computing/forward/attention")


def test_half_the_peak_takes_longer_but_not_twice_as_long():
    slow = replace(A100, peak_flops_per_s={"bfloat16": 156e12, "float16": 156e12})
    ratio = step_time(replace(PLAN, hardware=slow)).total / step_time(PLAN).total
    assert 1.3 < ratio < 2.0


def test_a_plan_without_a_device_names_what_is_missing():
    with pytest.raises(InputError, match="hardware is not named"):
        step_time(replace(PLAN, hardware=None))


def test_a_device_without_a_network_is_refused_for_several_nodes():
    lonely = replace(A100, links={"intra_node": A100.links["intra_node"]})
    with pytest.raises(InputError, match="inter_node"):
        step_time(replace(PLAN, hardware=lonely))


GATED = Plan(
    model=catalog.model("llama2-13b"),
    workload=Workload(seq_length=4096, micro_batch_size=1, global_batch_size=64),
    parallel=ParallelPlan(data_parallel_size=4, tensor_parallel_size=2, pipeline_parallel_size=2, sequence_parallel=True),
    hardware=catalog.hardware_named("Ascend-910B2"),
)
SILU_MUL = (r"feed_forward\.mul", r"feed_forward\.w1\.activation\.silu")


def repeated(**changes: object) -> Breakdown:
    return step_time(replace(GATED, recompute=RecomputePlan(**changes)))


def test_repeating_silu_and_mul_costs_their_bytes_and_nothing_else():
    eff, layers = usual(memory=0.5), ((20, 20),)
    plans = [replace(GATED, recompute=one) for one in (RecomputePlan(), RecomputePlan(operators=dict.fromkeys(SILU_MUL, layers)))]
    plain, again = (step_time(one, eff) for one in plans)
    unit = 4096 * GATED.model.ffn_hidden_size * 2 / 2  # bytes of the gate on a device of a pair
    moved = (2 + 3) * unit  # Silu reads and writes, Mul reads two and writes
    assert again.amount("computing/recompute") == pytest.approx(16 * 20 * moved / (1600e9 * 0.5))
    assert again.total - plain.total == pytest.approx(again.amount("computing/recompute"), rel=0.2)
    assert plain.amount("computing/recompute") == 0


@pytest.mark.parametrize("pattern", [r"attention_norm\.norm", r"ffn_norm\.norm", r"attention\.apply_rotary_emb"])
def test_no_operator_that_does_something_is_repeated_for_nothing(pattern):
    assert repeated(operators={pattern: ((20, 20),)}).amount("computing/recompute") > 0


def test_views_are_repeated_for_nothing():
    assert repeated(operators={r"feed_forward\.w1\.reshape": ((20, 20),)}).total == repeated().total


def test_gathering_again_costs_two_of_sequence_parallelisms_collectives():
    more = repeated(communication=((20, 20),)).amount("communication/exposed/tp") - repeated().amount("communication/exposed/tp")
    assert more == pytest.approx(repeated().amount("communication/exposed/tp") / 4, rel=0.05)


def test_a_stage_that_repeats_more_than_others_costs_more_than_spread_and_less_than_everywhere():
    assert repeated(full_layers=((4, 4),)).total < repeated(full_layers=((8, 0),)).total < repeated(full_layers=((8, 8),)).total


def test_swapped_layers_take_their_way_to_the_host_and_back_as_far_as_computing_does_not_hide_it():
    slow = replace(GATED.hardware, links={**GATED.hardware.links, "host": replace(GATED.hardware.links["host"], bytes_per_s=1e9)})
    swapped = replace(GATED, recompute=RecomputePlan(swapped_layers=((20, 20),)))
    exposed = [step_time(replace(swapped, hardware=one)).amount("communication/exposed/swap") for one in (GATED.hardware, slow)]
    assert 0 < exposed[0] < 0.05 * exposed[1]
    with pytest.raises(InputError, match=r"links\.host"):
        step_time(
            replace(
                swapped,
                hardware=replace(slow, links={"intra_node": slow.links["intra_node"], "inter_node": slow.links["inter_node"]}),
            )
        )


def test_an_optimizer_with_less_state_updates_faster_and_full_experts_take_longer():
    plain = step_time(GATED).amount("computing/optimizer")
    sgd = replace(GATED, optimizer=OptimizerSpec(name="sgd", state_bytes_per_parameter=0))
    assert step_time(sgd).amount("computing/optimizer") == pytest.approx(14 / 30 * plain)
    mixed = replace(GATED, model=catalog.model("mixtral-8x7b"))
    capped = replace(mixed, model=replace(mixed.model, expert_capacity_factor=1.5))
    assert step_time(capped).amount("computing/forward/matmul") > 1.1 * step_time(mixed).amount("computing/forward/matmul")


def test_megatrons_softmax_falls_back_where_its_blocks_do_not_fit():
    eff = usual(layer_host_s=0.5, softmax_host_s=0.5, host_rounding=0.0)
    work = replace(PLAN.workload, attention_kernel="unfused", micro_batch_size=1)
    even = replace(PLAN, workload=work, parallel=ParallelPlan(data_parallel_size=4, tensor_parallel_size=8))  # 4 heads a rank
    odd = replace(even, parallel=ParallelPlan(data_parallel_size=2, tensor_parallel_size=16))  # 2 heads a rank
    assert step_time(odd, eff).amount("free") > 1.2 * 2 * step_time(even, eff).amount("free") / 2
    assert step_time(replace(odd, workload=replace(work, micro_batch_size=2)), eff).amount("free") < step_time(odd, eff).amount(
        "free"
    )
