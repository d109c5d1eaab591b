"""Adapters of low rank: what is published of them, laws over random plans, and one answer through every door."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from perfkit.config.dialects.table import row_of
from perfkit.core import catalog
from perfkit.core.errors import InputError
from perfkit.core.params import count_params, trained_params
from perfkit.core.spec import Adapters, OptimizerSpec, ParallelPlan, Plan, RecomputePlan, SoftwareSpec, Workload
from perfkit.predict.cost.communication import bytes_sent
from perfkit.predict.cost.flops import forward_flops, pass_flops, training_flops
from perfkit.predict.estimate import estimate, estimate_table, estimates
from perfkit.predict.memory.activations import layer_tensors
from perfkit.predict.memory.memory import parameters_of, static_of
from perfkit.predict.memory.settings import preset
from perfkit.predict.plans.search.search import search_plans
from tests.predict.one_answer import assert_table_and_plans_agree
from tests.predict.random_plans import adapted_plans

ALL = ("query", "key", "value", "output", "gate", "up", "down")
DEVICE = catalog.hardware_named("A100-80GB-SXM")


def of(name: str, rank: int, *targets: str):
    return replace(catalog.model(name), adapters=Adapters(rank=rank, targets=targets))


def plan_of(model, framework: str = "", **sizes) -> Plan:
    level = sizes.pop("level", 0)
    shards = sizes.get("data_parallel_size", 1) if level else 1
    return Plan(
        model=model,
        workload=Workload(seq_length=4096, micro_batch_size=1, global_batch_size=64),
        parallel=ParallelPlan(optimizer_shard_size=shards, optimizer_shard_level=max(1, level), **sizes),
        hardware=DEVICE,
        software=SoftwareSpec(framework=framework),
    )


@pytest.mark.parametrize(
    ("model", "trained"),
    [
        # arXiv 2106.09685, tables 4 and 5 and section 4.2: GPT-3 175B on queries and values, 4.7 M of rank 1 and 37.7 M of rank 8.
        (of("gpt3-175b", 1, "query", "value"), 4_718_592),
        (of("gpt3-175b", 8, "query", "value"), 37_748_736),
        # What PEFT prints for Llama 2 7B: queries and values of rank 8, all linear layers of rank 16.
        (of("llama2-7b", 8, "query", "value"), 4_194_304),
        (of("llama2-7b", 16, *ALL), 39_976_960),
        # Llama 3 8B has 8 key-value heads of 128: all linear layers of rank 8 are 20,971,520 (LLaMA-Factory's log).
        (of("llama3-8b", 8, *ALL), 20_971_520),
    ],
)
def test_as_many_parameters_are_trained_as_is_published(model, trained):
    assert int(trained_params(model).total) == trained
    assert count_params(model).total == count_params(replace(model, adapters=None)).total + trained


def test_peft_prints_all_parameters_with_those_of_the_adapters():
    assert int(count_params(of("llama2-7b", 8, "query", "value")).total) == 6_742_609_920


def test_fused_matrices_have_one_first_factor():
    assert int(trained_params(of("llama2-7b", 8, "qkv")).total) == 32 * 8 * (4096 + 3 * 4096)
    assert int(trained_params(of("llama2-7b", 8, "gate_up")).total) == 32 * 8 * (4096 + 2 * 11008)


@pytest.mark.parametrize(
    ("values", "told"),
    [
        ({"rank": 0, "targets": ("query",)}, "rank = 0 must be positive"),
        ({"rank": 8, "targets": ()}, "must name at least one of"),
        ({"rank": 8, "targets": ("query", "q_proj")}, "targets = 'q_proj' must be one of query,"),
        ({"rank": 8, "targets": ("qkv", "key")}, "targets = 'qkv' stands beside 'key', which it holds; keep one"),
    ],
)
def test_adapters_that_contradict_themselves_are_refused(values, told):
    with pytest.raises(InputError, match=told):
        Adapters(**values)


@pytest.mark.parametrize(
    ("name", "target", "told"),
    [
        ("gpt-7.5b", "gate", "there is no gate"),
        ("mixtral-8x7b", "up", "num_experts = 8"),
        ("deepseek-v2", "query", "kv_lora_rank = 512"),
    ],
)
def test_adapters_on_what_the_model_does_not_have_are_refused(name, target, told):
    with pytest.raises(InputError, match=rf"adapters\.targets = '{target}': .*{told}"):
        of(name, 8, target)


def test_the_order_of_targets_says_nothing():
    assert Adapters(rank=8, targets=("value", "query")) == Adapters(rank=8, targets=("query", "value"))


def test_the_backward_pass_of_frozen_products_is_as_long_as_the_forward_pass():
    model = of("llama2-7b", 8, *ALL)
    passes = pass_flops(model, 4096)
    for path, forward in passes["forward"].parts.items():
        both = path in ("layers/scores", "layers/values", "layers/adapters")
        assert passes["backward"].parts[path] == (2 if both else 1) * forward, path
    assert training_flops(model, 4096).total == passes["forward"].total + passes["backward"].total
    of_adapters = forward_flops(model, 4096).parts["layers/adapters"]
    assert of_adapters == 2 * trained_params(model).total
    again = pass_flops(model, 4096, RecomputePlan(all_layers=True))["recompute"]
    assert again.parts["layers/adapters"] == of_adapters


@pytest.mark.parametrize("recompute", [RecomputePlan(), RecomputePlan(all_layers=True)])
@pytest.mark.parametrize("name", ["llama2-7b", "mixtral-8x7b", "gpt-7.5b"])
def test_the_utilization_of_an_estimate_is_that_of_the_models_flops(name, recompute):
    plan = replace(plan_of(of(name, 16, "query", "value", "output"), data_parallel_size=8), recompute=recompute)
    found, passes = estimate(plan), pass_flops(plan.model, 4096, recompute)
    per_flop = found.tokens_per_s_per_device / DEVICE.peak_flops_per_s["bfloat16"]
    once = float(training_flops(plan.model, 4096).total)
    assert found.mfu == pytest.approx(once * per_flop, rel=1e-9)
    assert found.hfu == pytest.approx((once + float(passes["recompute"].total)) * per_flop, rel=1e-9)


@pytest.mark.parametrize("level", [0, 1, 2, 3])
@pytest.mark.parametrize("framework", ["megatron", "deepspeed", "fsdp", "mindspore"])
def test_only_adapters_have_gradients_and_states(framework, level):
    """Of 4-byte gradients, 4-byte master copies and 8 bytes of moments nothing is kept for frozen weights, which are all stored."""
    plan = plan_of(of("llama2-7b", 8, *ALL), framework, data_parallel_size=8, level=level)
    settings = preset(framework)
    held, bytes_ = parameters_of(plan, settings, 0), static_of(plan, settings, 0)
    trained = trained_params(plan.model).total
    assert held.adapters == trained
    assert bytes_.optimizer == 12 * trained / (8 if level else 1)
    assert bytes_.gradients <= 4 * trained
    frozen = 2 * (held.total - trained)
    assert bytes_.parameters >= frozen / (8 if level == 3 and framework != "mindspore" else 1)
    assert bytes_.parameters <= 2 * held.total


@pytest.mark.parametrize("framework", ["mindspore", "deepspeed"])
def test_of_what_devices_share_two_layers_are_whole_at_a_time(framework):
    adapted = of("llama2-7b", 8, *ALL)
    bytes_ = static_of(plan_of(adapted, framework, data_parallel_size=8, level=3), preset(framework), 0)
    shared = adapted.adapters.weights(adapted)
    if framework != "mindspore":
        shared += adapted.hidden_size * (4 * adapted.hidden_size + 3 * adapted.ffn_hidden_size)
    assert bytes_.gathered == 2 * 2 * shared


def test_stages_and_tensor_groups_share_adapters_as_their_matrices():
    """By hand: of queries and values B is split and A is whole, of the output A is split and B whole."""
    model = of("llama2-7b", 8, "query", "value", "output")
    plan = plan_of(model, "megatron", tensor_parallel_size=4, pipeline_parallel_size=2)
    layer = 8 * (2 * (4096 + 4096 / 4) + 4096 / 4 + 4096)
    assert [parameters_of(plan, preset("megatron"), stage).adapters for stage in (0, 1)] == [16 * layer, 16 * layer]
    copied = plan_of(replace(of("llama2-70b", 8, "key")), "megatron", tensor_parallel_size=16)
    assert parameters_of(copied, preset("megatron"), 0).adapters == 80 * 8 * (8192 + 128)


@pytest.mark.parametrize(
    ("framework", "targets", "inputs"),
    [
        # In tokens x hidden x 2 bytes: inputs of attention, of its projection (which flash attention keeps) and of the ffn.
        ("megatron", ("query", "value"), (1, 1, 0)),
        ("megatron", ("up",), (0, 1, 1)),
        ("fsdp", ("query", "value"), (2, 1, 0)),
        ("fsdp", ("output",), (0, 2, 0)),
        ("deepspeed", ("query", "value"), (3, 1, 1)),
    ],
)
def test_products_of_frozen_weights_keep_no_input_but_that_of_adapters(framework, targets, inputs):
    plan = plan_of(of("llama2-7b", 8, *targets), framework)
    tensors = {tensor.name: float(tensor.bytes) for tensor in layer_tensors(plan, preset(framework), experts=False)}
    unit = 4096 * 4096 * 2
    names = ("input of the attention products", "input of the projection", "input of the ffn products")
    assert tuple(tensors[name] / unit for name in names) == inputs
    second = 1 if framework == "deepspeed" else 0
    assert tensors["input of the second product"] == second * 4096 * 11008 * 2
    inner = sum(amount for name, amount in tensors.items() if name.startswith("inner values"))
    assert inner == len(targets) * 4096 * 8 * 2


@pytest.mark.parametrize("level", [0, 1, 3])
def test_gradients_of_adapters_alone_are_sent(level):
    model = of("llama2-7b", 8, "query", "value")
    sent = [
        float(bytes_sent(one.model, one.workload, one.parallel).parts["dp"])
        for one in (plan_of(each, data_parallel_size=8, level=level) for each in (model, replace(model, adapters=None)))
    ]
    adapters = 2 * trained_params(model).total * 7 / 8
    assert sent[0] == (8 * (2 * (sent[1] / 24 + adapters) + adapters) if level == 3 else 2 * adapters)


@pytest.mark.parametrize("level", [0, 1, 2, 3])
def test_the_step_with_adapters_is_shorter_and_needs_less(level):
    adapted = plan_of(of("llama2-7b", 8, "query", "value"), data_parallel_size=8, level=level)
    full = replace(adapted, model=replace(adapted.model, adapters=None))
    found, whole = estimate(adapted), estimate(full)
    assert found.step_time_s < whole.step_time_s
    assert found.peak_memory_bytes < whole.peak_memory_bytes
    for path in ("computing/backward/matmul", "computing/optimizer"):
        assert found.breakdown.amount(path) < whole.breakdown.amount(path)
    assert found.breakdown.parts["computing/backward/matmul"] < 1.15 * found.breakdown.parts["computing/forward/matmul"]


@pytest.fixture(scope="module")
def plans() -> list[Plan]:
    return adapted_plans(250)


def test_more_rank_never_needs_less_nor_takes_less_time(plans):
    """Time for ranks on the grain of memory transactions (products off it are slower), and layers of which no single operators are
    repeated, whose share of the products' time is that of their work."""
    ranks = (1, 8, 64, 128, 512)

    def ranked(rank: int) -> list[Plan]:
        return [replace(one, model=replace(one.model, adapters=replace(one.model.adapters, rank=rank))) for one in plans]

    rows = list(zip(*map(ranked, ranks), strict=True))
    found = [estimates([row[place] for row in rows]) for place in range(len(ranks))]
    needed = np.array([[one.peak_memory_bytes for one in column] for column in found])
    assert (np.diff(needed, axis=0) >= 0).all()
    whole = [place for place, one in enumerate(plans) if not one.recompute.operators]
    seconds = np.array([[one.step_time_s for one in column] for column in found])[2:, whole]
    assert len(whole) > 100
    assert (np.diff(seconds, axis=0) >= -1e-9 * seconds[1:]).all()
    work = [[float(training_flops(one.model, one.workload.seq_length).total) for one in row] for row in rows]
    assert (np.diff(work, axis=1) > 0).all()


