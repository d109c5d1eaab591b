"""perfkit's own TOML: names of the catalogue, full specs, and every problem with its line."""

from __future__ import annotations

from pathlib import Path

import pytest

from perfkit import read_config
from perfkit.config.dialects.read import read_text
from perfkit.core import catalog
from perfkit.core.errors import InputError
from perfkit.core.units import GIB

SAMPLE = Path(__file__).parents[3] / "data" / "configs" / "llama2_13b.toml"
WORKLOAD = "[workload]\nseq_length = 128\nmicro_batch_size = 1\nglobal_batch_size = 8\n"


def problems(text: str) -> str:
    with pytest.raises(InputError) as error:
        read_text(text, "bad.toml")
    return str(error.value)


def test_names_take_the_catalogues_entries():
    plan = read_config(SAMPLE)
    assert plan.model == catalog.model("llama2-13b")
    assert plan.hardware == catalog.hardware_named("Ascend 376")
    assert plan.recompute.operators[r"feed_forward\.mul"] == ((20, 20),)


def test_a_full_spec_needs_no_catalogue():
    text = """[model]
num_layers = 4
hidden_size = 64
num_attention_heads = 4
num_key_value_heads = 2
head_size = 16
ffn_hidden_size = 128
vocab_size = 1000
norm = "layernorm"
[hardware]
name = "mine"
peak_flops_per_s = { bfloat16 = 1e14 }
memory_bytes = "64GiB"
memory_bytes_per_s = 1.6e12
links.intra_node = { bytes_per_s = 1e11 }
"""
    plan = read_text(text + WORKLOAD, "full.toml")
    assert plan.model.num_key_value_heads == 2
    assert plan.hardware.memory_bytes == 64 * GIB
    assert plan.hardware.links["intra_node"].bytes_per_s == 1e11
    assert plan.hardware.sources["memory_bytes"].kind == "specified"


def test_every_problem_is_listed_with_its_line():
    message = problems(
        '[model]\nname = "llama2-13x"\n[workload]\nseq_length = -4096\nmicro_batch_size = nan\nglobal_batch_sise = 8\n[paralel]\n'
        '[optimizer]\nmaster_weights = "yes"\n'
    )
    for expected in (
        "line 2, model.name: no model is called 'llama2-13x'; did you mean llama2-13b",
        "line 4, workload.seq_length: -4096 must be a whole number of at least 0",
        "line 5, workload.micro_batch_size: nan must be a whole number",
        "line 6, workload.global_batch_sise: unknown key 'global_batch_sise'; did you mean 'global_batch_size'?",
        "workload.global_batch_size: is missing",
        "line 7, paralel: unknown key 'paralel'; did you mean 'parallel'?",
        "line 9, optimizer.master_weights: 'yes' must be True or False",
    ):
        assert expected in message


def test_tables_that_a_plan_needs_are_missed():
    assert "model: is missing; a table [model] is needed" in problems(WORKLOAD)


def test_contradictions_between_the_parts_are_named():
    message = problems(
        '[model]\nname = "llama2-7b"\n' + WORKLOAD + "[parallel]\ndata_parallel_size = 3\ntensor_parallel_size = 5\n"
    )
    assert "not divisible by micro_batch_size 1 x data_parallel_size 3" in message
    assert "num_attention_heads = 32 is not divisible by tensor_parallel_size = 5" in message


def test_what_is_no_toml_says_where():
    assert "at line 2" in problems("[model]\nname = \n")


@pytest.mark.parametrize("value", ['"x"', "[1, 2]", "[[1.5]]", "[[true]]"])
def test_counts_must_be_rows_of_whole_numbers(value):
    text = '[model]\nname = "llama2-7b"\n' + WORKLOAD + f"[recompute]\nfull_layers = {value}\n"
    assert "rows of whole numbers" in problems(text)
