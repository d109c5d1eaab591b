"""MindFormers YAML: real training files of three releases, the rules of batch and stages, and bad input."""

from __future__ import annotations

import contextlib
import json
from dataclasses import replace
from pathlib import Path

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from perfkit import read_config
from perfkit.config.dialects import write_config
from perfkit.config.dialects._mindformers_model import derived_ffn
from perfkit.config.dialects.read import read_text
from perfkit.core import catalog
from perfkit.core.errors import InputError
from perfkit.core.params import count_params
from perfkit.predict.estimate import estimate
from perfkit.predict.memory.memory import peak_memory

DATA = Path(__file__).parents[2] / "data" / "configs"
SAMPLES = sorted((DATA / "mindformers").rglob("*.yaml"))
REFUSED = {
    "finetune_mllama_11b.yaml": "no decoder-only language model",
    "llm_pretrain_dense_template.yaml": "the catalogue knows no model 'llm'",
    "llm_pretrain_moe_template.yaml": "the catalogue knows no model 'llm'",
}
CASES = json.loads((DATA / "offset_and_recompute_lists.json").read_text(encoding="utf-8"))["cases"]

SMALL = """
use_parallel: {use_parallel}
runner_config: {{batch_size: 2, gradient_accumulation_steps: 3}}
parallel: {{parallel_mode: {mode}}}
parallel_config: {{data_parallel: 4, model_parallel: 2, pipeline_stage: {stages}, micro_batch_num: 8}}
micro_batch_interleave_num: {copies}
model:
  model_config: {{type: LlamaConfig, num_layers: 8, hidden_size: 256, num_heads: 8, vocab_size: 1000, seq_length: 128}}
"""


def sample(name: str) -> Path:
    return next(path for path in SAMPLES if path.name == name)


def small(stages: int = 1, mode: object = 1, copies: int = 1, use_parallel: bool = True):
    return read_text(SMALL.format(stages=stages, mode=mode, copies=copies, use_parallel=use_parallel), "small.yaml")


def problems(text: str) -> str:
    with pytest.raises(InputError) as error:
        read_text(text, "bad.yaml")
    return str(error.value)


def test_all_63_samples_are_there():
    assert len(SAMPLES) == 63


@pytest.mark.parametrize("path", SAMPLES, ids=lambda path: path.name)
def test_a_real_file_becomes_a_plan_or_says_why_not(path):
    if path.name in REFUSED:
        with pytest.raises(InputError, match=REFUSED[path.name]):
            read_config(path)
        return
    plan = read_config(path)
    assert plan.document.dialect == "mindformers"
    assert plan.num_devices >= 8
    assert plan.num_micro_batches * plan.workload.micro_batch_size <= plan.workload.global_batch_size
    assert count_params(plan.model).total > 1e8
    assert plan.document.unknown == ()


@pytest.mark.parametrize(
    ("file", "model"),
    [
        ("pretrain_llama2_7b.yaml", "llama2-7b"),
        ("pretrain_llama2_13b.yaml", "llama2-13b"),
        ("pretrain_llama2_70b_bf16_64p.yaml", "llama2-70b"),
        ("pretrain_codellama_34b.yaml", "llama2-34b"),
        ("finetune_llama3_8b_8k_800T_A2_64G.yaml", "llama3-8b"),
        ("pretrain_llama3_70b.yaml", "llama3-70b"),
        ("finetune_qwen2_7b.yaml", "qwen2-7b"),
        ("finetune_qwen2_72b_32k.yaml", "qwen2-72b"),
        ("finetune_qwen_7b.yaml", "qwen-7b"),
        ("pretrain_qwen2_57b.yaml", "qwen2-57b-a14b"),
        ("pretrain_mixtral-8x7b.yaml", "mixtral-8x7b"),
        ("finetune_glm2_6b_fp16.yaml", "glm2-6b"),
        ("finetune_glm4_9b.yaml", "glm4-9b"),
        ("finetune_baichuan2_13b.yaml", "baichuan2-13b"),
        ("pretrain_yi_34b.yaml", "yi-34b"),
        ("pretrain_gpt2_small_fp16.yaml", "gpt2-124m"),
        ("finetune_deepseek2_236B.yaml", "deepseek-v2"),
        ("pretrain_deepseek3_671b.yaml", "deepseek-v3"),
        ("pretrain_qwen3_32b_4k.yaml", "qwen3-32b"),
        ("pretrain_deepseek_33b_16k.yaml", "deepseek-coder-33b"),
    ],
)
def test_the_shape_read_has_the_parameters_of_the_catalogue(file, model):
    read = read_config(sample(file)).model
    main = replace(read, num_layers=read.num_layers - read.num_mtp_layers, num_mtp_layers=0)
    assert count_params(main).parts == count_params(catalog.model(model)).parts