def test_full_training_keeps_more_from_step_to_step(plans):
    small = [replace(one, model=replace(one.model, adapters=replace(one.model.adapters, rank=8))) for one in plans]
    full = [replace(one, model=replace(one.model, adapters=None)) for one in plans]
    for adapted, whole in zip(estimates(small), estimates(full), strict=True):
        states = [sum(one.memory.amount(f"static/{part}") for part in ("gradients", "optimizer")) for one in (adapted, whole)]
        assert states[0] < states[1]
        assert adapted.breakdown.amount("computing/optimizer") <= whole.breakdown.amount("computing/optimizer")


def test_a_table_and_its_plans_give_one_answer(plans):
    assert_table_and_plans_agree(plans)


@pytest.mark.parametrize(
    ("cell", "told"),
    [
        ("lora", "must be as"),
        ({"rank": 8, "targets": ["query"]}, "adapters = {'rank': 8, 'targets': ['query']} is not a text"),
        (["query"], "adapters = ['query'] is not a text"),
        ('{"rank": 8}', "must be as"),
        ('{"rank": 0, "targets": ["query"]}', "rank = 0 must be positive"),
        ('{"rank": 8, "targets": ["gate"]}', "there is no gate"),
    ],
)
def test_a_cell_that_states_no_adapters_is_a_problem_of_its_row(cell, told):
    row = row_of(plan_of(catalog.model("gpt-7.5b"), data_parallel_size=8)) | {"adapters": cell}
    found = estimate_table(pd.DataFrame([row]))
    assert np.isnan(found["step_time_s"].iloc[0])
    assert told in found["note"].iloc[0]


