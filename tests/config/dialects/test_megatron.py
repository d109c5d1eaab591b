"""Megatron arguments: scripts, lists and JSON mean the same, and nothing is executed."""

from __future__ import annotations

import json
import shlex
from dataclasses import replace
from pathlib import Path

import pytest
import yaml

from perfkit import read_config
from perfkit.config.dialects import write_config
from perfkit.config.dialects.key_effects import leaves
from perfkit.config.dialects.read import read_text
from perfkit.core.errors import InputError
from perfkit.core.params import count_params

SCRIPT = Path(__file__).parents[3] / "data" / "configs" / "pretrain_llama2_13b_megatron.sh"
GPT3 = {
    "num-layers": 96,
    "hidden-size": 12288,
    "num-attention-heads": 96,
    "seq-length": 2048,
    "max-position-embeddings": 2048,
    "micro-batch-size": 1,
    "global-batch-size": 1536,
    "tensor-model-parallel-size": 8,
    "pipeline-model-parallel-size": 16,
    "vocab-size": 50257,
    "fp16": True,
}
SMALL = {"num-layers": 8, "hidden-size": 64, "num-attention-heads": 4, "seq-length": 16, "micro-batch-size": 1, "vocab-size": 1000}


def arguments(options: dict[str, object]) -> list[str]:
    return [word for name, value in options.items() for word in ([f"--{name}"] if value is True else [f"--{name}", str(value)])]


def read(options: dict[str, object]):
    return read_text(shlex.join(arguments(options)), "args.txt")


def problems(options: dict[str, object]) -> str:
    with pytest.raises(InputError) as error:
        read(options)
    return str(error.value)


def test_the_script_is_the_training_it_starts():
    plan = read_config(SCRIPT)
    assert (plan.num_devices, plan.parallel.data_parallel_size, plan.num_micro_batches) == (16, 4, 256)
    assert count_params(plan.model).total == 13_015_864_320
    assert plan.recompute.attention_core
    assert plan.parallel.sequence_parallel
    assert plan.parallel.optimizer_shard_size == 4


def test_gpt3_has_the_count_with_its_padded_vocabulary():
    plan = read(GPT3)
    assert count_params(plan.model).total == 174_615_846_912
    assert any("padded to 51200" in note for note in plan.document.notes)
    assert plan.workload.dtype == "float16"


def test_a_list_a_json_list_and_a_json_object_mean_the_same():
    flat = read(GPT3)
    listed = read_text(json.dumps(arguments(GPT3)), "list.json")
    named = read_text(json.dumps({name.replace("-", "_"): value for name, value in GPT3.items()}), "object.json")
    for other in (listed, named):
        assert (other.model, other.workload, other.parallel) == (flat.model, flat.workload, flat.parallel)


def test_an_argument_a_line_and_an_equals_sign_are_read():
    lines = "\n".join(arguments(SMALL))
    equals = " ".join(f"--{name}={value}" for name, value in SMALL.items())
    assert read_text(lines, "a").model == read_text(equals, "b").model == read(SMALL).model


def test_without_devices_one_replica_is_assumed_and_noted():
    assert any("data_parallel_size = 1" in text for text in read(GPT3).document.defaulted)


def test_variables_are_resolved_within_the_file_only():
    script = "LAYERS=8\nH=$((16*4))\nA=${HEADS:-4}\npretrain.py --num-layers $LAYERS --hidden-size ${H} --num-attention-heads $A "
    plan = read_text(script + "--seq-length 16 --micro-batch-size 1 --vocab-size 1000\n", "x.sh")
    assert (plan.model.num_layers, plan.model.hidden_size, plan.model.num_attention_heads) == (8, 64, 4)


def test_an_unresolved_variable_is_named_and_the_environment_is_not_asked(monkeypatch):
    monkeypatch.setenv("LAYERS", "8")
    assert "num_layers: '$LAYERS' names a variable that the file does not set" in problems(SMALL | {"num-layers": "$LAYERS"})


@pytest.mark.parametrize("call", ["$(touch {})", "`touch {}`"])
def test_commands_in_a_script_are_never_executed(call, tmp_path):
    witness = tmp_path / "witness"
    with pytest.raises(InputError):
        read(SMALL | {"num-layers": call.format(witness)})
    assert not witness.exists()