def test_qwen3_30b_has_its_published_count():
    assert count_params(read_config(sample("pretrain_qwen3_30b_a3b_4k.yaml")).model).total == 30_532_122_624


@pytest.mark.parametrize(
    ("hidden", "multiple", "multiplier", "ffn"),
    [(4096, 256, None, 11008), (5120, 256, None, 13824), (8192, 256, 1.3, 28672), (5120, 128, None, 13696)],
)
def test_a_missing_ffn_size_is_derived_as_the_program_does(hidden, multiple, multiplier, ffn):
    assert derived_ffn(hidden, multiple, multiplier) == ffn


def test_a_derived_size_is_said_to_be_derived():
    assert any("13824, derived" in text for text in read_config(sample("pretrain_llama2_13b.yaml")).document.defaulted)


@pytest.mark.parametrize(
    ("settings", "batch", "devices"),
    [
        ({"stages": 2}, 2 * 4 * 8, 16),
        ({"stages": 2, "copies": 2}, 2 * 4 * 8 * 2, 16),
        ({"stages": 1}, 2 * 4 * 3, 8),
        ({"stages": 1, "copies": 2}, 2 * 4 * 3 * 2, 8),
        ({"mode": 0}, 2 * 8 * 3, 8),
        ({"mode": "data_parallel"}, 2 * 8 * 3, 8),
        ({"stages": 2, "use_parallel": False}, 2 * 3, 1),
    ],
    ids=["stages", "stages and copies", "no stages", "copies", "mode 0", "mode by name", "one device"],
)
def test_the_global_batch_follows_the_mode(settings, batch, devices):
    plan = small(**settings)
    assert (plan.workload.global_batch_size, plan.num_devices) == (batch, devices)


def test_settings_without_effect_are_noted():
    assert any("micro_batch_num = 8 has no effect" in note for note in small().document.notes)
    assert any("gradient_accumulation_steps = 3 has no effect" in note for note in small(stages=2).document.notes)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["name"])
def test_offset_and_recompute_lists_mean_what_the_program_makes_of_them(case):
    config, expected = case["config"], case["expected"]
    chunks = config.get("pp_interleave_num", 1)
    text = yaml.safe_dump(
        {
            "use_parallel": True,
            "parallel": {"parallel_mode": 1, "pipeline_config": {"pipeline_interleave": chunks > 1}},
            "parallel_config": {"pipeline_stage": config["pipeline_stage"], "micro_batch_num": 8},
            "recompute_config": config.get("recompute_config", {}),
            "model": {
                "model_config": {
                    **{key: config[key] for key in ("num_layers", "offset", "pp_interleave_num") if key in config},
                    **{"hidden_size": 64, "num_heads": 4, "vocab_size": 100, "seq_length": 16},
                }
            },
        }
    )
    if not expected["ok"]:
        words = {"offset_sum": "adds up to", "offset_length": "must have 4 numbers", "offset_1d_with_interleave": "every chunk"}
        assert words[expected["error"]] in problems(text)
        return
    plan = read_text(text, "lists.yaml")
    layers = expected["layers"]
    if plan.parallel.layers_per_stage is None:
        assert len({count for row in layers for count in row}) == 1
    else:
        assert [list(row) for row in plan.parallel.layers_per_stage] == layers
    assert disjoint(plan.recompute, layers) == {name: counts for name, counts in expected["counts"].items() if name != "none"}


