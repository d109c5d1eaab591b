"""`perfkit convert`: text out, what is lost beside it, single values changed, and inputs left alone."""

from __future__ import annotations

import json
from pathlib import Path

from perfkit import read_config
from perfkit.face.cli import main

CONFIGS = Path(__file__).parents[3] / "data" / "configs"
LLAMA = CONFIGS / "pretrain_llama2_13b.yaml"


def test_the_text_goes_to_standard_output_and_remarks_beside_it(capsys, tmp_path):
    assert main(["convert", str(CONFIGS / "llama2_13b.toml"), "--to", "megatron"]) == 0
    printed = capsys.readouterr()
    path = tmp_path / "x.sh"
    path.write_text(printed.out, encoding="utf-8")
    assert read_config(path).num_devices == 16
    assert "recompute.full_layers: [[4, 0]], here [[4, 4]]" in printed.err
    assert "wanted: " in printed.err


def test_without_a_loss_nothing_is_said(capsys):
    assert main(["convert", str(LLAMA), "--to", "perfkit"]) == 0
    printed = capsys.readouterr()
    assert printed.err == ""
    assert 'name = "' in printed.out


def test_values_change_by_key_and_the_diff_is_shown(capsys, tmp_path):
    target = tmp_path / "new.yaml"
    call = ["convert", str(LLAMA), "--set", "parallel_config.pipeline_stage=2", "--set", "recompute_config.recompute=[4,0]"]
    assert main([*call, "--out", str(target)]) == 0
    printed = capsys.readouterr().out
    assert "-  pipeline_stage: 1\n+  pipeline_stage: 2\n" in printed
    assert "the plan now needs 16 devices, was 8" in printed
    assert read_config(target).recompute.full_layers == ((4, 0),)


def test_an_unchanged_file_comes_out_byte_for_byte(tmp_path):
    target = tmp_path / "same.yaml"
    assert main(["convert", str(LLAMA), "--out", str(target)]) == 0
    assert target.read_bytes() == LLAMA.read_bytes()


def test_json_has_text_losses_and_notes(capsys):
    assert main(["convert", str(LLAMA), "--to", "mindspeed-core", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["dialect"] == "mindspeed-core"
    assert document["lost"] == ["memory_limit: 58.0 GiB of the pool, here none"]
    assert "tensor_model_parallel_size: 1" in document["text"]


def test_bad_calls_are_input_errors(capsys, tmp_path):
    copy = tmp_path / "copy.yaml"
    copy.write_bytes(LLAMA.read_bytes())
    assert main(["convert", str(copy), "--out", str(copy)]) == 2
    assert "never changed" in capsys.readouterr().err
    assert main(["convert", str(LLAMA), "--set", "pipeline_stage", "--set", "=3"]) == 2
    assert capsys.readouterr().err.count("must be KEY=VALUE") == 2
    assert main(["convert", str(LLAMA), "--set", "use_parallel.inner=3"]) == 2
    assert "use_parallel: is no section" in capsys.readouterr().err


def test_a_broken_file_is_repaired_on_request_only(capsys, tmp_path):
    text = LLAMA.read_text(encoding="utf-8").replace("  select_recompute: False", "  select_recompute: ['attention_normi.rcast']e")
    broken = tmp_path / "broken.yaml"
    broken.write_text(text, encoding="utf-8")
    assert main(["convert", str(broken)]) == 2
    capsys.readouterr()
    assert main(["convert", str(broken), "--repair"]) == 0
    printed = capsys.readouterr()
    assert r"select_recompute: ['attention_norm\.rcast']" in printed.out
    assert "'e' stands behind a closed list" in printed.err
    assert broken.read_text(encoding="utf-8") == text
