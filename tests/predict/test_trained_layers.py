"""Layers that are frozen: what programs print of them, laws over random plans, and one answer through every door."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from perfkit.config.dialects.table import row_of
from perfkit.core import catalog
from perfkit.core.errors import InputError
from perfkit.core.params import count_params, trained_params
from perfkit.core.spec import Adapters, ParallelPlan, Plan, RecomputePlan, SoftwareSpec, TrainedLayers, Workload
from perfkit.core.spec.trained import LAYER_PARTS, OUTSIDE
from perfkit.predict.cost.communication import bytes_sent
from perfkit.predict.cost.cost_columns import costs_of
from perfkit.predict.cost.flops import pass_flops, training_flops
from perfkit.predict.cost.work_columns import micro_batch_work
from perfkit.predict.estimate import efficiency_of, estimate, estimate_table, estimates, stage_breakdowns
from perfkit.predict.memory.guide import activation_table
from perfkit.predict.memory.memory import parameters_of, peak_memory, static_of
from perfkit.predict.memory.settings import preset
from perfkit.predict.plans.search.search import search_plans
from perfkit.predict.simulate import simulate
from tests.predict.one_answer import assert_table_and_plans_agree
from tests.predict.random_plans import partly_frozen_plans, random_plans

DEVICE = catalog.hardware_named("A100-80GB-SXM")
EVERYTHING = "embedding, final_norm, head"
LAYER = 4 * 4096 * 4096 + 3 * 4096 * 11008 + 2 * 4096
"""Parameters of a layer of Llama 2 7B: four matrices of attention, three of the feed-forward block, two norms."""


def of(name: str, text: str):
    return replace(catalog.model(name), trained_layers=TrainedLayers.of(text))


def plan_of(model, framework: str = "", **sizes) -> Plan:
    level, again = sizes.pop("level", 0), sizes.pop("again", False)
    shards = sizes.get("data_parallel_size", 1) if level else 1
    return Plan(
        model=model,
        workload=Workload(seq_length=4096, micro_batch_size=1, global_batch_size=64),
        parallel=ParallelPlan(optimizer_shard_size=shards, optimizer_shard_level=max(1, level), **sizes),
        recompute=RecomputePlan(all_layers=again),
        hardware=DEVICE,
        software=SoftwareSpec(framework=framework),
    )


def with_layers(plan: Plan, trained: TrainedLayers | None) -> Plan:
    return replace(plan, model=replace(plan.model, trained_layers=trained))


@pytest.mark.parametrize(
    ("text", "trained"),
    [
        # LLaMA-Factory prints the elements of what asks for a gradient: of Llama 2 7B with the last 2 layers 404,766,720.
        ("last 2", 404_766_720),
        ("first 2", 404_766_720),
        ("last 2, attention", 2 * 4 * 4096 * 4096),
        ("last 2, feed_forward", 2 * 3 * 4096 * 11008),
        ("last 2, norms", 2 * 2 * 4096),
        ("last 2, final_norm, head", 2 * LAYER + 4096 + 32000 * 4096),
        ("last 0, head", 32000 * 4096),
        ("last 32, embedding, final_norm, head", 6_738_415_616),
    ],
)
def test_as_many_parameters_are_trained_as_the_shapes_have(text, trained):
    model = of("llama2-7b", text)
    assert int(trained_params(model).total) == trained
    assert count_params(model).total == 6_738_415_616
    held = static_of(plan_of(model, "megatron"), preset("megatron"), 0)
    assert (held.optimizer, held.gradients) == (12 * trained, 4 * trained)
    assert held.parameters == 2 * 6_738_415_616


def test_of_a_model_with_leading_dense_layers_those_are_counted_that_are_trained():
    """The shapes of Mixtral's layers, the first of them dense."""
    model = replace(of("mixtral-8x7b", "first 2, feed_forward"), num_dense_layers=1)
    expert = 3 * 4096 * 14336
    assert int(trained_params(model).total) == 3 * 4096 * model.ffn_hidden_size + 8 * expert + 8 * 4096