def test_comments_and_quotes_are_those_of_a_shell():
    text = " ".join(arguments(SMALL)) + " # --num-layers 99\n--data-path 'a --num-layers 7'\n"
    assert read_text(text, "x.sh").model.num_layers == 8


def test_an_open_quote_is_named_with_its_line():
    with pytest.raises(InputError, match="line 2: the quote ' is never closed"):
        read_text(" ".join(arguments(SMALL)) + "\n--data-path 'open\n", "x.sh")


def test_an_option_given_twice_is_reported_and_the_last_counts():
    plan = read_text(" ".join(arguments(SMALL)) + " --num-layers 4", "x")
    assert plan.model.num_layers == 4
    assert any("--num-layers stands twice: 8, then 4" in note for note in plan.document.notes)


def test_grouped_queries_need_their_flag():
    assert read(SMALL | {"num-query-groups": 2}).model.num_key_value_heads == 4
    assert read(SMALL | {"group-query-attention": True, "num-query-groups": 2}).model.num_key_value_heads == 2


def test_a_mixture_with_leading_dense_layers():
    experts = {"num-experts": 8, "moe-router-topk": 2, "moe-ffn-hidden-size": 32, "moe-layer-freq": "([0]*3+[1]*5)"}
    model = read_text(json.dumps(SMALL | experts), "x.json").model
    assert (model.num_experts, model.num_dense_layers, model.expert_ffn_hidden_size) == (8, 3, 32)
    assert "leading dense layers" in problems(SMALL | {"num-experts": 8, "moe-layer-freq": 2})
    every = {"num-experts": 8, "moe-router-topk": 2, "moe-ffn-hidden-size": 32, "moe-layer-freq": -1, "first-k-dense-replace": -1}
    assert read(SMALL | every).model.num_dense_layers == 0


def test_latent_attention_has_the_programs_defaults():
    model = read(SMALL | {"multi-latent-attention": True, "q-lora-rank": 32}).model
    assert (model.kv_lora_rank, model.nope_head_size, model.rope_head_size, model.value_head_size) == (512, 128, 64, 128)


@pytest.mark.parametrize(
    ("options", "chunks", "layers"),
    [
        ({"num-layers-per-virtual-pipeline-stage": 2}, 2, None),
        ({"num-virtual-stages-per-pipeline-rank": 4}, 4, None),
        ({"pipeline-model-parallel-layout": "Ett|tt|ttt|tL"}, 2, ((2, 2), (3, 1))),
        ({"pipeline-model-parallel-layout": "E,(t|)*4,t*4,L"}, None, None),
        ({"decoder-first-pipeline-num-layers": 3}, 1, ((3, 5),)),
        ({"num-layer-list": "3,5"}, 1, ((3, 5),)),
    ],
    ids=["layers a chunk", "chunks", "layout", "layout that does not fit", "first stage", "list"],
)
def test_stages_of_two_devices(options, chunks, layers):
    options = SMALL | {"pipeline-model-parallel-size": 2, "global-batch-size": 4} | options
    if chunks is None:
        assert "pipeline_model_parallel_layout: 5 stages are no multiple of 2" in problems(options)
        return
    parallel = read(options).parallel
    assert (parallel.virtual_pipeline_parallel_size, parallel.layers_per_stage) == (chunks, layers)


def test_options_that_exclude_one_another_are_named():
    both = {"num-layers-per-virtual-pipeline-stage": 2, "num-virtual-stages-per-pipeline-rank": 2}
    assert "at most one of" in problems(SMALL | both)


def test_full_recomputation_by_block_and_uniform():
    block = read(SMALL | {"recompute-granularity": "full", "recompute-method": "block", "recompute-num-layers": 3})
    assert block.recompute.full_layers == ((3,),)
    uniform = read(SMALL | {"recompute-granularity": "full", "recompute-method": "uniform", "recompute-num-layers": 1})
    assert uniform.recompute.all_layers
    assert "uniform or block" in problems(SMALL | {"recompute-granularity": "full"})


def test_all_problems_are_listed_at_once():
    message = problems(SMALL | {"num-layers": "two", "seq-length": -1, "micro-batch-size": "nan", "normalization": "None2"})
    for name in ("num_layers: 'two'", "seq_length: -1", "micro_batch_size: nan", "normalization: 'None2'"):
        assert name in message


