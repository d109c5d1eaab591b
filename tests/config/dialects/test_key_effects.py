"""No key that decides time or memory is ignored in silence: every key of every sample is read, without effect, or named."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from perfkit.config.dialects import read_config
from perfkit.config.dialects._args_edit import edit_json
from perfkit.config.dialects._toml_splice import splice as toml_splice
from perfkit.config.dialects._yaml_values import nested
from perfkit.config.dialects.key_effects import leaves, left_over, reason_of
from perfkit.config.dialects.read import read_text
from perfkit.config.dialects.splice import splice
from perfkit.core.errors import InputError
from perfkit.core.resources import data_folder
from perfkit.predict.limits import assumed

DATA = Path(__file__).parents[2] / "data" / "configs"
SAMPLES = sorted(
    path
    for folder in (
        data_folder() / "configs",
        DATA / "mindformers",
        DATA / "torchtitan",
        DATA / "megatron_bridge",
        DATA / "today",
        DATA / "others",
        DATA / "flagscale",
        DATA / "llama_factory",
        DATA / "trainer",
        DATA / "splice",
    )
    for path in folder.rglob("*")
    if path.suffix in (".yaml", ".toml", ".sh")
)
DECISIVE = [
    "hidden",
    "layer",
    "num_",
    "parallel",
    "batch",
    "seq_length",
    "recompute",
    "swap",
    "expert",
    "dtype",
    "fp8",
    "mtp",
    "offload",
]
"""Parts of names that decide time or memory where they are sizes or switches of the model or the job."""
HARMLESS = [
    "moe_config.expert_group_size",
    "train_dataset",
    "eval_dataset",
    "parallel_config.mem_coeff",
    "processor",
    "optimizer_shard",
    "parallel.parallel_mode",
    "parallel.dataset_strategy",
    "num_block",
    "parallel.parameter_broadcast",
    "softmax_compute",
    "rotary_dtype",
    "batch_size",
    "strategy_ckpt",
    "model.model_config.parallel_optimizer",
    "runner_config.num_classes",
    "num_dataset",
    "parallel.loss_repeated_mean",
    "parallel.gradients_mean",
    "parallel.search_mode",
    "parallel.strategy",
    "parallel.device_num",
    "transform_process_num",
    "router_dense_type",
    "layer_scale",
    "moe_config.save_token_distribution",
    "model.model_config.dtype",
    "torch_dtype",
    "trainer",
    "router_dtype",
    "num_workers",
    "layer_decay",
    "mtp_loss",
    "layernorm",
    "checkpoint.",
    "ckpt_",
    "post_layer",
    "_layernorm",
    "query_key_layer_scaling",
    "fp8_amax",
    "fp8_wgrad",
    "autocast_dtype",
    "pipeline_dtype",
    "batch_p2p_comm",
    "cpu_offloading_activations",
    "deepep_num_sms",
    "mtp_enabled",
    "parallel_output",
    "transformer_layer_spec",
    "persist_layer_norm",
    "num_layers_at_",
    "log_num_zeros",
    "router_num_groups",
    "num_train_epochs",
]
"""Names with these parts that were looked at one by one and decide less than 1 %."""


@pytest.mark.parametrize("path", SAMPLES, ids=lambda path: f"{path.parent.parent.name}-{path.stem}")
def test_every_key_is_read_or_without_effect_or_named(path):
    try:
        plan = read_config(path)
    except InputError:
        pytest.skip("no decoder-only language model, or a template without one")
    document = plan.document
    assert document.unknown == ()
    named = {one.field for one in assumed(plan)}
    assert {key for key, _ in document.unread} <= named
    if document.dialect == "perfkit":
        return
    for key, _ in leaves(document.values):
        reason = reason_of(document.dialect, key)
        decisive = any(part in key for part in DECISIVE) and not any(part in key for part in HARMLESS)
        assert reason is None or not decisive, f"{key}: {reason}"


@pytest.mark.parametrize("dialect", ["mindformers", "megatron", "megatron-bridge", "huggingface", "torchtitan", "llama-factory"])
def test_a_key_that_nobody_knows_is_named(dialect):
    found = left_over(dialect, {"a_new_key_of_next_year": 3}, ())
    assert found.unknown == ("a_new_key_of_next_year",)


def test_a_switch_that_is_off_is_not_named():
    assert left_over("megatron", {"swap_optimizer": False, "mtp_mem_efficient_logits": False}, ()).unread == ()
    assert left_over("megatron", {"mtp_mem_efficient_logits": True}, ()).unread[0][0] == "mtp_mem_efficient_logits"
    assert left_over("mindformers", {"context": {"mode": 1}}, ()).unread[0][0] == "context.mode"


OPTIONS = json.loads((DATA / "options.json").read_text(encoding="utf-8"))
"""What the programs' own sources declare: every option and field, by dialect and group."""