def disjoint(recompute, layers):
    """Layers of every stage recomputed in full, by operator, by communication, by both: what the inclusive counts mean."""
    zero = [[0] * len(row) for row in layers]
    full = layers if recompute.all_layers else [list(row) for row in recompute.full_layers] or zero
    select = [list(row) for row in max(recompute.operators.values(), key=lambda rows: sum(map(sum, rows)), default=())] or zero
    comm = [list(row) for row in recompute.communication] or zero
    kinds = {name: [[0] * len(row) for row in layers] for name in ("full", "both", "select", "comm")}
    for chunk, row in enumerate(layers):
        for stage, count in enumerate(row):
            for layer in range(count):
                chosen, sent = layer < select[chunk][stage], layer < comm[chunk][stage]
                kind = "full" if layer < full[chunk][stage] else "both" if chosen and sent else "select" if chosen else "comm"
                if kind != "comm" or sent:
                    kinds[kind][chunk][stage] += 1
    return kinds


def test_patterns_keep_their_own_counts():
    plan = read_config(sample("finetune_qwen2_5_14b_8k.yaml"))
    assert plan.recompute.full_layers == ((3, 2, 0, 0),)
    assert plan.recompute.operators[r"feed_forward\.w2\.reshape"] == ((11, 13, 13, 11),)
    assert plan.parallel.layers_per_stage == ((11, 13, 13, 11),)


def test_the_layer_that_predicts_further_tokens_stands_on_the_last_stage():
    plan = read_config(sample("pretrain_deepseek3_671b.yaml"))
    assert plan.parallel.layers_per_stage == ((4,) * 15 + (2,),)
    assert (plan.model.num_layers, plan.model.num_mtp_layers) == (62, 1)


def test_the_catalogue_fills_in_for_a_file_without_sizes():
    text = "trainer: {model_name: llama2_13b}\nmodel: {model_config: {type: LlamaConfig, seq_length: 4096}}\n"
    plan = read_text(text, "short.yaml")
    assert plan.model == catalog.model("llama2-13b")
    assert any("catalogue's llama2-13b" in note for note in plan.document.notes)


def test_placeholders_count_as_missing():
    text = SMALL.format(stages=1, mode=1, copies=1, use_parallel=True).replace("model_parallel: 2", 'model_parallel: "auto"')
    assert read_text(text, "auto.yaml").parallel.tensor_parallel_size == 1


def test_a_count_written_with_a_point_is_a_count():
    assert read_config(sample("pretrain_qwen2_57b.yaml")).model.num_shared_experts == 8


def test_booleans_of_yaml_1_1_are_booleans():
    text = SMALL.format(stages=1, mode=1, copies=1, use_parallel="on").replace("model_parallel: 2", "use_seq_parallel: yes")
    assert read_text(text, "on.yaml").parallel.sequence_parallel


BAD = """\
use_parallel: True
parallel_config:
  data_parallel: -4
  model_parallel: .nan
  pipeline_stage: two
  pipline_stage: 2
runner_config:
  batch_size: [1, 2]
recompute_config:
  recompute: maybe
model:
  model_config:
    type: LlamaConfig
    num_layers: 4.5
    hidden_size: 256
    num_heads: 8
    vocab_size: "32000"
    seq_length: 128
    compute_dtype: int8
"""


def test_every_problem_is_listed_at_once_with_line_key_and_value():
    message = problems(BAD)
    for expected in (
        "line 3, parallel_config.data_parallel: -4 must be a whole number of at least 1",
        "line 4, parallel_config.model_parallel: nan must be a whole number",
        "line 5, parallel_config.pipeline_stage: 'two' must be a whole number",
        "line 6, parallel_config.pipline_stage: unknown key 'pipline_stage'; did you mean 'pipeline_stage'?",
        "line 8, runner_config.batch_size: [1, 2] must be a whole number",
        "line 14, model.model_config.num_layers: 4.5 must be a whole number",
        "line 17, model.model_config.vocab_size: '32000' must be a whole number",
        "line 19, model.model_config.compute_dtype: 'int8' must be one of",
    ):
        assert expected in message


