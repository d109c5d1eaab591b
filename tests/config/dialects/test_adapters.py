"""Adapters that files state are counted where all of it is stated, and written back; else they are named as before."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from perfkit.config.dialects import read_config, read_text, write_config
from perfkit.config.dialects.key_effects import BESIDE_ADAPTERS, SOME_TRAINED
from perfkit.core import catalog
from perfkit.core.errors import InputError
from perfkit.core.params import trained_params
from perfkit.core.spec import Adapters
from tests.predict.random_plans import adapted_plans

DATA = Path(__file__).parents[2] / "data" / "configs"
ALL = ("query", "key", "value", "output", "gate", "up", "down")
TOML = """[model]
name = "llama2-7b"
adapters = { rank = 8, targets = ["query", "value"] }

[workload]
seq_length = 4096
micro_batch_size = 1
global_batch_size = 8
"""
TRL = "--model_name_or_path meta-llama/Llama-2-7b-hf --per_device_train_batch_size 1 --bf16 True --max_seq_length 2048"
MEGATRON = """torchrun --nproc_per_node 8 pretrain_gpt.py --num-layers 32 --hidden-size 4096 --num-attention-heads 32 \\
    --ffn-hidden-size 11008 --swiglu --seq-length 4096 --max-position-embeddings 4096 --micro-batch-size 1 --global-batch-size 8 \\
    --normalization RMSNorm --position-embedding-type rope --untie-embeddings-and-output-weights --disable-bias-linear --bf16 \\
    --vocab-size 32000 --tensor-model-parallel-size 2 {}
"""
BRIDGE = """model:
  num_layers: 32
  hidden_size: 4096
  ffn_hidden_size: 11008
  num_attention_heads: 32
  gated_linear_unit: true
  vocab_size: 32000
  seq_length: 4096
  tensor_model_parallel_size: 1
train:
  micro_batch_size: 1
  global_batch_size: 8
