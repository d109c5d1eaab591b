"""Arguments of Hugging Face's Trainer: Python that is never executed, launch lines, YAML and JSON; what is named, and bad input."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from perfkit.config.dialects import edit_config, read_config, read_text, write_config
from perfkit.config.dialects.key_effects import left_over
from perfkit.config.lint import lint_text
from perfkit.core import catalog
from perfkit.core.errors import InputError
from perfkit.core.spec.adapters import Adapters
from perfkit.core.spec.recompute import RecomputePlan
from perfkit.explain.fragments.explained import explain_fragment

DATA = Path(__file__).parents[2] / "data" / "configs" / "trainer"
SFT = """import torch
from transformers import AutoModelForCausalLM, AutoTokenizer
from trl import SFTConfig, SFTTrainer

MODEL = "Qwen/Qwen3-8B"
LENGTH: int = 4096
raise SystemExit("never executed")

tokenizer = AutoTokenizer.from_pretrained("gpt2")
model = AutoModelForCausalLM.from_pretrained(MODEL, torch_dtype=torch.bfloat16)
training_args = SFTConfig(
    output_dir=sys.argv[1],
    per_device_train_batch_size=2,  # of a device
    gradient_accumulation_steps=4,
    bf16=torch.cuda.is_bf16_supported(),
    fp16=not torch.cuda.is_bf16_supported(),
    max_length=LENGTH,
    packing=True,
    learning_rate=float(sys.argv[2]),
)
trainer = SFTTrainer(model=model, args=training_args)
"""
PLAIN = 'args = TrainingArguments("out", per_device_train_batch_size=4, bf16=True)\n'


def of_sft(*changes: tuple[str, str]):
    text = SFT
    for old, new in changes:
        assert old in text
        text = text.replace(old, new)
    return read_text(text, "train.py")


def test_calls_say_what_the_plan_is_and_nothing_runs():
    plan = of_sft()
    assert plan.model == catalog.model("qwen3-8b")
    assert (plan.workload.seq_length, plan.workload.micro_batch_size, plan.num_micro_batches) == (4096, 2, 4)
    assert (plan.workload.dtype, plan.optimizer.parameter_dtype, plan.optimizer.moment_dtype) == (
        "bfloat16",
        "bfloat16",
        "bfloat16",
    )
    assert plan.recompute.all_layers
    assert any(line.startswith("recompute = all layers") for line in plan.document.defaulted), "SFTConfig's own default"
    assert any(line.startswith("data_parallel_size = 1") for line in plan.document.defaulted)
    assert (plan.document.unread, plan.document.unknown) == ((), ())


def test_a_dict_that_is_unpacked_is_read_and_one_that_is_computed_is_told():
    plan = of_sft(
        (
            "training_args = SFTConfig(\n",
            'common = {"optim": "sgd", "bf16": True}\ntraining_args = SFTConfig(\n    **common,\n    **load(),\n',
        )
    )
    assert plan.optimizer.state_bytes_per_parameter == 0
    assert any("line 14: what **load() holds is not read" in note for note in plan.document.notes)


def test_training_arguments_have_other_defaults():
    plan = read_text('model = AutoModelForCausalLM.from_pretrained("Qwen/Qwen3-8B")\n' + PLAIN.replace(", bf16=True", ""), "a.py")
    assert (plan.workload.dtype, plan.recompute.all_layers, plan.optimizer.parameter_dtype) == ("float32", False, "float32")
    assert any(line.startswith("seq_length = 1024: the file does not say") for line in plan.document.defaulted)


def test_a_fragment_with_a_margin_and_a_model_by_its_keyword_is_read():
    text = '    trainer = SFTTrainer(model="Qwen/Qwen3-4B", args=SFTConfig(per_device_train_batch_size=2, max_length=2048))\n'
    plan = read_text(text, "standard input")
    assert (plan.model, plan.workload.seq_length) == (catalog.model("qwen3-4b"), 2048)


@pytest.mark.parametrize(
    ("old", "new", "named"),
    [
        ("trainer = SFTTrainer(", "peft = LoraConfig(r=16)\ntrainer = SFTTrainer(", "LoraConfig.r"),
        ("trainer = SFTTrainer(", "peft = LoraConfig(r=16, target_modules=['c_proj'])\ntrainer = SFTTrainer(", "LoraConfig.r"),
        (
            "trainer = SFTTrainer(",
            "quant = BitsAndBytesConfig(load_in_4bit=True)\ntrainer = SFTTrainer(",
            "BitsAndBytesConfig.load_in_4bit",
        ),
        ("    packing=True,", "    packing=True,\n    use_liger_kernel=True,", "use_liger_kernel"),
        ("    packing=True,", "    torch_compile=True,", "torch_compile"),
        ("SFTConfig(\n", "DPOConfig(\n    max_prompt_length=512,\n", "stage"),
    ],
)
def test_what_no_plan_says_is_named(old, new, named):
    assert named in dict(of_sft((old, new)).document.unread)


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ('deepspeed="ds_z2.json"', ("deepspeed", 2, 8)),
        ('deepspeed={"zero_optimization": {"stage": 1}, "bf16": {"enabled": "auto"}}', ("deepspeed", 1, 8)),
        ('fsdp="full_shard auto_wrap", fsdp_config={"activation_checkpointing": True}', ("fsdp", 3, 8)),
        ('fsdp="full_shard offload"', ("fsdp", 3, 8)),
        ("fsdp=True", ("fsdp", 3, 8)),
    ],
)
def test_sharing_by_either_library_takes_the_usual_devices(line, told):
    plan = of_sft(("    packing=True,", f"    {line},"))
    assert (plan.software.framework, plan.parallel.optimizer_shard_level, plan.num_devices) == told
    assert ("fsdp: offload" in dict(plan.document.unread)) is ("offload" in line)


@pytest.mark.parametrize(
    ("word", "state_bytes"),
    [("adamw_torch_fused", 4), ("paged_adamw_8bit", 2), ("paged_adamw_32bit", 8), ("adafactor", 0), ("lion_8bit", 1), ("sgd", 0)],
)
def test_optimizers_keep_as_much_as_their_name_says(word, state_bytes):
    plan = of_sft(("    packing=True,", f"    optim={word!r},"))
    assert plan.optimizer.state_bytes_per_parameter == state_bytes


UNSLOTH = """max_seq_length = 2048
model, tokenizer = FastLanguageModel.from_pretrained(
    model_name = "unsloth/Meta-Llama-3.1-8B", max_seq_length = max_seq_length, dtype = None, load_in_4bit = True)
