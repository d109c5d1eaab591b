"""What a step loses to links, hosts and shapes, by hand, one loss at a time on the device of `test_step_leaves`, which has none."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from perfkit.core import catalog
from perfkit.core.params import expert_layers
from perfkit.core.spec.hardware import Link
from perfkit.core.spec.optimizer import OptimizerSpec
from perfkit.core.spec.parallel import ParallelPlan
from perfkit.core.spec.plan import Plan
from perfkit.core.spec.recompute import RecomputePlan
from perfkit.core.spec.software import SoftwareSpec
from perfkit.predict.cost.communication import bytes_sent
from perfkit.predict.cost.cost_columns import costs_of
from perfkit.predict.cost.efficiency import Efficiency
from perfkit.predict.cost.flops import forward_flops
from perfkit.predict.cost.layer_columns import layer_products, padded_vocab
from perfkit.predict.cost.operators import Device, product_s, weight_product_s
from perfkit.predict.cost.step_time import breakdown
from perfkit.predict.estimate import estimate
from tests.predict.cost.pipeline_by_hand import period_s
from tests.predict.cost.test_step_leaves import (
    ATTENTION_S,
    BYTES,
    DEVICE,
    ELEMENTWISE_S,
    FFN,
    FLOPS,
    HEAD_MATMUL_S,
    HIDDEN,
    LAYER_MATMUL_S,
    LAYERS,
    LINK,
    LOSS_S,
    LOSSLESS,
    MODEL,
    PAYLOAD,
    TOKENS,
    VOCAB,
    WEIGHTS,
    leaves,
    plan,
    stage_times,
)

M = 4
WAIT = 1e-3
FORWARD_S = LAYER_MATMUL_S + ATTENTION_S + ELEMENTWISE_S
BACKWARD_S = 2 * LAYER_MATMUL_S + 2.5 * ATTENTION_S + 1.5 * ELEMENTWISE_S


def more(key: str, one: Plan, **changed: float) -> float:
    """What a leaf gains by a change of the efficiencies."""
    return leaves(one, **changed).get(key, 0.0) - leaves(one).get(key, 0.0)


def amount(one: Plan, key: str, eff: Efficiency = LOSSLESS) -> float:
    return float(breakdown(costs_of([one]), eff).amount(key))


def test_eight_bit_products_run_at_their_peak_and_attention_and_the_rest_as_in_sixteen():
    """Fused attention has no 8-bit kernel: it runs at half of the 8-bit peak, which is the peak of 16 bits."""
    device = replace(DEVICE, peak_flops_per_s={"bfloat16": FLOPS, "float8": 2 * FLOPS})
    one = replace(plan(), hardware=device, workload=replace(plan().workload, dtype="float8"))
    wide, narrow = leaves(plan()), leaves(one)
    assert narrow["computing/forward/attention"] == pytest.approx(wide["computing/forward/attention"])
    assert narrow["computing/backward/attention"] == pytest.approx(wide["computing/backward/attention"])
    assert narrow["computing/forward/matmul"] == pytest.approx(M * (LAYERS * LAYER_MATMUL_S + HEAD_MATMUL_S) / 2)
    assert narrow["computing/forward/elementwise"] == pytest.approx(wide["computing/forward/elementwise"])


@pytest.mark.parametrize(("forward", "backward"), [(0.5, 0.25)])
def test_fused_attention_reaches_its_own_share_of_the_peak_in_each_pass(forward, backward):
    found = leaves(plan(), flash_forward=forward, flash_backward=backward)
    assert found["computing/forward/attention"] == pytest.approx(M * LAYERS * ATTENTION_S * 2)
    assert found["computing/backward/attention"] == pytest.approx(M * LAYERS * 2.5 * ATTENTION_S * 4)


def test_the_last_rows_of_fused_attention_are_left_alone_in_every_unit():
    """One more tile of 128 queries for each of the 32 units, with all keys: scores and values of one head."""
    tile = 4 * 128 * TOKENS * MODEL.head_size / FLOPS
    assert more("computing/forward/attention", plan(), flash_rows=128.0) == pytest.approx(M * LAYERS * 32 * tile)
    assert more("computing/backward/attention", plan(), flash_rows=128.0) == pytest.approx(M * LAYERS * 2.5 * 32 * tile / 4)


def test_short_inner_dimensions_lose_as_much_as_they_are_short():
    """Filling costs 1024 steps: products over h = 1024 take twice as long, the one down from f = 4096 5/4 as long."""
    over_hidden, down = 2 * TOKENS * HIDDEN * (4 * HIDDEN + FFN) / FLOPS, 2 * TOKENS * HIDDEN * FFN / FLOPS
    found = leaves(plan(), half_depth=1024.0)["computing/forward/matmul"]
    # Forward, the head has a third of its three products: over h, over the vocabulary, and over the tokens.
    head = HEAD_MATMUL_S * (2 + (1 + 1024 / VOCAB) + 2) / 3
    assert found == pytest.approx(M * (LAYERS * (2 * over_hidden + 1.25 * down) + head))


def test_a_ring_passes_the_keys_and_values_of_the_heads_of_one_tensor_rank():
    """c = 2 and t = 2 with 2 of 8 heads for keys and values: half of a quarter of what all heads pass."""
    grouped = replace(MODEL, num_key_value_heads=2)
    around = 1 / 2 * 2 * TOKENS * (HIDDEN / 4 / 2) * 2 / LINK
    found = leaves(plan(model=grouped, context_parallel_size=2, tensor_parallel_size=2))
    assert found["communication/exposed/cp"] == pytest.approx(M * LAYERS * 3 * around)


def test_heads_are_exchanged_inside_and_keys_passed_around_between_the_groups_of_a_hybrid():
    """c = 4 in two groups of 2: half the heads of all tokens go around once, then queries, keys, values and outputs are swapped."""
    sizes = {"context_parallel_size": 4, "context_parallel_algorithm": "hybrid", "ulysses_size": 2}
    swap = 1 / 2 * 4 * (TOKENS / 4) * HIDDEN * 2 / LINK
    around = 1 / 2 * 2 * TOKENS * (HIDDEN / 2) * 2 / LINK
    key = "communication/exposed/cp"
    assert leaves(plan(**sizes))[key] == pytest.approx(M * LAYERS * (2 * swap + 3 * around))
    again = leaves(plan(recompute=RecomputePlan(full_layers=((3,),)), **sizes))[key]
    assert again == pytest.approx(M * (LAYERS * (2 * swap + 3 * around) + 3 * (swap + around)))


@pytest.mark.parametrize(("replicas", "doublings"), [(8, 0), (16, 1), (64, 3)])
def test_a_group_of_several_nodes_waits_once_for_every_doubling_of_them(replicas, doublings):
    """An all-reduce of gradients is two rings; in a node of 8 each starts with 2 hops and 3 doublings."""
    one, key = plan(data_parallel_size=replicas), "communication/exposed/dp"
    assert more(key, one, inter_latency_s=WAIT) == pytest.approx(2 * doublings * WAIT)
    assert more(key, one, intra_latency_s=WAIT) == pytest.approx(2 * (2 + 3) * WAIT)


@pytest.mark.parametrize(
    ("tensor", "replicas", "rate"),
    [(8, 2, LINK / 8), (4, 4, LINK / 4), (2, 8, LINK / 2), (1, 16, LINK)],
    ids=["one rank a node", "two", "four", "the whole node"],
)
def test_groups_that_leave_their_nodes_share_what_a_node_sends(tensor, replicas, rate):
    """A node of 8 sends 8 x LINK / 8: as many groups as a node has tensor ranks divide it."""
    found = leaves(plan(tensor_parallel_size=tensor, data_parallel_size=replicas))["communication/exposed/dp"]
    parameters = (LAYERS * WEIGHTS + 2 * VOCAB * HIDDEN) / tensor
    assert found == pytest.approx(2 * (replicas - 1) / replicas * parameters * 4 / rate)


def test_a_send_to_the_next_node_takes_its_share_of_the_network_and_its_latency():
    one, key = plan(8, pipeline_parallel_size=2, data_parallel_size=8), "communication/exposed/pp"
    assert leaves(one)[key] == pytest.approx(2 * 8 * PAYLOAD / (LINK / 8))
    assert more(key, one, inter_latency_s=WAIT) == pytest.approx(2 * 8 * WAIT)
    assert more(key, one, intra_latency_s=WAIT) == pytest.approx(0.0)
    split = plan(8, pipeline_parallel_size=2, tensor_parallel_size=4)
    assert leaves(split)[key] == pytest.approx(2 * 8 * PAYLOAD / 4 / LINK)


@pytest.mark.parametrize(("tensor", "share"), [(2, 0.5), (4, 0.8), (8, 1.0)])
def test_small_groups_use_their_links_less_well(tensor, share):
    one, key = plan(tensor_parallel_size=tensor), "communication/exposed/tp"
    found = leaves(one, pair=0.5, quad=0.8)[key]
    assert found == pytest.approx(leaves(one)[key] / share)
    slower = leaves(one, pair=0.5, quad=0.8, small_groups=0.5)[key]
    assert slower == pytest.approx(found if tensor == 8 else 2 * found)


def test_the_description_of_a_link_decides_nothing_its_kind_does():
    one = plan(tensor_parallel_size=4)
    told = {**DEVICE.links, "intra_node": Link(name="link", bytes_per_s=LINK, topology="full mesh of 8, 7 links, Omni-Path")}
    assert leaves(replace(one, hardware=replace(DEVICE, links=told))) == leaves(one)


def test_a_link_domain_of_several_nodes_keeps_its_groups_off_the_network():
    one, key = plan(data_parallel_size=64), "communication/exposed/dp"
    joined = replace(one, hardware=replace(DEVICE, link_domain_size=64))
    same_node = replace(one, hardware=replace(DEVICE, devices_per_node=64))
    assert leaves(joined)[key] == leaves(same_node)[key] <= leaves(one)[key]


EXPERTS = {"data_parallel_size": 4, "expert_parallel_size": 4}


@pytest.mark.parametrize("name", ["overlap_dp", "overlap_tp", "overlap_pp", "overlap_ep"])
@pytest.mark.parametrize("sizes", [{"data_parallel_size": 8}, {"tensor_parallel_size": 4}, {"pipeline_parallel_size": 4}, EXPERTS])
def test_more_overlap_is_never_slower_and_what_is_not_stated_lies_between(name, sizes):
    model = replace(MODEL, num_experts=8, num_experts_per_token=2, expert_ffn_hidden_size=FFN) if sizes is EXPERTS else MODEL
    one = plan(**sizes, model=model, virtual_pipeline_parallel_size=2 if "pipeline_parallel_size" in sizes else 1)

    def seconds(stated: bool | None) -> float:
        return estimate(replace(one, software=SoftwareSpec(framework="megatron", **{name: stated}))).step_time_s

    assert seconds(True) <= seconds(None) <= seconds(False)
    own = {"overlap_dp": "data", "overlap_tp": "tensor", "overlap_pp": "pipeline", "overlap_ep": "expert"}[name]
    assert (seconds(True) < seconds(False)) == any(size.startswith(own) for size in sizes)


def test_in_a_mesh_four_ranks_have_three_links_of_seven():
    links = {**DEVICE.links, "intra_node": Link(name="link", bytes_per_s=LINK, kind="mesh")}
    one, key = plan(tensor_parallel_size=4), "communication/exposed/tp"
    assert leaves(replace(one, hardware=replace(DEVICE, links=links)))[key] == pytest.approx(leaves(one)[key] * 7 / 3)


def test_shares_of_links_and_the_factor_of_collectives_divide_their_rates():
    one = plan(tensor_parallel_size=8, data_parallel_size=2)
    plain, half = leaves(one), leaves(one, intra_share=0.5)
    assert half["communication/exposed/tp"] == pytest.approx(2 * plain["communication/exposed/tp"])
    assert half["communication/exposed/dp"] == pytest.approx(plain["communication/exposed/dp"])
    assert leaves(one, inter_share=0.5)["communication/exposed/dp"] == pytest.approx(2 * plain["communication/exposed/dp"])
    slower = leaves(one, communication=3.0)
    for key in ("tp", "dp"):
        assert slower[f"communication/exposed/{key}"] == pytest.approx(3 * plain[f"communication/exposed/{key}"])


def test_copies_of_a_micro_batch_hide_their_own_share_of_tensor_collectives():
    key = "communication/exposed/tp"
    whole = M * LAYERS * 4 * 2 * 3 / 4 * PAYLOAD / LINK
    assert leaves(plan(tensor_parallel_size=4), tensor_hidden=0.25)[key] == pytest.approx(0.75 * whole)
    copies = plan(2 * M, tensor_parallel_size=4, micro_batch_interleave_size=2)
    assert leaves(copies, tensor_hidden=0.25, interleave_hidden=0.4)[key] == pytest.approx(2 * 0.6 * whole)


def test_a_group_that_fills_a_node_waits_longer_for_its_hosts():
    for tensor, factor in ((4, 1.0), (8, 3.0)):
        one = plan(tensor_parallel_size=tensor)
        late = {"layer_host_s": 1.0, "group_rounding": 0.0}
        assert leaves(one, node_wait=3.0, **late)["free"] == pytest.approx(factor * leaves(one, **late)["free"])


def test_the_host_launches_two_collectives_a_layer_and_pass():
    one = plan(tensor_parallel_size=2)
    late = {"layer_host_s": 1.0, "group_rounding": 0.0, "backward_host": 1.0}
    slower = leaves(one, collective_host_s=WAIT, **late)["free"] - leaves(one, **late)["free"]
    assert slower == pytest.approx(M * LAYERS * 2 * 2 * WAIT)
    assert more("free", plan(), collective_host_s=WAIT) == pytest.approx(0.0)
    twice = leaves(one, collective_host_s=WAIT, host=2.0, **late)["free"] - leaves(one, collective_host_s=WAIT, **late)["free"]
    assert twice == pytest.approx(M * LAYERS * 2 * (1.0 + 2 * WAIT))


def test_host_and_device_that_vary_take_the_root_of_their_squares_at_a_rounding_of_a_half():
    """3, 4, 5: a launch of 4/3 of the device's pass makes 5/3 of it."""
    found = leaves(
        plan(), layer_host_s=4 / 3 * FORWARD_S, backward_host=4 / 3 * BACKWARD_S / (4 / 3 * FORWARD_S), host_rounding=0.5
    )
    assert found["free"] == pytest.approx(M * LAYERS * 2 / 3 * (FORWARD_S + BACKWARD_S))
    quick = leaves(plan(), layer_host_s=FORWARD_S / 4, backward_host=0.0, host_rounding=1.0)
    assert quick["free"] == pytest.approx(M * LAYERS * FORWARD_S / 4)  # a rounding of 1 adds both