@pytest.mark.parametrize("text", ["last 2", "first 4, attention, head", "last 0, final_norm, head", "last 2, input_gradients"])
def test_a_text_of_trained_layers_is_written_as_it_is_read(text):
    assert str(TrainedLayers.of(text)) == text


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("2", "must be as 'last 2' or 'first 4, attention, head'; words are attention,"),
        ("last 2, q_proj", "must be as 'last 2'"),
        ("last \N{FULLWIDTH DIGIT TWO}", "must be as 'last 2'"),
        ("last 0", "nothing is trained: give first, last or outside"),
        ("last 33", "trained_layers = 'last 33' is more than num_layers = 32"),
    ],
)
def test_trained_layers_that_contradict_themselves_are_refused(text, told):
    with pytest.raises(InputError, match=told):
        of("llama2-7b", text)


def test_words_that_do_not_exist_are_refused():
    with pytest.raises(InputError, match=r"parts = 'mlp' must be one of(.|\n)*outside = 'norm' must be one of"):
        TrainedLayers(last=2, parts=("mlp",), outside=("norm",))
    with pytest.raises(InputError, match="give one of them"):
        TrainedLayers(first=1, last=1)
    with pytest.raises(InputError, match="must name at least one"):
        TrainedLayers(last=1, parts=(), outside=("head",))


@pytest.mark.parametrize("parts", ["attention", None])
def test_parts_that_are_no_list_are_one_problem(parts):
    with pytest.raises(InputError) as caught:
        TrainedLayers(last=1, parts=parts)
    assert caught.value.problems == (f"parts = {parts!r} must be a list of words, of attention, feed_forward, norms",)


def test_parts_of_no_layers_are_all_parts():
    assert TrainedLayers.of("last 0, attention, head") == TrainedLayers.of("last 0, head") == TrainedLayers.of("first 0, head")
    assert TrainedLayers(outside=("head",), parts=("norms",)) == TrainedLayers(outside=("head",))


def test_models_whose_frozen_layers_are_not_counted_are_refused():
    with pytest.raises(InputError, match="trained_layers and adapters exclude each other"):
        replace(of("llama2-7b", "last 2"), adapters=Adapters(rank=8, targets=("query",)))
    with pytest.raises(InputError, match="one table"):
        replace(of("llama2-7b", "last 2, head"), tied_embeddings=True)
    with pytest.raises(InputError, match="frozen layers of a model with num_mtp_layers are not counted"):
        replace(of("llama2-7b", "last 2"), num_mtp_layers=1)


def test_flops_by_hand_of_the_last_two_layers():
    """30 layers forward alone; of 2 forward, inputs and weights; the frozen head forward and inputs."""
    passes = pass_flops(of("llama2-7b", "last 2"), 4096)
    for path, forward in passes["forward"].parts.items():
        times = {"head": 1, "layers/scores": 4 / 32, "layers/values": 4 / 32}.get(path, 2 * 2 / 32)
        assert passes["backward"].parts[path] == times * forward, path
    down = pass_flops(of("llama2-7b", "last 2, input_gradients"), 4096)
    for path, forward in down["forward"].parts.items():
        times = {"head": 1, "layers/scores": 2, "layers/values": 2}.get(path, 1 + 2 / 32)
        assert down["backward"].parts[path] == times * forward, path
    again = pass_flops(of("llama2-7b", "last 2"), 4096, RecomputePlan(all_layers=True))["recompute"]
    assert again.parts["layers/ffn"] == passes["forward"].parts["layers/ffn"] * 2 / 32
    of_counts = pass_flops(of("llama2-7b", "last 2"), 4096, RecomputePlan(full_layers=((31,),)))["recompute"]
    assert of_counts.parts["layers/ffn"] == passes["forward"].parts["layers/ffn"] / 32


@pytest.mark.parametrize("recompute", [RecomputePlan(), RecomputePlan(all_layers=True)])
@pytest.mark.parametrize("text", ["last 2", "first 3, attention", "last 4, feed_forward, head", "last 2, input_gradients"])
@pytest.mark.parametrize(("name", "dense"), [("llama2-7b", 0), ("mixtral-8x7b", 0), ("mixtral-8x7b", 2), ("mixtral-8x7b", 29)])
def test_the_utilization_of_an_estimate_is_that_of_the_models_flops(name, dense, text, recompute):
    plan = replace(plan_of(replace(of(name, text), num_dense_layers=dense), data_parallel_size=8), recompute=recompute)
    found, passes = estimate(plan), pass_flops(plan.model, 4096, recompute)
    per_flop = found.tokens_per_s_per_device / DEVICE.peak_flops_per_s["bfloat16"]
    once = float(training_flops(plan.model, 4096).total)
    assert found.mfu == pytest.approx(once * per_flop, rel=1e-9)
    assert found.hfu == pytest.approx((once + float(passes["recompute"].total)) * per_flop, rel=1e-9)


