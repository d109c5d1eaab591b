"""LLaMA-Factory's files: the model by name, what its DeepSpeed file shares, defaults of its own, what is named, bad input."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from perfkit.config.dialects import edit_config, read_config, read_text, write_config
from perfkit.config.lint import lint_text
from perfkit.core import catalog
from perfkit.core.errors import InputError
from perfkit.core.spec.recompute import RecomputePlan
from perfkit.explain.fragments.explained import explain_fragment
from perfkit.predict.estimate import estimate
from perfkit.predict.limits import assumed

DATA = Path(__file__).parents[2] / "data" / "configs" / "llama_factory"
FULL = (DATA / "llama3_full_sft_ds3.yaml").read_text(encoding="utf-8")
DEEPSPEED = "deepspeed: examples/deepspeed/ds_z3_config.json"


def of_full(*changes: tuple[str, str]):
    text = FULL
    for old, new in changes:
        assert old in text
        text = text.replace(old, new)
    return read_text(text, "full.yaml")


def test_a_file_of_the_project_with_its_deepspeed_file():
    plan = read_config(DATA / "llama3_full_sft_ds3.yaml")
    assert plan.model == catalog.model("llama3-8b")
    assert (plan.workload.seq_length, plan.workload.micro_batch_size, plan.num_micro_batches, plan.num_devices) == (1024, 1, 2, 8)
    assert (plan.parallel.optimizer_shard_size, plan.parallel.optimizer_shard_level) == (8, 3)
    assert (plan.workload.dtype, plan.optimizer.master_weights, plan.optimizer.gradient_dtype) == ("bfloat16", True, "bfloat16")
    assert plan.recompute.all_layers, "unless disable_gradient_checkpointing says otherwise"
    assert plan.software.overlap_dp is False, "the file beside it switches overlap_comm off, which stage 3 has on"
    assert [key for key, _ in plan.document.unread] == [
        f"ds_z3_config.json: zero_optimization.{key}"
        for key in ("sub_group_size", "stage3_max_live_parameters", "stage3_max_reuse_distance")
    ]
    assert plan.document.unknown == ()
    assert estimate(replace(plan, hardware=catalog.hardware_named("H100-80GB-SXM"))).step_time_s > 0


@pytest.mark.parametrize(("name", "model"), [("Qwen/Qwen2.5-7B-Instruct", "qwen2-7b"), ("Qwen/Qwen2.5-72B", "qwen2-72b")])
def test_a_release_with_the_shapes_of_another_is_that_model(name, model):
    assert of_full(("meta-llama/Meta-Llama-3-8B-Instruct", name)).model == catalog.model(model)


def test_pictures_and_other_sizes_are_no_model_of_that_name():
    for name in ("Qwen/Qwen2.5-VL-7B-Instruct", "Qwen/Qwen2.5-32B"):
        with pytest.raises(InputError, match="names no folder"):
            of_full(("meta-llama/Meta-Llama-3-8B-Instruct", name))


def test_a_deepspeed_file_that_is_not_there_is_named_and_read_off_its_name():
    document = of_full((DEEPSPEED, "deepspeed: cache/ds_z2_offload_config.json")).document
    assert any(line.startswith("optimizer_shard_level = 2: ds_z2_offload_config.json is not beside") for line in document.defaulted)
    assert "deepspeed: ds_z2_offload_config.json" in dict(document.unread)


def test_a_deepspeed_file_is_looked_for_from_the_folder_where_the_program_starts(tmp_path):
    for name in ("examples/deepspeed", "examples/train_full"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "examples" / "deepspeed" / "ds_z3_config.json").write_text(json.dumps({"zero_optimization": {"stage": 1}}))
    (tmp_path / "examples" / "train_full" / "full.yaml").write_text(FULL.replace("bf16: true", ""))
    plan = read_config(tmp_path / "examples" / "train_full" / "full.yaml")
    assert (plan.parallel.optimizer_shard_level, plan.workload.dtype) == (1, "float32")


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        (DEEPSPEED, "", (1, False, "float32", "float32", "float32")),
        (DEEPSPEED, "pure_bf16: true", (1, False, "bfloat16", "bfloat16", "bfloat16")),
        (DEEPSPEED, "fsdp: full_shard auto_wrap", (3, True, "bfloat16", "float32", "")),
        (DEEPSPEED, "fsdp: [shard_grad_op, auto_wrap]", (2, True, "bfloat16", "float32", "")),
        (DEEPSPEED, "deepspeed: {zero_optimization: {stage: 2}, bf16: {enabled: auto}}", (2, True, "bfloat16", "float32", "")),
        (DEEPSPEED, "fsdp: full_shard\noptim: adamw_8bit", (3, True, "bfloat16", "float8", "")),
    ],
)
def test_what_is_shared_decides_where_precise_weights_are(old, new, told):
    plan = of_full((old, new))
    kept = plan.optimizer
    assert (
        plan.parallel.optimizer_shard_level,
        kept.master_weights,
        kept.gradient_dtype,
        kept.moment_dtype,
        kept.parameter_dtype,
    ) == told
    assert plan.document.unknown == ()


def test_copies_are_told_where_nothing_is_shared():
    assert any(line.startswith("optimizer_shard_size = 1: neither") for line in of_full((DEEPSPEED, "")).document.defaulted)


@pytest.mark.parametrize(
    ("new", "told"),
    [
        ("disable_gradient_checkpointing: true", False),
        ("disable_gradient_checkpointing: true\ngradient_checkpointing: true", True),
        ("gradient_checkpointing: false", True),
    ],
)
def test_layers_are_computed_again_unless_its_own_switch_says_otherwise(new, told):
    plan = of_full((DEEPSPEED, new))
    assert plan.recompute.all_layers is told
    assert any("switches nothing off" in note for note in plan.document.notes) is (new == "gradient_checkpointing: false")


def test_adapters_and_quantised_weights_are_named_and_nothing_is_unknown():
    plan = read_config(DATA / "llama3_lora_sft_otfq.yaml")
    assert {key for key, _ in plan.document.unread} == {"quantization_bit", "quantization_method"}
    assert plan.document.unknown == ()
    assert {key for key, _ in plan.document.unread} <= {one.field for one in assumed(plan)}
    left_out = of_full(("finetuning_type: full\n", ""))
    assert "finetuning_type = lora: the program's own" in left_out.document.defaulted
    assert left_out.model.adapters == plan.model.adapters
    experts = of_full(("finetuning_type: full\n", "finetuning_type: lora\nadditional_target: embed_tokens\n"))
    assert {"finetuning_type", "additional_target"} <= set(dict(experts.document.unread))
    assert experts.model.adapters is None


@pytest.mark.parametrize(
    "line",
    [
        "use_galore: true",
        "use_badam: true",
        "use_apollo: true",
        "use_unsloth_gc: true",
        "enable_liger_kernel: true",
        "neat_packing: true",
        "freeze_vision_tower: true",
        "stage: dpo",
        "use_kt: true",
    ],
)
def test_what_no_plan_says_is_named(line):
    assert line.partition(":")[0] in dict(of_full((DEEPSPEED, line), ("stage: sft\n", "")).document.unread)


def test_samples_that_are_not_packed_are_said_to_be_shorter():
    assert any("shorter ones need less" in line for line in of_full().document.defaulted)
    assert not any("shorter" in line for line in of_full((DEEPSPEED, "packing: true")).document.defaulted)


def test_options_of_a_launch_line_and_an_object_say_the_same():
    values = dict(line.split(": ", 1) for line in FULL.splitlines() if ": " in line)
    options = " ".join(f"--{key} {value}" for key, value in values.items())
    script = read_text(f"torchrun --nproc_per_node 4 --nnodes 2 src/train.py {options}\n", "run.sh")
    given = {key: value == "true" if value in ("true", "false") else value for key, value in values.items()}
    given |= {key: int(given[key]) for key in ("cutoff_len", "per_device_train_batch_size", "gradient_accumulation_steps")}
    parsed = read_text(json.dumps(given), "run.json")
    yaml = of_full()
    for plan in (script, parsed):
        assert plan.document.dialect == "llama-factory"
        assert (plan.model, plan.workload, plan.parallel, plan.recompute, plan.optimizer) == (
            yaml.model,
            yaml.workload,
            yaml.parallel,
            yaml.recompute,
            yaml.optimizer,
        )


@pytest.mark.parametrize(("start", "devices"), [("CUDA_VISIBLE_DEVICES=0,1,2,3 NNODES=2", 8), ("FORCE_TORCHRUN=1 NNODES=2", 16)])
def test_devices_of_a_node_are_counted_on_each_node(start, devices):
    options = "--model_name_or_path Qwen/Qwen3-8B --finetuning_type full --cutoff_len 2048"
    plan = read_text(f"{start} llamafactory-cli train {options}\n", "run.sh")
    assert plan.num_devices == devices
    told = "data_parallel_size = 16: 8 on each of 2 nodes; the file does not say how many devices a node has"
    assert (told in plan.document.defaulted) is (devices == 16)


def test_a_script_that_starts_a_file_is_read_as_that_file(tmp_path):
    (tmp_path / "full.yaml").write_text(FULL)
    (tmp_path / "run.sh").write_text("FORCE_TORCHRUN=1 llamafactory-cli train full.yaml\n")
    assert read_config(tmp_path / "run.sh").model == catalog.model("llama3-8b")


def test_a_plan_is_written_and_read_and_a_value_is_changed_where_it_stands():
    plan = of_full((DEEPSPEED, "deepspeed: {zero_optimization: {stage: 2}, bf16: {enabled: auto}}"))
    written = write_config(replace(plan, document=None), dialect="llama-factory")
    assert written.lost == ()
    changed = write_config(replace(of_full(), recompute=RecomputePlan()))
    assert changed.lost == ()
    assert changed.diff().count("\n+") == 2  # its header, and the line
    assert edit_config(plan.document, {"cutoff_len": 4096}).diff().count("\n+cutoff_len: 4096") == 1
    fewer = replace(plan, parallel=replace(plan.parallel, data_parallel_size=4, optimizer_shard_size=4))
    assert any(line.startswith("parallel.data_parallel_size") for line in write_config(fewer).lost), "devices are the launcher's"


def test_everything_that_is_wrong_is_said_with_line_key_value_and_the_nearest():
    with pytest.raises(InputError) as error:
        of_full(
            ("stage: sft", "stage: sfy"),
            ("finetuning_type: full", "finetuning_type: ful\nflash_attn: fa9"),
            (DEEPSPEED, "deepspeed: {zero_optimization: {stage: 7}, train_micro_batch_size_per_gpu: 4}\nfsdp: full_shart"),
            ("cutoff_len: 1024", "cutoff_len: 1O24"),
            ("bf16: true", "bf16: true\nfp16: true"),
            ("meta-llama/Meta-Llama-3-8B-Instruct", "acme/Secret-9B"),
        )
    told = "\n".join(error.value.problems)
    for expected in (
        "line 5, stage: 'sfy' must be one of pt, sft, rm, ppo, dpo, kto; nearest is sft",
        "line 7, finetuning_type: 'ful' must be one of full, lora, freeze, oft; nearest is full",
        "line 8, flash_attn: 'fa9' must be one of",
        "zero_optimization.stage: 7 must be 0, 1, 2 or 3",
        'train_micro_batch_size_per_gpu: 4 is not per_device_train_batch_size = 1, which the library refuses; write "auto" or 1',
        "line 10, fsdp: 'full_shart' stands beside deepspeed",
        "cutoff_len: '1O24' must be a whole number",
        "fp16: True stands beside bf16",
        "line 2, model_name_or_path: names no folder with a Hugging Face config.json",
    ):
        assert expected in told


def test_a_comment_that_shows_a_call_makes_no_python():
    assert read_text("# maps to TrainingArguments(bf16=True)\n" + FULL, "full.yaml").model == catalog.model("llama3-8b")


def test_words_of_fsdp_have_a_nearest_one():
    with pytest.raises(InputError, match=r"fsdp: 'full_shart' must be one of full_shard, .*; nearest is full_shard"):
        of_full((DEEPSPEED, "fsdp: full_shart auto_wrap"))
    with pytest.raises(InputError, match=r"fsdp: .*'a': 1.* must be one of full_shard"):
        of_full((DEEPSPEED, "fsdp: [full_shard, {a: 1}]"))


def test_a_misspelled_word_of_a_piece_is_an_error_with_its_line():
    found = lint_text("piece.yaml", "finetuning_type: lora\nflash_attn: fa9\ncutoff_len: 2048\n").problems
    assert [(one.line, one.severity, one.key) for one in found] == [(2, "error", "flash_attn")]


def test_a_right_file_has_no_errors_and_a_paste_is_a_whole_configuration():
    assert [one.rule for one in lint_text("a.yaml", FULL).problems if one.severity == "error"] == []
    (part,) = explain_fragment(FULL).parts
    assert part.kind == "configuration"
    assert {one.name: one.value for one in part.figures}["devices"] == 8


@pytest.mark.parametrize(
    ("settings", "dtype"),
    [("{zero_optimization: {stage: 2}}", "bfloat16"), ("{zero_optimization: {stage: 2}, bf16: {enabled: auto}}", "bfloat16")],
)
def test_a_precision_that_deepspeed_does_not_state_is_the_one_of_the_arguments(settings, dtype):
    assert of_full((DEEPSPEED, f"deepspeed: {settings}")).workload.dtype == dtype
    assert of_full((DEEPSPEED, f"deepspeed: {settings}"), ("bf16: true", "fp16: true")).workload.dtype == "float16"


def test_another_precision_that_is_off_is_none_that_is_missing():
    settings = "{zero_optimization: {stage: 2}, fp16: {enabled: false}}"
    assert of_full((DEEPSPEED, f"deepspeed: {settings}")).workload.dtype == "bfloat16"
    with pytest.raises(InputError, match="float16 is enabled beside the argument's bfloat16"):
        of_full((DEEPSPEED, f"deepspeed: {settings.replace('false', 'true')}"))


def test_a_precision_that_deepspeed_switches_off_is_refused():
    with pytest.raises(InputError, match="bfloat16 is switched off beside the argument that switches it on"):
        of_full((DEEPSPEED, "deepspeed: {zero_optimization: {stage: 2}, bf16: {enabled: false}}"))


def begun(tmp_path: Path, script: str, name: str = "run.sh"):
    """The plan of a script beside the file."""
    (tmp_path / "full.yaml").write_text(FULL, encoding="utf-8")
    (tmp_path / name).write_text(script + "\n", encoding="utf-8")
    return read_config(tmp_path / name)


@pytest.mark.parametrize(
    ("script", "devices", "micro", "named"),
    [
        ("NNODES=2 NPROC_PER_NODE=4 llamafactory-cli train full.yaml", 8, 1, "NNODES, NPROC_PER_NODE"),
        ("export NNODES=4\nllamafactory-cli train full.yaml per_device_train_batch_size=4", 32, 4, "per_device_train_batch_size"),
        ("env NNODES=2 NPROC_PER_NODE=4 llamafactory-cli train full.yaml", 8, 1, "NNODES, NPROC_PER_NODE"),
        ("sudo -E env NNODES=2 llamafactory-cli train full.yaml", 16, 1, "NNODES"),
        ("env NNODES=4 python prep.py; env NNODES=2 llamafactory-cli train full.yaml", 16, 1, "NNODES"),
        ("docker run --gpus all -e NNODES=2 image llamafactory-cli train full.yaml", 16, 1, "NNODES"),
        ("docker run -e NNODES=2 image env NPROC_PER_NODE=4 llamafactory-cli train full.yaml", 8, 1, "NNODES, NPROC_PER_NODE"),
        ("kubectl exec pod -- env NNODES=2 llamafactory-cli train full.yaml", 16, 1, "NNODES"),
        ("GPUS=4\ntorchrun --nproc_per_node $GPUS --nnodes=2 src/train.py full.yaml", 8, 1, "nproc_per_node, nnodes"),
        ("torchrun --nproc_per_node 4 src/train.py full.yaml --per_device_train_batch_size 2", 4, 2, "per_device_train_batch_size"),
        ("BS=4\nllamafactory-cli train full.yaml per_device_train_batch_size=$BS", 8, 4, "per_device_train_batch_size"),
        ('llamafactory-cli train full.yaml "per_device_train_batch_size=4"', 8, 4, "per_device_train_batch_size"),
        ("accelerate launch --num_processes 4 src/train.py full.yaml", 4, 1, "num_processes"),
    ],
)
def test_what_starts_a_file_says_devices_and_keys_anew(tmp_path, script, devices, micro, named):
    plan = begun(tmp_path, script)
    assert (plan.num_devices, plan.workload.micro_batch_size) == (devices, micro)
    assert f"wins over {named}" in plan.document.notes[0] or named in plan.document.notes[0].split("wins over ")[1]


@pytest.mark.parametrize(
    "script",
    [
        "torchrun --nproc_per_node 4 src/train.py full.yaml\ntorchrun --nproc_per_node 1 src/eval.py --batch 4",
        "CUDA_VISIBLE_DEVICES=0,1,2,3 llamafactory-cli train full.yaml\nCUDA_VISIBLE_DEVICES=0 llamafactory-cli export merge.yaml",
        "python prep.py --num_processes 16 --bf16 false --cutoff_len 4096\ntorchrun --nproc_per_node 4 src/train.py full.yaml",
        "CUDA_VISIBLE_DEVICES=0 python prep.py\nNPROC_PER_NODE=4 llamafactory-cli train full.yaml",
        "torchrun --nproc_per_node 4 src/train.py full.yaml\ntorchrun --nproc_per_node 2 train.py --per_device_train_batch_size 4",
        "accelerate launch --num_processes 4 --gradient_accumulation_steps 4 src/train.py full.yaml",
        "torchrun --nproc_per_node 4 src/train.py full.yaml # per_device_train_batch_size=9",
        "torchrun --nproc_per_node 4 src/train.py full.yaml && python eval.py per_device_train_batch_size=16",
        "stage=3\nDATE=2025-13-45\nNPROC_PER_NODE=4 llamafactory-cli train full.yaml",
        "for deepspeed in a b; do echo $deepspeed; done\nNPROC_PER_NODE=4 llamafactory-cli train full.yaml",
        "NPROC_PER_NODE=4 llamafactory-cli train full.yaml per_device_train_batch_size=$UNKNOWN",
        "NPROC_PER_NODE=4 llamafactory-cli train full.yaml output_dir=2025-01-01",
    ],
)
def test_what_is_said_for_another_command_counts_nothing(tmp_path, script):
    plan = begun(tmp_path, script)
    assert (plan.num_devices, plan.workload.micro_batch_size, plan.num_micro_batches) == (4, 1, 2)
    assert (plan.workload.dtype, plan.workload.seq_length, plan.parallel.optimizer_shard_level) == ("bfloat16", 1024, 3)


OF_FULL = "llamafactory-cli train full.yaml"


@pytest.mark.parametrize(
    ("script", "devices"),
    [
        (f"srun --nodes=2 --ntasks-per-node=1 {OF_FULL}", 16),
        (f"srun -N2 --gres=gpu:4 {OF_FULL}", 8),
        (f"#SBATCH --nodes=2\nsrun {OF_FULL}", 16),
        (f"#SBATCH --nodes=2\nNPROC_PER_NODE=4 srun {OF_FULL}", 8),
        (f"#SBATCH -N 2\n#SBATCH -G 8\nsrun {OF_FULL}", 8),
        (f"#SBATCH -N 2\n#SBATCH --gpus-per-task=a100:4 --ntasks-per-node=1\nsrun {OF_FULL}", 8),
        (f"srun -N 2 bash -c 'FORCE_TORCHRUN=1 NNODES=$SLURM_NNODES NPROC_PER_NODE=4 {OF_FULL}'", 8),
        ("srun --nodes 2 --ntasks-per-node=4 python src/train.py full.yaml", 8),
        (
            "#SBATCH --nodes=2 --gpus-per-node=4\nsrun torchrun --nnodes $SLURM_NNODES --nproc_per_node gpu t.py full.yaml",
            8,
        ),
    ],
)
def test_nodes_and_devices_of_a_job_are_those_of_the_file_that_it_starts(tmp_path, script, devices):
    assert begun(tmp_path, f"#!/bin/bash\n{script}").num_devices == devices


def test_nodes_that_no_variable_tells_the_program_are_counted_and_said(tmp_path):
    told = str(begun(tmp_path, f"srun --nodes=2 {OF_FULL}").document.defaulted)
    assert "2, of the job; nothing tells the program so (NNODES)" in told
    assert "NNODES)" not in str(begun(tmp_path, f"NNODES=2 srun --nodes=2 {OF_FULL}").document.defaulted)


TWO = "--per_device_train_batch_size 2"


@pytest.mark.parametrize(
    "script",
    [
        f"srun --nodes 2 torchrun --nproc_per_node 4 src/train.py full.yaml {TWO}",
        f'srun bash -c "torchrun --nproc_per_node 4 src/train.py full.yaml {TWO}"',
        f"DIR=.\ntorchrun --nproc_per_node 4 src/train.py $DIR/full.yaml {TWO}",
        f'torchrun --nproc_per_node 4 src/train.py "full.yaml" {TWO}',
        f"run() {{\n  torchrun --nproc_per_node 4 src/train.py full.yaml {TWO}\n}}\nrun",
        f"if [ -f full.yaml ]; then\n  torchrun --nproc_per_node 4 src/train.py full.yaml {TWO}\nfi",
        f"torchrun --nproc_per_node 4 -m llamafactory.launcher full.yaml {TWO}",
        f"deepspeed --num_gpus 4 --module pkg.train full.yaml {TWO}",
        "cd . && NPROC_PER_NODE=4 llamafactory-cli train full.yaml per_device_train_batch_size=2",
        "bash -c 'NPROC_PER_NODE=4 llamafactory-cli train full.yaml per_device_train_batch_size=2'",
        "export NPROC_PER_NODE=$(( 2 * 2 ))\nllamafactory-cli train full.yaml per_device_train_batch_size=2",
        "NPROC_PER_NODE=4 llamafactory-cli train full.yaml per_device_train_batch_size=2 && cp full.yaml out/",
        "echo Running python train with full.yaml now\nNPROC_PER_NODE=4 llamafactory-cli train full.yaml "
        "per_device_train_batch_size=2",
        "export CUDA_VISIBLE_DEVICES=0,1,2,3\nCUDA_VISIBLE_DEVICES=0 python prep.py\n"
        "llamafactory-cli train full.yaml per_device_train_batch_size=2",
        f"torchrun --nproc_per_node 4 src/train.py full.yaml {TWO}\r\n",
    ],
)
def test_the_command_of_the_file_is_found_wherever_it_stands(tmp_path, script):
    plan = begun(tmp_path, script)
    assert (plan.num_devices, plan.workload.micro_batch_size) == (4, 2)


@pytest.mark.parametrize(
    "script",
    [
        " ".join(f'VAR{at}="0"' for at in range(60)) + " python prep.py\n",
        "\n".join(f'export VAR_{at}="value {at}"  # comment' for at in range(3000)) + "\n",
        "KEY=" + "0123456789abcdef" * 8000 + "\n",
        'A="[' + "1," * 4000 + ']"\n' + "\n".join(f"B{at}=$A" for at in range(40)) + "\n",
    ],
    ids=["many before one command", "many", "long", "many long"],
)
def test_a_script_with_many_or_long_variables_is_read_at_once(tmp_path, script):
    """What took minutes: time that grows with the square, or doubles with every variable."""
    assert begun(tmp_path, script + "NPROC_PER_NODE=4 llamafactory-cli train full.yaml").num_devices == 4


def test_values_with_colons_are_texts_and_small_numbers_are_numbers(tmp_path):
    plan = begun(tmp_path, "torchrun --nnodes=1:4 --nproc_per_node 8 src/train.py full.yaml learning_rate=1e-5")
    assert plan.num_devices == 8
    assert plan.document.values["learning_rate"] == pytest.approx(1e-5)


@pytest.mark.parametrize("said", ["hub_token=hf_secret123", "--wandb.api_key hf_secret123", "--hub_token hf_secret123"])
def test_a_secret_of_a_launch_line_is_neither_kept_nor_written(tmp_path, said):
    plan = begun(tmp_path, f"NPROC_PER_NODE=4 llamafactory-cli train full.yaml {said}")
    assert "hf_secret123" not in str(plan.document) + write_config(plan).text


def test_many_marks_of_yaml_in_a_variable_are_no_harm(tmp_path):
    """What YAML would unfold nine times at each of its levels."""
    levels = ", ".join(f"a{at}: &a{at} [{', '.join([f'*a{at - 1}'] * 9)}]" for at in range(1, 40))
    plan = begun(tmp_path, f'NNODES="{{a0: &a0 [x], {levels}}}" NPROC_PER_NODE=4 llamafactory-cli train full.yaml')
    assert plan.num_devices == 4


def test_what_a_launcher_says_is_neither_kept_nor_written(tmp_path):
    script = "HF=hf_abcdefghijk\nNNODES=2 torchrun --nproc_per_node 4 src/train.py full.yaml --hub_token $HF --cutoff_len 512"
    (tmp_path / "full.yaml").write_text(FULL + "hub_token: none\n", encoding="utf-8")
    (tmp_path / "run.sh").write_text(script, encoding="utf-8")
    plan = read_config(tmp_path / "run.sh")
    assert (plan.num_devices, plan.workload.seq_length) == (8, 512)
    written = write_config(plan)
    assert "hf_abcdefghijk" not in str(plan.document) + written.text
    assert "NNODES" not in written.text
    assert "nproc_per_node" not in written.text
    assert "cutoff_len: 512" in written.text


@pytest.mark.parametrize(
    ("options", "level"),
    [
        ("--use_deepspeed --zero_stage 3", 3),
        ("--zero_stage 1 --use_deepspeed", 1),
        ("--use_fsdp --fsdp_sharding_strategy SHARD_GRAD_OP", 2),
        ("--deepspeed_config_file ds2.json --use_deepspeed", 2),
    ],
)
def test_options_of_accelerate_before_a_file_say_what_is_shared(tmp_path, options, level):
    (tmp_path / "ds2.json").write_text('{"zero_optimization": {"stage": 2}}', encoding="utf-8")
    (tmp_path / "sft.yaml").write_text("model_name_or_path: Qwen/Qwen3-8B\nper_device_train_batch_size: 2\nbf16: true\n")
    (tmp_path / "run.sh").write_text(f"accelerate launch --num_processes 4 {options} src/train.py sft.yaml\n")
    plan = read_config(tmp_path / "run.sh")
    assert (plan.num_devices, plan.parallel.optimizer_shard_size, plan.parallel.optimizer_shard_level) == (4, 4, level)