def test_a_softmax_off_the_blocks_of_the_fused_kernel_is_launched_in_pieces():
    """Blocks take four matrices of scores: 8 heads fit, 8 heads over t = 4 (two) do not."""
    for tensor, pieces in ((1, 0.0), (4, 1.0)):
        one = plan(tensor_parallel_size=tensor)
        one = replace(one, workload=replace(one.workload, attention_kernel="unfused"))
        late = {"layer_host_s": 1.0, "host_rounding": 0.0, "group_rounding": 0.0, "backward_host": 1.0}
        slower = leaves(one, softmax_host_s=WAIT, **late)["free"] - leaves(one, **late)["free"]
        assert slower == pytest.approx(pieces * M * LAYERS * WAIT)


def test_a_layer_computed_again_is_launched_again_while_the_backward_pass_waits():
    late = {"layer_host_s": 10 * FORWARD_S, "host_rounding": 0.0, "backward_host": 1.0}
    again = plan(recompute=RecomputePlan(full_layers=((3,),)))
    assert leaves(again, **late)["free"] - leaves(plan(), **late)["free"] == pytest.approx(M * 3 * 9 * FORWARD_S)


@pytest.mark.parametrize("level", [1, 3])
def test_pieces_of_a_sequence_change_nothing_of_what_data_parallel_ranks_send(level):
    """Sharded parameters are gathered once a micro batch, not once a piece; a piece hides its part of them."""
    sizes = {"data_parallel_size": 8, "optimizer_shard_size": 8, "optimizer_shard_level": level}
    key = "communication/exposed/dp"
    # Two sequences a micro batch: half of one is 1024 tokens, which still fill the waves of every product.
    pair = replace(plan(**sizes).workload, micro_batch_size=2, global_batch_size=2 * M * 8)
    whole, pieces = (replace(plan(sequence_chunks=chunks, **sizes), workload=pair) for chunks in (1, 2))
    assert leaves(pieces)[key] == pytest.approx(leaves(whole)[key])
    assert more(key, pieces, intra_latency_s=WAIT) == pytest.approx(more(key, whole, intra_latency_s=WAIT))
    shares = {"gradients_hidden": 1.0, "contention": 0.1}
    hidden, plain = (more(key, one, **shares) for one in (pieces, whole))
    assert hidden == pytest.approx(plain)
    assert hidden < 0


