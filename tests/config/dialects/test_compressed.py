"""Attention that selects and compresses tokens: every program's names give the same model, and its work is what counting gives."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest

from perfkit.config.dialects.read import read_text
from perfkit.core import catalog
from perfkit.core.errors import InputError
from perfkit.core.params import attention_weights, count_params
from perfkit.core.plan_columns import PlanColumns
from perfkit.core.spec import CompressedAttention
from perfkit.predict.cost.cost_columns import attention_weights as weights_of_columns
from perfkit.predict.cost.flops import forward_flops
from perfkit.predict.memory.settings import MemorySettings
from perfkit.predict.memory.sizes import of_plan
from perfkit.predict.memory.static import Part, stage_parameters

FLASH = catalog.model("deepseek-v4-flash")
RATIOS = [0, 0, *[4, 128] * 20, 4]
SHAPE = {
    "model_type": "deepseek_v4", "vocab_size": 129280, "hidden_size": 4096, "moe_intermediate_size": 2048, "num_hidden_layers": 43,
    "num_attention_heads": 64, "num_key_value_heads": 1, "head_dim": 512, "q_lora_rank": 1024, "num_experts_per_tok": 6,
    "n_routed_experts": 256, "n_shared_experts": 1, "hc_mult": 4, "sliding_window": 128, "o_groups": 8, "o_lora_rank": 1024,
    "index_n_heads": 64, "index_head_dim": 128, "index_topk": 512, "qk_rope_head_dim": 64, "topk_method": "noaux_tc",
    "rms_norm_eps": 1e-6,
}  # fmt: skip
KINDS = {0: "sliding_attention", 4: "compressed_sparse_attention", 128: "heavily_compressed_attention"}
MEGATRON = f"""--num-layers 44 --noop-layers 43 --hidden-size 4096 --ffn-hidden-size 2048 --num-attention-heads 64 --seq-length 4096
--micro-batch-size 1 --bf16 --swiglu --normalization RMSNorm --untie-embeddings-and-output-weights --disable-bias-linear
--position-embedding-type g2 --multi-latent-attention --qk-layernorm --qk-head-dim 512 --qk-pos-emb-head-dim 64 --v-head-dim 128
--q-lora-rank 1024 --kv-lora-rank 512 --o-lora-rank 1024 --o-groups 8 --use-g2-attention --g2-window-size 128 --kv-compress
--compress-ratios {" ".join(map(str, RATIOS))} --enable-dsa-indexer --index-n-heads 64 --index-head-dim 128 --index-topk 512
--enable-mhc --hc-mult 4 --num-experts 256 --moe-router-topk 6 --moe-ffn-hidden-size 2048 --first-k-dense-replace -1
--moe-shared-expert-intermediate-size 2048 --moe-router-enable-expert-bias --vocab-size 129280 --padded-vocab-size 129280
--moe-layer-freq 1"""
PYNATIVE = f"""
training: {{local_batch_size: 1, global_batch_size: 8}}
parallelism:
  data_parallel_shard: -1
  expert_parallel: 8
model:
  model_type: deepseek_v4
  vocab_size: 129280
  seq_length: 4096
  hidden_size: 4096
  intermediate_size: 2048
  num_hidden_layers: 43
  num_attention_heads: 64
  multi_latent_attention: True
  qk_layernorm: True
  o_groups: 8
  o_lora_rank: 1024
  q_lora_rank: 1024
  qk_rope_head_dim: 64
  qk_nope_head_dim: 448
  v_head_dim: 512
  moe_intermediate_size: 2048
  n_routed_experts: 256
  num_experts_per_tok: 6
  n_shared_experts: 1
  moe_router_enable_expert_bias: True
  enable_hyper_connections: True
  num_residual_streams: 4
  index_n_heads: 64
  index_head_dim: 128
  index_topk: 512
  compress_ratios: {[*RATIOS, 0]}
  csa_window_size: 128