@pytest.mark.parametrize("device", ["Ascend-910B2", "A100-80GB-SXM"])
def test_a_strategy_of_a_search_keeps_the_adapters(device):
    base = replace(plan_of(of("llama2-7b", 16, *ALL), data_parallel_size=16), hardware=catalog.hardware_named(device))
    ranked = search_plans(base, devices=16, top=12).plans
    rows = estimate_table(pd.DataFrame([row_of(found.plan) for found in ranked]))
    assert len(ranked) >= 8
    for found, (_, row) in zip(ranked, rows.iterrows(), strict=True):
        alone = estimate(found.plan)
        assert found.plan.model == base.model
        assert found.estimate.step_time_s == pytest.approx(alone.step_time_s, rel=1e-9)
        assert found.estimate.peak_memory_bytes == alone.peak_memory_bytes
        assert row["step_time_s"] == pytest.approx(alone.step_time_s, rel=1e-9)
        assert row["peak_memory_bytes"] == pytest.approx(alone.peak_memory_bytes, rel=1e-6)


def test_muon_keeps_one_moment_of_an_adapter_which_is_a_matrix():
    plan = plan_of(of("llama2-7b", 8, "query"), "megatron", data_parallel_size=8)
    muon = replace(plan, optimizer=OptimizerSpec(name="muon", matrix_state_bytes_per_parameter=4))
    assert static_of(muon, preset("megatron"), 0).optimizer == 8 * trained_params(plan.model).total