def test_a_wrong_recompute_form_is_named():
    text = SMALL.format(stages=2, mode=1, copies=1, use_parallel=True)
    for value, wanted in (
        ("maybe", "must be True, False, or a list"),
        ("[1, 2, 3]", "must have 2 counts"),
        ("[-1, 0]", "negative"),
        ("[a, b]", "whole numbers"),
    ):
        message = problems(text + f"recompute_config:\n  recompute: {value}\n")
        assert "recompute_config.recompute" in message
        assert wanted in message


def test_a_section_that_is_no_section_is_named():
    assert "parallel_config: 8 must be a section" in problems("parallel_config: 8\nmodel: {model_config: {num_layers: 2}}\n")


def test_unknown_keys_outside_strict_sections_are_kept_and_listed():
    text = SMALL.format(stages=1, mode=1, copies=1, use_parallel=True) + "pipline: 3\n"
    plan = read_text(text, "extra.yaml")
    assert plan.document.unknown == ("pipline",)
    assert plan.document.values["pipline"] == 3


@pytest.mark.parametrize(
    "tag", ["!!python/object/apply:os.system [touch {}]", "!!python/object/new:os.system [touch {}]", "!Custom {}"]
)
def test_a_python_object_is_refused_and_never_executed(tag, tmp_path):
    witness = tmp_path / "witness"
    message = problems(f"model:\n  model_config: {tag.format(witness)}\n")
    assert "line 2, model.model_config: tag" in message
    assert "is refused; it is never executed" in message
    assert not witness.exists()


def test_duplicate_keys_are_reported_and_the_last_counts():
    text = SMALL.format(stages=1, mode=1, copies=1, use_parallel=True) + "micro_batch_interleave_num: 2\n"
    plan = read_text(text, "twice.yaml")
    assert plan.parallel.micro_batch_interleave_size == 2
    assert any("stands twice (first on line 6)" in note for note in plan.document.notes)


def test_every_line_with_a_tab_is_named():
    message = problems("parallel_config:\n\tdata_parallel: 8\n\tmodel_parallel: 1\n")
    assert "line 2: indented with a tab" in message
    assert "line 3: indented with a tab" in message


def test_a_syntax_error_names_its_line_and_text():
    message = problems("recompute_config:\n  select_recompute:\n    'attention': [20, 0]e\n")
    assert "line 3" in message
    assert "[20, 0]e" in message


@pytest.mark.parametrize(
    "text",
    [
        "model: &a [*a]\nrunner_config: {}\n",
        "model: " + "[" * 1500,
        "model: 2001-99-99\n",
        "model: {[a]: 1}\n",
        "model:\n  ? {a: b}\n  : c\n",
    ],
    ids=["an alias of itself", "deep nesting", "an impossible date", "a list as key", "a mapping as key"],
)
def test_hostile_yaml_is_an_input_error(text):
    problems(text)


def test_sizes_that_would_never_end_are_refused():
    text = SMALL.format(stages=10**9, mode=1, copies=1, use_parallel=True)
    assert "leave some empty" in problems(text)
    assert "must be at most" in problems(SMALL.format(stages=10**12, mode=1, copies=1, use_parallel=True))


def test_hostile_text_is_kept_as_data():
    text = SMALL.format(stages=1, mode=1, copies=1, use_parallel=True) + "trainer: {model_name: '<img src=x onerror=alert(1)>'}\n"
    assert read_text(text, "x.yaml").model.name == "<img src=x onerror=alert(1)>"


WEIRD = ["two", "-1", ".nan", ".inf", "[1, 2]", "{a: 1}", "null", '""', "010", "9" * 5000, "*x", "[[true]]", "2001-01-01", "- a"]


@settings(max_examples=60, deadline=None)
@given(st.sampled_from(SAMPLES), st.lists(st.tuples(st.integers(0, 10_000), st.sampled_from(WEIRD)), min_size=1, max_size=3))
def test_a_damaged_file_is_a_plan_or_an_input_error(path, damage):
    lines = path.read_text(encoding="utf-8").split("\n")
    for position, value in damage:
        index = position % len(lines)
        lines[index] = f"{lines[index].partition(':')[0]}: {value}"
    with contextlib.suppress(InputError):
        assert read_text("\n".join(lines), "damaged.yaml").num_devices >= 1


