"""Every leaf of a step against a number by hand: a device of 100 TFLOP/s and 1 TB/s that loses nothing, links of 100 GB/s.

The model has layers of h = 1024, 8 heads of 128, f = 4096 ungated, 1024 tokens; a weight product of x FLOP takes x / 1e14 s.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from perfkit.core.errors import InputError
from perfkit.core.spec.hardware import HardwareSpec, Link
from perfkit.core.spec.model import ModelSpec
from perfkit.core.spec.parallel import ParallelPlan
from perfkit.core.spec.plan import Plan
from perfkit.core.spec.recompute import RecomputePlan
from perfkit.core.spec.workload import Workload
from perfkit.predict.cost.cost_columns import costs_of
from perfkit.predict.cost.efficiency import Efficiency
from perfkit.predict.cost.step_columns import step_parts
from perfkit.predict.cost.step_time import breakdown
from tests.predict.cost.pipeline_by_hand import period_s

TOKENS, HIDDEN, FFN, VOCAB, LAYERS = 1024, 1024, 4096, 8192, 8
FLOPS, BYTES, LINK, HOST = 1e14, 1e12, 1e11, 1e10
DEVICE = HardwareSpec(
    name="Ascend-910A",
    matrix_units=32,  # every product below fills its waves
    peak_flops_per_s={"bfloat16": FLOPS},
    memory_bytes=80 * 2**30,
    memory_bytes_per_s=BYTES,
    links={
        name: Link(name="link", bytes_per_s=rate)
        for name, rate in {"intra_node": LINK, "inter_node": LINK / 8, "host": HOST}.items()
    },
    devices_per_node=8,
)
LOSSLESS = Efficiency(
    matmul=1.0, half_depth=0.0, misaligned=1.0, memory=1.0, flash_forward=1.0, flash_backward=1.0, flash_rows=0.0,
    layer_host_s=0.0, step_host_s=0.0, send_host_s=0.0, host_link_share=1.0, intra_share=1.0, inter_share=1.0, pair=1.0, quad=1.0,
    intra_latency_s=0.0, inter_latency_s=0.0, contention=0.0, straggler=0.0, logit_bytes=8.0, optimizer_bytes=30.0,
    exchange_share=1.0, permuted=1.0, last_again=1.0, experts_hidden=0.0, experts_overlapped=0.5,
    elementwise=1.0, score_bytes=9.0, unpadded=1.0, host_rounding=0.15, group_rounding=0.3, node_wait=1.0, backward_host=1.5,
    collective_host_s=0.0, softmax_host_s=0.0, small_groups=1.0, gradients_hidden=0.0, tensor_hidden=0.0, interleave_hidden=0.45,
    group_rows=0.0, cast_bytes=0.0, accumulation=1.0, expert_host_s=0.0, sends_hidden=0.0, gradients_overlapped=1.0,
    tensor_overlapped=0.5, sends_overlapped=1.0, release_gain=0.0, compute=1.0, communication=1.0, host=1.0,
)  # fmt: skip
MODEL = ModelSpec(
    num_layers=LAYERS,
    hidden_size=HIDDEN,
    num_attention_heads=8,
    num_key_value_heads=8,
    head_size=128,
    ffn_hidden_size=FFN,
    vocab_size=VOCAB,
    gated_ffn=False,
)
WEIGHTS = 4 * HIDDEN**2 + 2 * HIDDEN * FFN
LAYER_MATMUL_S = 2 * TOKENS * WEIGHTS / FLOPS
HEAD_MATMUL_S = 2 * TOKENS * HIDDEN * VOCAB / FLOPS
ATTENTION_S = 4 * TOKENS * TOKENS * HIDDEN / 2 / FLOPS
ELEMENTWISE_S = TOKENS * 2 * (10 * HIDDEN + 2 * 3 * HIDDEN + 2 * FFN) / BYTES
EMBEDDING_S = 6 * TOKENS * HIDDEN * 2 / BYTES
LOSS_S = TOKENS * VOCAB * 8 / BYTES
PAYLOAD = TOKENS * HIDDEN * 2
"""Bytes of the hidden states of a micro batch."""


def plan(micro_batches: int = 4, recompute: RecomputePlan | None = None, model: ModelSpec = MODEL, **sizes: object) -> Plan:
    parallel = ParallelPlan(**sizes)
    return Plan(
        model=model,
        workload=Workload(
            seq_length=TOKENS, micro_batch_size=1, global_batch_size=micro_batches * parallel.data_parallel_size, dtype="bfloat16"
        ),
        parallel=parallel,
        recompute=recompute or RecomputePlan(),
        hardware=DEVICE,
    )


def leaves(one: Plan, **changed: float) -> dict[str, float]:
    found = breakdown(costs_of([one]), replace(LOSSLESS, **changed))
    assert sum(found.parts.values()) == pytest.approx(float(found.total))
    return {path: float(amount) for path, amount in found.parts.items()}


def test_what_one_device_computes():
    found = leaves(plan())
    m = 4
    assert found == pytest.approx(
        {
            "computing/forward/matmul": m * (LAYERS * LAYER_MATMUL_S + HEAD_MATMUL_S),
            "computing/forward/attention": m * LAYERS * ATTENTION_S,
            "computing/forward/elementwise": m * (LAYERS * ELEMENTWISE_S + (EMBEDDING_S + LOSS_S) / 3),
            "computing/backward/matmul": 2 * m * (LAYERS * LAYER_MATMUL_S + HEAD_MATMUL_S),
            "computing/backward/attention": 2.5 * m * LAYERS * ATTENTION_S,
            "computing/backward/elementwise": m * (1.5 * LAYERS * ELEMENTWISE_S + (EMBEDDING_S + LOSS_S) * 2 / 3),
            # The gradients of a micro batch are read with those of the earlier ones, and their sum written: 2 + 2 x 4 bytes.
            "computing/backward/accumulate": m * LAYERS * WEIGHTS * 10 / BYTES,
            "computing/optimizer": (LAYERS * WEIGHTS + 2 * VOCAB * HIDDEN) * 30 / BYTES,
        },
        rel=1e-9,
    )


def test_a_layer_that_predicts_further_tokens_projects_and_goes_through_the_head_again():
    """2 h to h of joined inputs, three norms (two accesses forward, three back), its embedding, head and loss."""
    base, found = leaves(plan()), leaves(plan(model=replace(MODEL, num_mtp_layers=1)))
    m, joined = 4, 2 * TOKENS * 2 * HIDDEN * HIDDEN / FLOPS
    more = {path: found[path] - base[path] for path in found}
    light = m * (EMBEDDING_S + LOSS_S + 15 * TOKENS * HIDDEN * 2 / BYTES)
    wanted = {
        "computing/forward/matmul": m * (HEAD_MATMUL_S + joined),
        "computing/backward/matmul": 2 * m * (HEAD_MATMUL_S + joined),
        "computing/forward/elementwise": light / 3,
        "computing/backward/elementwise": light * 2 / 3,
        "computing/optimizer": 2 * HIDDEN * HIDDEN * 30 / BYTES,
    }
    assert more == pytest.approx(dict.fromkeys(found, 0.0) | wanted, rel=1e-6, abs=1e-12)


def test_one_micro_batch_adds_no_gradients_to_earlier_ones():
    assert "computing/backward/accumulate" not in leaves(plan(1))


def test_the_host_is_waited_for_in_every_layer_and_once_a_step():
    device = LAYER_MATMUL_S + ATTENTION_S + ELEMENTWISE_S
    back = 2 * LAYER_MATMUL_S + 2.5 * ATTENTION_S + 1.5 * ELEMENTWISE_S
    found = leaves(plan(), layer_host_s=10 * device, backward_host=2.0, host_rounding=0.0, step_host_s=0.25)
    assert found["free"] == pytest.approx(0.25 + 4 * LAYERS * (9 * device + 20 * device - back))
    again = leaves(
        plan(recompute=RecomputePlan(full_layers=((3,),))), layer_host_s=10 * device, backward_host=2.0, host_rounding=0.0
    )
    assert again["free"] - (found["free"] - 0.25) == pytest.approx(4 * 3 * 9 * device)


def test_slow_nodes_make_all_but_waiting_longer_and_waiting_too():
    one = plan(8, data_parallel_size=8, pipeline_parallel_size=2)
    plain, slow = leaves(one), leaves(one, straggler=0.1)
    assert slow["bubble"] == pytest.approx(1.1 * plain["bubble"])  # two nodes: one doubling
    assert slow["free"] == pytest.approx(0.1 * (sum(plain.values()) - plain["bubble"]))


@pytest.mark.parametrize("counts", [1, 5, 8])
def test_layers_computed_again_cost_their_forward_pass(counts):
    again = leaves(plan(recompute=RecomputePlan(full_layers=((counts,),))))["computing/recompute"]
    assert again == pytest.approx(4 * counts * (LAYER_MATMUL_S + ATTENTION_S + ELEMENTWISE_S))


@pytest.mark.parametrize("counts", [1, 5, 8])
def test_recomputation_that_stops_early_spares_the_last_product_of_a_layer_but_not_what_experts_give(counts):
    """No gradient needs what the product down from f makes; the router's needs what experts make."""
    full = RecomputePlan(full_layers=((counts,),))
    again = leaves(plan(recompute=full), last_again=0.0)["computing/recompute"]
    last = 2 * TOKENS * HIDDEN * FFN / FLOPS
    assert again == pytest.approx(4 * counts * (LAYER_MATMUL_S + ATTENTION_S + ELEMENTWISE_S - last))
    mixed = plan(model=replace(MODEL, num_experts=8, num_experts_per_token=2, expert_ffn_hidden_size=FFN), recompute=full)
    assert leaves(mixed, last_again=0.0) == leaves(mixed)