@pytest.mark.parametrize("text", ["last 2", "last 20", "last 20, head", "first 3", "last 2, input_gradients"])
@pytest.mark.parametrize("chunks", [1, 2])
@pytest.mark.parametrize("dense", [0, 11])
def test_the_utilization_of_stages_counts_what_the_model_needs(text, chunks, dense):
    """Frozen layers of later stages have a backward pass and compute again, which the model needs on no stage."""
    model = replace(of("mixtral-8x7b" if dense else "llama2-7b", text), num_dense_layers=dense)
    sizes = {"pipeline_parallel_size": 4, "virtual_pipeline_parallel_size": chunks, "data_parallel_size": 2}
    counts = RecomputePlan(full_layers=((5, 4, 8, 3),) if chunks == 1 else ((3, 4, 1, 2), (4, 0, 2, 3)))
    for recompute in (RecomputePlan(all_layers=True), *([counts] if not dense else [])):
        plan = replace(plan_of(model, **sizes), recompute=recompute)
        found, passes = estimate(plan), pass_flops(model, 4096, recompute)
        per_flop = found.tokens_per_s_per_device / DEVICE.peak_flops_per_s["bfloat16"]
        once = float(training_flops(model, 4096).total)
        assert found.mfu == pytest.approx(once * per_flop, rel=1e-9)
        assert found.hfu == pytest.approx((once + float(passes["recompute"].total)) * per_flop, rel=1e-9)
        alone = replace(plan_of(model, data_parallel_size=8), recompute=RecomputePlan(all_layers=True))
        if recompute.all_layers:
            assert found.hfu / found.mfu == pytest.approx(estimate(alone).hfu / estimate(alone).mfu, rel=1e-9)


@pytest.mark.parametrize("name", ["llama2-7b", "mixtral-8x7b", "deepseek-v2"])
@pytest.mark.parametrize("side", ["first", "last"])
def test_all_layers_with_everything_are_the_ordinary_plan(name, side):
    model = catalog.model(name)
    for sizes in ({"level": 3, "data_parallel_size": 8}, {"pipeline_parallel_size": 2, "data_parallel_size": 2, "again": True}):
        plan = plan_of(model, **sizes)
        whole = with_layers(plan, TrainedLayers.of(f"{side} {model.num_layers}, {EVERYTHING}"))
        assert estimate(whole) == estimate(plan)
        assert bytes_sent(whole.model, plan.workload, plan.parallel) == bytes_sent(model, plan.workload, plan.parallel)
        assert trained_params(whole.model).parts == count_params(model).parts


def test_every_plan_that_trains_everything_is_the_ordinary_plan():
    plans = [with_layers(plan, None) for plan in partly_frozen_plans(200, seed=11)]
    whole = [with_layers(plan, TrainedLayers(last=plan.model.num_layers, outside=OUTSIDE)) for plan in plans]
    for plan, one, other in zip(plans, estimates(plans), estimates(whole), strict=True):
        assert other.step_time_s == pytest.approx(one.step_time_s, rel=1e-12), plan
        assert other.breakdown.parts == pytest.approx(one.breakdown.parts, rel=1e-9, abs=1e-12), plan
        assert other.memory == one.memory, plan
        assert (other.mfu, other.hfu) == pytest.approx((one.mfu, one.hfu), rel=1e-12), plan


@pytest.fixture(scope="module")
def plans() -> list[Plan]:
    return partly_frozen_plans(250)


def shares_trained_weights_alone(plan: Plan) -> bool:
    """MindSpore's parallel optimizer, beside which a frozen weight is whole on every device: fewer trained ones may need more."""
    return plan.program == "mindspore" and plan.parallel.optimizer_shard_size > 1


def test_more_trained_layers_never_need_less_nor_take_less_time(plans):
    shares = (0, 1, 2, 0.5, 1.0)

    def trained(plan: Plan, share: float, side: str) -> Plan:
        own, layers = plan.model.trained_layers, plan.model.num_layers
        count = share if share in (1, 2) and isinstance(share, int) else round(share * layers)
        outside = own.outside or ("final_norm",)
        return with_layers(plan, replace(own, **{"first": 0, "last": 0, "outside": outside, side: count}))

    for side in ("first", "last"):
        found = [estimates([trained(plan, share, side) for plan in plans]) for share in shares]
        needed = np.array([[one.peak_memory_bytes for one in column] for column in found])
        seconds = np.array([[one.step_time_s for one in column] for column in found])
        work = [[float(training_flops(trained(one, share, side).model, 4096).total) for share in shares] for one in plans]
        assert (np.diff(work, axis=1) >= 0).all()
        assert (np.diff(needed, axis=0) >= -1)[:, [not shares_trained_weights_alone(plan) for plan in plans]].all()
        assert (np.diff(seconds, axis=0) >= -1e-9 * seconds[1:]).all()