def test_windows_line_ends_change_nothing():
    text = sample("pretrain_llama2_13b.yaml").read_text(encoding="utf-8")
    plain, windows = read_text(text, "a.yaml"), read_text(text.replace("\n", "\r\n"), "a.yaml")
    assert (plain.model, plain.workload, plain.parallel) == (windows.model, windows.workload, windows.parallel)


DEEPSEEK = """
use_parallel: True
use_legacy: False
parallel_config: {data_parallel: 4, model_parallel: 8, pipeline_stage: 8, expert_parallel: 32, micro_batch_num: 32}
parallel: {enable_parallel_optimizer: True, pipeline_config: {pipeline_interleave: True}}
model:
  model_config:
    model_type: deepseek_v3
    offset: [[1, 1, 1, 1, 1, 1, 1, 1], [1, 1, 1, 1, 1, 1, 1, -2]]
    pp_interleave_num: 2
    num_hidden_layers: 61
    moe_intermediate_size: 2048
    qk_layernorm: True
    params_dtype: float32
"""


def test_a_file_that_names_the_class_of_its_model_takes_its_sizes_and_places_further_tokens_on_the_last_stage():
    plan = read_text(DEEPSEEK, "pretrain_deepseek3_671b.yaml")
    assert replace(plan.model, name="", num_layers=61, num_mtp_layers=0) == replace(catalog.model("deepseek-v3"), name="")
    assert (plan.model.num_mtp_layers, plan.parallel.layers_per_stage[1][-1]) == (1, 2)
    assert (plan.workload.attention_kernel, plan.workload.seq_length) == ("flash", 4096)
    moved = replace(plan, parallel=replace(plan.parallel, layers_per_stage=((3, *(4,) * 7), (*(4,) * 7, 3))))
    written = moved.write()
    assert written.lost == ()
    assert "[0, 1, 1, 1, 1, 1, 1, 1], [1, 1, 1, 1, 1, 1, 1, -1]" in written.text


@pytest.mark.parametrize(("key", "field"), [("ffn_hidden_size", "ffn_hidden_size"), ("num_experts", "num_experts")])
def test_another_name_of_a_size_keeps_the_size_of_the_class_out(key, field):
    text = DEEPSEEK.replace("qk_layernorm: True", f"{key}: 64")
    assert getattr(read_text(text, "run.yaml").model, field) == 64


SWAPPING = """use_parallel: True
parallel_config: {data_parallel: 1, pipeline_stage: 2, micro_batch_num: 4}
recompute_config: {recompute: RECOMPUTE}
swap_config: {swap: SWAP, layer_swap: [{backward_prefetch: 1, layers: LAYERS}]}
runner_config: {batch_size: 1}
model: {model_config: {num_layers: 8, hidden_size: 1024, num_heads: 8, vocab_size: 32000, seq_length: 2048}}
"""


def swapping(layers: str, swap: str = "True", recompute: str = "False"):
    return read_text(SWAPPING.replace("LAYERS", layers).replace("SWAP", swap).replace("RECOMPUTE", recompute), "swap.yaml")


def test_layers_that_wait_on_the_host_are_counted_by_stage_and_cost_their_way():
    plan = swapping("[0, 1, 5]")
    assert plan.recompute.swapped_layers == ((2, 1),)
    assert swapping("[0, 1, 5]", swap="False").recompute.swapped_layers == ()
    assert swapping("True").recompute.swapped_layers == ((4, 4),)
    hardware = catalog.hardware_named("Ascend-910B2")
    kept, waiting = (replace(one, hardware=hardware) for one in (swapping("[0]", swap="False"), swapping("True")))
    assert peak_memory(waiting).peak.total < peak_memory(kept).peak.total
    assert estimate(waiting).breakdown.amount("communication/exposed/swap") > 0


def test_what_is_recomputed_does_not_wait_and_a_layer_that_is_not_there_is_refused():
    assert swapping("[0, 1, 5]", recompute="True").recompute.swapped_layers == ()
    assert swapping("[0, 1, 2, 3]", recompute="[3, 0]").recompute.swapped_layers == ((1, 0),)
    with pytest.raises(InputError, match="0 to 7"):
        swapping("[8]")


