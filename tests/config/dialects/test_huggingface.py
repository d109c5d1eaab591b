"""Hugging Face config.json: models of the catalogue from the keys that their published files have, and folders of MindFormers."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from perfkit.config.dialects import read_config, read_text, write_config
from perfkit.core import catalog
from perfkit.core.errors import InputError
from perfkit.core.params import count_params
from perfkit.predict.limits import assumed, not_counted

TEMPLATES = Path(__file__).parents[2] / "data" / "configs" / "mindformers" / "v1.7.0" / "configs" / "general"
LLAMA: dict[str, Any] = {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_act": "silu", "rms_norm_eps": 1e-5}


def shape(*sizes: int) -> dict[str, Any]:
    layers, hidden, heads, kv, ffn, vocab = sizes
    return {
        "num_hidden_layers": layers,
        "hidden_size": hidden,
        "num_attention_heads": heads,
        "num_key_value_heads": kv,
        "intermediate_size": ffn,
        "vocab_size": vocab,
        "max_position_embeddings": 131072,
        "torch_dtype": "bfloat16",
    }


DEEPSEEK = LLAMA | shape(61, 7168, 128, 128, 18432, 129280) | {
    "architectures": ["DeepseekV3ForCausalLM"], "model_type": "deepseek_v3", "q_lora_rank": 1536, "kv_lora_rank": 512,
    "qk_nope_head_dim": 128, "qk_rope_head_dim": 64, "v_head_dim": 128, "n_routed_experts": 256, "n_shared_experts": 1,
    "num_experts_per_tok": 8, "moe_intermediate_size": 2048, "first_k_dense_replace": 3, "topk_method": "noaux_tc",
    "num_nextn_predict_layers": 1, "quantization_config": {"quant_method": "fp8"}, "tie_word_embeddings": False,
}  # fmt: skip
PUBLISHED: dict[str, dict[str, Any]] = {
    "llama2-7b": LLAMA | shape(32, 4096, 32, 32, 11008, 32000),
    "llama2-70b": LLAMA | shape(80, 8192, 64, 8, 28672, 32000),
    "llama3-8b": LLAMA | shape(32, 4096, 32, 8, 14336, 128256),
    "qwen2-7b": LLAMA | shape(28, 3584, 28, 4, 18944, 152064) | {"model_type": "qwen2"},
    "qwen3-32b": LLAMA | shape(64, 5120, 64, 8, 25600, 151936) | {"model_type": "qwen3", "head_dim": 128, "attention_bias": False},
    "qwen3-30b-a3b": LLAMA
    | shape(48, 2048, 32, 4, 6144, 151936)
    | {"model_type": "qwen3_moe", "head_dim": 128, "num_experts": 128, "num_experts_per_tok": 8, "moe_intermediate_size": 768,
       "decoder_sparse_step": 1, "mlp_only_layers": []},
    "mixtral-8x7b": LLAMA
    | shape(32, 4096, 32, 8, 14336, 32000)
    | {"model_type": "mixtral", "num_local_experts": 8, "num_experts_per_tok": 2},
    "deepseek-v3": DEEPSEEK,
    "gpt2-124m": {"model_type": "gpt2", "architectures": ["GPT2LMHeadModel"], "n_layer": 12, "n_embd": 768, "n_head": 12,
                  "n_positions": 1024, "vocab_size": 50257, "layer_norm_epsilon": 1e-5, "activation_function": "gelu_new"},
}  # fmt: skip


@pytest.mark.parametrize("name", sorted(PUBLISHED))
def test_published_files_give_the_models_of_the_catalogue(name):
    plan = read_text(json.dumps(PUBLISHED[name]), "config.json")
    entry = catalog.model(name)
    assert float(count_params(plan.model).total) == float(count_params(entry).total)
    assert replace(plan.model, name="", query_key_norm=False) == replace(entry, name="", query_key_norm=False)
    assert plan.document.dialect == "huggingface"


def test_what_the_file_does_not_say_or_nothing_counts_is_assumed_by_name():
    plan = read_text(json.dumps(DEEPSEEK | {"brand_new_size": 7}), "config.json")
    named = {one.field: one.why for one in assumed(plan)}
    assert {"seq_length", "global_batch_size", "num_nextn_predict_layers", "brand_new_size"} <= set(named)
    assert "quantization_config.quant_method" in named
    assert "rms_norm_eps" not in named


def test_a_text_model_inside_another_is_read_and_an_encoder_is_refused():
    nested = {"architectures": ["X"], "model_type": "x", "text_config": PUBLISHED["llama3-8b"], "vision_config": {"hidden_size": 1}}
    assert read_text(json.dumps(nested), "config.json").model.num_layers == 32
    with pytest.raises(InputError, match="decoder-only"):
        read_text(json.dumps({"model_type": "bert", "hidden_size": 768}), "config.json")


@pytest.mark.parametrize("name", sorted(set(PUBLISHED) - {"gpt2-124m"}))
def test_a_model_is_written_and_read_back(name):
    plan = read_text(json.dumps(PUBLISHED[name]), "config.json")
    written = write_config(replace(plan, document=None), dialect="huggingface")
    assert replace(read_text(written.text, "again.json").model, name="") == replace(plan.model, name="")


@pytest.mark.parametrize("template", ["llm_pretrain_dense_template.yaml", "llm_pretrain_moe_template.yaml"])
def test_templates_of_mindformers_take_the_model_from_the_folder_they_name(template, tmp_path):
    name = "qwen3-30b-a3b" if "moe" in template else "llama3-8b"
    text = (TEMPLATES / template).read_text(encoding="utf-8").replace('"path/to/model_dir"', '"hf"')
    (tmp_path / "hf").mkdir()
    (tmp_path / "hf" / "config.json").write_text(json.dumps(PUBLISHED[name]), encoding="utf-8")
    (tmp_path / template).write_text(text, encoding="utf-8")
    plan = read_config(tmp_path / template)
    assert float(count_params(plan.model).total) == pytest.approx(float(count_params(catalog.model(name)).total), rel=1e-3)
    assert plan.num_devices == 8
    assert any("config.json of hf" in note for note in plan.document.notes)


def test_without_the_folder_the_sizes_are_missing_by_name():
    with pytest.raises(InputError, match="hidden_size"):
        read_config(TEMPLATES / "llm_pretrain_dense_template.yaml")


FAMILIES = json.loads((TEMPLATES.parents[3] / "huggingface_parameters.json").read_text(encoding="utf-8"))


@pytest.mark.parametrize("family", FAMILIES)
def test_a_family_has_the_parameters_that_the_library_makes_of_it(family):
    built = FAMILIES[family]
    plan = read_text(json.dumps(built["config"]), "config.json")
    assert count_params(plan.model).total == pytest.approx(built["parameters"], rel=0.005)
    assert not any("nobody compared" in line for line in plan.document.defaulted)


def test_a_family_that_nobody_compared_is_named_among_what_is_assumed():
    text = json.dumps(LLAMA | shape(4, 512, 8, 8, 1024, 32000) | {"model_type": "brandnew"})
    assert any("brandnew" in str(one) and "nobody compared" in str(one) for one in assumed(read_text(text, "config.json")))


@pytest.mark.parametrize(
    ("family", "told"),
    [
        ("jamba", "state-space layers"),
        ("lfm2", "convolutions"),
        ("gemma4_text", "inputs of their own"),
        ("camembert", "no decoder-only"),
    ],
)
def test_a_family_with_what_no_field_of_a_model_says_is_refused_in_words(family, told):
    text = json.dumps(LLAMA | shape(4, 512, 8, 8, 1024, 32000) | {"model_type": family})
    with pytest.raises(InputError, match=told):
        read_text(text, "config.json")


LINEAR = {"full_attention_interval": 4, "linear_key_head_dim": 128, "linear_value_head_dim": 128}


@pytest.mark.parametrize(
    ("keys", "windowed"),
    [
        (LINEAR, 9),
        ({"layer_types": ["linear_attention"] * 10 + ["full_attention"] * 2, "linear_key_head_dim": 128}, 10),
        ({"full_attention_interval": 4}, 0),
        ({"layer_types": ["full_attention"] * 12, "linear_key_head_dim": 128}, 0),
    ],
)
def test_layers_of_linear_attention_take_the_time_of_a_window_as_wide_as_their_state_and_a_chunk(keys, windowed):
    values = {"model_type": "qwen3_next", "num_hidden_layers": 12, "hidden_size": 1024, "num_attention_heads": 8, "head_dim": 128}
    values |= {"num_key_value_heads": 2, "intermediate_size": 4096, "vocab_size": 32000, "max_position_embeddings": 32768}
    plan = read_text(json.dumps(values | keys), "config.json")
    assert plan.model.num_windowed_layers == windowed
    assert plan.model.attention_window == (128 + 64 if windowed else 0)
    named = {key for key, _ in not_counted(plan)}
    assert "linear_value_head_dim" in named or "linear_value_head_dim" not in keys
    assert not {"full_attention_interval", "layer_types", "linear_key_head_dim"} & named or not windowed


def test_the_head_is_the_outer_models_where_the_language_model_stands_in_a_section():
    text = json.dumps(
        {"model_type": "llama4", "tie_word_embeddings": True, "text_config": LLAMA | shape(4, 512, 8, 8, 1024, 32000)}
    )
    assert read_text(text, "config.json").model.tied_embeddings is True