def test_unused_options_are_listed():
    document = read(SMALL | {"lr": 0.1, "brand-new-option": 2, "swap-optimizer": True}).document
    assert document.unknown == ("brand_new_option",)
    assert [key for key, _ in document.unread] == ["swap_optimizer"]


@pytest.mark.parametrize("text", ['{"num_layers": ', '["--num-layers", null]', '[["--num-layers"]]'])
def test_broken_json_is_an_input_error(text):
    with pytest.raises(InputError):
        read_text(text, "x.json")


def test_switches_outside_a_plan_are_told_with_what_they_do():
    switches = ["no-overlap-p2p-communication", "swap-attention", "adaptive-memory-optimization", "reuse-fp32-param"]
    plan = read(SMALL | dict.fromkeys(switches, True) | {"noop-layers": "0,7"})
    assert plan.document.unknown == ()
    for name in (*switches, "noop-layers"):
        assert any(note.startswith(f"--{name}:") for note in plan.document.notes), name
    assert plan.model.num_layers == read(SMALL).model.num_layers - 2
    assert sum(map(sum, plan.stage_layers)) == plan.model.num_layers


def test_switches_that_exclude_one_another_are_all_named():
    both = {"recompute-in-bubble": True, "recompute-in-advance": True, "automated-pipeline": True, "automated-pipeline-perf": True}
    message = problems(SMALL | both | {"recompute-activations": True, "noop-layers": "8"})
    assert "--recompute-in-advance and --recompute-in-bubble exclude" in message
    assert "--automated-pipeline-perf and --automated-pipeline exclude" in message
    assert message.count("needs virtual pipeline stages") == 2
    assert "goes with no other recomputation" in message
    assert "needs --recompute-method block" in message
    assert "noop_layers: 8 must be numbers of layers, 0 to 7" in message


def test_the_group_of_an_interleaved_schedule_leaves_no_few_micro_batches():
    sizes = SMALL | {"pipeline-model-parallel-size": 4, "num-layers-per-virtual-pipeline-stage": 1, "global-batch-size": 10}
    group = "microbatch-group-size-per-virtual-pipeline-stage"
    assert any("10 micro batches in groups of 4 leave 2" in note for note in read(sizes).document.notes)
    assert "4 (stages) to 10 (micro batches)" in problems(sizes | {group: 3})
    assert "in groups of 9 leave 1" in problems(sizes | {group: 9})
    assert not any("groups" in note for note in read(sizes | {group: 5}).document.notes)


@pytest.mark.parametrize(
    ("pattern", "dense"),
    [("([0]*3+[1]*5)", 3), ("'([1]*8)'", 0), ("[0]*1+[1]*7", 1), ("[0, 0, 1, 1, 1, 1, 1, 1]", 2), ("([0,0]*2+[1]*4)", 4)],
)
def test_a_pattern_of_layers_is_computed_as_megatron_does(pattern: str, dense: int):
    experts = {"num-experts": 8, "moe-router-topk": 2, "moe-ffn-hidden-size": 32, "moe-layer-freq": pattern}
    assert read(SMALL | experts).model.num_dense_layers == dense
    wrong = {"moe-layer-freq": pattern.replace("1]", "2]")}
    assert "leading dense layers" in problems(SMALL | experts | wrong)
    assert "leading dense layers" in problems(SMALL | experts | {"moe-layer-freq": "([1,0]*4)"})


