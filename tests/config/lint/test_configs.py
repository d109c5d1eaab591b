"""Checks of configurations on real files: what fires at the level of an error is right; the guides' broken lists are all found."""

from __future__ import annotations

import json
import re
from collections import Counter
from pathlib import Path

import pytest

from perfkit.config.lint import all_checks, lint, lint_text
from perfkit.config.lint.check import MODEL
from perfkit.core.resources import data_folder

ROOT = Path(__file__).parents[2]
REAL = [data_folder() / "configs", data_folder() / "case13b", ROOT / "data" / "configs" / "mindformers"]


@pytest.fixture(scope="module")
def real():
    return lint(*REAL)


def test_real_configurations_give_no_error(real):
    assert real.checked["config"] > 60
    assert real.failed == ()
    assert [problem for problem in real.problems if problem.severity == "error"] == []


def test_warnings_on_real_configurations_are_those_that_were_read_and_found_true(real):
    """Each was read in the file: a runner that overrides the dataset's batch, 59 GB pools, pipelines with few micro batches, no
    flash attention at 2,048 tokens and more, sequence parallel without tensor parallel, 50,257 words over 8 devices, a replica
    group without optimizer parallel, recompute: True beside patterns, use_past in two fine-tuning files."""
    warned = Counter(problem.rule for problem in real.problems if problem.severity == "warning")
    assert set(warned) <= {
        "batch-size-mismatch",
        "max-device-memory",
        "micro-few",
        "flash-attention-off",
        "seq-parallel-no-tp",
        "optimizer-dim0",
        "width-not-divisible",
        "optimizer-parallel-off",
        "recompute-select-ignored",
        "predict-config-for-training",
    }


def test_there_are_at_least_forty_checks_of_configurations_and_environments():
    assert sum(check.kind != "code" for check in all_checks()) >= 40


@pytest.fixture(scope="module")
def case():
    return json.loads((ROOT / "data" / "plans" / "d19_repair_13b.json").read_text(encoding="utf-8"))


def test_every_misprint_of_the_guides_list_is_found_with_its_repair(case):
    text = "parallel_config:\n  pipeline_stage: 2\nrecompute_config:\n  " + case["list_form_text"]
    found = {problem.message.split()[0]: problem.message for problem in lint_text("a.yaml", text).problems}
    for entry in case["list_form"]:
        if entry["problems"]:
            assert entry["repaired_pattern"] in found[entry["pattern"].split()[0]]


def test_the_printed_map_does_not_parse_and_every_line_is_named(case):
    body = "".join(f"  {line}\n" for line in case["dict_form_text"].splitlines())
    text = f"parallel_config:\n  pipeline_stage: 2\nrecompute_config:\n{body}"
    broken = [problem for problem in lint_text("a.yaml", text).problems if problem.rule == "recompute-yaml-broken"]
    lines = [number for number, line in enumerate(text.splitlines(), 1) if line.endswith("]e")]
    assert [problem.line for problem in broken] == lines
    assert len(lines) == 4


def test_misprinted_names_of_the_map_are_found_once_the_junk_is_gone(case):
    body = "".join(f"  {line}\n" for line in case["dict_form_text"].replace("]e", "]").splitlines())
    text = f"parallel_config:\n  pipeline_stage: 2\nrecompute_config:\n{body}"
    messages = [problem.message for problem in lint_text("a.yaml", text).problems if problem.rule == "recompute-pattern-no-match"]
    wanted = [entry for entry in case["dict_form"] if entry["pattern"] != entry["repaired_pattern"]]
    assert len(messages) == len(wanted)
    for entry in wanted:
        assert any(entry["repaired_pattern"] in message for message in messages)


def test_an_unresolved_variable_counts_as_not_stated():
    text = "torchrun pretrain_gpt.py --tensor-model-parallel-size $TP --num-attention-heads 30 --hidden-size $H --num-layers 12"
    assert [problem for problem in lint_text("a.sh", text).problems if problem.rule != "plan-invalid"] == []


def test_nothing_follows_from_a_size_that_only_the_caller_knows():
    """It was taken for the default: sequence parallel was said to have no effect, as tensor parallel were 1."""
    text = (
        "torchrun pretrain_gpt.py --tensor-model-parallel-size ${{TP}} --pipeline-model-parallel-size $PP --sequence-parallel "
        "--num-layers 94 --hidden-size 4096 --num-attention-heads {heads} --seq-length 4096 --vocab-size 151936"
    )
    assert {one.rule for one in lint_text("a.sh", text.format(heads=64)).problems if one.severity != "information"} == {
        "plan-invalid"
    }
    assert "heads-not-divisible" not in {one.rule for one in lint_text("a.sh", text.format(heads=63)).problems}
    known = text.replace("${{TP}}", "2").replace("$PP", "2").format(heads=63)
    assert "heads-not-divisible" in {one.rule for one in lint_text("a.sh", known).problems}


def test_a_megatron_script_is_checked_too():
    text = "torchrun x.py --tensor-model-parallel-size 16 "
    text += " --num-attention-heads 40 --hidden-size 5120 --num-layers 40 --seq-length 4096"
    rules = {problem.rule for problem in lint_text("a.sh", text).problems}
    assert {"heads-not-divisible", "tp-across-nodes", "tp-without-seq-parallel"} <= rules


SIZED = {
    "run.sh": "torchrun --nproc_per_node 8 pretrain_gpt.py --num-layers 32 --hidden-size 4096 --num-attention-heads 32 "
    "--seq-length 4096 --num-query-groups 8 --micro-batch-size 1 --global-batch-size 64 --num-experts 8 "
    "--tensor-model-parallel-size 2 --pipeline-model-parallel-size 2 --context-parallel-size 2 "
    "--expert-model-parallel-size 2 --sequence-parallel",
    "run.yaml": MODEL + "use_parallel: True\nparallel_config: {data_parallel: 2, model_parallel: 2, pipeline_stage: 2, "
    "context_parallel: 2, micro_batch_num: 4, expert_parallel: 2, use_seq_parallel: True}\nrunner_config: {batch_size: 1}\n",
}


@pytest.mark.parametrize("name", SIZED)
@pytest.mark.parametrize("impossible", [0, -1])
def test_a_size_that_nothing_has_is_an_error_and_no_check_fails_over_it(name: str, impossible: int):
    sizes = list(re.finditer(r"(?<=[a-z]) \d+|(?<=: )\d+", SIZED[name]))
    assert len(sizes) > 10
    for size in sizes:
        report = lint_text(name, f"{SIZED[name][: size.start()]} {impossible}{SIZED[name][size.end() :]}")
        assert report.failed == ()
        assert report.count("error"), SIZED[name][: size.start()][-30:]