def test_the_update_moves_what_the_optimizer_keeps():
    """Gradient read, weight written (6 bytes), each state and the master copy read and written; Adam with a master copy: 30."""
    adam = amount(plan(), "computing/optimizer")
    for spec, moved in (
        (OptimizerSpec(state_bytes_per_parameter=4), 22),
        (OptimizerSpec(master_weights=False), 24),
        (OptimizerSpec(state_bytes_per_parameter=0, master_weights=False), 8),
        (OptimizerSpec(matrix_state_bytes_per_parameter=4), 22),
    ):
        assert amount(replace(plan(), optimizer=spec), "computing/optimizer") == pytest.approx(adam * moved / 30), moved


def test_gradients_in_sixteen_bits_are_half_as_long_to_reduce_and_to_add():
    one = replace(plan(data_parallel_size=8), optimizer=OptimizerSpec(gradient_dtype="bfloat16"))
    wide, narrow = leaves(plan(data_parallel_size=8)), leaves(one)
    key = "communication/exposed/dp"
    assert narrow[key] == pytest.approx(wide[key] / 2)
    key = "computing/backward/accumulate"
    assert narrow[key] == pytest.approx(M * LAYERS * WEIGHTS * (2 + 2 * 2) / BYTES)


def test_an_older_release_takes_longer_by_its_share_for_every_minor_one():
    old, new = (replace(plan(), software=SoftwareSpec(framework="mindspore", release=release)) for release in ("1.1", "1.3"))
    eff = replace(LOSSLESS, release_gain=0.1)
    for key in ("computing/forward/matmul", "computing/forward/attention", "computing/backward/elementwise"):
        assert amount(old, key, eff) == pytest.approx(math.exp(0.2) * amount(new, key, eff))
        assert amount(new, key, eff) == pytest.approx(amount(plan(), key))
    assert amount(old, "computing/forward/matmul", replace(eff, compute=3.0)) == pytest.approx(
        3 * amount(old, "computing/forward/matmul", eff)
    )


