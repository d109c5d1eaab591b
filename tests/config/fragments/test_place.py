"""Pieces of configurations: each section of every real file is placed, and judged by what it states alone."""

from __future__ import annotations

from pathlib import Path

import pytest

from perfkit.config.dialects import read_text
from perfkit.config.fragments.place import placed
from perfkit.config.fragments.secrets import MASK, masked
from perfkit.config.lint import lint_text
from perfkit.core.resources import data_folder

ROOT = Path(__file__).parents[2]
REAL = sorted([*(data_folder() / "configs").glob("*.yaml"), *(ROOT / "data" / "configs" / "mindformers").rglob("*.yaml")])


def sections(text: str) -> list[str]:
    """The top-level sections of a YAML file, each with its lines."""
    found: list[list[str]] = []
    for line in text.splitlines():
        if line.strip() and not line.startswith((" ", "#", "-")):
            found.append([])
        if found and line.strip():
            found[-1].append(line)
    return ["\n".join(lines) + "\n" for lines in found if not any("*" in line or "&" in line for line in lines)]


@pytest.mark.parametrize("path", REAL, ids=lambda path: path.stem)
def test_no_section_of_a_real_file_has_an_error_by_itself(path):
    """The whole files have none either (`test_configs`)."""
    for section in sections(path.read_text(encoding="utf-8")):
        report = lint_text("piece.yaml", section)
        assert [one.message for one in report.problems if one.severity == "error"] == [], section[:200]
        assert report.failed == ()


def test_children_of_a_section_are_put_back_under_it():
    text = (data_folder() / "configs" / "pretrain_llama2_13b.yaml").read_text(encoding="utf-8")
    for section in sections(text):
        name, _, body = section.partition("\n")
        if name.rstrip(": ") not in ("parallel_config", "recompute_config"):
            continue
        found = placed("\n".join(line[2:] for line in body.splitlines()))
        assert found is not None
        assert found.text.startswith(name.strip())
        assert found.dialect == "mindformers"


MODEL = """model_config:
  num_layers: 4
  hidden_size: 4096
  num_attention_heads: 32
  ffn_hidden_size: 11008
  vocab_size: 32000
  seq_length: 4096
dataset_config:
  batch_size: 1
  micro_batch_num: 8
"""


def test_flat_sections_beside_nested_ones_are_read():
    """The guide prints parallel_config and accelerate_config; a file with both has all of its model."""
    text = MODEL + (
        "parallel_config:\n  tensor_model_parallel_size: 2\n  pipeline_model_parallel_size: 2\n  num_layer_list: [2, 2]\n"
        "  recompute_config:\n    recompute: [1, 1]\n    select_recompute: [1, 1]\n    select_comm_recompute: [1, 1]\n"
        "accelerate_config:\n  parallelization:\n    use_distributed_optimizer: True\n"
    )
    plan = read_text(text, "both.yaml")
    assert plan.stage_layers == ((2, 2),)
    assert plan.parallel.tensor_parallel_size == 2
    assert plan.recompute.full_layers == ((1, 1),)
    assert plan.model.hidden_size == 4096


@pytest.mark.parametrize(
    "text",
    [
        "API_KEY=abc123def456",
        "export X_SECRET='q w'",
        "--wandb-api-key 0123456789abcdef",
        "https://a:b0b0b0b0@host/x",
        "Bearer abcdefgh12",
        "export DB_PASS=Zq7xK9mP2w",
        "export PASS=Zq7xK9mP2w",
        "SSH_PASSPHRASE: Zq7xK9mP2w",
        "sshpass -p 'Zq7xK9mP2w' ssh root@10.0.0.1",
        "curl -s -u me:Zq7xK9mP2w https://host/x",
        "wandb login --relogin Zq7xK9mP2w",
        "train.py --wandb-key Zq7xK9mP2w",
        "git clone https://Zq7xK9mP2wAb3Cd4Ef5@host/a",
        "我的密码：Zq7xK9mP2w",
        '{"auth": "Zq7xK9mP2w"}',
        "export HF_TOKEN=\\\nZq7xK9mP2w",
    ],
)
def test_a_secret_is_masked_once(text):
    found, count = masked(text)
    assert count == 1
    assert MASK in found
    assert masked(found) == (found, 0)


SECRET = "Zq7xK9mP2wZq7xK9mP2wZq7x"


@pytest.mark.parametrize(
    "text",
    [
        "export GITHUB_PAT=%s",
        "os.environ['X_TOKEN'] = '%s'",
        "os.environ.setdefault('WANDB_API_KEY', '%s')",
        "-----BEGIN PRIVATE KEY-----\n%s\n%s",
        "key: |\n  -----BEGIN RSA PRIVATE KEY-----\n  %s\n  -----END RSA PRIVATE KEY-----\nparallel_config:",
        '"private": "-----BEGIN PRIVATE KEY-----\\n%s\\n-----END PRIVATE KEY-----"',
        "docker login -u me -p %s registry.example.org",
        "machine example.org login me password %s",
        "env:\n- name: HF_TOKEN\n  value: %s",
        '{"name": "DB_PASSWORD", "value": "%s"}',
        "| HF_TOKEN | %s |",
        "HF_TOKEN\t%s",
        "huggingface_hub.login('%s')",
        "密码为%s",
        "ＡＰＩ＿ＫＥＹ＝%s",
        "API_KEY＝“%s”",
        "T0KEN=%s",
        "Authorization: Basic %s",
        "ENV API_KEY %s",
    ],
)
def test_no_form_of_a_secret_is_left(text: str):
    """Whoever asks gets none: `masked` is the one door of `explain`, of the paste box and of `lint`."""
    given = text.replace("%s", SECRET)
    found, count = masked(given)
    assert SECRET[:10] not in found
    assert count == 1
    assert masked(found) == (found, 0)
    assert found.count("\n") == given.count("\n")
    assert "PRIVATE" not in text or ("END" in text) == ("-----END" in found)
    assert "parallel_config" not in text or found.endswith("parallel_config:")


@pytest.mark.parametrize(
    "text",
    [
        "PASS: 12 tests",
        "forward_pass=True",
        "num_pass: 3",
        "auth: none",
        "git@host.com:a/b",
        "s3://b/a@b",
        "NUM_TOKENS\t4096000",
        "num_experts_per_token = chosen",
        "while (token := read()):",
        "if token == ','",
        "printf %s TOKEN | sha256sum",
        '("num_experts_per_token", "moe_topk")',
        "tokenize='byte-level'",
    ],
)
def test_what_only_sounds_like_a_secret_is_kept(text):
    assert masked(text) == (text, 0)