ALIASES = [
    ("qk_nope_head_dim", "qk_head_dim"),
    ("qk_rope_head_dim", "qk_pos_emb_head_dim"),
    ("moe_intermediate_size", "moe_ffn_hidden_size"),
    ("num_experts_per_tok", "num_experts_chosen", "moe_router_topk"),
    ("n_routed_experts", "expert_num", "num_experts", "num_moe_experts"),
    ("num_nextn_predict_layers", "mtp_depth", "mtp_num_layers"),
    ("num_attention_heads", "num_heads", "n_head"),
    ("num_hidden_layers", "num_layers", "n_layer"),
    ("intermediate_size", "ffn_hidden_size"),
    ("n_shared_experts", "shared_expert_num"),
]
"""Names that the program takes for one another (`mindformers/parallel_core/transformer_config_utils.py`)."""


LATENT = {
    "hidden_size": 256,
    "vocab_size": 1000,
    "seq_length": 128,
    "kv_lora_rank": 64,
    "q_lora_rank": 96,
    "v_head_dim": 32,
    "qk_nope_head_dim": 48,
    "qk_rope_head_dim": 16,
    "moe_intermediate_size": 128,
    "num_experts_per_tok": 3,
    "n_routed_experts": 16,
    "num_nextn_predict_layers": 1,
    "num_attention_heads": 4,
    "num_hidden_layers": 6,
    "intermediate_size": 640,
    "n_shared_experts": 2,
}


@pytest.mark.parametrize(("name", "alias"), [(first, other) for first, *others in ALIASES for other in others])
def test_a_size_may_have_any_of_its_names(name, alias):
    plain, renamed = (
        read_text(
            yaml.safe_dump({"model": {"model_config": {key.get(size, size): value for size, value in LATENT.items()}}}), "a.yaml"
        )
        for key in ({}, {name: alias})
    )
    assert renamed.model == plain.model
    assert renamed.document.unknown == ()


NAMED = """
use_parallel: True
use_legacy: False
pretrained_model_dir: /path/to/DeepSeek-V3
runner_config: {batch_size: 1}
parallel: {pipeline_config: {pipeline_interleave: True}}
parallel_config: {data_parallel: 4, model_parallel: 8, pipeline_stage: 8, expert_parallel: 32, micro_batch_num: 32}
optimizer: {type: AdamW, betas: [0.9, 0.95], eps: 1.e-8, swap: True, amsgrad: True}
train_dataset: {data_loader: {config: {seq_length: 4096}}}
model:
  model_config: {pp_interleave_num: 2, offset: [[1, 1, 1, 1, 1, 1, 1, 1], [1, 1, 1, 1, 1, 1, 1, -2]]%s}
"""


@pytest.mark.parametrize(("said", "further"), [("", 1), (", num_nextn_predict_layers: 0", 0), (", mtp_num_layers: 2", 2)])
def test_a_model_that_a_folder_names_has_the_further_layers_of_its_class_on_the_last_stage_apart_from_offset(said, further):
    plan = read_text(NAMED % said, "finetune.yaml")
    assert (plan.model.num_layers, plan.model.num_mtp_layers) == (61 + further, further)
    assert plan.stage_layers[-1] == (4, 4, 4, 4, 4, 4, 4, 1 + further)
    written = write_config(replace(plan, workload=replace(plan.workload, micro_batch_size=2)))
    assert [line for line in written.diff().splitlines() if line[:1] in "+-" and "offset" in line] == []


def test_states_of_the_optimizer_that_wait_on_the_host_or_stand_beside_the_moments_are_named():
    unread = dict(read_text(NAMED % "", "finetune.yaml").document.unread)
    assert {key for key in unread if key.startswith("optimizer.")} == {"optimizer.swap", "optimizer.amsgrad"}


def test_a_split_that_the_program_chooses_itself_is_said():
    assert any("chooses itself" in note for note in small(mode=2).document.notes)
    assert not any("chooses itself" in note for note in small(mode=1).document.notes)