def test_the_head_is_padded_to_128_columns_a_rank_and_slower_where_its_vocabulary_is_off_the_grain():
    odd = plan(model=replace(MODEL, vocab_size=VOCAB - 3))
    head = M * 3 * HEAD_MATMUL_S
    assert more("computing/forward/matmul", odd, unpadded=1.5) == pytest.approx(0.5 * head / 3)
    assert leaves(odd) == pytest.approx(leaves(plan()))
    assert more("computing/forward/matmul", plan(), unpadded=1.5) == 0.0
    split = plan(model=replace(MODEL, vocab_size=VOCAB - 3), tensor_parallel_size=2)
    assert leaves(split, unpadded=1.5) == pytest.approx(leaves(plan(tensor_parallel_size=2)))
    assert amount(split, "computing/optimizer") == pytest.approx((LAYERS * WEIGHTS + 2 * VOCAB * HIDDEN) / 2 * 30 / BYTES)


def test_the_loss_passes_over_its_logits_in_the_bytes_that_they_have():
    one = leaves(plan(), logit_bytes=16.0)["computing/forward/elementwise"]
    assert one - leaves(plan())["computing/forward/elementwise"] == pytest.approx(M * LOSS_S / 3)


def test_a_tied_head_is_updated_once_and_a_pipeline_of_one_stage_has_both_tables():
    tied = replace(MODEL, tied_embeddings=True)
    key = "computing/optimizer"
    assert amount(plan(model=tied), key) == pytest.approx((LAYERS * WEIGHTS + VOCAB * HIDDEN) * 30 / BYTES)


