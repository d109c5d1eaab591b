"""Megatron facts: the settings that a Megatron-LM, Megatron-DeepSpeed or MindSpeed log states before its first iteration.

Sources in the log: the dump of all arguments (`  hidden_size ......... 6144`), the line `using world size: 64, ...` and the line
about the padded vocabulary. Names become those of the specs; `None` in the dump is no statement.
"""

from __future__ import annotations

import re

from perfkit.record.formats.logs._log import Log

NAMES = {
    "num_layers": "num_layers",
    "hidden_size": "hidden_size",
    "ffn_hidden_size": "ffn_hidden_size",
    "num_attention_heads": "num_attention_heads",
    "num_query_groups": "num_key_value_heads",
    "kv_channels": "head_size",
    "padded_vocab_size": "vocab_size",
    "max_position_embeddings": "max_position_embeddings",
    "num_experts": "num_experts",
    "moe_router_topk": "num_experts_per_token",
    "moe_ffn_hidden_size": "expert_ffn_hidden_size",
    "seq_length": "seq_length",
    "micro_batch_size": "micro_batch_size",
    "global_batch_size": "global_batch_size",
    "params_dtype": "dtype",
    "world_size": "num_devices",
    "data_parallel_size": "data_parallel_size",
    "tensor_model_parallel_size": "tensor_parallel_size",
    "pipeline_model_parallel_size": "pipeline_parallel_size",
    "virtual_pipeline_model_parallel_size": "virtual_pipeline_parallel_size",
    "context_parallel_size": "context_parallel_size",
    "expert_model_parallel_size": "expert_parallel_size",
    "sequence_parallel": "sequence_parallel",
    "recompute_granularity": "recompute_granularity",
    "recompute_method": "recompute_method",
    "recompute_num_layers": "recompute_num_layers",
    "checkpoint_activations": "checkpoint_activations",
    "log_interval": "log_interval",
    "train_iters": "train_iters",
}

_ARGUMENT = re.compile(r"(?:^|\s)(\w+) \.{2,} (\S.{0,300}?)\s*$")
_WORLD = re.compile(r"using world size: ?(\d{1,9})")
_SIZE = re.compile(r"\b(data|tensor-model|pipeline-model|context|expert-model)-parallel(?:-| )size: ?(\d{1,9})")
_VOCABULARY = re.compile(r"padded vocab \(size: \d+\) with \d+ dummy tokens \(new size: (\d{1,15})\)")
_WHOLE = re.compile(r"[+-]?\d{1,18}")


def find_facts(text: str, where: str, log: Log) -> None:
    """Add the settings that one line states to the facts of `log`; `where` is its file and line number."""
    if (found := _ARGUMENT.search(text)) and found[1] in NAMES and found[2] != "None":
        log.state(NAMES[found[1]], _value(found[2]), f"{where}, {found[1]}")
    elif found := _WORLD.search(text):
        log.state("num_devices", int(found[1]), f"{where}, world size")
        for kind, size in _SIZE.findall(text):
            log.state(NAMES[f"{kind.replace('-', '_')}_parallel_size"], int(size), f"{where}, {kind}-parallel size")
    elif found := _VOCABULARY.search(text):
        log.state("vocab_size", int(found[1]), f"{where}, padded vocab")


def _value(text: str) -> int | float | str:
    if text in ("True", "False"):
        return text == "True"
    if _WHOLE.fullmatch(text):
        return int(text)
    try:
        return float(text)
    except ValueError:
        return text.removeprefix("torch.")
