"""Pastes as people make them: half, two in one, tabs, wide punctuation, misread characters, of other frameworks, secrets."""

from __future__ import annotations

import pytest

from perfkit.config.lint import lint_text
from perfkit.explain.fragments import explain_fragment

READ = {
    "parallel_config:\n\tdata_parallel: 8": ["keys"],
    "parallel_config：\n  data_parallel：８": ["keys"],
    "—tensor-model-parallel-size 8\n–pipeline-model-parallel-size 2": ["options"],
    "$ export HCCL_BUFFSIZE=200\n[root@node1 ~]# msrun --worker_num=8 run.py": ["environment", "launch"],
    "1 parallel_config:\n2   data_parallel: 8": ["keys"],
    " parallel_config:\n-  data_parallel: 8\n+  data_parallel: 4": ["keys"],
    "[parallelism]\ntensor_parallel_degree = 8\n\n[training]\nseq_len = 8192": ["toml_tables"],
    "parallel_config:\n  data_parallel: 8\n\nexport MS_ALLOC_CONF=enable_vmm:True": ["keys", "environment"],
    "MODEL_ARGS:\n  --tensor-model-parallel-size: 2": ["keys", "options"],
    "compute_environment: LOCAL_MACHINE\ndistributed_type: FSDP": ["keys"],
}
HALVES = (
    "recompute_config:\n  recompute: [4, 0",
    '{"server_count": "1", "server_list": [{"device": [',
    "2024-05-01 10:00:00,1 - mindformers - INFO - { Epoch:[  1/  1], step:[   10/ 10",
    "%101(x) = AllReduce(%100) {instance",
    "export HCCL_BUFFSIZE=",
    "msrun --worker_num=16 --local_worker_num=",
    "[parallelism]\ntensor_parallel_degree =",
)
SECRETS = (
    "export WANDB_API_KEY=0123456789abcdef0123456789abcdef01234567",
    "msrun --worker_num=8 run.py --wandb-key 0123456789abcdef0123456789abcdef01234567",
    "--hidden-size 64 --password 0123456789abcdef0123456789abcdef01234567",
    "obs:\n  sk: 0123456789abcdef0123456789abcdef01234567",
    "export PROXY=http://user:0123456789abcdef0123456789abcdef01234567@proxy:8080",
    "curl -H 'Authorization: Bearer 0123456789abcdef0123456789abcdef01234567'",
)


@pytest.mark.parametrize("text", READ)
def test_a_paste_is_read_without_a_false_error(text):
    found = explain_fragment(text)
    assert [part.kind for part in found.parts] == READ[text]
    assert found.prose == ()
    errors = [one.message for one in found.problems if one.severity == "error" and "\t" not in text]
    assert errors == []


@pytest.mark.parametrize("text", HALVES)
def test_half_a_piece_is_answered_and_checked(text):
    found = explain_fragment(text)
    assert found.parts
    assert found.text
    for name in ("piece.yaml", "piece.sh", "piece.txt"):
        lint_text(name, text)


@pytest.mark.parametrize("text", SECRETS)
def test_a_secret_is_shown_nowhere(text):
    found = explain_fragment(text)
    shown = found.text + str(found.to_dict())
    assert "0123456789abcdef" not in shown
    assert any("secret" in note for note in found.notes)


def test_what_only_sounds_like_a_key_is_kept():
    text = "train_dataset:\n  input_key: input_ids_and_labels_of_the_packed_set\n  num_keys: 8"
    assert explain_fragment(text).notes == ()


@pytest.mark.parametrize("value", ["l", "0", "-3", "99999999999999999999", "<b>", "2.5", "True"])
def test_a_size_that_no_job_has_is_an_error_by_itself(value):
    found = explain_fragment(f"parallel_config:\n  data_parallel: {value}\n")
    assert [one.rule for one in found.problems if one.severity == "error"] == ["size-impossible"]
    assert not explain_fragment("parallel_config:\n  data_parallel: $DP\n").problems