def test_more_layers_computed_again_than_there_are_are_no_plan():
    with pytest.raises(InputError) as error:
        plan(recompute=RecomputePlan(full_layers=((30,),)))
    assert error.value.problems == ("recompute.full_layers = [30] is more than the layers there; nearest is [8]",)


def test_the_core_of_attention_and_single_products_computed_again():
    core = leaves(plan(recompute=RecomputePlan(attention_core=True)))["computing/recompute"]
    assert core == pytest.approx(4 * LAYERS * ATTENTION_S)
    output = RecomputePlan(operators={r"attention\.wo\.matmul": ((6,),)}, full_layers=((2,),))
    whole = 2 * (LAYER_MATMUL_S + ATTENTION_S + ELEMENTWISE_S)
    share = HIDDEN**2 / WEIGHTS
    assert leaves(plan(recompute=output))["computing/recompute"] == pytest.approx(4 * (whole + 4 * share * LAYER_MATMUL_S))


def test_tensor_parallel_collectives_are_four_all_reduces_a_layer_and_two_more_where_it_is_computed_again():
    """Ring of t = 4: an all-reduce moves 2 x 3/4 of the payload (arXiv 1909.08053, section 3)."""
    reduce_s = 2 * 3 / 4 * PAYLOAD / LINK
    key = "communication/exposed/tp"
    assert leaves(plan(tensor_parallel_size=4))[key] == pytest.approx(4 * LAYERS * 4 * reduce_s)
    full = RecomputePlan(full_layers=((3,),))
    assert leaves(plan(recompute=full, tensor_parallel_size=4))[key] == pytest.approx(4 * (LAYERS * 4 + 3 * 2) * reduce_s)
    gathers = RecomputePlan(full_layers=((3,),), communication=((5,),))
    more = leaves(plan(recompute=gathers, tensor_parallel_size=4, sequence_parallel=True))[key]
    assert more == pytest.approx(4 * (LAYERS * 4 + 3 * 2) * reduce_s + 4 * 2 * 2 * reduce_s / 2)