def test_an_expert_takes_the_tokens_that_are_sent_to_it_and_shared_ones_all():
    """Two of 8 experts a token over e = 4: a rank's two experts have half the tokens each; capacity 1.5 makes half as much more."""
    mixed = replace(
        MODEL, num_experts=8, num_experts_per_token=2, expert_ffn_hidden_size=FFN, num_shared_experts=1, num_dense_layers=0
    )
    sizes = {"data_parallel_size": 4, "expert_parallel_size": 4}
    attention, ffn = 2 * TOKENS * 4 * HIDDEN**2 / FLOPS, 2 * TOKENS * 2 * HIDDEN * FFN / FLOPS
    found = leaves(plan(model=mixed, **sizes))["computing/forward/matmul"]
    assert found == pytest.approx(M * (LAYERS * (attention + (2 + 1) * ffn) + HEAD_MATMUL_S))
    fuller = leaves(plan(model=replace(mixed, expert_capacity_factor=2.0), **sizes))
    assert fuller["computing/forward/matmul"] == pytest.approx(M * (LAYERS * (attention + (4 + 1) * ffn) + HEAD_MATMUL_S))
    swap = 3 / 4 * 2 * 2 * PAYLOAD / LINK
    assert fuller["communication/exposed/ep"] == pytest.approx(M * LAYERS * 4 * swap)
    own = LAYERS * (4 * HIDDEN**2 + (8 / 4 + 1) * 2 * HIDDEN * FFN) + 2 * VOCAB * HIDDEN
    assert fuller["computing/optimizer"] == pytest.approx(own * 30 / BYTES)