def test_what_a_script_sources_counts_where_it_is_sourced(tmp_path: Path):
    (tmp_path / "models").mkdir()
    (tmp_path / "models" / "small.sh").write_text(
        f"LAYERS=4\nMODEL_ARGS=({shlex.join(arguments(SMALL))} --num-layers $((LAYERS + 2)))\n"
    )
    (tmp_path.parent / "outside.sh").write_text("MORE=(--hidden-size 128)\n")
    script = tmp_path / "run.sh"
    for named in ('"${SCRIPT_DIR}/models/small.sh"', "models/small.sh", '"$(dirname $0)/models/small.sh"'):
        command = "pretrain_gpt.py ${MODEL_ARGS[@]} ${MORE[@]} --micro-batch-size 1 --bf16"
        script.write_text(f"source {named}\n. ../outside.sh\n{command}\n")
        plan = read_config(script)
        assert (plan.model.num_layers, plan.model.hidden_size, plan.workload.dtype) == (6, 64, "bfloat16")
        assert "../outside.sh is sourced and is not here; what it sets is not known" in plan.document.notes
    script.write_text("source models/absent.sh\npretrain_gpt.py --micro-batch-size 1 --seq-length 16 --num-layers 4\n")
    with pytest.raises(InputError, match="hidden_size: is missing"):
        read_config(script)
    (tmp_path / "models" / "small.sh").write_text("source small.sh\nsource small.sh\n")
    script.write_text(f"source models/small.sh\npretrain_gpt.py {shlex.join(arguments(SMALL))}\n")
    assert read_config(script).model.num_layers == 8


def test_a_script_of_megatron_deepspeed_has_its_devices_sharing_and_recomputation():
    more = (
        "--zero-stage 2 --deepspeed --deepspeed_config ds.json --checkpoint-activations --deepspeed-activation-checkpointing --bf16"
    )
    plan = read_text(f"deepspeed --num_nodes 2 --num_gpus 8 pretrain_gpt.py {shlex.join(arguments(SMALL))} {more}", "run.sh")
    assert (plan.num_devices, plan.parallel.optimizer_shard_size, plan.parallel.optimizer_shard_level) == (16, 16, 2)
    assert (plan.recompute.all_layers, plan.software.framework) == (True, "deepspeed")
    assert [key for key, _ in plan.document.unread] == ["deepspeed_config"]
    assert plan.document.unknown == ()


EVALUATED = """MOE_LAYER_FREQ='([0]*1+[1]*3)'
data_args="--mock-data --data-cache-path cache"
moe_options=" \\
    --moe-layer-freq '${MOE_LAYER_FREQ}' \\
    --num-experts 8 --moe-router-topk 2 --moe-ffn-hidden-size 256"
options=" \\
    ${data_args} \\
    --num-layers 4 --hidden-size 512 --num-attention-heads 8 --ffn-hidden-size 1024 --seq-length 1024 \\
    --micro-batch-size 1 --global-batch-size 8 --tokenizer-type HuggingFaceTokenizer \\
    --tokenizer-model deepseek-ai/DeepSeek-V3 --swiglu"
run_cmd="
    torchrun --nproc_per_node 8 pretrain_gpt.py
        ${options} \\
        ${moe_options}"
eval ${run_cmd} | tee train.log
"""


def test_a_command_in_a_variable_that_is_evaluated_loses_its_quotes_and_names_no_option_as_left_out():
    plan = read_text(EVALUATED, "train.sh")
    assert (plan.model.num_experts, plan.model.num_dense_layers, plan.num_devices) == (8, 1, 8)
    assert plan.model.vocab_size == 129280  # the vocabulary of the tokenizer's model, which the catalogue has
    assert not any("left out" in note for note in plan.document.notes)


@pytest.mark.parametrize(
    ("tokenizer", "size"),
    [("mistralai/Mistral-7B-v0.3", 32768), ("mistralai/Mixtral-8x22B-Instruct-v0.3", 32768), ("mistralai/Mistral-7B-v0.1", 32000)],
)
def test_a_later_release_of_a_family_has_its_own_vocabulary(tokenizer: str, size: int):
    assert read_text(EVALUATED.replace("deepseek-ai/DeepSeek-V3", tokenizer), "train.sh").model.vocab_size == size


def test_elements_of_an_array_without_quotes_are_split_once_more():
    text = """A=("--num-layers 4" --hidden-size 512)
A+=("--num-attention-heads 8" "--vocab-size 1000" "--split '99,1,0'")
torchrun --nproc_per_node 2 pretrain_gpt.py ${A[@]} --seq-length 128 --micro-batch-size 1 --global-batch-size 8
"""
    plan = read_text(text, "train.sh")
    assert (plan.model.num_layers, plan.model.hidden_size, plan.num_devices) == (4, 512, 2)
    assert not any("left out" in note for note in plan.document.notes)
    assert plan.document.unknown == ()