def test_freezing_never_needs_more_nor_takes_more_time(plans):
    whole_plans = [with_layers(plan, None) for plan in plans]
    for plan, frozen, whole in zip(plans, estimates(plans), estimates(whole_plans), strict=True):
        assert frozen.step_time_s <= whole.step_time_s * (1 + 1e-9)
        assert frozen.peak_memory_bytes <= whole.peak_memory_bytes or shares_trained_weights_alone(plan)
        assert frozen.breakdown.amount("computing/optimizer") <= whole.breakdown.amount("computing/optimizer") * (1 + 1e-9)


def test_a_table_and_its_plans_give_one_answer(plans):
    assert_table_and_plans_agree([*plans, *random_plans(50, seed=3)])


@pytest.mark.parametrize(
    ("cell", "told"),
    [
        ("2", "must be as 'last 2'"),
        ({"last": 2}, "is not a text"),
        ("last 99", "is more than num_layers = 36"),
        ("last 2, head", "one table"),
    ],
)
def test_a_cell_that_states_no_trained_layers_is_a_problem_of_its_row(cell, told):
    row = row_of(plan_of(replace(catalog.model("gpt-7.5b"), tied_embeddings=True), data_parallel_size=8))
    found = estimate_table(pd.DataFrame([row | {"trained_layers": cell}]))
    assert np.isnan(found["step_time_s"].iloc[0])
    assert told in found["note"].iloc[0]


def test_layers_below_all_that_is_trained_keep_nothing():
    """One device: of 32 layers 2 keep what a layer keeps; with gradients down to the embedding the 30 frozen ones keep theirs."""
    kept = {}
    for text in ("last 2", "last 2, input_gradients", f"last 32, {EVERYTHING}", "last 1"):
        peak = peak_memory(plan_of(of("llama2-7b", text), "megatron")).peak
        parts = ("attention", "ffn", "norm")
        kept[text] = sum(peak.amount(f"dynamic/activations/{part}") for part in parts)
    layer = kept[f"last 32, {EVERYTHING}"] / 32
    assert kept["last 2"] == pytest.approx(2 * layer) == 2 * kept["last 1"]
    # Of a frozen layer no input of a product is kept, but the one of the projection, which flash attention keeps.
    inputs = 2 * 4096 * (2 * 4096 + 11008)
    assert kept["last 2, input_gradients"] == pytest.approx(32 * layer - 30 * inputs)


def test_stages_hold_the_layers_that_they_train():
    """By hand: of 4 stages of 8 layers the last one trains 2, the first one the embedding."""
    plan = plan_of(of("llama2-7b", "last 2, embedding"), "megatron", pipeline_parallel_size=4)
    gradients = [static_of(plan, preset("megatron"), stage).gradients / 4 for stage in range(4)]
    assert gradients == [32000 * 4096, 0, 0, 2 * LAYER]
    assert parameters_of(plan, preset("megatron"), 0).total == 32000 * 4096 + 8 * LAYER
    updated = [float(parts.amount("computing/optimizer")) for parts in stage_breakdowns(plan)]
    assert updated[1] == updated[2] == 0
    assert 0 < updated[0] < updated[3]


def test_only_the_first_stage_has_no_backward_pass_below_what_is_trained():
    plan = plan_of(of("llama2-7b", "last 2"), "megatron", pipeline_parallel_size=4)
    behind = [float(parts.amount("computing/backward/attention")) for parts in stage_breakdowns(plan)]
    assert behind[0] == 0
    assert behind[1] == behind[2] == behind[3] > 0