def test_bytes_sent_over_the_links_take_the_seconds_of_the_step():
    """Two derivations of one volume: bytes of `bytes_sent` over the rate of the links are the leaves of a step without latency."""
    full = RecomputePlan(full_layers=((1, 1, 1, 1),))
    sizes = {"tensor_parallel_size": 2, "pipeline_parallel_size": 4, "layers_per_stage": ((2, 2, 2, 2),)}
    one = plan(8, full, **sizes)
    sent, taken = bytes_sent(one.model, one.workload, one.parallel, one.recompute), leaves(one)
    for group in ("tp", "pp"):
        assert sent.amount(group) / LINK == pytest.approx(taken[f"communication/exposed/{group}"]), group
    ring = plan(8, RecomputePlan(all_layers=True), context_parallel_size=4)
    sent = bytes_sent(ring.model, ring.workload, ring.parallel, ring.recompute)
    assert sent.amount("cp") / LINK == pytest.approx(leaves(ring)["communication/exposed/cp"])


@pytest.mark.parametrize("tensor", [1, 2, 4])
@pytest.mark.parametrize("name", ["llama2-70b", "gpt-7.5b", "mixtral-8x7b", "deepseek-v3"])
def test_the_products_of_a_rank_are_its_share_of_the_operations_that_are_counted_for_a_token(name, tensor):
    """A second derivation: rows x columns x depth of what a rank multiplies, against the count of operations of the whole model."""
    model = catalog.model(name)
    one = replace(plan(), model=model, parallel=ParallelPlan(tensor_parallel_size=tensor))
    counted = forward_flops(model, TOKENS).parts
    weights = sum(counted.get(f"layers/{part}", 0) for part in ("qkv", "output", "ffn", "experts"))
    dense, mixed = (model.num_layers, 0) if not model.num_experts else (model.num_dense_layers, expert_layers(model))
    found = 0.0
    for count, kind in ((dense, replace(model, num_experts=0, num_dense_layers=0)), (mixed, model)):
        if count:
            products = layer_products(costs_of([replace(one, model=kind)]), np.array([float(TOKENS)]))
            found += count * sum(float((2 * p.rows * p.columns * p.depth * p.copies * p.share)[0]) for p in products)
    assert tensor * found / TOKENS == pytest.approx(weights)


@pytest.mark.parametrize(("tensor", "padded"), [(1, 50304), (8, 51200)])
def test_a_vocabulary_is_padded_as_megatron_prints_it(tensor, padded):
    """`> padded vocab (size: 50257) with 47 dummy tokens (new size: 50304)` on one rank, 943 and 51200 on eight."""
    one = plan(model=replace(MODEL, vocab_size=50257), tensor_parallel_size=tensor)
    assert padded_vocab(costs_of([one]))[0] == padded


def test_gradients_of_a_weight_run_over_tokens_and_those_of_an_input_over_columns():
    """1000 tokens are off the 64 elements of a memory transaction, not off the matrix unit's 8: a factor for the weights' alone."""
    device = Device(*(np.array([value]) for value in (FLOPS, FLOPS, 1e18, 32.0, 0.0, 1.5)))
    rows, columns, depth = (np.array([value]) for value in (1000.0, 2048.0, 1024.0))
    aligned = Device(*(np.array([value]) for value in (FLOPS, FLOPS, 1e18, 32.0, 0.0, 1.0)))
    inputs = product_s(rows, depth, columns, aligned)
    weights = product_s(depth, columns, rows, aligned)
    forward, backward = weight_product_s(rows, columns, depth, device, 1.0)
    assert forward == pytest.approx(product_s(rows, columns, depth, aligned))
    assert backward == pytest.approx(inputs + 1.5 * weights)