def test_a_collective_waits_for_its_hops_once_and_a_send_for_one():
    """A group of t = 4 in a node: two hops to start and two doublings; an all-reduce is two rings after one start."""
    wait, key = 1e-3, "communication/exposed/tp"
    one = plan(tensor_parallel_size=4)
    assert leaves(one, intra_latency_s=wait)[key] - leaves(one)[key] == pytest.approx(4 * LAYERS * 4 * (2 + 2) * wait)
    piped, key = plan(8, pipeline_parallel_size=4), "communication/exposed/pp"
    assert leaves(piped, intra_latency_s=wait)[key] - leaves(piped)[key] == pytest.approx(2 * 8 * wait)
    assert leaves(piped, send_host_s=wait)[key] - leaves(piped)[key] == pytest.approx(2 * 8 * wait)


@pytest.mark.parametrize("sequence_parallel", [False, True])
def test_tensor_parallelism_splits_what_heads_and_the_inner_layer_hold_and_the_rest_only_with_the_sequence(sequence_parallel):
    found = leaves(plan(tensor_parallel_size=2, sequence_parallel=sequence_parallel))["computing/forward/elementwise"]
    whole = 10 * HIDDEN / (2 if sequence_parallel else 1)
    layer = TOKENS * 2 * (whole + (2 * 3 * HIDDEN + 2 * FFN) / 2) / BYTES
    assert found == pytest.approx(4 * (LAYERS * layer + (EMBEDDING_S + LOSS_S / 2) / 3))