"""


@pytest.mark.parametrize(
    ("text", "name"),
    [
        (json.dumps(SHAPE | {"compress_ratios": RATIOS}), "config.json"),
        (json.dumps(SHAPE | {"layer_types": [KINDS[ratio] for ratio in RATIOS]}), "config.json"),
        (MEGATRON, "args.txt"),
        (PYNATIVE, "run.yaml"),
    ],
    ids=["ratios", "kinds", "mindspeed", "pynative"],
)
def test_the_names_of_every_program_give_the_model_of_the_catalogue(text, name):
    plan = read_text(text, name)
    assert replace(plan.model, name=FLASH.name) == FLASH
    assert not plan.document.unknown


def test_the_published_counts_are_met():
    """284B and 1.6T as DeepSeek publishes them."""
    assert round(count_params(FLASH).total / 1e9) == 284
    assert round(count_params(catalog.model("deepseek-v4-pro")).total / 1e11) == 16


@pytest.mark.parametrize("tokens", [256, 4096, 16384])
def test_what_layers_attend_to_is_what_counting_pairs_gives(tokens):
    packed = FLASH.compressed
    seen = np.arange(tokens, dtype=np.float64)
    window = np.minimum(seen, 128).sum()
    selected = np.minimum(seen / 4, packed.index_top_k).sum()
    pooled = (seen / 128).sum()
    pairs = 43 * window + 21 * selected + 20 * pooled
    indexed = 21 * (seen / 4).sum() * packed.index_heads * packed.index_head_size
    wanted = (2 * pairs * 64 * (512 + 512) + 2 * indexed) / tokens
    found = forward_flops(FLASH, tokens, "causal").parts
    assert found["layers/scores"] + found["layers/values"] == pytest.approx(wanted, rel=0.01)


def test_an_indexer_over_all_tokens_spares_attention_beyond_the_best():
    """DeepSeek-V3.2 is V3 with an indexer: short sequences cost more, long ones far less."""
    plain = catalog.model("deepseek-v3")
    selecting = CompressedAttention(num_selected_layers=61, index_heads=64, index_head_size=128, index_top_k=2048)
    sparse = replace(plain, compressed=selecting)
    short, long = (forward_flops(sparse, tokens).total / forward_flops(plain, tokens).total for tokens in (2048, 131_072))
    assert short > 1
    assert long < 0.6
    assert 0 < count_params(sparse).total / count_params(plain).total - 1 < 0.002


@pytest.mark.parametrize("name", ["deepseek-v4-flash", "deepseek-v4-pro", "deepseek-v3"])
def test_columns_and_memory_have_the_weights_of_the_model(name):
    plan = replace(read_text(json.dumps(SHAPE), "config.json"), model=catalog.model(name))
    qkv, output = weights_of_columns(PlanColumns.of([plan]))
    wanted = attention_weights(plan.model)
    assert (qkv[0], output[0]) == pytest.approx((wanted["qkv"], wanted["output"]))
    kind, sizes = of_plan(plan, MemorySettings())
    layers = float(plan.model.num_layers)
    held = stage_parameters(kind, sizes, Part(1.0, 1.0, layers, layers - plan.model.num_dense_layers))
    assert held.total == pytest.approx(count_params(plan.model).total, abs=100)


@pytest.mark.parametrize(
    ("field", "value", "told"),
    [
        ("compress_ratios", [0, 4], "a ratio for each of 43 layers"),
        ("compress_ratios", [0, 64, 128] * 15, "one ratio beside 4 is covered"),
        ("index_topk", 0, "index_top_k"),
        ("o_groups", 0, "o_groups"),
    ],
)
def test_what_cannot_be_is_told_by_its_field(field, value, told):
    with pytest.raises(InputError, match=told):
        read_text(json.dumps(SHAPE | {"compress_ratios": RATIOS} | {field: value}), "config.json")