mixed_precision: bf16_mixed
peft:
"""


def unread(plan) -> set[str]:
    return {key for key, _ in plan.document.unread}


def test_a_model_of_the_catalogue_may_have_adapters():
    plan = read_text(TOML, "a.toml")
    assert plan.model == replace(catalog.model("llama2-7b"), adapters=Adapters(rank=8, targets=("query", "value")))
    assert trained_params(plan.model).total == 4_194_304
    assert plan.write().text == TOML
    other = replace(plan, model=replace(plan.model, adapters=Adapters(rank=16, targets=("qkv",)))).write()
    assert read_text(other.text, "a.toml").model.adapters == Adapters(rank=16, targets=("qkv",))
    without = replace(plan, model=catalog.model("llama2-7b")).write()
    assert (without.lost, read_text(without.text, "a.toml").model) == ((), catalog.model("llama2-7b"))


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        ("rank = 8", "rank = 0", "rank = 0 must be positive"),
        ("rank = 8, ", "", "rank: is missing"),
        ('"value"', '"v_proj"', "targets = 'v_proj' must be one of"),
        ('["query", "value"]', '"query"', "must be a list of texts"),
        ("rank = 8", "rank = 8, alpha = 16", "unknown key 'alpha'"),
        ("llama2-7b", "mixtral-8x7b", None),
        ('"value"', '"up"', None),
    ],
)
def test_adapters_of_a_toml_are_checked(old, new, told):
    text = TOML.replace(old, new)
    if told is None:
        assert read_text(text, "a.toml").model.adapters
        return
    with pytest.raises(InputError, match=told):
        read_text(text, "a.toml")


@pytest.mark.parametrize("dialect", ["perfkit", "table"])
def test_random_plans_with_adapters_are_written_and_read(dialect):
    for plan in adapted_plans(60):
        written = write_config(plan, dialect=dialect)
        assert written.lost == ()
        assert replace(read_text(written.text, written.name), document=None).model == plan.model


@pytest.mark.parametrize(
    ("name", "adapters", "trained"),
    [
        ("llama2/lora_llama2_7b", Adapters(rank=16, targets=("query", "key", "value", "output")), 16_777_216),
        ("glm2/lora_glm2_6b_fp16", Adapters(rank=8, targets=("qkv",)), 28 * 8 * (4096 + 4096 + 2 * 2 * 128)),
    ],
)
def test_files_of_mindformers_train_the_adapters_of_their_pattern(name, adapters, trained):
    plan = read_config(DATA / f"mindformers/v1.3.2/configs/{name}.yaml")
    assert (plan.model.adapters, trained_params(plan.model).total) == (adapters, trained)
    assert not any("pet_config" in key for key in unread(plan))
    assert any("all other weights are frozen" in note for note in plan.document.notes)
    assert plan.document.path.read_text(encoding="utf-8") == plan.write().text


@pytest.mark.parametrize(
    ("line", "adapters"),
    [
        ("lora_rank: 16\nlora_target: q_proj,v_proj", Adapters(rank=16, targets=("query", "value"))),
        ("lora_target: all", Adapters(rank=8, targets=ALL)),
        ("lora_target: [q_proj, gate_up_proj]", Adapters(rank=8, targets=("query", "gate_up"))),
        ("lora_target: q_proj,lm_head", None),
        ("lora_target: model.layers.0.self_attn.q_proj", None),
        ("lora_target: .*layers.[0-3].self_attn.q_proj", None),
        ("lora_target: self_attn.q_proj", Adapters(rank=8, targets=("query",))),
        ("use_dora: true", None),
        ("lora_rank: ${RANK}", None),
        ("lora_rank: 0", None),
    ],
)
def test_llama_factory_trains_adapters_unless_it_is_told_otherwise(line, adapters):
    text = f"model_name_or_path: meta-llama/Llama-2-7b-hf\nfinetuning_type: lora\n{line}\ncutoff_len: 2048\nbf16: true\n"
    text += "per_device_train_batch_size: 1\ngradient_accumulation_steps: 8\n"
    plan = read_text(text, "a.yaml")
    assert plan.model.adapters == adapters
    assert ("finetuning_type" in unread(plan)) is (adapters is None)
    width = "bfloat16" if adapters else "float32"
    assert plan.optimizer.parameter_dtype == width, "weights that are trained are kept in 32 bits, frozen ones as layers compute"
    if adapters:
        written = replace(plan, model=replace(plan.model, adapters=replace(adapters, rank=64))).write()
        assert read_text(written.text, "a.yaml").model.adapters == replace(adapters, rank=64)


FACTORY = """model_name_or_path: meta-llama/Llama-2-7b-hf
lora_rank: 8
lora_target: q_proj
cutoff_len: 2048
bf16: true
per_device_train_batch_size: 1
"""


@pytest.mark.parametrize(
    ("lines", "named"),
    [
        ("finetuning_type: lora\nfreeze_trainable_layers: 2\nfreeze_trainable_modules: all\n", {}),
        ("finetuning_type: lora\nlora_plus: 1\n", {"lora_plus": BESIDE_ADAPTERS}),
        ("finetuning_type: full\nfreeze_trainable_layers: 2\nuse_dora: true\n", {}),
        ("finetuning_type: freeze\nuse_llama_pro: true\n", dict.fromkeys(("finetuning_type", "lora_rank"), SOME_TRAINED)),
        ("finetuning_type: lora\nfreeze_language_model: true\n", {"freeze_language_model": SOME_TRAINED}),
    ],
)
def test_what_is_said_of_keys_is_true_beside_adapters_that_are_counted_and_where_all_is_trained(lines, named):
    plan = read_text(FACTORY + lines, "a.yaml")
    assert named.items() <= dict(plan.document.unread).items()
    assert named or plan.document.unread == ()
    counted = "lora\n" in lines and SOME_TRAINED not in named.values()
    assert plan.model.adapters == (Adapters(rank=8, targets=("query",)) if counted else None)


def test_a_file_without_adapters_says_so_in_its_own_words():
    text = "model_name_or_path: meta-llama/Llama-2-7b-hf\nfinetuning_type: lora\nlora_target: all\ncutoff_len: 2048\nbf16: true\n"
    plan = read_text(text + "per_device_train_batch_size: 1\n", "a.yaml")
    full = replace(plan, model=replace(plan.model, adapters=None)).write()
    assert 'finetuning_type: "full"' in full.text
    assert read_text(full.text, "a.yaml").model.adapters is None


@pytest.mark.parametrize(
    ("options", "adapters"),
    [
        ("--use_peft --lora_r 8 --lora_target_modules q_proj,v_proj", Adapters(rank=8, targets=("query", "value"))),
        ("--use_peft --lora_r 8 --lora_target_modules q_proj v_proj", Adapters(rank=8, targets=("query", "value"))),
        ("--lora_target_modules q_proj k_proj o_proj --lora_r 8 --use_peft", Adapters(rank=8, targets=("query", "key", "output"))),
        ("--use_peft --lora_r 8 --lora_target_modules q_proj lm_head", None),
        ("--use_peft True --lora_r 4 --lora_target_modules all-linear", Adapters(rank=4, targets=ALL)),
        ("--lora_r 8 --lora_target_modules q_proj", None),
        ("--use_peft False --lora_r 8 --lora_target_modules q_proj", None),
        ("--use_peft --lora_r 8", None),
        ("--use_peft --lora_r 8 --lora_target_modules q_proj --lora_modules_to_save lm_head", None),
    ],
)
def test_options_of_trl_train_adapters_where_they_are_switched_on(options, adapters):
    plan = read_text(f"torchrun --nproc_per_node 8 sft.py {TRL} {options}\n", "run.sh")
    assert plan.model.adapters == adapters
    assert ("lora_r" in unread(plan)) is (adapters is None)


PEFT = """model = AutoModelForCausalLM.from_pretrained("meta-llama/Llama-2-7b-hf", torch_dtype=torch.bfloat16)
peft_config = LoraConfig(r=16, target_modules={})
args = SFTConfig(output_dir="o", per_device_train_batch_size=2, max_length=2048, bf16=True)
"""


@pytest.mark.parametrize(
    ("modules", "targets"),
    [
        (r'r".*\.(q_proj|v_proj)$"', ("query", "value")),
        (r'r".*layers\.\d+\.self_attn\.[qkv]_proj"', ("query", "key", "value")),
        (r'r"^(?!.*visual).*(?:q_proj|k_proj|v_proj|o_proj|gate_proj|up_proj|down_proj).*"', ALL),
        (r'".*q_proj|.*k_proj|.*v_proj|.*o_proj|.*gate_proj|.*up_proj|.*down_proj"', ALL),
        (r'".*(W_pack|gate_up_proj)"', ("qkv", "gate_up")),
        ('{"q_proj", "v_proj"}', ("query", "value")),
        ('("self_attn.q_proj",)', ("query",)),
        ('"all-linear"', ALL),
        (r'r".*layers\.[0-3]\.self_attn\.q_proj"', ()),
        (r'r".*layers\.1\d\.self_attn\.q_proj"', ()),
        (r'r"(?!.*layers\.0).*q_proj"', ()),
        ('".*visual.*q_proj"', ()),
        ('[".*visual.*q_proj"]', ()),
        ('[".*q_proj"]', ()),
        ('["layers.0.self_attn.q_proj"]', ()),
        ('"q_proj|v_proj"', ()),
        ('"q_proj"', ()),
        ('".*(q_proj|lm_head)"', ()),
        ('".*(q_proj|c_proj)"', ()),
        ('".*(q_proj"', ()),
        ('".*(.*_proj)*x"', ()),
        (f'"{".*" * 30}x"', ()),
        (f'"{"(_|_)?" * 20}"', ()),
        (f'".*q_proj{"|.*q_proj" * 30}"', ()),
    ],
)
def test_modules_of_peft_are_names_or_a_pattern_for_whole_names(modules, targets):
    plan = read_text(PEFT.format(modules), "train.py")
    assert plan.model.adapters == (Adapters(rank=16, targets=targets) if targets else None)
    assert ("LoraConfig.r" in unread(plan)) is not bool(targets)


@pytest.mark.parametrize(
    "more", ["trainable_token_indices=[1, 2]", "layer_replication=[[0, 16]]", "layers_pattern='layers'", "use_qalora=True"]
)
def test_adapters_of_peft_beside_which_more_is_trained_are_not_counted(more):
    plan = read_text(PEFT.format(f"['q_proj'], {more}"), "train.py")
    assert plan.model.adapters is None
    assert dict(plan.document.unread)["LoraConfig.r"] == SOME_TRAINED


def test_swift_trains_adapters_of_all_matrices_by_itself():
    line = "NPROC_PER_NODE=8 swift sft --model Qwen/Qwen3-8B --num_train_epochs 1 --max_length 2048{}\n"
    plan = read_text(line.format(""), "run.sh")
    assert plan.model.adapters == Adapters(rank=8, targets=ALL)
    assert "train_type = lora: the program's own" in plan.document.defaulted
    assert read_text(line.format(" --train_type full"), "run.sh").model.adapters is None
    full = read_text(line.format(" --train_type full --lora_rank 8 --target_modules q_proj --lora_alpha 16"), "run.sh")
    assert (full.model.adapters, full.document.unread) == (None, ())
    stated = read_text(line.format(" --train_type lora --lora_rank 32 --target_modules q_proj"), "run.sh")
    assert stated.model.adapters == Adapters(rank=32, targets=("query",))
    stated = read_text(line.format(" --target_modules q_proj v_proj --train_type lora"), "run.sh")
    assert stated.model.adapters == Adapters(rank=8, targets=("query", "value"))


@pytest.mark.parametrize(
    ("options", "adapters"),
    [
        ("--lora-r 8 --lora-alpha 32 --lora-target-modules linear_qkv linear_proj", Adapters(rank=8, targets=("qkv", "output"))),
        ("--lora-target-modules linear_fc1 linear_fc2", Adapters(rank=16, targets=("gate_up", "down"))),
        ("--lora-r 8", None),
        ("--lora-r 8 --lora-target-modules word_embeddings", None),
    ],
)
def test_options_of_mindspeed_train_adapters_where_they_name_targets(options, adapters):
    plan = read_text(MEGATRON.format(options), "run.sh")
    assert plan.model.adapters == adapters
    assert ("lora_r" in unread(plan)) is (adapters is None and "--lora-r" in options)
    if adapters:
        written = write_config(replace(plan, document=None), dialect="megatron")
        assert not [line for line in written.lost if "adapters" in line]


@pytest.mark.parametrize(
    ("lines", "adapters"),
    [
        ("  dim: 8\n  alpha: 16\n  target_modules: [linear_qkv, linear_proj]\n", Adapters(rank=8, targets=("qkv", "output"))),
        (
            "  _target_: megatron.bridge.peft.lora.LoRA\n  dim: 32\n  target_modules: [linear_fc1]\n",
            Adapters(rank=32, targets=("gate_up",)),
        ),
        ("  _target_: megatron.bridge.peft.dora.DoRA\n  dim: 32\n  target_modules: [linear_fc1]\n", None),
        ("  dim: 8\n", None),
    ],
)
def test_groups_of_megatron_bridge_train_adapters(lines, adapters):
    plan = read_text(BRIDGE + lines, "run_config.yaml")
    assert plan.model.adapters == adapters
    assert ("peft.dim" in unread(plan)) is (adapters is None)


@pytest.mark.parametrize("dialect", ["mindformers", "megatron", "megatron-bridge", "llama-factory"])
def test_a_converted_plan_keeps_its_adapters(dialect):
    targets = {"megatron": ("qkv", "gate_up"), "megatron-bridge": ("qkv", "gate_up")}.get(dialect, ("query", "down"))
    plan = replace(read_text(TOML, "a.toml"), document=None)
    plan = replace(plan, model=replace(plan.model, adapters=Adapters(rank=8, targets=targets)))
    written = write_config(plan, dialect=dialect)
    found = read_text(written.text, written.name)
    assert found.model.adapters == plan.model.adapters
    assert unread(found) == set()


@pytest.mark.parametrize("dialect", ["torchtitan", "mindspeed-core", "megatron", "nemo", "gpt-neox"])
def test_what_a_dialect_cannot_say_of_adapters_is_listed(dialect):
    plan = replace(read_text(TOML, "a.toml"), document=None)
    try:
        written = write_config(plan, dialect=dialect)
    except InputError:
        assert dialect in ("torchtitan", "nemo", "gpt-neox"), "it writes no plan of this model, with adapters or without"
        return
    assert any("adapters" in line for line in written.lost)