def test_plans_that_repeat_alike_and_plans_that_do_not_keep_their_places_in_a_table():
    some, more = (RecomputePlan(full_layers=((count,),)) for count in (3, 5))
    kinds = [RecomputePlan(), some, RecomputePlan(all_layers=True), more]
    together = step_parts(costs_of([plan(recompute=kind) for kind in kinds]), LOSSLESS)["computing/recompute"]
    assert together == pytest.approx([leaves(plan(recompute=kind)).get("computing/recompute", 0.0) for kind in kinds])


def test_context_parallel_rings_pass_keys_and_values_once_forward_and_twice_backward():
    """c = 2: every rank receives the other half of keys and values of 1024 tokens (arXiv 2310.01889)."""
    key, c = "communication/exposed/cp", 2
    around = (c - 1) / c * 2 * TOKENS * HIDDEN * 2 / LINK
    assert leaves(plan(context_parallel_size=c))[key] == pytest.approx(4 * LAYERS * 3 * around)
    again = leaves(plan(recompute=RecomputePlan(all_layers=True), context_parallel_size=c))[key]
    assert again == pytest.approx(4 * LAYERS * 4 * around)


def test_ulysses_exchanges_heads_as_often_forward_as_backward():
    """Queries, keys, values and outputs of half the tokens, 4 h values each, half of which go to the other rank of c = 2."""
    key, c = "communication/exposed/cp", 2
    swap = (c - 1) / c * 4 * (TOKENS / c) * HIDDEN * 2 / LINK
    found = leaves(plan(context_parallel_size=c, context_parallel_algorithm="ulysses"))[key]
    assert found == pytest.approx(4 * LAYERS * 2 * swap)
    split = leaves(plan(context_parallel_size=c, context_parallel_algorithm="ulysses", tensor_parallel_size=2))[key]
    assert split == pytest.approx(4 * LAYERS * 2 * swap / 2)