model = FastLanguageModel.get_peft_model(model, r = 16, use_gradient_checkpointing = "unsloth", random_state = 3407)
trainer = SFTTrainer(model = model, max_seq_length = max_seq_length, packing = False, args = TrainingArguments(
    per_device_train_batch_size = 2, gradient_accumulation_steps = 4, optim = "adamw_8bit",
    fp16 = not is_bfloat16_supported(), bf16 = is_bfloat16_supported()))
"""


def test_a_notebook_of_unsloth_is_read_and_what_it_trains_is_named():
    plan = read_text(UNSLOTH, "cell.py")
    assert (plan.model, plan.workload.seq_length, plan.recompute.all_layers) == (catalog.model("llama3-8b"), 2048, True)
    assert (plan.workload.dtype, plan.optimizer.moment_dtype) == ("bfloat16", "float8")
    assert {key for key, _ in plan.document.unread} == {"load_in_4bit", "LoraConfig.r", "use_gradient_checkpointing"}
    assert plan.document.unknown == ()


@pytest.mark.parametrize(
    "line",
    [
        "for bs in (4, 8): pass",
        "bs, other = 4, 8",
        "with batch() as bs: pass",
        "print(bs := 8)",
        "from sizes import bs",
        "import sizes as bs",
        "bs *= 2",
        "def f(bs): return bs",
        "def bs(): return 8",
    ],
)
def test_a_name_that_is_bound_anew_is_not_known(line):
    size = ("per_device_train_batch_size=2", "per_device_train_batch_size=bs")
    assert of_sft(("import torch\n", "import torch\nbs: int\nbs = 2\n"), size).workload.micro_batch_size == 2
    with pytest.raises(InputError, match=r"per_device_train_batch_size: '\$bs' names a variable"):
        of_sft(("import torch\n", f"import torch\nbs = 2\n{line}\n"), size)


@pytest.mark.parametrize(
    ("value", "steps"),
    [("16 // 4", 4), ("8 * 2", 16), ("LENGTH // 1024 - 1", 3), ("4 if torch.cuda.is_available() else 8", 4), ("2 + 9 % 4", 3)],
)
def test_whole_numbers_are_computed(value, steps):
    assert of_sft(("gradient_accumulation_steps=4", f"gradient_accumulation_steps={value}")).num_micro_batches == steps


@pytest.mark.parametrize("value", ["4 // 0", "2 * x", "9" * 20 + " * 9", "2 ** 2", "True + 1"])
def test_what_is_no_whole_number_is_computed_by_nobody(value):
    with pytest.raises(InputError, match=r"gradient_accumulation_steps: '\$"):
        of_sft(("gradient_accumulation_steps=4", f"gradient_accumulation_steps={value}"))


def test_what_a_condition_chooses_is_told_and_refused_only_without_a_default():
    plan = of_sft(
        ("gradient_accumulation_steps=4", "gradient_accumulation_steps=4 if large else 8"),
        ("    packing=True,", "    report_to='wandb' if large else None,"),
    )
    assert plan.num_micro_batches == 1
    notes = [note for note in plan.document.notes if "chosen by a condition" in note]
    assert notes == ["line 14: gradient_accumulation_steps is chosen by a condition; it is taken as not stated"]
    changed = edit_config(plan.document, {"gradient_accumulation_steps": 2}).text
    assert "    gradient_accumulation_steps=2,\n" in changed
    with pytest.raises(InputError, match="model_name_or_path"):
        of_sft(("from_pretrained(MODEL", 'from_pretrained("Qwen/Qwen3-8B" if large else "gpt2"'))


def test_attention_that_the_file_leaves_to_its_caller_is_told():
    plan = of_sft(("torch_dtype=torch.bfloat16", "torch_dtype=torch.bfloat16, attn_implementation=model_args.attn_implementation"))
    assert plan.workload.attention_kernel == "flash"
    assert "attention_kernel = flash: the file leaves it to $model_args.attn_implementation" in plan.document.defaulted


def test_an_optimizer_that_is_not_known_is_told():
    plan = of_sft(("    packing=True,", "    optim='galore_adamw',"))
    assert any(line.startswith("optim = AdamW: the states of galore_adamw") for line in plan.document.defaulted)


def test_a_launch_line_of_a_library_is_read_and_its_adapters_and_its_other_file_are_named():
    plan = read_config(DATA / "run_peft_deepspeed.sh")
    adapters = Adapters(rank=8, targets=("query", "key", "value", "output", "gate", "up", "down"))
    model = replace(catalog.model("llama2-70b"), adapters=adapters)
    assert (plan.model, plan.workload.seq_length, plan.workload.micro_batch_size) == (model, 2048, 8)
    named = dict(plan.document.unread)
    assert "config_file" in named
    assert not {"use_peft_lora", "lora_r", "lora_target_modules"} & set(named), "they are counted"
    assert "use_4bit_quantization" not in named, "it is off"
    assert plan.document.unknown == ()


@pytest.mark.parametrize(
    ("start", "devices"),
    [
        ("torchrun --nproc_per_node=4 --nnodes=2", 8),
        ("deepspeed --num_gpus 2", 2),
        ("accelerate launch --num_processes 16", 16),
        ("CUDA_VISIBLE_DEVICES=0,1,2 python", 3),
        ("python", 1),
        ("torchrun --nproc_per_node=$GPUS", 1),
        ("torchrun --nproc_per_node=gpu --nnodes=2", 16),
        ("export WORLD_SIZE=2\ntorchrun --nnodes=$WORLD_SIZE --nproc_per_node=8", 16),
        ("export WORLD_SIZE=2\ntorchrun --nnodes=$WORLD_SIZE", 2),
        ("export WORLD_SIZE=16\npython", 16),
        ("CUDA_VISIBLE_DEVICES=0,1,2,3 NNODES=2 python", 8),
        ("deepspeed --include localhost:0,1,2,3", 4),
        ("deepspeed --include worker-0@worker-1:0,2", 10),
    ],
)
def test_what_starts_the_processes_counts_devices(start, devices):
    options = "--model_name_or_path Qwen/Qwen3-8B --per_device_train_batch_size 2 --bf16 True --gradient_checkpointing"
    plan = read_text(f"{start} run_clm.py {options} --block_size 2048\n", "run.sh")
    assert (plan.num_devices, plan.recompute.all_layers, plan.workload.dtype) == (devices, True, "bfloat16")


def test_swift_has_defaults_of_its_own():
    line = "NPROC_PER_NODE=8 swift sft --model Qwen/Qwen3-8B --num_train_epochs 1 --max_length 2048 --deepspeed zero3\n"
    plan = read_text(line, "run.sh")
    assert (plan.workload.micro_batch_size, plan.num_devices, plan.parallel.optimizer_shard_level) == (1, 8, 3)
    assert plan.recompute.all_layers
    assert any(line.startswith("train_type = lora") for line in plan.document.defaulted)


def test_the_batch_that_swift_takes_by_itself_agrees_with_deepspeed(tmp_path):
    engine = {"zero_optimization": {"stage": 2}, "train_micro_batch_size_per_gpu": 1, "bf16": {"enabled": "auto"}}
    (tmp_path / "ds.json").write_text(json.dumps(engine))
    options = "--model Qwen/Qwen3-8B --num_train_epochs 1 --max_length 2048 --deepspeed ds.json"
    (tmp_path / "run.sh").write_text(f"NPROC_PER_NODE=8 swift sft {options}\n")
    assert read_config(tmp_path / "run.sh").workload.micro_batch_size == 1


@pytest.mark.parametrize(("devices", "shared"), [(4, 4), (12, 12), (16, 8)])
def test_a_hybrid_shares_in_nodes_that_are_full(devices, shared):
    options = "--model_name_or_path Qwen/Qwen3-8B --per_device_train_batch_size 2 --bf16 True --fsdp hybrid_shard"
    plan = read_text(f"accelerate launch --num_processes {devices} run_clm.py {options}\n", "run.sh")
    assert (plan.num_devices, plan.parallel.optimizer_shard_size) == (devices, shared)
    told = "optimizer_shard_size = 12: a hybrid shares in nodes of 8, which 12 devices do not fill"
    assert (told in plan.document.defaulted) is (devices == 12)


def test_yaml_and_json_say_the_same():
    values = {"model_name_or_path": "Qwen/Qwen3-8B", "per_device_train_batch_size": 2, "bf16": True, "max_length": 2048}
    yaml = read_text("".join(f"{key}: {value}\n" for key, value in values.items()), "sft.yaml")
    parsed = read_text(json.dumps(values | {"gradient_accumulation_steps": 1}, indent=2), "args.json")
    assert (yaml.workload, yaml.optimizer, yaml.parallel) == (parsed.workload, parsed.optimizer, parsed.parallel)
    assert parsed.document.dialect == yaml.document.dialect == "huggingface-trainer"


def test_values_are_changed_where_they_stand_and_added_to_the_call():
    plan = of_sft()
    work = replace(plan.workload, micro_batch_size=4, global_batch_size=16, seq_length=8192)
    written = write_config(replace(plan, workload=work, recompute=RecomputePlan()))
    assert written.lost == ()
    changed = [line for line in written.diff().splitlines()[2:] if line.startswith(("+", "-"))]
    assert changed == [
        "-LENGTH: int = 4096",
        "+LENGTH: int = 8192",
        "+    gradient_checkpointing=False,",
        "-    per_device_train_batch_size=2,  # of a device",
        "+    per_device_train_batch_size=4,  # of a device",
    ]
    on_a_line = edit_config(
        read_text('m = AutoModelForCausalLM.from_pretrained("Qwen/Qwen3-8B")\n' + PLAIN, "a.py").document, {"optim": "sgd"}
    )
    assert on_a_line.text.splitlines()[1] == PLAIN.strip().replace("per_device", "optim='sgd', per_device", 1)


def test_a_call_takes_no_argument_that_it_does_not_have():
    plan = read_text('m = AutoModelForCausalLM.from_pretrained("Qwen/Qwen3-8B")\n' + PLAIN, "a.py")
    with pytest.raises(InputError, match="max_length: TrainingArguments has no such argument"):
        write_config(replace(plan, workload=replace(plan.workload, seq_length=2048)))


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("(MODEL, torch_dtype=torch.bfloat16)", "(MODEL, attn_implementation='eager', torch_dtype=torch.bfloat16)"),
        ("(MODEL)", "(MODEL, attn_implementation='eager')"),
        ("(\n    MODEL,  # a, b\n)", "(\n    MODEL,  # a, b\nattn_implementation='eager')"),
        ("(\n    MODEL  # a, b\n)", "(\n    MODEL  # a, b\n, attn_implementation='eager')"),
    ],
)
def test_attention_is_chosen_where_the_model_is_loaded(old, new):
    plan = of_sft(("(MODEL, torch_dtype=torch.bfloat16)", old))
    written = write_config(replace(plan, workload=replace(plan.workload, attention_kernel="unfused")))
    assert written.lost == ()
    assert f"model = AutoModelForCausalLM.from_pretrained{new}" in written.text
    assert any("attn_implementation is set there" in note for note in written.notes)


@pytest.mark.parametrize("made", ["SFTConfig", "TrainingArguments"])
def test_what_belongs_to_the_model_is_written_into_no_arguments(made):
    text = f'trainer = SFTTrainer(model="Qwen/Qwen3-4B", args={made}(per_device_train_batch_size=2))\n'
    plan = read_text(text, "a.py")
    for key, value in (("attn_implementation", "eager"), ("torch_dtype", "bfloat16")):
        with pytest.raises(InputError, match=f"{key}: {made} has no such argument"):
            edit_config(plan.document, {key: value})
    unnamed = replace(plan.document, text=f"args = {made}(per_device_train_batch_size=2)\n")
    with pytest.raises(InputError, match=f"model_name_or_path: {made} has no such argument"):
        edit_config(unnamed, {"model_name_or_path": "Qwen/Qwen3-4B"})


def test_a_plan_is_written_as_python_and_read_back():
    plan = of_sft(("    packing=True,", '    deepspeed={"zero_optimization": {"stage": 3}, "bf16": {"enabled": "auto"}},'))
    assert write_config(replace(plan, document=None), dialect="huggingface-trainer").lost == ()


def test_everything_that_is_wrong_is_said_with_its_line():
    with pytest.raises(InputError) as error:
        of_sft(
            ("per_device_train_batch_size=2", "per_device_train_batch_size=args.batch"),
            ("gradient_accumulation_steps=4", 'gradient_accumulation_steps="four"'),
            ("bf16=torch.cuda.is_bf16_supported()", "bf16=True"),
            ("fp16=not torch.cuda.is_bf16_supported()", "fp16=True"),
            ("torch.bfloat16", '"int4"'),
            ("Qwen/Qwen3-8B", "acme/Secret-9B"),
        )
    told = "\n".join(error.value.problems)
    for expected in (
        "line 13, per_device_train_batch_size: '$args.batch' names a variable that the file does not set or decide",
        "line 14, gradient_accumulation_steps: 'four' must be a whole number",
        "fp16: True stands beside bf16",
        "torch_dtype: 'int4' must be one of auto, bfloat16",
        "names no folder with a Hugging Face config.json",
    ):
        assert expected in told


@pytest.mark.parametrize(
    "text",
    ["a = TrainingArguments(bf16=\n", PLAIN + "\n(" * 300, "TrainingArguments(\x00bf16=1", PLAIN + "b = " + "1+" * 4000 + "1"],
)
def test_what_is_no_python_is_refused_with_its_reason(text):
    with pytest.raises(InputError):
        read_text(text, "a.py")


SHOWN = (
    "# old: TrainingArguments(fp16=True)\nprint(1)\n",
    '"""Takes TrainingArguments(bf16=True)."""\nbf16 = "TrainingArguments(fp16=True)"\n',
    "Training/evaluation parameters TrainingArguments(\nbf16=True,\nfp16=False,\n",
    "cfg = PPOConfig(learning_rate=3e-4)\n",
    "class SFTConfig(TrainingArguments):\n    bf16=True\n",
)


@pytest.mark.parametrize("text", SHOWN)
def test_arguments_that_a_text_only_shows_make_no_configuration(text):
    with pytest.raises(InputError, match="in no configuration dialect"):
        read_text(text, "a.py")
    assert lint_text("a.py", text).checked.get("config", 0) == 0


def test_arguments_of_another_program_do_not_hide_those_of_the_trainer():
    plan = of_sft(("training_args = SFTConfig(\n", "ray = PPOConfig(learning_rate=3e-4)\ntraining_args = SFTConfig(\n"))
    assert (plan.workload.micro_batch_size, plan.document.unread) == (2, ())


def test_a_long_sum_or_line_is_no_harm():
    long = 'x = "' + "a." * 200_000 + '"\n'
    with pytest.raises(InputError, match="names no folder"):
        read_text(f"{long}args = TrainingArguments(bf16=True, per_device_train_batch_size=2)\n", "a.py")
    with pytest.raises(InputError):
        read_text(PLAIN.replace("=4", "=" + "-" * 900 + "x"), "a.py")


@pytest.mark.parametrize("value", ["a" + ".b" * 600, "not " * 600 + "a", "kept", "a" + " + 1" * 600])
def test_what_is_nested_without_end_is_refused_with_its_line(value):
    with pytest.raises(InputError, match="line 2, per_device_train_batch_size"):
        read_text('kept = {"a": kept}\n' + PLAIN.replace("=4", f"={value}"), "a.py")


def test_python_is_checked_as_code_and_as_a_configuration():
    report = lint_text("train.py", SFT.replace("gradient_accumulation_steps=4", 'gradient_accumulation_steps="4O"'))
    assert [(one.rule, one.line) for one in report.problems if one.severity == "error"] == [("value-unreadable", 14)]
    assert (report.checked["code"], report.checked["config"]) == (1, 1)
    other = lint_text("other.py", 'parser.add_argument("--num-layers", type=int)\nparser.add_argument("--hidden-size")\n')
    assert other.checked.get("config", 0) == 0, "options that a program declares are none of a launch"


@pytest.mark.parametrize(
    ("name", "text", "line"),
    [
        (
            "sft.yaml",
            "model_name_or_path: meta-llama/Llama-3.1-8B\nper_device_train_batch_size: 4O\nbf16: true\nnum_train_epochs: 1\n",
            2,
        ),
        (
            "run.sh",
            "torchrun --nproc_per_node 8 run_clm.py --model_name_or_path Qwen/Qwen3-8B \\\n  --per_device_train_batch_size 4O\n",
            2,
        ),
    ],
)
def test_yaml_and_launch_lines_are_checked_as_they_are_read(name, text, line):
    report = lint_text(name, text)
    assert report.checked["config"] == 1
    assert ("value-unreadable", line) in [(one.rule, one.line) for one in report.problems if one.severity == "error"]


def test_a_script_of_another_kind_of_model_has_no_false_errors():
    text = 'model = AutoModelForSequenceClassification.from_pretrained("bert-base-uncased")\n' + PLAIN
    assert [one for one in lint_text("bert.py", text).problems if one.severity == "error"] == []


def test_a_paste_is_a_whole_configuration():
    (part,) = explain_fragment(SFT).parts
    assert part.kind == "configuration"


ACCELERATE = """compute_environment: LOCAL_MACHINE
distributed_type: {kind}
mixed_precision: bf16
num_machines: 1
num_processes: 16
{section}
"""
TRAINED = """from transformers import AutoModelForCausalLM, Trainer, TrainingArguments
model = AutoModelForCausalLM.from_pretrained("Qwen/Qwen3-8B")
trainer = Trainer(model=model, args=TrainingArguments(output_dir="out", per_device_train_batch_size=2, bf16=True, {arguments}))
"""
LAUNCHED = "accelerate launch --config_file {file} run.py --model_name_or_path Qwen/Qwen3-8B --per_device_train_batch_size 2\n"


@pytest.mark.parametrize(
    ("kind", "section", "told"),
    [
        ("DEEPSPEED", "deepspeed_config: {zero_stage: 3, offload_optimizer_device: none}", ("deepspeed", 3, 16, False)),
        ("DEEPSPEED", "deepspeed_config: {zero_stage: 2, offload_optimizer_device: cpu}", ("deepspeed", 2, 16, False)),
        (
            "FSDP",
            "fsdp_config: {fsdp_sharding_strategy: SHARD_GRAD_OP, fsdp_activation_checkpointing: true}",
            ("fsdp", 2, 16, True),
        ),
        ("FSDP", "fsdp_config: {fsdp_sharding_strategy: 1, fsdp_offload_params: true}", ("fsdp", 3, 16, False)),
        ("MULTI_GPU", "", ("fsdp", 1, 16, False)),
    ],
)
def test_the_file_of_accelerate_beside_it_says_processes_sharing_and_precision(tmp_path, kind, section, told):
    (tmp_path / "acc.yaml").write_text(ACCELERATE.format(kind=kind, section=section))
    (tmp_path / "run.sh").write_text(LAUNCHED.format(file="acc.yaml"))
    plan = read_config(tmp_path / "run.sh")
    found = (plan.software.framework, plan.parallel.optimizer_shard_level, plan.num_devices, plan.recompute.all_layers)
    assert (found, plan.workload.dtype) == (told, "bfloat16")
    assert any("acc.yaml says how many processes" in note for note in plan.document.notes)
    named = " ".join(key for key, _ in plan.document.unread)
    assert ("offload" in named) is ("cpu" in section or "offload_params" in section)
    assert plan.document.unknown == ()


def test_options_of_accelerate_say_it_too():
    line = LAUNCHED.format(file="elsewhere.yaml").replace(
        "--config_file", "--use_deepspeed --zero_stage 3 --mixed_precision fp16 --config_file"
    )
    plan = read_text(line, "run.sh")
    assert (plan.parallel.optimizer_shard_level, plan.workload.dtype) == (3, "float16")
    assert "config_file" in dict(plan.document.unread), "a file that is not there is named"


def test_the_precision_of_an_argument_wins_over_that_of_accelerate(tmp_path):
    line = LAUNCHED.format(file="acc.yaml").replace("--config_file", "--mixed_precision fp16 --config_file")
    assert read_text(line.replace("\n", " --bf16 True\n"), "run.sh").workload.dtype == "bfloat16"
    (tmp_path / "acc.yaml").write_text(ACCELERATE.format(kind="MULTI_GPU", section=""))
    (tmp_path / "run.sh").write_text(LAUNCHED.format(file="acc.yaml").replace("\n", " --fp16 True\n"))
    assert read_config(tmp_path / "run.sh").workload.dtype == "float16"


def test_a_script_that_starts_a_file_by_accelerate_is_read_as_that_file(tmp_path):
    (tmp_path / "sft.yaml").write_text("model_name_or_path: Qwen/Qwen3-8B\nper_device_train_batch_size: 2\nbf16: true\n")
    (tmp_path / "run.sh").write_text("accelerate launch --config_file acc.yaml src/train.py sft.yaml\n")
    assert read_config(tmp_path / "run.sh").workload.micro_batch_size == 2


def test_what_the_file_leaves_to_its_caller_is_off_and_told():
    plan = read_text(TRAINED.replace("{arguments}", "fsdp=args.fsdp, deepspeed=args.deepspeed"), "run.py")
    assert (plan.parallel.optimizer_shard_size, plan.software.framework) == (1, "fsdp")
    assert {"fsdp = off: the file leaves it to args.fsdp", "deepspeed = off: the file leaves it to args.deepspeed"} <= {
        *plan.document.defaulted
    }


def test_the_file_of_fsdp_beside_it_is_read(tmp_path):
    (tmp_path / "run.py").write_text(TRAINED.replace("{arguments}", 'fsdp="full_shard", fsdp_config="fsdp.json"'))
    assert "fsdp_config" in dict(read_config(tmp_path / "run.py").document.unread), "a file that is not there is named"
    (tmp_path / "fsdp.json").write_text('{"activation_checkpointing": true, "reshard_after_forward": false}')
    plan = read_config(tmp_path / "run.py")
    assert (plan.recompute.all_layers, plan.parallel.optimizer_shard_level) == (True, 2)
    assert "fsdp_config" not in dict(plan.document.unread)
    (tmp_path / "fsdp.json").write_text('{"activation_checkpointing": "maybe", "nonsense": 1}')
    with pytest.raises(InputError, match=r"fsdp_config.activation_checkpointing: 'maybe' must be"):
        read_config(tmp_path / "run.py")
    (tmp_path / "fsdp.json").write_text('{"nonsense": 1}')
    assert "fsdp_config.nonsense" in str(
        (read_config(tmp_path / "run.py").document.unread, read_config(tmp_path / "run.py").document.unknown)
    )
    (tmp_path / "fsdp.json").write_text('{"activation_checkpointing": tru}')
    with pytest.raises(InputError, match=r"line 3, fsdp_config: fsdp\.json: not JSON"):
        read_config(tmp_path / "run.py")


@pytest.mark.parametrize("named", ["$SCRIPT_DIR/ds_z3.json", "$(pwd)/ds_z3.json", "${CONFIG_DIR}/ds_z3.json", "$DS_CONFIG"])
def test_a_file_of_deepspeed_in_a_folder_that_is_not_known_is_not_off(tmp_path, named):
    (tmp_path / "ds_z3.json").write_text('{"zero_optimization": {"stage": 3}}')
    (tmp_path / "run.sh").write_text(
        f"deepspeed --num_gpus 8 run.py --deepspeed {named} --per_device_train_batch_size 2 --bf16 True"
        " --model_name_or_path Qwen/Qwen3-8B\n"
    )
    plan = read_config(tmp_path / "run.sh")
    assert (plan.software.framework, plan.parallel.optimizer_shard_size, plan.parallel.optimizer_shard_level) == ("deepspeed", 8, 3)


def test_a_program_that_shows_how_to_start_it_is_read_itself(tmp_path):
    (tmp_path / "sft.yaml").write_text("model_name_or_path: Qwen/Qwen3-8B\nper_device_train_batch_size: 2\n")
    (tmp_path / "run.py").write_text('"""\npython run.py sft.yaml\n"""\n' + TRAINED.replace("{arguments}", ""))
    assert read_config(tmp_path / "run.py").workload.micro_batch_size == 2
    (tmp_path / "run.py").write_text('"""\npython run.py sft.yaml\n"""\n' + TRAINED.replace("=2", "=7").replace("{arguments}", ""))
    assert read_config(tmp_path / "run.py").workload.micro_batch_size == 7


@pytest.mark.parametrize("named", ['os.path.join(HERE, "ds_z2.json")', 'f"{root}/ds_z2.json"'])
def test_a_file_of_deepspeed_that_python_joins_is_found_by_its_name(tmp_path, named):
    (tmp_path / "ds_z2.json").write_text('{"zero_optimization": {"stage": 2}}')
    (tmp_path / "run.py").write_text(TRAINED.replace("{arguments}", f"deepspeed={named}"))
    assert read_config(tmp_path / "run.py").parallel.optimizer_shard_level == 2


GROUPS = """\
distributed_type: {kind}
mixed_precision: bf16
num_processes: 8
parallelism_config:
{sizes}
"""


@pytest.mark.parametrize(
    ("kind", "sizes", "expected"),
    [
        ("FSDP", {"cp_size": 4, "dp_shard_size": 2}, (2, 1, 4, "ring", 8)),
        ("DEEPSPEED", {"cp_size": 2, "cp_backend": "deepspeed", "dp_shard_size": 4}, (4, 1, 2, "ulysses", 8)),
        ("FSDP", {"sp_size": 2, "sp_backend": "deepspeed"}, (4, 1, 2, "ulysses", 8)),
        ("FSDP", {"tp_size": 2, "dp_shard_size": 2, "dp_replicate_size": 2}, (4, 2, 1, "ring", 2)),
    ],
)
@pytest.mark.parametrize("in_file", [True, False], ids=["in its file", "as options"])
def test_groups_of_devices_of_accelerate_count(tmp_path, kind: str, sizes: dict[str, object], expected: tuple, in_file: bool):
    """Each was taken for replicas of its own: the batch of a step came out as many times too large."""
    told = "\n".join(f"  parallelism_config_{name}: {value}" for name, value in sizes.items())
    (tmp_path / "groups.yaml").write_text(GROUPS.format(kind=kind, sizes=told), encoding="utf-8")
    of_launcher = "--config_file groups.yaml"
    if not in_file:
        flags = " ".join(f"--parallelism_config_{name} {value}" for name, value in sizes.items())
        of_launcher = f"--use_{kind.lower()} --mixed_precision bf16 --num_processes 8 --use_parallelism_config {flags}"
    options = "--model_name_or_path Qwen/Qwen3-8B --per_device_train_batch_size 1 --num_train_epochs 1 --max_length 4096 --packing"
    (tmp_path / "run.sh").write_text(f"accelerate launch {of_launcher} sft.py {options}\n", encoding="utf-8")
    plan = read_config(tmp_path / "run.sh")
    parallel = plan.parallel
    assert (
        parallel.data_parallel_size,
        parallel.tensor_parallel_size,
        parallel.context_parallel_size,
        parallel.context_parallel_algorithm,
        parallel.optimizer_shard_size,
    ) == expected
    assert plan.workload.global_batch_size == expected[0]
    assert plan.document.unknown == ()


@pytest.mark.parametrize("dialect", ["huggingface-trainer", "llama-factory"])
def test_what_a_file_of_accelerate_says_and_nothing_reads_is_named(dialect: str):
    file = {"accelerate": {"dynamo_config": {"dynamo_backend": "INDUCTOR"}, "machine_rank": 1, "new_thing": 2}}
    left = left_over(dialect, file, ())
    assert [key for key, _ in left.unread] == ["accelerate.dynamo_config.dynamo_backend"]
    assert left.unknown == ("accelerate.new_thing",)


def test_devices_that_a_launcher_counts_are_not_asked_of_the_environment():
    options = "--model_name_or_path Qwen/Qwen3-8B --per_device_train_batch_size 1 --num_train_epochs 1"
    plan = read_text(f"CUDA_VISIBLE_DEVICES=0,1 torchrun --nproc_per_node 2 sft.py {options}\n", "run.sh")
    assert (plan.num_devices, plan.document.unknown) == (2, ())
