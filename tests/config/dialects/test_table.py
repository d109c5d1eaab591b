"""Tables of plans: what is wrong is told with column, value and the nearest right one, and never more or less than a plan tells."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from perfkit.config.dialects import read_config, write_config
from perfkit.config.dialects._table_checks import contradictory
from perfkit.config.dialects.table import read_table
from perfkit.config.dialects.table_file import read_frame
from perfkit.core import catalog
from perfkit.core.errors import InputError
from perfkit.core.plan_columns import PlanColumns
from perfkit.core.spec.recompute import RecomputePlan
from tests.predict.random_plans import random_plans

DATA = Path(__file__).resolve().parents[3] / "data" / "reference"
ROW = {
    "layers": 32,
    "hidden": 4096,
    "heads": 32,
    "ffn_hidden": 11008,
    "vocab": 32000,
    "seq_len": 4096,
    "accelerator": "Ascend-910B2",
}


def plan_of(**cells):
    return read_table(pd.DataFrame([{**ROW, **cells}])).plans.plan(0)


def problems_of(**cells):
    return read_table(pd.DataFrame([{**ROW, **cells}])).problems[0]


def test_columns_that_state_the_same_and_missing_ones_are_one_error():
    frame = pd.DataFrame([{**ROW, "num_layers": 40, "tp": 2, "Tensor Model Parallel Size": 4}]).drop(columns=["vocab"])
    with pytest.raises(InputError) as caught:
        read_table(frame)
    assert caught.value.problems == (
        "'layers' and 'num_layers' state the same (num_layers); keep one column",
        "'tp' and 'Tensor Model Parallel Size' state the same (tensor_parallel_size); keep one column",
        "column 'vocab' is missing",
    )


@pytest.mark.parametrize(
    ("cells", "reason"),
    [
        (
            {"framework": "mindformer"},
            "must be one of megatron, deepspeed, fsdp, mindspore; nearest is mindformers",
        ),
        ({"activation": "swigl"}, "nearest is swiglu"),
        ({"gradient_dtype": "fp8"}, "gradient_dtype = 'fp8' must be one of bf16, fp16, fp32"),
        ({"overlap_dp": "maybe"}, "overlap_dp = 'maybe' must be 1 or 0"),
        ({"sharding": "fsdp", "zero_stage": 1, "dp": 2}, "zero_stage = 1 contradicts sharding = 'fsdp'; nearest is 3"),
        ({"recompute": "none", "full_layers": 4}, "recompute = 'none' contradicts the layers that are counted"),
        (
            {"recompute": "full", "full_layers": "[1, 2]", "pp": 4},
            "= '[1, 2]' must be a count, or a list of counts for 4 stages",
        ),
        ({"recompute": "none", "all_layers": 1}, "recompute = 'none' contradicts all_layers = 1; nearest is full"),
        ({"recompute": "none", "attention_core": 1}, "recompute = 'none' contradicts attention_core = 1; nearest is selective"),
        ({"recompute": "full", "full_layers": "0"}, "recompute = 'full' contradicts full_layers = 0; nearest is none"),
        ({"zero_stage": 0, "dp": 8, "optimizer_shard_size": 8}, "zero_stage = 0 contradicts optimizer_shard_size = 8; nearest is"),
        (
            {"zero_stage": 3, "dp": 8, "optimizer_shard_level": 1},
            "zero_stage = 3 contradicts optimizer_shard_level = 1; nearest is",
        ),
        ({"dp": 8, "ep": 8}, "ep = 8 needs experts; nearest is ep = 1"),
        ({"pp": 2, "full_layers": "100"}, "full_layers = '100' is more than the layers there; nearest is 16"),
        ({"pp": 2, "full_layers": "[20, 0]"}, "full_layers = '[20, 0]' is more than the layers there; nearest is [16, 0]"),
        ({"pp": 2, "full_layers": "[[20, 0]]"}, "= '[[20, 0]]' is more than the layers there; nearest is [[16, 0]]"),
        ({"operators": '{"mul(": true}'}, "operators: 'mul(' is no regular expression"),
        ({"memory_limit_bytes": 10**12}, "is more than Ascend-910B2 has"),
        ({"memory_limit_bytes": 10**400}, "nearest is '58GB'"),
        ({"memory_limit_bytes": "9999999TB"}, "is more than Ascend-910B2 has, 64.0 GiB; nearest is 64GB"),
        ({"memory_limit_bytes": -1}, "memory_limit_bytes = -1 must be a whole number of bytes from 1, or a size with its unit"),
        ({"memory_limit_bytes": 2.5}, "nearest is 2"),
        (
            {"memory_limit_bytes": "58G"},
            "memory_limit_bytes = '58G' must be a size of more than 0 with its unit; nearest is '58GB'",
        ),
        ({"memory_limit_bytes": "0GB"}, "memory_limit_bytes = '0GB' must be a size of more than 0 with its unit"),
        ({"memory_limit_part": "pol"}, "memory_limit_part = 'pol' must be one of pool, device; nearest is pool"),
        ({"network_gbit_per_node": 0}, "network_gbit_per_node = 0 must be positive"),
        ({"software_release": "new"}, "software_release = 'new' must be numbers with dots"),
        ({"dp": 2, "tp": 4, "n_devices": 4}, "n_devices = 4 is not dp 2 x tp 4 x pp 1 x cp 1 = 8"),
    ],
)
def test_what_is_wrong_with_a_row_is_told_with_the_nearest_right_value(cells, reason):
    assert any(reason in problem for problem in problems_of(**cells))


def test_typed_columns_decide_what_notes_did():
    assert plan_of(framework="megatron-deepspeed", precision="bf16").optimizer.gradient_accumulation_bytes_per_parameter == 2
    assert plan_of(precision="fp16").optimizer.gradient_dtype == "float16"
    assert plan_of(mixed_precision="pure", framework="llm-foundry").optimizer.gradient_dtype == "bfloat16"
    link = plan_of(network="omni-path", network_gbit_per_node=400, accelerator="A100-80GB-SXM").hardware.links["inter_node"]
    assert (link.kind, link.bytes_per_s) == ("omni-path", 400e9 / 8 / 8)
    assert plan_of(activation="gelu", framework="megatron-lm").model.norm == "layernorm"
    for stated in (58 * 2**30, "58GB", "58 GiB", "62277025792.0"):
        assert plan_of(memory_limit_bytes=stated).usable_memory.limit_bytes == 58 * 2**30
    for part in ("pool", "device"):
        assert plan_of(memory_limit_bytes="58GB", memory_limit_part=part).memory_limit.part == part


def test_layers_are_counted_by_stage_by_chunk_or_for_all():
    every = plan_of(pp=2, vpp=2, recompute="full", full_layers=10).recompute.full_layers
    assert every == ((8, 8), (2, 2))
    assert plan_of(pp=2, vpp=2, full_layers="[3, 0]").recompute.full_layers == ((3, 0), (0, 0))
    assert plan_of(pp=2, vpp=2, full_layers="[[1, 0], [2, 4]]").recompute.full_layers == ((1, 0), (2, 4))
    assert plan_of(recompute="selective").recompute.operators.keys() == {
        r"feed_forward\.mul",
        r"feed_forward\.w1\.activation\.silu",
    }
    assert plan_of(recompute="selective", accelerator="A100-80GB-SXM").recompute.attention_core


def test_one_count_for_all_stages_reaches_as_far_as_each_has_layers():
    uneven = plan_of(layers=30, pp=4, full_layers=8, embeddings_count_as_layers=1)
    assert uneven.recompute.full_layers == ((7, 8, 8, 7),)


def test_columns_that_nearly_have_a_known_name_are_told_and_free_text_is_not():
    frame = pd.DataFrame([{**ROW, "zero_stge": 3, "tpp": 4, "note": "", "source": "", "recompute_detail": "", "my_own_text": ""}])
    assert read_table(frame).unread == (
        "column 'zero_stge' is not read; did you mean 'zero_stage'?",
        "column 'tpp' is not read; did you mean 'tp'?",
    )


@pytest.mark.parametrize("name", ["step_time.csv", "memory.csv"])
def test_the_reference_tables_have_no_column_that_is_told(name):
    path = DATA / name
    assert read_table(read_frame(str(path))).unread == ()


def test_what_moves_the_estimate_is_told_where_a_row_leaves_it_open():
    table = read_table(pd.DataFrame([{**ROW, "sequence_parallel": 1}, {**ROW, "activation": "gelu"}]))
    assert {"activation = swiglu", "sequence_parallel = 0, as tp = 1"} < set(table.assumed[0])
    assert not any("activation" in told for told in table.assumed[1])


@pytest.mark.parametrize("word", ["None", "none", "NONE"])
def test_a_word_of_a_file_is_that_word(word):
    text = f"{','.join(ROW)},positions,activation\n{','.join(map(str, ROW.values()))},{word},gelu\n"
    assert read_table(read_frame("plans.csv", text)).plans.plan(0) == plan_of(positions=word, activation="gelu")


def test_words_that_mean_an_empty_cell_elsewhere_are_told():
    table = read_table(read_frame("plans.csv", f"{','.join(ROW)},tp\n{','.join(map(str, ROW.values()))},nan\n"))
    assert table.problems[0] == ("tp = 'nan' is not a number",)


@pytest.mark.parametrize(("text", "line"), [("a,b\n1,2,3\n4,5\n", 2), ("a,b\n1,2\n\n4,5,6\n", 4)])
def test_a_row_that_is_longer_than_its_header_is_refused(text, line):
    with pytest.raises(InputError, match=rf"plans\.csv(.|\n)*line {line} has 3 cells"):
        read_frame("plans.csv", text)


def test_columns_that_state_the_same_are_named_where_a_configuration_is_asked_for(tmp_path):
    path = tmp_path / "plans.csv"
    pd.DataFrame([{**ROW, "hidden_size": 4096}]).to_csv(path, index=False)
    with pytest.raises(InputError, match="'hidden' and 'hidden_size' state the same"):
        read_config(path)


@pytest.mark.parametrize("word", ["none", "full", "selective", ""])
@pytest.mark.parametrize("recompute", [RecomputePlan(all_layers=True), RecomputePlan(), RecomputePlan(full_layers=((3, 0),))])
@pytest.mark.parametrize("stage", ["0", "1", "3", ""])
@pytest.mark.parametrize("level", [1, 2, 3])
def test_a_changed_plan_comes_back_from_its_row_whatever_words_that_has(tmp_path, word, recompute, stage, level):
    path = tmp_path / "plan.csv"
    pd.DataFrame([{**ROW, "dp": 8, "pp": 2, "recompute": word, "zero_stage": stage}]).to_csv(path, index=False)
    plan = read_config(path)
    shared = replace(plan.parallel, optimizer_shard_size=4, optimizer_shard_level=level)
    assert write_config(replace(plan, recompute=recompute, parallel=shared)).lost == ()


def test_rows_contradict_themselves_exactly_where_plans_do():
    columns = PlanColumns.of(random_plans(400, seed=7))
    draw = np.random.default_rng(3)
    names = (
        "tensor_parallel_size",
        "global_batch_size",
        "optimizer_shard_size",
        "sequence_chunks",
        "num_key_value_heads",
        "ulysses_size",
    )
    names += ("num_layers", "num_experts", "num_dense_layers", "kv_lora_rank", "value_head_size", "expert_parallel_size")
    for name in names:
        value = getattr(columns, name).copy()
        value[draw.random(len(value)) < 0.4] = draw.choice([1.0, 2.0, 3.0, 5.0, 12.0])
        changed = replace(columns, **{name: value})
        raises = []
        for row in range(len(changed)):
            try:
                changed.plan(row)
                raises.append(False)
            except InputError:
                raises.append(True)
        np.testing.assert_array_equal(contradictory(changed), raises, err_msg=name)


def test_a_program_that_accumulates_nothing_takes_its_share_of_the_batch_at_once():
    frame = pd.DataFrame([{**ROW, "framework": word, "n_devices": 8, "global_batch": 32} for word in ("MaxText", "torchtitan")])
    table = read_table(frame)
    assert table.plans.micro_batch_size.tolist() == [4, 1]
    assert table.is_open["micro_batch_size"].tolist() == [False, True]
    assert any("micro_batch = 4, which this program takes at once" in text for text in table.assumed[0])
    assert read_table(frame.assign(micro_batch=2)).plans.micro_batch_size.tolist() == [2, 2]


def test_a_mixture_model_of_the_catalogue_has_its_attention_where_the_row_states_none():
    known = catalog.model("deepseek-v3")
    row = {"layers": 8, "hidden": known.hidden_size, "heads": 128, "kv_heads": 128, "head_dim": 128, "vocab": known.vocab_size}
    row |= {"ffn_hidden": known.ffn_hidden_size, "experts": 256, "experts_per_token": 8, "expert_ffn_hidden": 2048, "seq_len": 4096}
    row |= {"accelerator": "B200-180GB-SXM"}
    told, stated, other = (
        read_table(pd.DataFrame([row | more])) for more in ({}, {"kv_lora_rank": 0}, {"ffn_hidden": known.ffn_hidden_size + 128})
    )
    model = told.plans.plan(0).model
    assert (model.kv_lora_rank, model.query_lora_rank, model.head_size) == (
        known.kv_lora_rank,
        known.query_lora_rank,
        known.head_size,
    )
    assert any("attention of deepseek" in text for text in told.assumed[0])
    assert [one.plans.plan(0).model.kv_lora_rank for one in (stated, other)] == [0, 0]
