"""`perfkit simulate`: a configuration in, a folder out that every command takes, and refusals with all reasons."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import pytest

from perfkit.face import cli

CONFIG = """
[model]
num_layers = 4
hidden_size = 1024
num_attention_heads = 8
num_key_value_heads = 8
head_size = 128
ffn_hidden_size = 4096
vocab_size = 32000

[workload]
seq_length = 2048
micro_batch_size = 1
global_batch_size = 8

[parallel]
data_parallel_size = 2
pipeline_parallel_size = 2

[hardware]
name = "A100-80GB-SXM"
"""


@pytest.fixture
def config(tmp_path) -> Path:
    path = tmp_path / "plan.toml"
    path.write_text(CONFIG)
    return path


def test_writes_a_run_that_summary_reads_and_the_truth_beside_it(config, tmp_path, capsys):
    target = tmp_path / "run"
    assert cli.main(["simulate", str(config), "--out", str(target), "--fault", "slow_rank:3:2", "--steps", "2", "--json"]) == 0
    printed = json.loads(capsys.readouterr().out)
    assert printed == json.loads((target / "faults.json").read_text())
    assert printed["faults"][0]["cost_ns_per_step"] > 0
    assert cli.main(["summary", str(target), "--json"]) == 0
    summary = json.loads(capsys.readouterr().out)
    assert (summary["kind"], summary["ranks_found"]) == ("simulated", 4)


def test_prints_the_faults_and_their_cost(config, tmp_path, capsys):
    assert cli.main(["simulate", str(config), "--out", str(tmp_path / "run"), "--fault", "data_stall:all:20"]) == 0
    assert re.search(r"data_stall:all:20 +20\.0 ms", capsys.readouterr().out)


def test_only_the_ranks_asked_for_are_recorded(config, tmp_path, capsys):
    assert cli.main(["simulate", str(config), "--out", str(tmp_path / "run"), "--ranks", "1-2", "--no-cost"]) == 0
    capsys.readouterr()
    cli.main(["summary", str(tmp_path / "run"), "--json"])
    assert [rank["rank"] for rank in json.loads(capsys.readouterr().out)["ranks"]] == [1, 2]


def test_refuses_everything_wrong_at_once_and_leaves_no_folder(config, tmp_path, capsys):
    arguments = [
        "simulate",
        str(config),
        "--out",
        str(tmp_path / "run"),
        "--fault",
        "slow_rank:9:1.5",
        "--fault",
        "slow_link:0-0:2",
    ]
    assert cli.main([*arguments, "--fault", "host_bound:all:-1", "--steps", "0"]) == 2
    errors = capsys.readouterr().err
    for piece in ("rank 9", "within one device", "'-1'", "steps = 0"):
        assert piece in errors
    assert not (tmp_path / "run").exists()


def test_does_not_write_over_anything(config, tmp_path, capsys):
    target = tmp_path / "run"
    target.mkdir()
    shutil.copy(config, target / "mine.toml")
    assert cli.main(["simulate", str(config), "--out", str(target)]) == 2
    assert "new folder" in capsys.readouterr().err
    assert [path.name for path in target.iterdir()] == ["mine.toml"]


def test_help_lists_every_fault(capsys):
    from perfkit.predict.simulate import FAULTS

    with pytest.raises(SystemExit):
        cli.main(["simulate", "--help"])
    shown = capsys.readouterr().out
    assert all(kind.spelling(name) in shown for name, kind in FAULTS.items())