def test_attention_that_is_not_fused_multiplies_whole_squares_and_passes_over_its_scores():
    """Scores and values of 8 heads: 2 x 2 x 1024 x 1024 x 128 FLOP each pair; 9 bytes a score beside them, 1.5 times backward."""
    one = plan()
    unfused = replace(one, workload=replace(one.workload, attention_kernel="unfused"))
    products = max(2 * 2 * TOKENS * TOKENS * 128 * 8 / FLOPS, 2 * 8 * 2 * (2 * TOKENS * 128 + TOKENS**2) / BYTES)
    passes = 9 * 8 * TOKENS * TOKENS / BYTES
    found = leaves(unfused, softmax_host_s=0.0)
    assert found["computing/forward/attention"] == pytest.approx(4 * LAYERS * (products + passes))
    assert found["computing/backward/attention"] == pytest.approx(4 * LAYERS * (2 * products + 1.5 * passes))


def test_tokens_go_to_their_experts_and_back_in_both_passes():
    """Four exchanges a layer with 2 experts a token over e = 4 ranks, two more where it is computed again; 2 of 8 have none."""
    mixed = replace(MODEL, num_experts=8, num_experts_per_token=2, expert_ffn_hidden_size=FFN, num_dense_layers=2)
    swap = 3 / 4 * 2 * PAYLOAD / LINK
    sizes = {"data_parallel_size": 4, "expert_parallel_size": 4}
    key = "communication/exposed/ep"
    assert leaves(plan(model=mixed, **sizes))[key] == pytest.approx(4 * 6 * 4 * swap)
    again = leaves(plan(model=mixed, recompute=RecomputePlan(full_layers=((4,),)), **sizes))[key]
    assert again == pytest.approx(4 * (6 * 4 + 2 * 2) * swap)
    assert leaves(plan(model=mixed, **sizes), exchange_share=0.8)[key] == pytest.approx(4 * 6 * 4 * swap / 0.8)
    assert leaves(plan(model=mixed, **sizes), experts_hidden=0.75)[key] == pytest.approx(4 * 6 * 4 * swap / 4)
    light = [leaves(plan(model=mixed, **sizes), permuted=share)["computing/forward/elementwise"] for share in (1.0, 0.5)]
    # To send, to sort, and both ways back: read and written each, for either expert.
    assert light[1] - light[0] == pytest.approx(4 * 6 * 4 * 2 * 2 * PAYLOAD / BYTES)


def test_ranks_of_a_sequence_send_their_own_tokens_to_experts_and_gather_those_of_an_expert_that_they_share():
    """Tensor 2, 4 experts over 4 ranks, 2 experts a token: whole experts take half of the tokens from each rank of the sequence."""
    mixed = replace(MODEL, num_experts=8, num_experts_per_token=2, expert_ffn_hidden_size=FFN)
    sizes = {"data_parallel_size": 4, "expert_parallel_size": 4, "tensor_parallel_size": 2}
    key = "communication/exposed/ep"

    def exchanged(**more: object) -> float:
        return leaves(plan(model=mixed, **sizes, **more))[key] / (4 * LAYERS * 4)

    swap = 3 / 4 * 2 * PAYLOAD / LINK
    assert exchanged() == pytest.approx(swap)
    assert exchanged(sequence_parallel=True, expert_tensor_parallel_size=1) == pytest.approx(swap / 2)
    gather = 1 / 2 * 2 * PAYLOAD / LINK
    assert exchanged(sequence_parallel=True) == pytest.approx(swap / 2 + gather)


def gradient_bytes(d: int) -> tuple[float, float]:
    """Seconds to reduce fp32 gradients and to gather 2-byte parameters over d ranks of a node."""
    parameters = LAYERS * WEIGHTS + 2 * VOCAB * HIDDEN
    return (d - 1) / d * parameters * 4 / LINK, (d - 1) / d * parameters * 2 / LINK