def document_with(dialect: str, key: str):
    """The document of a sample in which a key has a value of no sense; None where its reader tells that it has none."""
    path = tuple(key.split("."))
    if dialect == "megatron":
        text, _ = edit_json(
            json.dumps(
                {
                    "num_layers": 8,
                    "hidden_size": 512,
                    "num_attention_heads": 8,
                    "vocab_size": 999,
                    "seq_length": 512,
                    "micro_batch_size": 1,
                }
            ),
            {key: "x"},
            (),
        )
        name = "options.json"
    elif dialect == "huggingface-trainer":
        name, text = "sft.yaml", f"model_name_or_path: Qwen/Qwen3-8B\nper_device_train_batch_size: 2\n{key}: x\n"
    elif dialect == "torchtitan":
        name = "deepseek_v3_671b.toml"
        text = toml_splice((DATA / "torchtitan" / name).read_text(encoding="utf-8"), name, {path: "x"})
    else:
        sample = {
            "megatron-bridge": DATA / "megatron_bridge" / "llama3_8b.yaml",
            "mindformers": data_folder() / "configs" / "pretrain_llama2_7b.yaml",
            "llama-factory": DATA / "llama_factory" / "llama3_full_sft_ds3.yaml",
        }[dialect]
        name = sample.name
        text, _ = splice(sample.read_text(encoding="utf-8"), name, {path: "x"})
    try:
        return read_text(text, name).document
    except InputError:
        return None


@pytest.mark.parametrize("dialect", OPTIONS)
def test_every_option_that_a_program_declares_is_read_or_without_effect_or_named(dialect):
    keys = [f"{group}.{name}".lstrip(".") for group, names in OPTIONS[dialect].items() for name in names.split()]
    open_keys = [key for key in keys if left_over(dialect, nested({tuple(key.split(".")): "x"}), ()).unknown]
    documents = {key: document_with(dialect, key) for key in open_keys}
    assert [key for key, document in documents.items() if document is not None and key in document.unknown] == []


ADAPTERS = {
    "llama-factory": {"finetuning_type": "lora", "lora_rank": 8, "lora_target": "all", "freeze_trainable_layers": 2},
    "huggingface-trainer": {"LoraConfig": {"r": 8, "target_modules": "q_proj"}, "use_peft": True, "lora_r": 8},
    "megatron": {"lora_r": 16, "lora_target_modules": ["linear_qkv"], "peft_type": "lora", "freeze_LM": True},
    "mindformers": {"model": {"model_config": {"pet_config": {"pet_type": "lora", "lora_rank": 8}}}},
    "mindformers-pynative": {"lora_config": {"rank": 8}},
    "gpt-neox": {"adapter_config": {"rank": 8}},
    "megatron-bridge": {"peft": {"dim": 8, "target_modules": ["linear_qkv"]}},
    "nemo": {"model": {"peft": {"peft_scheme": "lora", "lora_tuning": {"adapter_dim": 32}}}},
    "nemo-automodel": {"peft": {"dim": 8}, "freeze_config": {"freeze_embeddings": True}},
    "torchtitan": {"lora": {"rank": 8}},
}


@pytest.mark.parametrize("dialect", ADAPTERS)
def test_what_trains_only_a_part_is_said_with_the_way_in_which_a_prediction_errs(dialect: str):
    found = left_over(dialect, ADAPTERS[dialect], ())
    assert found.unknown == ()
    assert {key for key, _ in found.unread} == {key for key, _ in leaves(ADAPTERS[dialect])}
    assert dialect == "gpt-neox" or all("both estimated too high" in why for _, why in found.unread)


@pytest.mark.parametrize(
    ("dialect", "key"), [("megatron", "qlora"), ("llama-factory", "quantization_bit"), ("huggingface-trainer", "load_in_4bit")]
)
def test_frozen_weights_in_few_bits_are_said_with_the_way_in_which_a_prediction_errs(dialect: str, key: str):
    ((named, why),) = left_over(dialect, {key: 4}, ()).unread
    assert (named, why.partition(":")[0]) == (key, "memory, estimated too high, and time, too low")


def test_adapters_of_mindformers_that_are_not_counted_are_said():
    """They were a note, which no prediction and no check shows."""
    text = (DATA / "mindformers/v1.3.2/configs/llama2/lora_llama2_7b.yaml").read_text(encoding="utf-8")
    found = read_text(text.replace(".*wq|", ".*some_layer|"), "lora.yaml").document
    assert {key.rpartition(".")[2] for key, _ in found.unread if "pet_config" in key} >= {"pet_type", "lora_rank", "target_modules"}
