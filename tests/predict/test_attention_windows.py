"""Sliding windows: pairs of tokens counted one by one, FLOPs and time by them, and through files."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from perfkit.config.dialects import read_text, write_config
from perfkit.core import catalog
from perfkit.core.errors import InputError
from perfkit.core.spec.parallel import ParallelPlan
from perfkit.core.spec.plan import Plan
from perfkit.core.spec.workload import Workload
from perfkit.predict.cost.flops import attended_share, forward_flops
from perfkit.predict.estimate import estimate
from perfkit.predict.simulate import simulate

MISTRAL = {
    "model_type": "mistral", "num_hidden_layers": 32, "hidden_size": 4096, "num_attention_heads": 32, "num_key_value_heads": 8,
    "intermediate_size": 14336, "vocab_size": 32000, "rms_norm_eps": 1e-5, "max_position_embeddings": 32768,
}  # fmt: skip
MEGATRON = """
--num-layers 36 --hidden-size 2880 --num-attention-heads 64 --kv-channels 64 --group-query-attention --num-query-groups 8
--ffn-hidden-size 2880 --seq-length 4096 --micro-batch-size 1 --global-batch-size 16 --swiglu --normalization RMSNorm --bf16
--disable-bias-linear --untie-embeddings-and-output-weights --padded-vocab-size 201088 --position-embedding-type rope --world-size 1
"""


def plan(window: int, windowed: int, kernel: str = "flash") -> Plan:
    model = replace(catalog.model("llama2-7b"), attention_window=window, num_windowed_layers=windowed)
    return Plan(
        model=model,
        workload=Workload(seq_length=8192, micro_batch_size=1, global_batch_size=4, attention_kernel=kernel),
        parallel=ParallelPlan(),
        hardware=catalog.hardware_named("H100-80GB-SXM"),
    )


@pytest.mark.parametrize(("tokens", "window"), [(512, 64), (512, 511), (512, 512), (512, 4096), (4096, 128)])
def test_the_share_is_that_of_the_pairs_counted_one_by_one(tokens, window):
    seen = sum(min(place + 1, window) for place in range(tokens))
    assert attended_share(tokens, window, 1.0) == pytest.approx(seen / (tokens * (tokens + 1) / 2), rel=0.01)
    half = 0.5 * seen + 0.5 * tokens * (tokens + 1) / 2
    assert attended_share(tokens, window, 0.5) == pytest.approx(half / (tokens * (tokens + 1) / 2), rel=0.01)


@pytest.mark.parametrize("attention", ["full", "causal"])
def test_windows_spare_scores_and_values_and_nothing_else(attention):
    whole, some = (forward_flops(plan(window, count).model, 8192, attention).parts for window, count in ((0, 0), (1024, 16)))
    share = attended_share(8192, 1024, 0.5)
    for path, amount in whole.items():
        assert some[path] == pytest.approx(amount * (share if path in ("layers/scores", "layers/values") else 1.0)), path


def test_time_of_attention_goes_down_by_the_share_of_blocks_and_a_window_over_all_changes_nothing():
    base, some, wide = (estimate(plan(*one)).breakdown for one in ((0, 0), (1024, 16), (8192, 32)))
    share = attended_share(8192, 1024 + 128, 0.5)
    for way in ("forward", "backward"):
        path = f"computing/{way}/attention"
        assert some.parts[path] == pytest.approx(share * base.parts[path])
        assert some.parts[f"computing/{way}/matmul"] == base.parts[f"computing/{way}/matmul"]
    assert wide.parts == base.parts
    masked, square = (estimate(plan(*one, kernel="unfused")).breakdown for one in ((1024, 16), (0, 0)))
    assert masked.parts == square.parts  # separate operators compute the square and mask it


def test_the_simulated_step_is_the_estimated_one():
    wanted = plan(1024, 16)
    run = simulate(wanted, steps=1)
    assert run.steps()["duration_ns"].max() / 1e9 == pytest.approx(estimate(wanted).step_time_s, rel=0.01)


@pytest.mark.parametrize(
    ("changed", "window", "windowed"),
    [
        ({"sliding_window": 4096}, 4096, 32),
        ({"sliding_window": None}, 0, 0),
        ({"model_type": "qwen2", "sliding_window": 4096, "use_sliding_window": False, "max_window_layers": 20}, 0, 0),
        ({"model_type": "qwen2", "sliding_window": 4096, "use_sliding_window": True, "max_window_layers": 20}, 4096, 12),
        ({"model_type": "gemma2", "sliding_window": 4096}, 4096, 16),
        ({"model_type": "gemma3_text", "sliding_window": 512, "sliding_window_pattern": 6}, 512, 27),
        ({"model_type": "gpt_oss", "sliding_window": 128, "layer_types": ["sliding_attention", "full_attention"] * 16}, 128, 16),
    ],
)
def test_a_published_model_says_which_layers_have_a_window(changed, window, windowed):
    model = read_text(json.dumps(MISTRAL | changed), "config.json").model
    assert (model.attention_window, model.num_windowed_layers) == (window, windowed)


@pytest.mark.parametrize(
    ("options", "window", "windowed"),
    [
        ("--window-size 127,0", 128, 36),
        ("--window-size 127,0 --window-attn-skip-freq 2", 128, 18),
        ("--window-size 127,0 --window-attn-skip-freq ([1]*20+[0]*16)", 128, 20),
    ],
)
def test_options_of_megatron_say_it_and_are_written_again(options, window, windowed):
    read = read_text(MEGATRON + options, "train.sh")
    assert (read.model.attention_window, read.model.num_windowed_layers) == (window, windowed)
    again = read_text(write_config(replace(read, document=None), dialect="megatron").text, "train.sh")
    assert again.model == read.model


def test_a_window_without_layers_or_a_wrong_list_is_refused():
    with pytest.raises(InputError, match="must be two numbers"):
        read_text(MEGATRON + "--window-size wide", "train.sh")
    with pytest.raises(InputError, match="for 36 layers"):
        read_text(MEGATRON + "--window-size 127,0 --window-attn-skip-freq [1,0]", "train.sh")
    with pytest.raises(InputError, match="give both or neither"):
        plan(128, 0)