OTHERS = Path(__file__).parents[2] / "data" / "configs" / "others"
TESTED = OTHERS / "mixtral_8x22b_model_config.yaml"


def test_the_yaml_of_megatrons_own_tests_is_the_same_options_as_words():
    plan = read_config(TESTED)
    assert (plan.model.num_layers, plan.model.num_experts, plan.parallel.expert_parallel_size) == (56, 8, 8)
    assert count_params(plan.model).total == 140_620_634_112  # 141 B
    options = yaml.safe_load(TESTED.read_text())["MODEL_ARGS"]
    words = [word for key, value in options.items() for word in ([key] if value is True else [key, str(value)])]
    flat = read_text(shlex.join(words), "args.txt")
    assert replace(flat, document=None) == replace(plan, document=None)


def test_the_yaml_of_megatrons_own_tests_is_changed_where_an_option_stands():
    plan = read_config(TESTED)
    written = write_config(replace(plan, parallel=replace(plan.parallel, tensor_parallel_size=4)))
    assert {"-  --tensor-model-parallel-size: 2", "+  --tensor-model-parallel-size: 4"} <= set(written.diff().splitlines())
    assert "  --hidden-size: 6144" in written.text
    again = read_text(written.text, "again.yaml")
    assert (again.parallel.tensor_parallel_size, again.num_devices) == (4, 256)


FLAGSCALE = OTHERS.parent / "flagscale"


def test_options_in_groups_are_the_same_options_as_words():
    """FlagScale makes an argument of everything in its groups, whatever group it stands in."""
    plan = read_config(FLAGSCALE / "deepseek_v3_16b_a3b.yaml")
    words = []
    for key, value in leaves(yaml.safe_load((FLAGSCALE / "deepseek_v3_16b_a3b.yaml").read_text())):
        name = f"--{key.rpartition('.')[2].replace('_', '-')}"
        words += [name] if value is True else [] if value is False else [name, str(value)]
    flat = read_text(shlex.join(words), "args.txt")
    assert replace(flat, document=None) == replace(plan, document=None)
    assert (plan.model.num_mtp_layers, plan.parallel.layers_per_stage, plan.model.num_dense_layers) == (1, ((13, 15),), 1)


def test_options_in_groups_are_changed_where_they_stand():
    plan = read_config(FLAGSCALE / "deepseek_v3_16b_a3b.yaml")
    changed = replace(plan, workload=replace(plan.workload, micro_batch_size=2))
    lines = [line for line in write_config(changed).diff().splitlines() if line[:1] in "+-" and line[:3] not in ("---", "+++")]
    assert lines == ["-  micro_batch_size: 1", "+  micro_batch_size: 2"]


@pytest.mark.parametrize(("multiplier", "ffn"), [(None, 11008), (1.3, 14336)])
def test_a_width_that_flagscale_derives(multiplier, ffn):
    text = (FLAGSCALE / "aquila_7b.yaml").read_text()
    if multiplier:
        text = text.replace("  multiple_of: 256", f"  multiple_of: 256\n  hidden_dim_multiplier: {multiplier}")
    assert read_text(text, "7b.yaml").model.ffn_hidden_size == ffn


def test_modules_in_brackets_are_a_list():
    text = TESTED.read_text().replace(
        "  --num-layers: 56", '  --recompute-granularity: selective\n  --recompute-modules: "[mlp core_attn]"\n  --num-layers: 56'
    )
    recompute = read_text(text, "modules.yaml").recompute
    assert recompute.attention_core
    assert recompute.operators


@pytest.mark.parametrize(
    ("option", "what"),
    [
        ("decoder-num-layers", "an encoder beside"),
        ("heterogeneous-layers-config-path", "layers of several sizes"),
        ("retro-add-retriever", "retrieved text"),
    ],
)
def test_a_model_of_another_kind_is_refused_in_words(option, what):
    with pytest.raises(InputError, match=what):
        read({**SMALL, option: 4})


def test_as_many_replicas_as_the_copies_of_the_optimizer_state_need():
    plan = read({**SMALL, "use-distributed-optimizer": True, "num-distributed-optimizer-instances": 2})
    assert (plan.parallel.data_parallel_size, plan.parallel.optimizer_shard_size) == (2, 1)


