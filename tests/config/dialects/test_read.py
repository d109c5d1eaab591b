"""Finding the dialect by content, and files that are no configuration."""

from __future__ import annotations

import io
import sys
from pathlib import Path

import pytest

from perfkit import read_config
from perfkit.config.dialects.read import MAX_BYTES, read_text
from perfkit.config.dialects.registry import dialects
from perfkit.config.lint import lint
from perfkit.core.errors import InputError

SAMPLES = Path(__file__).parents[3] / "data" / "configs"


@pytest.mark.parametrize("path", sorted(path for path in SAMPLES.iterdir() if path.suffix != ".md"), ids=lambda path: path.name)
def test_every_bundled_configuration_is_read(path):
    plan = read_config(path)
    assert plan.document.path == path
    assert plan.document.name == path.name


def test_the_same_training_in_three_dialects_has_one_model():
    names = ("pretrain_llama2_13b.yaml", "pretrain_llama2_13b_megatron.sh", "llama2_13b.toml")
    plans = [read_config(SAMPLES / name) for name in names]
    assert [plan.document.dialect for plan in plans] == ["mindformers", "megatron", "perfkit"]
    assert (
        len({(plan.model.num_layers, plan.model.hidden_size, plan.model.ffn_hidden_size, plan.model.vocab_size) for plan in plans})
        == 1
    )


def test_the_name_of_the_file_does_not_matter(tmp_path):
    copy = tmp_path / "config.txt"
    copy.write_bytes((SAMPLES / "llama2_13b.toml").read_bytes())
    assert read_config(copy).document.dialect == "perfkit"


def test_a_dash_reads_standard_input(monkeypatch):
    text = (SAMPLES / "llama2_13b.toml").read_bytes()
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(text)))
    assert read_config("-").document.name == "standard input"


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "the file is empty"),
        (b" \r\n\t\n", "the file is empty"),
        (b"PK\x03\x04\x00\x00", "byte 4 is zero: the file is binary"),
        ("model: größe\n".encode("latin-1"), "line 1: byte 0xf6 is not UTF-8"),
        (b"hello world\n", "no configuration dialect that perfkit reads"),
        (b"\xff\xfem\x00o\x00", "is zero"),
        (b"a" * (MAX_BYTES + 1), "more than 1 MB"),
    ],
    ids=["empty", "blank", "binary", "latin-1", "prose", "utf-16", "huge"],
)
def test_what_is_no_configuration_is_said_to_be_none(tmp_path, content, message):
    file = tmp_path / "file"
    file.write_bytes(content)
    with pytest.raises(InputError, match=message) as error:
        read_config(file)
    assert str(file) in str(error.value) or file.name in str(error.value)


def test_a_missing_file_and_a_folder_are_named(tmp_path):
    with pytest.raises(InputError, match="does not exist"):
        read_config(tmp_path / "missing.yaml")
    with pytest.raises(InputError, match="this is a folder"):
        read_config(tmp_path)


def test_an_unknown_content_says_what_is_looked_for(tmp_path):
    file = tmp_path / "x"
    file.write_text("hello", encoding="utf-8")
    with pytest.raises(InputError) as error:
        read_config(file)
    for dialect in dialects():
        assert dialect.title in str(error.value)


def test_two_dialects_in_one_file_are_refused(tmp_path):
    file = tmp_path / "x"
    file.write_text("model:\n  a: 1\n# python pretrain.py --num-layers 2\n[model]\n", encoding="utf-8")
    with pytest.raises(InputError, match="keep one configuration a file"):
        read_config(file)


def test_a_byte_order_mark_is_no_key(tmp_path):
    file = tmp_path / "bom.yaml"
    file.write_bytes(b"\xef\xbb\xbf" + (SAMPLES / "pretrain_llama2_13b.yaml").read_bytes())
    assert read_config(file).model.num_layers == 40


def test_a_script_that_only_names_its_configuration_says_which_file_to_open():
    for line in (
        "torchrun --nproc_per_node 16 train_fsdp2.py \\\n    examples/qwen3/pretrain.yaml --parallel.fsdp_size 16",
        "msrun --worker_num=8 run_mindformer.py --config examples/qwen3/pretrain.yaml --run_mode train",
    ):
        with pytest.raises(InputError, match=r"examples/qwen3/pretrain\.yaml: open that file"):
            read_text(f"#!/bin/bash\nexport A=1\n{line}\n", "run.sh")


def test_options_of_the_launch_line_that_win_over_the_file_are_told():
    """MindSpeed-LLM's launch scripts for FSDP2 state sizes anew that the YAML has or leaves out."""
    options = "--parallel.fsdp_size 16 --training.per_device_train_batch_size 2 --parallel.fsdp_size 16"
    text = f"torchrun $ARGS train_fsdp2.py qwen3.yaml \\\n  {options}\n"
    with pytest.raises(InputError, match=r"win over it: parallel\.fsdp_size, training\.per_device_train_batch_size$"):
        read_text(text, "run.sh")


@pytest.mark.parametrize(
    ("name", "text", "named"),
    [
        (
            "lora.yaml",
            "model:\n  _component_: torchtune.models.llama3_1.lora_llama3_1_8b\n  lora_rank: 8\nbatch_size: 2\n"
            "gradient_accumulation_steps: 8\n",
            "a recipe of torchtune",
        ),
        (
            "ppo.yaml",
            "actor_rollout_ref:\n  hybrid_engine: true\ntrainer: {nnodes: 1, n_gpus_per_node: 8}\n",
            "a configuration of verl",
        ),
        ("sft.sh", "deepspeed --module openrlhf.cli.train_sft --max_len 2048 --zero_stage 2 --bf16\n", "a launch of OpenRLHF"),
        ("adapter_config.json", '{"peft_type": "LORA", "r": 16, "target_modules": ["q_proj"]}', "an adapter of PEFT"),
    ],
)
def test_a_file_of_a_program_that_is_not_read_is_no_other_programs_file(name: str, text: str, named: str, tmp_path):
    with pytest.raises(InputError, match=named):
        read_text(text, name)
    (tmp_path / name).write_text(text, encoding="utf-8")
    report = lint(tmp_path / name)
    assert report.problems == ()
    assert [named in reason for _, reason in report.skipped] == [True]