def test_gradients_are_reduced_once_a_step():
    reduced, gathered = gradient_bytes(8)
    key = "communication/exposed/dp"
    assert leaves(plan(data_parallel_size=8))[key] == pytest.approx(2 * reduced)
    sharded = {"data_parallel_size": 8, "optimizer_shard_size": 8}
    assert leaves(plan(**sharded))[key] == pytest.approx(reduced + gathered)
    back = LAYERS * (2 * LAYER_MATMUL_S + 2.5 * ATTENTION_S + 1.5 * ELEMENTWISE_S)
    hidden = leaves(plan(data_parallel_size=8), gradients_hidden=0.5, contention=0.2)[key]
    beside = 0.5 * back * (1 - 1 / LAYERS)  # nothing is left beside the gradients of the last layer
    assert hidden == pytest.approx(2 * reduced - (1 - 0.2) * beside)


def test_sharded_parameters_are_gathered_for_either_pass_of_every_micro_batch():
    reduced, gathered = gradient_bytes(8)
    sharded = plan(data_parallel_size=8, optimizer_shard_size=8, optimizer_shard_level=3)
    assert leaves(sharded)["communication/exposed/dp"] == pytest.approx(4 * (2 * gathered + reduced))
    ahead = LAYERS * (LAYER_MATMUL_S + ATTENTION_S + ELEMENTWISE_S)
    hidden = leaves(sharded, gradients_hidden=1.0)["communication/exposed/dp"]
    back = LAYERS * (2 * LAYER_MATMUL_S + 2.5 * ATTENTION_S + 1.5 * ELEMENTWISE_S)
    assert hidden == pytest.approx(4 * (max(gathered - ahead, 0) + max(gathered + reduced - back, 0)))


def test_the_optimizer_is_shared_by_those_that_share_its_state():
    alone = leaves(plan(data_parallel_size=8))["computing/optimizer"]
    shared = leaves(plan(data_parallel_size=8, optimizer_shard_size=8))["computing/optimizer"]
    assert shared == pytest.approx(alone / 8)


def test_swapped_layers_are_priced_on_both_their_ways():
    """Both ways are longer than what hides them; twice the bytes a layer keeps, less its forward and its backward pass."""
    slow = replace(DEVICE, links={**DEVICE.links, "host": Link(name="link", bytes_per_s=1e8)})
    one = replace(plan(recompute=RecomputePlan(swapped_layers=((LAYERS,),))), hardware=slow)
    key = "communication/exposed/swap"
    exposed = breakdown(costs_of([one]), LOSSLESS).amount(key) / 4
    computed = LAYERS * (3 * LAYER_MATMUL_S + 3.5 * ATTENTION_S + 2.5 * ELEMENTWISE_S)
    faster = replace(one, hardware=replace(slow, links={**slow.links, "host": Link(name="link", bytes_per_s=2e8)}))
    # Two points of a line: what is moved and what hides it.
    moved = 2 * (exposed - breakdown(costs_of([faster]), LOSSLESS).amount(key) / 4)
    assert moved - exposed == pytest.approx(computed)
    kept = moved / 2 * 1e8 / LAYERS / TOKENS
    assert kept == pytest.approx(34 * HIDDEN, rel=0.1)  # sbh x 34 (arXiv 2205.05198), but for masks and norms in fp32


STAGES = {"pipeline_parallel_size": 4}


def stage_times(one: Plan, extra: float = 0.0) -> tuple[np.ndarray, np.ndarray]:
    """Forward and backward seconds of a micro batch on every stage, by hand, with the sends in both."""
    recompute, (layers,) = one.recompute, one.stage_layers
    again = np.array(recompute.full_layers[0] if recompute.full_layers else [0] * len(layers))
    forward = np.array(layers) * (LAYER_MATMUL_S + ATTENTION_S + ELEMENTWISE_S)
    backward = np.array(layers) * (2 * LAYER_MATMUL_S + 2.5 * ATTENTION_S + 1.5 * ELEMENTWISE_S + WEIGHTS * 10 / BYTES) + again * (
        LAYER_MATMUL_S + ATTENTION_S + ELEMENTWISE_S
    )
    ends = np.zeros(len(layers))
    ends[0], ends[-1] = EMBEDDING_S, 3 * HEAD_MATMUL_S + LOSS_S
    return forward + ends / 3 + extra, backward + ends * 2 / 3 + extra