def test_bars_and_brackets_behind_backslashes_are_a_layout():
    text = TESTED.read_text().replace(
        "  --num-layers: 56", "  --num-layers: 15\n  --pipeline-model-parallel-layout: Et*2\\\\|\\\\(tt\\\\|\\\\)*6tL"
    )
    plan = read_text(text, "layout.yaml")
    assert plan.parallel.layers_per_stage == ((2,) * 7 + (1,),)


@pytest.mark.parametrize(
    ("option", "what"),
    [
        ("--hybrid-layer-pattern M-M*", "state-space"),
        ("--is-hybrid-model", "state-space"),
    ],
)
def test_a_model_that_nothing_counts_is_refused_for_that_alone(option, what):
    with pytest.raises(InputError) as error:
        read_text(f"--num-layers 8 --hidden-size 64 {option}", "args.txt")
    assert len(error.value.problems) == 1
    assert what in error.value.problems[0]


def test_a_file_of_merges_is_the_vocabulary_of_gpt2():
    plan = read({**GPT3, "vocab-size": 50257})
    named = {name: value for name, value in GPT3.items() if name != "vocab-size"} | {"merge-file": "gpt2-merges.txt"}
    assert read(named).model.vocab_size == plan.model.vocab_size


@pytest.mark.parametrize(
    ("word", "name", "matrices"), [("adam", "adam", -1), ("dist_muon", "muon", 4), ("muon", "muon", 4), ("lion", "lion", -1)]
)
def test_the_optimizers_that_megatron_has_are_read_and_written(word, name, matrices):
    plan = read(SMALL | {"optimizer": word})
    assert (plan.optimizer.name, plan.optimizer.matrix_state_bytes_per_parameter) == (name, matrices)
    assert read_text(write_config(plan, dialect="megatron").text, "again.sh").optimizer == plan.optimizer
    assert "must be" in problems(SMALL | {"optimizer": "adamant"})


OF_DEEPSPEED = """deepspeed pretrain_gpt.py --deepspeed --no-pipeline-parallel --checkpoint-activations \\
    --moe-expert-parallel-size 64 --num-experts 128 --moe-train-capacity-factor 1.0 --moe-eval-capacity-factor 1.0 \\
    --moe-min-capacity 4 --moe-loss-coeff 0.01 \\
    --create-moe-param-group --micro-batch-size 8 --global-batch-size 512 --num-layers 24 --hidden-size 2048 \\
    --num-attention-heads 16 --seq-length 2048 --max-position-embeddings 2048 --vocab-size 50257 --fp16 {more}
"""
"""From Megatron-DeepSpeed examples/MoE/ds_pretrain_gpt_1.3B_MoE128.sh, which trains on 64 devices."""


def test_experts_of_megatron_deepspeed_are_in_every_second_layer():
    plan = read_text(OF_DEEPSPEED.format(more=""), "moe.sh")
    model, parallel = plan.model, plan.parallel
    assert (model.num_experts, model.num_dense_layers, model.expert_capacity_factor) == (128, 12, 1.0)
    assert (parallel.expert_parallel_size, plan.num_devices) == (64, 64)
    assert round(count_params(model).total / 1e9) == 52  # published as 52B
    assert plan.document.unknown == ()
    other = read_text(
        OF_DEEPSPEED.format(more="--expert-interval 1 --topk 1 --disable-moe-token-dropping --mlp-type residual"), "moe.sh"
    )
    assert (other.model.num_dense_layers, other.model.num_experts_per_token, other.model.expert_capacity_factor) == (0, 1, 0.0)
    assert "mlp_type" in dict(other.document.unread)


@pytest.mark.parametrize(
    ("more", "layers"), [("--activations-checkpoint-method block --activations-checkpoint-num-layers 3", 3), ("", 0)]
)
def test_recomputation_as_megatron_2_spells_it(more, layers):
    sizes = "--num-layers 8 --hidden-size 64 --num-attention-heads 4 --seq-length 16 --micro-batch-size 1 --vocab-size 9"
    text = f"torchrun pretrain_gpt.py {sizes} {more}"
    plan = read_text(text, "old.sh")
    assert plan.recompute.full_layers == (((layers,),) if layers else ())
    assert plan.document.unknown == ()