@pytest.mark.parametrize("text", ["last 2", "last 2, head", "first 2, attention"])
def test_a_frozen_embedding_takes_no_time_of_a_backward_pass(text):
    plan = plan_of(of("llama2-7b", text), pipeline_parallel_size=4)
    adapted = replace(plan, model=replace(catalog.model("llama2-7b"), adapters=Adapters(rank=8, targets=("query",))))
    work = micro_batch_work(costs_of([plan]), efficiency_of(plan))
    assert (work.embedding_share == 1, work.embedding > 0) == (True, True)
    first = stage_breakdowns(plan)[0]
    if text.startswith("last"):
        assert first.amount("computing/backward") == 0
    assert micro_batch_work(costs_of([adapted]), efficiency_of(adapted)).embedding_share == 1
    whole = with_layers(plan, None)
    assert micro_batch_work(costs_of([whole]), efficiency_of(whole)).embedding_share == pytest.approx(1 / 3)


def test_the_guides_tensors_are_those_of_a_model_that_trains_everything():
    plan = plan_of(catalog.model("llama2-7b"))
    whole, partly = (activation_table(with_layers(plan, own)) for own in (None, TrainedLayers.of("last 2, attention")))
    pd.testing.assert_series_equal(partly["guide_bytes"], whole["guide_bytes"])


def test_mindspore_gathers_the_tables_that_it_shares_out():
    """Level 3 gathers a table for both passes and reduces its gradients: one of two tables takes half of both, but for latency."""
    sent = {}
    for text in ("last 0, head", "last 0, embedding", "last 0, embedding, head"):
        plan = plan_of(of("llama2-7b", text), "mindspore", data_parallel_size=8, level=3)
        plan = replace(plan, hardware=catalog.hardware_named("Ascend-910B2"))
        sent[text] = float(estimate(plan).breakdown.amount("communication/exposed/dp"))
    head, embedding, both = sent.values()
    assert head == embedding == pytest.approx(both / 2, rel=0.03)


@pytest.mark.parametrize("level", [0, 1, 3])
def test_gradients_of_trained_layers_alone_are_sent(level):
    """Of a middle stage, whose layers are all alike: 2 of 32 are trained; level 3 gathers all for one pass and 2 for the other."""
    sent = {
        text: float(bytes_sent(one.model, one.workload, one.parallel).parts["dp"])
        for text in ("last 2", f"last 32, {EVERYTHING}")
        for one in [plan_of(of("llama2-7b", text), data_parallel_size=8, level=level)]
    }
    whole = sent[f"last 32, {EVERYTHING}"]
    assert sent["last 2"] == pytest.approx(whole / 3 * (1 + 2 / 32 + 2 / 32) if level == 3 else whole * 2 / 32, abs=8)


SIMULATED = {
    "last, on one stage": plan_of(of("llama2-7b", "last 2"), data_parallel_size=8),
    "first, recomputed": plan_of(of("llama2-7b", "first 4, final_norm, head"), data_parallel_size=8, again=True),
    "last, recomputed": plan_of(of("llama2-7b", "last 6, attention, norms"), data_parallel_size=8, again=True),
    "sharded parameters": plan_of(of("llama2-7b", "last 4, head"), data_parallel_size=8, level=3),
    "stages": plan_of(of("llama2-7b", "last 10"), data_parallel_size=2, pipeline_parallel_size=4),
    "stages, first": plan_of(of("llama2-7b", "first 10, embedding"), data_parallel_size=2, pipeline_parallel_size=4),
    "experts": plan_of(
        of("mixtral-8x7b", "last 4, attention"), data_parallel_size=4, tensor_parallel_size=2, expert_parallel_size=4
    ),
}


@pytest.mark.parametrize("name", SIMULATED)
def test_a_simulated_step_and_its_parts_are_the_predicted_ones(name):
    predicted = estimate(SIMULATED[name]).breakdown
    run = simulate(SIMULATED[name], steps=2)
    steps = run.steps()
    assert steps["duration_ns"].max() / 1e9 == pytest.approx(float(predicted.total), rel=0.01)
    slowest = steps[steps["step"] == 2].sort_values("computing_ns").iloc[-1]
    ours = run.step_breakdown(int(slowest["rank"]), 2)
    assert float(ours.amount("computing")) / 1e9 == pytest.approx(float(predicted.amount("computing")), rel=0.01)


@pytest.mark.parametrize("device", ["Ascend-910B2", "A100-80GB-SXM"])
def test_a_strategy_of_a_search_keeps_what_is_trained(device):
    base = replace(plan_of(of("llama2-7b", "last 4, head"), data_parallel_size=16), hardware=catalog.hardware_named(device))
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


def test_parts_are_words_of_one_kind():
    assert not set(LAYER_PARTS) & set(OUTSIDE)