@pytest.mark.parametrize("layers", [(2, 2, 2, 2), (5, 1, 1, 1), (1, 1, 5, 1), (3, 2, 2, 1)])
@pytest.mark.parametrize("again", [(0, 0, 0, 0), (4, 0, 0, 0), (0, 0, 0, 4), (1, 1, 1, 0)])
@pytest.mark.parametrize("micro_batches", [1, 3, 8, 32])
def test_a_step_of_unequal_stages_is_their_exact_schedule_with_the_updates_left_to_wait_for(layers, again, micro_batches):
    again = tuple(min(pair) for pair in zip(layers, again, strict=True))
    one = plan(micro_batches, RecomputePlan(full_layers=(again,)), layers_per_stage=(layers,), **STAGES)
    send = PAYLOAD / LINK
    forward, backward = stage_times(one, send)
    if micro_batches == 1:
        backward = backward - np.array(layers) * WEIGHTS * 10 / BYTES
    updates = [(count * WEIGHTS + VOCAB * HIDDEN) * 30 / BYTES for count in layers]
    found = leaves(one)
    expected = period_s((forward - send, backward - send), send, micro_batches, ([0.0] * 4, updates))
    assert sum(found.values()) == pytest.approx(expected, rel=1e-6)
    slowest = int((forward + backward).argmax())
    assert found["communication/exposed/pp"] == pytest.approx(2 * micro_batches * send)
    own = micro_batches * (forward + backward)[slowest] + (layers[slowest] * WEIGHTS + VOCAB * HIDDEN) * 30 / BYTES
    assert found.get("bubble", 0.0) == pytest.approx(sum(found.values()) - own)


def test_sends_of_a_pipeline_that_fills_are_waiting_not_sending():
    """A micro batch crosses p - 1 borders twice; the stage pays one of these crossings itself, the others are in the bubble."""
    one = plan(8, layers_per_stage=((2, 2, 2, 2),), **STAGES)
    slow = replace(one, hardware=replace(DEVICE, links={**DEVICE.links, "intra_node": Link(name="link", bytes_per_s=LINK / 4)}))
    quick, sent = leaves(one), leaves(slow)
    more = 3 * PAYLOAD / LINK
    assert sent["communication/exposed/pp"] - quick["communication/exposed/pp"] == pytest.approx(2 * 8 * more)
    assert sent["bubble"] - quick["bubble"] == pytest.approx(2 * (4 - 2) * more)


def test_interleaved_chunks_send_as_often_as_they_pass():
    one = plan(8, layers_per_stage=((1, 1, 1, 1), (1, 1, 1, 1)), virtual_pipeline_parallel_size=2, **STAGES)
    assert leaves(one)["communication/exposed/pp"] == pytest.approx(2 * 2 * 8 * PAYLOAD / LINK)
    plain = leaves(plan(8, layers_per_stage=((2, 2, 2, 2),), **STAGES))
    assert leaves(one)["bubble"] < plain["bubble"]


@pytest.mark.parametrize("shards", [1, 2])
@pytest.mark.parametrize("layers", [(1, 7), (4, 4), (7, 1)])
def test_what_a_stage_that_is_early_sends_and_updates_is_hidden_while_the_others_drain_and_fill(layers, shards):
    """Gradients are reduced before all stages meet; with a sharded optimizer parameters are gathered after the update."""
    sizes = {"data_parallel_size": 2, "layers_per_stage": (layers,), "pipeline_parallel_size": 2, "optimizer_shard_size": shards}
    one, send = plan(4, **sizes), PAYLOAD / LINK
    held = [count * WEIGHTS + VOCAB * HIDDEN for count in layers]
    reduced = [2 / shards * 1 / 2 * each * 4 / LINK for each in held]
    updates = [each * 30 / shards / BYTES + (1 / 2 * each * 2 / LINK if shards > 1 else 0.0) for each in held]
    expected = period_s(stage_times(one), send, 4, (reduced, updates))
    assert sum(leaves(one).values()) == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize("micro_batches", [4, 16])
