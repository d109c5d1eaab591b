"""torchtitan TOML and today's MindSpeed-LLM options: sizes, and what nothing counts."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from perfkit.config.dialects import read_config, read_text, write_config
from perfkit.core import catalog
from perfkit.core.errors import InputError
from perfkit.core.params import count_params
from perfkit.predict.limits import assumed

DATA = Path(__file__).parents[2] / "data" / "configs"
SMALL = """[model]
name = "llama3"
flavor = "8B"
[training]
local_batch_size = 2
global_batch_size = 64
seq_len = 8192
[parallelism]
data_parallel_replicate_degree = 2
data_parallel_shard_degree = 4
tensor_parallel_degree = 2
[activation_checkpoint]
mode = "selective"
selective_ac_option = "2"
"""


def test_degrees_batches_and_every_second_layer():
    plan = read_text(SMALL, "train.toml")
    assert replace(plan.model, name="") == replace(catalog.model("llama3-8b"), name="")
    assert (plan.num_devices, plan.parallel.data_parallel_size, plan.parallel.optimizer_shard_size) == (16, 8, 4)
    assert (plan.num_micro_batches, plan.workload.seq_length) == (4, 8192)
    assert plan.recompute.full_layers == ((16,),)
    assert plan.parallel.optimizer_shard_level == 3


def test_a_public_file_is_read_and_what_is_not_counted_is_named():
    plan = read_config(DATA / "torchtitan" / "deepseek_v3_671b.toml")
    assert plan.model.num_experts == 256
    named = {one.field for one in assumed(plan)}
    assert {"quantize.moe.float8.fqns", "compile.enable", "data_parallel_size", "recompute"} <= named
    assert plan.document.unknown == ()


def test_older_places_of_degrees_are_read():
    older = SMALL.replace("[parallelism]", "[experimental]\ncontext_parallel_degree = 2\n[parallelism]")
    assert read_text(older, "train.toml").parallel.context_parallel_size == 2


def test_a_model_that_the_catalogue_lacks_is_refused_by_name():
    with pytest.raises(InputError, match="flux"):
        read_text(SMALL.replace("llama3", "flux"), "train.toml")


@pytest.mark.parametrize(
    ("name", "flavor", "model"),
    [
        ("qwen3", "0.6B", "qwen3-0.6b"),
        ("llama4", "17bx16e", "llama4-scout"),
        ("deepseek_v3", "16B", "deepseek-v2-lite"),
        ("deepseek_v3", "671B_flex_attn", "deepseek-v3"),
        ("llama3", "8B_varlen", "llama3-8b"),
    ],
)
def test_a_flavor_is_its_model_whatever_kernel_its_attention_has(name, flavor, model):
    text = SMALL.replace('"llama3"', f'"{name}"').replace('"8B"', f'"{flavor}"')
    assert read_text(text, "train.toml").model == catalog.model(model)


def test_a_plan_is_written_with_its_name_or_refused():
    plan = read_text(SMALL, "train.toml")
    text = write_config(replace(plan, document=None), dialect="torchtitan").text
    assert read_text(text, "again.toml").parallel == plan.parallel
    with pytest.raises(InputError, match="it names its models"):
        write_config(replace(plan, model=replace(plan.model, num_layers=16), document=None), dialect="torchtitan")


def test_options_of_mindspeed_llm_give_the_model_without_its_empty_layers():
    plan = read_config(DATA / "today" / "deepseek_v3_mindspeed_llm.sh")
    entry = catalog.model("deepseek-v3")
    assert count_params(plan.model).total == count_params(replace(entry, num_layers=62, num_mtp_layers=1)).total
    assert plan.stage_layers == ((8, 8, 8, 8, 8, 8, 8, 6),)
    assert plan.workload.dtype == "float8"
    named = {one.field for one in assumed(plan)}
    assert {"swap_optimizer", "schedules_method", "moe_token_dispatcher_type"} <= named
    assert plan.document.unknown == ()


def test_a_variable_of_the_script_that_is_called_like_a_section_is_not_one(tmp_path):
    (tmp_path / "train.toml").write_text(SMALL)
    (tmp_path / "run.sh").write_text(
        "model=llama3\npython convert.py --model llama --training 1\n"
        "torchrun --nproc_per_node 8 -m torchtitan.train --job.config_file train.toml --training.seq_len 1024\n"
    )
    plan = read_config(tmp_path / "run.sh")
    assert (plan.workload.seq_length, plan.num_devices) == (1024, 16)


@pytest.mark.parametrize("said", ["$S", "1024 && python eval.py --training.seq_len 64", "1024 # --training.seq_len 64"])
def test_options_with_dots_are_those_of_the_command_and_known_variables(tmp_path, said):
    (tmp_path / "train.toml").write_text(SMALL)
    start = "torchrun --nproc_per_node 8 -m torchtitan.train --job.config_file train.toml --training.seq_len"
    (tmp_path / "run.sh").write_text(f"S=1024\n{start} {said}\n")
    assert read_config(tmp_path / "run.sh").workload.seq_length == 1024
