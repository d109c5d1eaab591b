"""Every fragment of the guides in Chinese: no sentence of its explanation is English, in the paste box and in a terminal."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

import perfkit
from perfkit.core.resources import data_folder
from perfkit.core.texts import told
from perfkit.explain.fragments import explain_fragment
from perfkit.explain.fragments.explained import Explained
from tests.explain.fragments.test_explained import WANTED, text_of

ENGLISH = re.compile(r"(?<![\w./_-])[a-z]{2,}(?:,? [a-z]{2,}){2,}")
MORE = {
    "a rank table": '{"version": "1.0", "server_count": "2", "server_list": [{"device": [{"rank_id": "0"}, {"rank_id": "0"}]}]}',
    "a launch line": "msrun --worker_num=16 --local_worker_num=8 run.py --config a.yaml --run_mode train > out.log",
    "options": "--tensor-model-parallel-size 8 --pipeline-model-parallel-size 2",
    "DeepSpeed": '{"train_batch_size": 7, "train_micro_batch_size_per_gpu": 2, "gradient_accumulation_steps": 2,'
    ' "zero_optimization": {"stage": 3, "offload_param": {"device": "cpu"}}, "bf16": {"enabled": true}}',
    "keys above their parents": "    data_parallel: 8\nrecompute_config:\n  recompute: [4, 0]",
    "members without braces": '"zero_optimization": {"stage": 3},\n"bf16": {"enabled": true}',
    "variables of a command": "A_B9=1 torchrun --nproc_per_node=8 train.py --num-layers 2 --swap-optimizer --fancy-option 3",
    "settings of experts": "moe_config:\n  expert_num: 64\n  aux_loss_factor: 0.05\ncontext:\n  mode: 1",
    "a comma behind a size": "parallel_config:\n  pipeline_stage: 2，",
    "a misspelled key": "paralel_config:\n  data_parallel: 8",
    "half a list": "recompute: [4, 0",
    "a list": "[4, 0]",
    "wide punctuation": "parallel_config：\n  data_parallel：８",
    "a tab": "parallel_config:\n\tdata_parallel: 8",
    "a table": "| a | b |\n|---|---|\n| 1 | 2 |",
    "a secret": "export WANDB_API_KEY=0123456789abcdef0123456789abcdef01234567",
    "tables of TOML": "[parallelism]\ntensor_parallel_degree = 8\n[compile]\nenable = true",
    "a prompt": "[root@node1 ~]# export HCCL_BUFFSIZE=200",
    "a diff": " parallel_config:\n-  data_parallel: 8\n+  data_parallel: 0",
    "line numbers": "7 parallel_config:\n8   data_parallel: 8",
    "a formula": "$$ 12bLsh^2 $$",
    "sizes on one line": "TP=2 PP=4 GBS=512",
    "a log of DeepSpeed": "[2024-05-07 10:00:05,123] [INFO] [timer.py:260:stop] epoch=0/micro_step=80/global_step=10,"
    " RunningAvgSamplesPerSec=12.5, CurrSamplesPerSec=12.8, MemAllocated=21.3GB, MaxMemAllocated=45.1GB",
}


def _said(found: Explained) -> Iterator[str]:
    yield from found.notes
    for part in found.parts:
        yield from (part.title, part.belongs, *part.says)
        yield from (text for one in part.figures for text in (one.name, one.source))
        yield from (text for one in part.problems for text in (one.message, one.fix))


def _english(text: str, pasted: str) -> list[str]:
    return [one for one in ENGLISH.findall(re.sub(r"`[^`]*`", "", text)) if one not in pasted]


@pytest.mark.parametrize("name", [*sorted(WANTED), *MORE])
def test_no_sentence_about_a_fragment_is_english(name, monkeypatch):
    monkeypatch.setenv("PERFKIT_LANGUAGE", "zh")
    pasted = MORE[name] if name in MORE else text_of(name)
    plan = perfkit.read_config(data_folder() / "configs" / "llama2_13b.toml")
    for light in (None, plan):
        found = explain_fragment(pasted, light)
        assert found.parts
        assert {text: left for text in _said(found) if (left := _english(told(text), pasted))} == {}
        assert _english(found.text, pasted + "".join(part.corrected for part in found.parts)) == []


def test_what_is_english_would_be_found(monkeypatch):
    monkeypatch.setenv("PERFKIT_LANGUAGE", "en")
    found = explain_fragment(MORE["a rank table"])
    assert any(_english(told(text), MORE["a rank table"]) for text in _said(found))