def test_where_layers_are_computed_again_changes_the_step_as_the_exact_schedule_does(micro_batches):
    """[4, 0] against [0, 4], and [13, 5] layers with [9, 2] of them repeated against [9, 9]: within 1 % of the difference."""
    even = {"pipeline_parallel_size": 2, "layers_per_stage": ((4, 4),)}
    deep = replace(MODEL, num_layers=18)
    cases = [
        [plan(micro_batches, RecomputePlan(full_layers=(again,)), **even) for again in ((4, 0), (0, 4))],
        [
            plan(micro_batches, RecomputePlan(full_layers=((9, 2),)), deep, pipeline_parallel_size=2, layers_per_stage=(layers,))
            for layers in ((13, 5), (9, 9))
        ],
    ]
    for before, after in cases:
        ours = sum(leaves(after).values()) - sum(leaves(before).values())
        exact = []
        for one in (before, after):
            updates = [(count * WEIGHTS + VOCAB * HIDDEN) * 30 / BYTES for count in one.stage_layers[0]]
            exact.append(period_s(stage_times(one), PAYLOAD / LINK, micro_batches, ([0.0, 0.0], updates)))
        assert ours == pytest.approx(exact[1] - exact[0], rel=0.01)
        assert abs(ours) > 0.005 * exact[0]


MIXED = replace(MODEL, num_experts=8, num_experts_per_token=2, expert_ffn_hidden_size=512, num_dense_layers=4)


@pytest.mark.parametrize("recompute", [RecomputePlan(), RecomputePlan(full_layers=((1, 3),)), RecomputePlan(all_layers=True)])
def test_a_stage_of_dense_layers_ahead_of_experts_works_as_in_a_dense_model(recompute):
    """Layers 1 to 4 of 8 are dense: stage 0 has the leaves of the dense model's, stage 1 those of the model with experts alone."""
    sizes = {"data_parallel_size": 2, "pipeline_parallel_size": 2, "expert_parallel_size": 2}
    models = {0: replace(MIXED, num_experts=0, num_dense_layers=0), 1: replace(MIXED, num_dense_layers=0)}
    for stage, alike in models.items():
        whole = costs_of([plan(model=MIXED, recompute=recompute, **sizes)])
        own = costs_of([plan(model=alike, recompute=recompute, **sizes | ({"expert_parallel_size": 1} if stage == 0 else {}))])
        found, wanted = (step_parts(columns, LOSSLESS, stage) for columns in (whole, own))
        for path in set(wanted) - {"bubble"}:
            assert found[path] == pytest.approx(wanted[path], rel=1e-12), (stage, path)


def test_a_dense_layer_moved_between_stages_moves_its_own_time():
    """Stage 0 with 2, 4 and 6 of the layers: up to the fourth each one more adds a dense layer's forward pass, then experts'."""
    taken = []
    for first in range(2, 7):
        sizes = {"pipeline_parallel_size": 2, "layers_per_stage": ((first, LAYERS - first),)}
        parts = step_parts(costs_of([plan(1, model=MIXED, **sizes)]), LOSSLESS, 0)
        taken.append(float(parts["computing/forward/matmul"][0]))
    expert = 2 * TOKENS * (4 * HIDDEN**2 + 2 * 2 * HIDDEN * 512) / FLOPS
    assert np.diff(taken) == pytest.approx([LAYER_MATMUL_S] * 2 + [expert] * 2)
