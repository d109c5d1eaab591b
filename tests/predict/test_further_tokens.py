"""Layers that predict further tokens (multi-token prediction): parameters, FLOPs, time and memory by hand, and through files."""

from __future__ import annotations

from dataclasses import replace

import pytest

from perfkit.config.dialects import read_text, write_config
from perfkit.core import catalog
from perfkit.core.errors import InputError
from perfkit.core.params import count_params
from perfkit.core.spec.model import ModelSpec
from perfkit.core.spec.parallel import ParallelPlan
from perfkit.core.spec.plan import Plan
from perfkit.core.spec.workload import Workload
from perfkit.predict.cost.flops import forward_flops
from perfkit.predict.estimate import estimate
from perfkit.predict.memory.memory import peak_memory
from perfkit.predict.simulate import simulate

MAIN = catalog.model("deepseek-v3")
FURTHER = replace(MAIN, num_layers=MAIN.num_layers + 1, num_mtp_layers=1)

MEGATRON = """
--num-layers 12 --hidden-size 1024 --num-attention-heads 16 --seq-length 2048 --micro-batch-size 1 --global-batch-size 16
--swiglu --normalization RMSNorm --disable-bias-linear --untie-embeddings-and-output-weights --padded-vocab-size 32000
--position-embedding-type rope --bf16 --pipeline-model-parallel-size 4 --world-size 4 --mtp-num-layers 1
"""


def plan(num_mtp_layers: int, **parallel: int) -> Plan:
    model = replace(catalog.model("llama2-7b"), num_layers=32 + num_mtp_layers, num_mtp_layers=num_mtp_layers)
    stages = parallel.get("pipeline_parallel_size", 1)
    each = 32 // stages
    return Plan(
        model=model,
        workload=Workload(seq_length=4096, micro_batch_size=1, global_batch_size=16, attention_kernel="flash"),
        parallel=ParallelPlan(**parallel, layers_per_stage=((*(each,) * (stages - 1), each + num_mtp_layers),)),
        hardware=catalog.hardware_named("H100-80GB-SXM"),
    )


def test_the_module_of_deepseek_v3_has_the_published_parameters():
    """README_WEIGHTS of deepseek-ai/DeepSeek-V3: 671B in all, the module 11.5B without the shared embedding and head."""
    assert count_params(MAIN).total == pytest.approx(671e9, rel=0.002)
    assert count_params(FURTHER).total - count_params(MAIN).total == pytest.approx(11.5e9, rel=0.01)


def test_a_further_token_costs_a_layer_a_projection_and_a_head():
    more = forward_flops(FURTHER, 4096).total - forward_flops(MAIN, 4096).total
    layers = forward_flops(MAIN, 4096, head=False).total - forward_flops(replace(MAIN, num_layers=60), 4096, head=False).total
    assert more - layers == 2 * 7168 * 129280 + 2 * 2 * 7168 * 7168


def test_the_last_stage_holds_the_module_and_a_copy_of_the_embedding():
    """A layer, 2h x h and 3h, and the table, each with 2 bytes of weight, 4 of gradient and 12 of optimizer."""
    model = catalog.model("llama2-7b")
    layer = count_params(model).total - count_params(replace(model, num_layers=31)).total
    added = layer + 2 * 4096**2 + 3 * 4096 + model.vocab_size * 4096
    static = [
        sum(
            amount
            for path, amount in peak_memory(plan(count, pipeline_parallel_size=4)).stages[-1].parts.items()
            if "static" in path
        )
        for count in (0, 1)
    ]
    assert static[1] - static[0] == pytest.approx(added * (2 + 4 + 12), rel=1e-6)


def test_the_simulated_step_is_the_estimated_one():
    wanted = plan(1, pipeline_parallel_size=4)
    run = simulate(wanted, steps=1)
    assert run.steps()["duration_ns"].max() / 1e9 == pytest.approx(estimate(wanted).step_time_s, rel=0.01)


def test_megatron_adds_the_layer_to_the_last_stage_and_writes_it_again():
    read = read_text(MEGATRON, "train.sh")
    assert (read.model.num_layers, read.model.num_mtp_layers, read.stage_layers) == (13, 1, ((3, 3, 3, 4),))
    placed = MEGATRON + "--pipeline-model-parallel-layout 'Et*4|t*4|t*4|mL'"
    assert read_text(placed, "train.sh").stage_layers == ((4, 4, 4, 1),)
    written = write_config(read_text(placed, "train.sh"), dialect="megatron")
    assert "Et*4|t*4|t*4|mL" in written.text
    assert read_text(written.text, "train.sh").stage_layers == ((4, 4, 4, 1),)
    with pytest.raises(InputError, match="the pipeline layout places 2"):
        read_text(MEGATRON + "--pipeline-model-parallel-layout 'Et*4|t*4|t*4|mmL'", "train.sh")


@pytest.mark.parametrize("dialect", ["mindformers", "megatron", "table"])
def test_every_format_that_knows_it_gives_it_back(dialect):
    wanted = plan(1, pipeline_parallel_size=4)
    written = write_config(wanted, dialect=dialect)
    again = read_text(written.text, written.name if hasattr(written, "name") else "plan.csv" if dialect == "table" else "plan.yaml")
    assert (again.model.num_layers, again.model.num_mtp_layers, again.stage_layers) == (33, 1, wanted.stage_layers)


def test_all_layers_cannot_predict_further_tokens():
    with pytest.raises(InputError, match="num_mtp_layers = 2 must be less than num_layers = 2"):
        ModelSpec(
            num_layers=2, hidden_size=8, num_attention_heads=1, num_key_value_heads=1, head_size=8, ffn_hidden_size=8,
            vocab_size=8, num_mtp_layers=2,
        )  # fmt: skip
