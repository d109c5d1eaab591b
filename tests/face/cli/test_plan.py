"""`perfkit plan`: the table, the document, the written configuration, and refusals without a traceback."""

from __future__ import annotations

import json

import pytest

import perfkit
from perfkit.core.resources import data_folder
from perfkit.face.cli import main

CONFIG = str(data_folder() / "configs" / "pretrain_llama2_13b.yaml")


def plan(*words: str) -> int:
    return main(["plan", CONFIG, "--devices", "16", *words])


def test_the_best_plan_is_printed_with_its_reason_and_why_others_lost(capsys):
    assert plan("--device", "Ascend-910B2", "--memory-limit-gib", "58", "--top", "3") == 0
    text = capsys.readouterr().out
    for part in ("fit 58.0 GiB", "tokens/s/device", "best: ", "rule of thumb", "why the others lost", "time against memory"):
        assert part in text


def test_the_document_is_json_and_the_best_plan_is_written(tmp_path, capsys):
    target = tmp_path / "best.yaml"
    assert plan("--device", "Ascend-910B2", "--memory-limit-gib", "58", "--top", "2", "--json", "--out", str(target)) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["searched"] == document["feasible"] + sum(document["rejected"].values())
    best = document["plans"][0]["plan"]
    written = perfkit.read_config(target)
    assert written.parallel.pipeline_parallel_size == best["pipeline_parallel_size"]
    assert written.num_micro_batches == best["num_micro_batches"]


def test_where_nothing_fits_nothing_is_written(tmp_path, capsys):
    target = tmp_path / "best.yaml"
    assert plan("--device", "Ascend-910B2", "--memory-limit-gib", "4", "--out", str(target)) == 2
    assert "no plan fits 4.00 GiB" in capsys.readouterr().err
    assert not target.exists()
    assert plan("--device", "Ascend-910B2", "--memory-limit-gib", "4") == 0
    assert "The nearest is" in capsys.readouterr().out


@pytest.mark.parametrize("words", [("--memory-limit-gib", "0"), ("--top", "0")])
def test_impossible_limits_are_refused_together_with_the_missing_device(words, capsys):
    assert plan(*words) == 2
    problems = capsys.readouterr().err
    assert "2 problems" in problems
    assert "hardware is not named" in problems