def test_the_pipeline_waits_for_what_is_copied_in_the_pass_that_it_is_copied_in():
    """Two stages of 4 layers: the exact schedule of passes that are as long as their copies, which computing hides in part."""
    slow = replace(DEVICE, links={**DEVICE.links, "host": Link(name="link", bytes_per_s=4e10)})
    swapped = RecomputePlan(swapped_layers=((LAYERS,),))
    alone = replace(plan(recompute=swapped), hardware=slow)
    exposed = amount(alone, "communication/exposed/swap") / M
    layer_way = (exposed + LAYERS * (FORWARD_S + BACKWARD_S)) / 2 / LAYERS
    ahead, behind = 4 * (layer_way - FORWARD_S), 4 * (layer_way - BACKWARD_S)
    sizes = {"pipeline_parallel_size": 2, "layers_per_stage": ((4, 4),)}
    one = replace(plan(8, RecomputePlan(swapped_layers=((4, 4),)), **sizes), hardware=slow)
    forward, backward = stage_times(plan(8, **sizes))
    updates = [(4 * WEIGHTS + VOCAB * HIDDEN) * 30 / BYTES] * 2
    expected = period_s((forward + ahead, backward + behind), PAYLOAD / LINK, 8, ([0.0, 0.0], updates))
    assert breakdown(costs_of([one]), LOSSLESS).total == pytest.approx(expected, rel=1e-6)
    assert ahead > 2 * behind > 0


def test_computing_that_hides_copies_to_the_host_hides_no_collective_of_the_parameters_too():
    """Copies take half as long again as the forward pass: it hides no gather, the backward pass what the copies leave of it."""
    swapped = RecomputePlan(swapped_layers=((LAYERS,),))

    def on(bytes_per_s: float) -> Plan:
        sizes = {"data_parallel_size": 2, "optimizer_shard_size": 2, "optimizer_shard_level": 3}
        host = Link(name="link", bytes_per_s=bytes_per_s)
        return replace(plan(recompute=swapped, **sizes), hardware=replace(DEVICE, links={**DEVICE.links, "host": host}))

    exposed = amount(on(4e10), "communication/exposed/swap") / M
    way = (exposed + LAYERS * (FORWARD_S + BACKWARD_S)) / 2
    one = on(4e10 * way / (1.5 * LAYERS * FORWARD_S))
    assert amount(one, "communication/exposed/swap") == pytest.approx(M * 0.5 * LAYERS * FORWARD_S)
    held = LAYERS * WEIGHTS + 2 * VOCAB * HIDDEN
    gather, reduce = (held * element / 2 / LINK for element in (2, 4))
    left = LAYERS * (BACKWARD_S - 1.5 * FORWARD_S)
    assert 0 < left < gather + reduce
    found = leaves(one, gradients_hidden=1.0)["communication/exposed/dp"]
    assert found == pytest.approx(M * (gather + (gather + reduce - left)))


@pytest.mark.parametrize("chunks", [1, 2])
def test_sharded_parameters_of_a_stage_are_gathered_whole_however_many_chunks_it_has(chunks):
    """A stage of two layers and a table: gathered for both passes, and its gradients reduced, in each of 8 micro batches."""
    layers = ((2, 2, 2, 2),) if chunks == 1 else ((1, 1, 1, 1),) * 2
    sizes = {"pipeline_parallel_size": 4, "data_parallel_size": 2, "optimizer_shard_size": 2, "optimizer_shard_level": 3}
    found = leaves(plan(8, layers_per_stage=layers, virtual_pipeline_parallel_size=chunks, **sizes))
    held = 2 * WEIGHTS + VOCAB * HIDDEN
    assert found["communication/exposed/dp"] == pytest.approx(8 * 1 / 2 * held * (2 * 2 + 4) / LINK)


@pytest.mark.parametrize("recompute", [RecomputePlan(), RecomputePlan(full_layers=((1, 0, 2, 0),))], ids=["", "some again"])
def test_layers_of_a_single_expert_are_dense_ones(recompute):
    """One expert that takes every token is a feed-forward block: dense layers ahead of such ones are layers like them."""
    single = replace(MODEL, num_experts=1, num_experts_per_token=1, expert_ffn_hidden_size=FFN, num_dense_layers=3)
    sizes = {"pipeline_parallel_size": 4, "layers_per_stage": ((2, 2, 2, 2),)}
    assert leaves(plan(8, recompute, single, **sizes)) == pytest.approx(leaves(plan(8, recompute, **sizes)))
